"""Records that Kafka would refuse are rejected while it is known which one is to blame."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy
import pytest

from kafka_pipeline import (
    Batch,
    InvalidArgumentError,
    ProcessorContext,
    Record,
    StreamsError,
    TopologyBuilder,
)
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.outputs import OutputColumns
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.nodes import Each, Nodes, Tasks, batch, calling, calling_whole, chain

BAD_TIMESTAMPS = [
    (1.5, "of the type float"),
    (None, "of the type NoneType"),
    ("1", "of the type str"),
    (True, "of the type bool"),
    (-1, "that is negative"),
    (2**63, "beyond 2**63 - 1 ms"),
]
BAD_HEADERS: list[tuple[Any, str]] = [
    ({"h": b"1"}, "a dict"),
    ("h", "a str"),
    (["h1"], "a str in it that is not a pair"),
    ([("h",)], "a tuple in it that is not a pair"),
    ([(b"h", b"1")], "a name of the type bytes"),
    ([("h", "1")], "a value of the type str"),
    ([("h", None), ("h", 1)], "a value of the type int"),
]
BOTH = pytest.mark.parametrize("is_batch", [False, True])


def sending(timestamp: Any, headers: Any, is_batch: bool) -> Nodes:
    """Return nodes that forward `b"bad"` with these, and other values as they are."""

    def send(context: ProcessorContext, given: Record) -> None:
        context.forward(
            Record(None, b"bad", timestamp, headers) if given.value == b"bad" else given
        )

    def send_whole(context: ProcessorContext, given: Batch) -> None:
        is_bad = [value == b"bad" for value in given.values]
        times = [timestamp if bad else 0 for bad in is_bad]
        context.forward(
            Batch(given.keys, given.values, times, [headers if bad else () for bad in is_bad])
        )

    return Nodes(chain(calling_whole(send_whole) if is_batch else calling(send)))


def rejected(nodes: Nodes) -> list[tuple[int, str]]:
    found = nodes.process(batch([b"1", b"bad", b"2"]))
    assert nodes.values == [b"1", b"2"]
    assert all(isinstance(each.error, InvalidArgumentError) for each in found)
    return [(each.index, str(each.error)) for each in found]


@BOTH
@pytest.mark.parametrize(("timestamp", "what"), BAD_TIMESTAMPS)
def test_a_timestamp_that_kafka_has_not_rejects_the_record_alone(
    timestamp: Any, what: str, is_batch: bool
) -> None:
    message = f'sink "sink" got a timestamp {what}: give an int, 0 to 2**63 - 1, in milliseconds'
    assert rejected(sending(timestamp, (), is_batch)) == [(1, message)]


@BOTH
@pytest.mark.parametrize(("headers", "what"), BAD_HEADERS)
def test_headers_that_kafka_has_not_reject_the_record_alone(
    headers: Any, what: str, is_batch: bool
) -> None:
    message = (
        f'sink "sink" got headers with {what}: give a list of pairs of a string and bytes, or None'
    )
    assert rejected(sending(0, headers, is_batch)) == [(1, message)]


@BOTH
def test_what_kafka_takes_passes(is_batch: bool) -> None:
    nodes = sending(2**63 - 1, [["h", b"1"], ("h", None)], is_batch)
    assert nodes.process(batch([b"bad"])) == []
    (output,) = nodes.runtime.outputs
    if isinstance(output, OutputColumns):
        assert output.headers is not None
        timestamp, headers = output.timestamps[0], output.headers[0]
    else:
        assert isinstance(output, tuple)
        timestamp, headers = output[4:]
    assert (timestamp, headers) == (2**63 - 1, [("h", b"1"), ("h", None)])


@pytest.mark.parametrize("column", [array("q", [3, 4]), numpy.array([3, 4])], ids=type)
def test_columns_of_numbers_may_be_arrays(column: Sequence[int]) -> None:
    def send(context: ProcessorContext, given: Batch) -> None:
        context.forward(Batch(given.keys, given.values, column))

    nodes = Nodes(chain(calling_whole(send)))
    assert nodes.process(batch([b"1", b"2"])) == []
    (output,) = nodes.runtime.outputs
    assert isinstance(output, OutputColumns)
    assert [(type(each), each) for each in output.timestamps] == [(int, 3), (int, 4)]


def test_on_error_decides_about_such_a_record() -> None:
    late: Any = 1.5
    bad = calling(lambda context, record: context.forward(record.with_timestamp(late)))
    task = Tasks(chain(bad), GroupSettings(on_error=OnError.DEAD_LETTER, dead_letter_topic="dead"))
    assert task.run(batch([b"1"])) == [("dead", None, b"1", 0)]


def choosing(choose: Callable[[Record], str]) -> Nodes:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_sink("sink", choose, "source")
    (group,) = builder.build().groups
    return Nodes(group)


def test_a_topic_that_kafka_refuses_rejects_the_record_that_chose_it() -> None:
    nodes = choosing(lambda record: record.value.decode())
    (rejection,) = nodes.process(batch([b"a", b"b c", b"d"]))
    assert isinstance(rejection.error, StreamsError)
    assert str(rejection.error).startswith(
        'sink "sink" got "b c" from its function, which has the character " "'
    )
    assert [topic for topic, *_ in nodes.sent] == ["a", "d"]


# The test driver


def pipe(**given: Any) -> None:
    group = chain(Each)
    builder = TopologyBuilder()
    builder.add_source("source", group.in_topics)
    builder.add_sink("sink", "out", "source")
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("in").pipe_input(b"k", b"v", **given)
        assert driver.create_output_topic("out").size == 1


@pytest.mark.parametrize("timestamp", [1.5, "1", True, -2, 2**63])
def test_a_test_cannot_pipe_in_a_timestamp_that_kafka_has_not(timestamp: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^topic in got a timestamp .*give an int, -1"):
        pipe(timestamp=timestamp)


@pytest.mark.parametrize("headers", [headers for headers, _ in BAD_HEADERS])
def test_a_test_cannot_pipe_in_headers_that_kafka_has_not(headers: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^topic in got headers with a"):
        pipe(headers=headers)


@pytest.mark.parametrize("given", [{"timestamp": 0}, {"headers": [("h", None)]}, {"headers": ()}])
def test_a_test_can_pipe_in_what_kafka_takes(given: Any) -> None:
    pipe(**given)


@pytest.mark.parametrize("bad", ["text", 1, bytearray(b"1")])
@pytest.mark.parametrize("column", ["keys", "values"])
def test_columns_in_place_of_those_that_were_read_are_looked_at(column: str, bad: Any) -> None:
    def swap(context: ProcessorContext, given: Batch) -> None:
        other = given.with_values([*given.values])
        items: Any = [bad if item == b"bad" else item for item in given.values]
        is_keys = column == "keys"
        context.forward(replace(other, keys=items) if is_keys else replace(other, values=items))

    tasks = Tasks(chain(calling_whole(swap)), GroupSettings(on_error=OnError.SKIP))
    values = [b"a", b"bad", None, b"b"]
    sent = tasks.run(batch(values, keys=[b"k"] * 4))
    assert len(sent) == 3
    assert all(type(value) in (bytes, type(None)) for _, *pair, _ in sent for value in pair)


def test_timestamps_in_place_of_those_that_were_read_are_looked_at() -> None:
    def turn_back(context: ProcessorContext, given: Batch) -> None:
        context.forward(replace(given.with_values(given.values), timestamps=[-1] * len(given)))

    tasks = Tasks(chain(calling_whole(turn_back)), GroupSettings(on_error=OnError.SKIP))
    assert tasks.run(batch([b"a", b"b"])) == []


def test_null_keys_among_columns_as_they_were_read_get_a_partition() -> None:
    tasks = Tasks(
        chain(calling_whole(lambda context, given: context.forward(given))), GroupSettings()
    )
    sent = tasks.run(batch([b"a", b"b"], keys=[None, b"k"]))
    assert [(key, partition) for _, key, _, partition in sent] == [(None, 0), (b"k", -1)]
