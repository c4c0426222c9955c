"""The test driver with several records at once, like a poll of a consumer."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pipeline import (
    Batch,
    BatchProcessor,
    InvalidArgumentError,
    Record,
    Topology,
    TopologyBuilder,
)
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.nodes import Each, Whole

RECORDS = [
    Record(b"a", b"1", 5),
    Record(b"b", b"2", 4, (("trace", b"t"),)),
    Record(None, b"3", 6),
]


class Sizes(BatchProcessor):
    """Forwards batches, and keeps their sizes in `seen`, which all of them share."""

    def __init__(self, seen: list[int]) -> None:
        self.seen = seen

    def process(self, batch: Batch) -> None:
        self.seen.append(len(batch))
        self.context.forward(batch)


def one(supplier: Any) -> Topology:
    """Return a processor between `in` and `out`."""
    builder = TopologyBuilder()
    builder.add_source("source", "in").add_processor("p", supplier, "source")
    return builder.add_sink("sink", "out", "p").build()


def two(first: list[int], second: list[int]) -> Topology:
    """Return two groups of a `Sizes` each, with a topic between them."""
    builder = TopologyBuilder()
    builder.add_source("in", "in").add_processor("first", lambda: Sizes(first), "in")
    builder.add_sink("between", "middle", "first").add_internal_topic("middle")
    builder.add_source("middle", "middle").add_processor("second", lambda: Sizes(second), "middle")
    return builder.add_sink("sink", "out", "second").build()


def test_a_batch_is_processed_in_one_call_and_goes_on_as_one() -> None:
    first: list[int] = []
    second: list[int] = []
    with TopologyTestDriver(two(first, second)) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_batch(RECORDS)
        assert (first, second) == ([3], [3])
        assert driver.create_output_topic("out").read_records() == RECORDS
        topic.pipe_records(RECORDS)
        assert (first, second) == ([3, 1, 1, 1], [3, 1, 1, 1])


def test_keys_decide_about_the_partitions_of_a_batch() -> None:
    with TopologyTestDriver(one(Whole), partitions={"out": 50}) as driver:
        topic, out = driver.create_input_topic("in"), driver.create_output_topic("out")
        topic.pipe_batch([Record(b"%d" % number, b"v", 0) for number in range(20)])
        of_batch = [record.partition for record in out.read_records()]
        topic.pipe_records([Record(b"%d" % number, b"v", 0) for number in range(20)])
        assert of_batch == [record.partition for record in out.read_records()]
        assert len(set(of_batch)) > 10


def test_a_processor_of_records_takes_a_batch_one_by_one() -> None:
    with TopologyTestDriver(one(Each)) as driver:
        driver.create_input_topic("in").pipe_batch(iter(RECORDS))
        assert driver.create_output_topic("out").read_records() == RECORDS


def test_only_the_record_at_fault_is_left_out() -> None:
    settings = {"source": GroupSettings(on_error=OnError.SKIP)}
    with TopologyTestDriver(one(Whole), settings=settings) as driver:
        values = [b"1", b"bad", b"3", b"4"]
        driver.create_input_topic("in").pipe_batch([Record(b"k", value, 0) for value in values])
        out = driver.create_output_topic("out").read_key_values()
        assert [value for _, value in out] == [b"1", b"3", b"4"]
        assert driver.metrics["skipped_records_total"] == 1


def test_what_failed_leaves_those_before_it() -> None:
    with TopologyTestDriver(one(Whole)) as driver:
        values = [b"1", b"bad", b"3"]
        with pytest.raises(ValueError, match="no good"):
            driver.create_input_topic("in").pipe_batch([Record(b"k", value, 0) for value in values])
        assert driver.create_output_topic("out").read_key_values() == [(b"k", b"1")]


def test_a_batch_with_a_record_that_cannot_be_is_not_written_at_all() -> None:
    with TopologyTestDriver(one(Each)) as driver:
        with pytest.raises(InvalidArgumentError, match="timestamp"):
            driver.create_input_topic("in").pipe_batch([*RECORDS, Record(b"k", b"v", -7)])
        assert driver.create_output_topic("in").size == 0


def test_a_batch_of_nothing_does_nothing() -> None:
    with TopologyTestDriver(one(Whole)) as driver:
        driver.create_input_topic("in").pipe_batch([])
        assert driver.create_output_topic("out").size == 0
