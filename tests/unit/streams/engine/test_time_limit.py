"""Timestamps that are too far ahead of the clock: they must not move event time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kafka_pipeline import (
    AsyncProcessor,
    Batch,
    BatchProcessor,
    FieldTimestampExtractor,
    Processor,
    Record,
    RecordRejectedError,
    StreamsBuilder,
    TopologyBuilder,
    serdes,
    windows,
)
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.time_limit import unit_advice
from kafka_pipeline.streams.engine.topology import Topology
from kafka_pipeline.streams.errors import InvalidTimestampError
from kafka_pipeline.testing import TopologyTestDriver

NOW_MS = 1_732_280_000_000
DAY_MS = 86_400_000
MICROS, NANOS = NOW_MS * 1000, NOW_MS * 1_000_000
DEAD_LETTER = GroupSettings(OnError.DEAD_LETTER, "dead")


def driver_of(topology: Topology, settings: GroupSettings = DEAD_LETTER) -> TopologyTestDriver:
    return TopologyTestDriver(
        topology,
        initial_wall_clock_ms=NOW_MS,
        max_timestamp_ahead_ms=DAY_MS,
        settings={group.name: settings for group in topology.groups},
    )


def letters(driver: TopologyTestDriver) -> list[str]:
    """Return the reasons of the dead letters, without the places in user code."""
    records = driver.create_output_topic("dead").read_records()
    errors = {dict(record.headers)["__streams.errors.exception"] for record in records}
    assert errors <= {b"InvalidTimestamp"}
    found = [dict(record.headers)["__streams.errors.message"] or b"" for record in records]
    return [message.decode().partition(" (tests/")[0] for message in found]


def counts_per_minute(builder: StreamsBuilder, stream: Any) -> Topology:
    minutes = stream.group_by_key().windowed_by(windows.tumbling(60_000, grace_ms=0))
    counted = minutes.count(name="counts").to_stream()
    counted.select_key(lambda windowed, _: windowed.key).to("out", value_serde=serdes.json)
    return builder.build()


def pipe(driver: TopologyTestDriver, timestamps: Sequence[int]) -> list[Any]:
    """Write a record at each of these times, as one batch; return all counts so far."""
    records = [Record(b"k", b"v", timestamp) for timestamp in timestamps]
    driver.create_input_topic("in").pipe_batch(records)
    return values_of(driver)


def values_of(driver: TopologyTestDriver) -> list[Any]:
    topic = driver.create_output_topic("out", value_serde=serdes.json)
    return [value for _, value in topic.read_key_values()]


@pytest.mark.parametrize(
    ("wrong", "unit"), [(MICROS, "microseconds"), (NANOS, "nanoseconds"), (2**63 - 1, "")]
)
def test_a_wrong_unit_does_not_make_all_that_follows_late(wrong: int, unit: str) -> None:
    """SPARK-56243."""
    builder = StreamsBuilder()
    with driver_of(counts_per_minute(builder, builder.stream("in"))) as driver:
        assert pipe(driver, [NOW_MS, wrong, NOW_MS + 1]) == [1, 2]
        (reason,) = letters(driver)
        advice = f"; it looks like {unit}, and must be in milliseconds" if unit else ""
        assert reason == (
            f"the record has the timestamp {wrong}, which is more than 86400000 ms ahead of the "
            f"clock (max_timestamp_ahead_ms in config.yaml){advice}"
        )
        assert pipe(driver, [NOW_MS + 2]) == [1, 2, 3]
        assert driver.metrics["dropped_records_total"] == 0


def test_up_to_the_limit_all_times_are_right_and_it_moves_with_the_clock() -> None:
    builder = StreamsBuilder()
    with driver_of(counts_per_minute(builder, builder.stream("in"))) as driver:
        assert pipe(driver, [NOW_MS + DAY_MS]) == [1]
        pipe(driver, [NOW_MS + DAY_MS + 1])
        assert len(letters(driver)) == 1
        driver.advance_wall_clock_time(1)
        assert pipe(driver, [NOW_MS + DAY_MS + 1]) == [1, 2]
        assert len(letters(driver)) == 1


def test_records_of_the_past_are_all_right() -> None:
    """A backlog, a savepoint that is restored later, a time in seconds: it is late at most."""
    builder = StreamsBuilder()
    with driver_of(counts_per_minute(builder, builder.stream("in"))) as driver:
        assert pipe(driver, [0, NOW_MS // 1000, NOW_MS - 900 * DAY_MS, NOW_MS]) == [1, 1, 1, 1]
        assert letters(driver) == []


def test_a_time_from_an_extractor_has_the_limit_too() -> None:
    builder = StreamsBuilder()
    at = FieldTimestampExtractor("at")
    stream: Any = builder.stream("in", value_serde=serdes.json, timestamp_extractor=at)
    with driver_of(counts_per_minute(builder, stream)) as driver:
        topic = driver.create_input_topic("in", value_serde=serdes.json)
        for time in (NOW_MS, MICROS, NOW_MS + 1):
            topic.pipe_input(b"k", {"at": time}, timestamp=0)
        assert values_of(driver) == [1, 2]
        assert len(letters(driver)) == 1


class Stamping(Processor):
    """Takes the value as the time."""

    def process(self, record: Record) -> None:
        self.context.forward(record.with_timestamp(int(record.value)))


class StampingWhole(BatchProcessor):
    """The same with columns."""

    def process(self, batch: Batch) -> None:
        times = list(map(int, batch.values))
        self.context.forward(Batch(batch.keys, batch.values, times))


class StampingLater(AsyncProcessor):
    """The same in coroutines."""

    async def process(self, record: Record) -> Record:
        return record.with_timestamp(int(record.value))


def stamped_by(kind: Callable[[], Any]) -> Topology:
    builder = TopologyBuilder()
    builder.add_source("in", "in", value_serde=serdes.string)
    builder.add_processor("P", kind, "in")
    builder.add_sink("out", "out", "P", value_serde=serdes.string)
    return builder.build()


@pytest.fixture(params=[Stamping, StampingWhole, StampingLater])
def stamping(request: pytest.FixtureRequest) -> Iterator[TopologyTestDriver]:
    with driver_of(stamped_by(request.param)) as driver:
        yield driver


def test_a_time_that_user_code_gives_has_the_limit_too(stamping: TopologyTestDriver) -> None:
    times = [NOW_MS, MICROS, NOW_MS + DAY_MS, NOW_MS + DAY_MS + 1, 5]
    records = [Record(b"k", str(time), 7) for time in times]
    stamping.create_input_topic("in", value_serde=serdes.string).pipe_batch(records)
    found = stamping.create_output_topic("out").read_records()
    assert [record.timestamp for record in found] == [NOW_MS, NOW_MS + DAY_MS, 5]
    first, second = letters(stamping)
    assert f" result has the timestamp {MICROS}, which is more than 86400000 ms ahead" in first
    assert first.endswith("; it looks like microseconds, and must be in milliseconds")
    assert second.endswith("(max_timestamp_ahead_ms in config.yaml)")


def test_without_values_the_reason_has_no_timestamp() -> None:
    builder = StreamsBuilder()
    topology = counts_per_minute(builder, builder.stream("in"))
    with driver_of(topology, GroupSettings()) as driver:
        with pytest.raises(RecordRejectedError) as caught:
            pipe(driver, [MICROS])
        found = caught.value.__cause__
        assert isinstance(found, InvalidTimestampError)
        assert str(MICROS) in str(found)
        assert found.shown.startswith("the record has a timestamp that is more than")


def test_a_driver_has_no_limit_unless_it_is_given_one() -> None:
    """Its wall clock stands at 0 by default."""
    builder = StreamsBuilder()
    topology = counts_per_minute(builder, builder.stream("in"))
    with TopologyTestDriver(topology) as driver:
        assert pipe(driver, [MICROS]) == [1]


@pytest.mark.parametrize(
    ("timestamp", "unit"),
    [(NOW_MS // 1000, "seconds"), (MICROS, "microseconds"), (NANOS, "nanoseconds"), (NOW_MS, "")],
)
def test_the_unit_of_a_timestamp_is_seen(timestamp: int, unit: str) -> None:
    advice = unit_advice(timestamp)
    assert (f"it looks like {unit}," in advice) if unit else advice == ""
