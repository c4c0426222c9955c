"""Dropped records: counted by reason and place, and reported."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from kafka_pipeline import (
    LogAndSkipOnInvalidTimestamp,
    ProcessorContext,
    Record,
    TopologyBuilder,
    serdes,
    stores,
)
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.outputs import Dropped, described
from kafka_pipeline.streams.stores import StoreBuilder, Window, Windowed
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.nodes import Each, Nodes, Tasks, batch, calling, chain

SKIP = GroupSettings(on_error=OnError.SKIP)
LATEST = 10_000_000
WINDOWS = stores.window(
    "kept", serdes.string, serdes.integer, retention_ms=1000, window_size_ms=10, persistent=False
)
SESSIONS = stores.session("kept", serdes.string, serdes.integer, retention_ms=1000)
VERSIONS = stores.versioned_key_value(
    "kept", serdes.string, serdes.integer, history_retention_ms=1000
)


def put(store: Any, time: int) -> None:
    """Put a value at a time, whatever kind of store it is."""
    match store:
        case stores.SessionStore():
            store.put(Windowed("k", Window(time, time)), 1)
        case _:
            store.put("k", 1, time)


def keeping(store: StoreBuilder[Any, Any]) -> NodeGroup:
    """Return nodes that put each record's time into a store, and fail at the value `bad`."""

    def process(context: ProcessorContext, record: Record) -> None:
        put(context.get_state_store("kept"), record.timestamp)
        if record.value == b"bad":
            raise ValueError("no good")

    builder = TopologyBuilder()
    builder.add_source("source", "in").add_processor("keep", calling(process), "source")
    (group,) = builder.add_state_store(store, "keep").build().groups
    return group


@pytest.mark.parametrize("store", [WINDOWS, SESSIONS, VERSIONS], ids=lambda s: s.family)
def test_what_comes_too_late_for_a_store_counts_as_expired(store: StoreBuilder[Any, Any]) -> None:
    task = Tasks(keeping(store), SKIP)
    task.task.add(batch([b"1", b"2", b"3"], timestamps=[LATEST, 5, 6]))
    task.task.step(0, task.partitions)
    assert task.task.take()[1].dropped == {Dropped("expired", "kept"): 2}
    assert task.task.take()[1].dropped == {}
    task.task.add(batch([b"4"], timestamps=[7], offset=3))
    task.task.step(0, task.partitions)
    assert task.task.take()[1].dropped == {Dropped("expired", "kept"): 1}


@pytest.mark.parametrize("store", [WINDOWS, SESSIONS, VERSIONS], ids=lambda s: s.family)
def test_what_a_rejected_record_put_too_late_does_not_count(store: StoreBuilder[Any, Any]) -> None:
    task = Tasks(keeping(store), SKIP)
    task.task.add(batch([b"1", b"bad", b"3"], timestamps=[LATEST, 5, 6]))
    task.task.step(0, task.partitions)
    figures = task.task.take()[1]
    assert figures.skipped == 1
    assert figures.dropped_by_reason == {"expired": 1}


def test_the_driver_tells_reasons_and_the_sum() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in", timestamp_extractor=LogAndSkipOnInvalidTimestamp())
    builder.add_processor("each", Each, "source")
    builder.add_sink("none", "nowhere", "each", partitioner=lambda *_: set())
    with TopologyTestDriver(builder) as driver:
        assert driver.dropped_records == {}
        source = driver.create_input_topic("in")
        for timestamp in (-1, 3, 4):
            source.pipe_input(b"k", b"v", timestamp=timestamp)
        assert driver.dropped_records == {"invalid timestamp": 1, "partitioner": 2}
        assert driver.metrics["dropped_records_total"] == 3


@pytest.mark.parametrize("reason", [None, ["late"], ValueError("late")])
def test_a_reason_that_is_no_string_rejects_the_record(reason: Any) -> None:
    def process(context: ProcessorContext, record: Record) -> None:
        context.drop(reason)

    nodes = Nodes(chain(calling(process)))
    (rejected,) = nodes.process(batch([b"a"]))
    kind = type(reason).__name__
    assert str(rejected.error) == f'"0" drops a record for a {kind}: give the reason as a string'


def test_half_of_a_surrogate_pair_in_a_reason_becomes_an_escape() -> None:
    """It may come from a record. A report of the worker's tasks with it could not be read."""
    drop = calling(lambda context, record: context.drop(f"no country {record.value}"))
    builder = TopologyBuilder()
    builder.add_source("source", "in", value_serde=serdes.json())
    builder.add_processor("drop", drop, "source")
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("in").pipe_input(None, b'"\\ud83d"')
        assert driver.dropped_records == {"no country \\ud83d": 1}


def test_places_of_one_reason_are_told_apart() -> None:
    dropped = {Dropped("partitioner", "a"): 2, Dropped("partitioner", "b"): 1}
    assert described(dropped) == {"a: partitioner": 2, "b: partitioner": 1}


def test_records_that_are_skipped_for_their_timestamps_are_logged_without_their_content() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in", timestamp_extractor=LogAndSkipOnInvalidTimestamp())
    (group,) = builder.add_sink("sink", "out", "source").build().groups
    task = Tasks(group, SKIP, number=2)
    times = [7, *[-1] * 10]
    with capture_logs() as logs:
        task.task.add(batch([b"1"] * 11, timestamps=times, partition=2, offset=40))
    assert logs == [
        {
            "event": "record without a valid timestamp is skipped",
            "topic": "in",
            "partition": 2,
            "offset": 40 + total,
            "total": total,
            "log_level": "warning",
        }
        for total in (1, 2, 4, 8)
    ]
