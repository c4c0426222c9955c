"""A node group and bad records: what a failure undoes, and how the bad ones are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline import (
    Batch,
    BatchProcessor,
    ProcessorContext,
    Record,
    RecordRejectedError,
    StreamsError,
    TopologyBuilder,
    serdes,
)
from kafka_pipeline.common.errors import EngineError, PipelineError
from kafka_pipeline.common.record_batch import KafkaHeaders
from kafka_pipeline.common.topics import TopicLimits
from kafka_pipeline.streams.builtin.forward import ForwardProcessor
from kafka_pipeline.streams.engine.outputs import OutputColumns
from tests.unit.streams.nodes import (
    SEEN,
    CountSeen,
    CountSeenWhole,
    Each,
    Nodes,
    OutputTopics,
    Whole,
    batch,
    calling,
    calling_whole,
    chain,
    content,
    fork,
)

# What a failure undoes

STATEFUL = {
    "record by record": (CountSeen, Each),
    "batches": (CountSeenWhole, Whole),
    "records into batches": (CountSeen, Whole),
    "batches into records": (CountSeenWhole, Each),
}


@pytest.mark.parametrize("kinds", STATEFUL)
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_a_record_that_fails_at_any_depth_leaves_no_trace(kinds: str, depth: int) -> None:
    counting, failing = STATEFUL[kinds]
    nodes = Nodes(chain(counting, *[ForwardProcessor] * depth, failing, uses=[0]))

    rejected = nodes.process(batch([b"a", b"bad", b"b", b"a", b"bad", b"bad"]))

    assert [(rejection.index, str(rejection.error)) for rejection in rejected] == [
        (1, "no good"),
        (4, "no good"),
        (5, "no good"),
    ]
    assert nodes.values == [b"a", b"b", b"a"]
    assert content(nodes.stores["seen"]) == {b"a": b"2", b"b": b"1"}


def test_what_was_stored_before_the_failed_record_stays() -> None:
    nodes = Nodes(chain(CountSeen, Each, uses=[0]))
    nodes.process(batch([b"bad"]))
    nodes.process(batch([b"a"]))
    nodes.stores["seen"].commit(1)
    nodes.process(batch([b"a", b"bad"]))
    assert content(nodes.stores["seen"]) == {b"a": b"2"}
    assert nodes.stores["seen"].uncommitted == {b"a": b"2"}


def test_a_value_that_a_serde_cannot_read_rejects_its_record_only() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in", key_serde=serdes.int32, value_serde=serdes.string)
    builder.add_processor("each", Each, "source")
    builder.add_sink("sink", "out", "each", key_serde=serdes.int32, value_serde=serdes.string)
    (group,) = builder.build().groups
    nodes = Nodes(group)
    keys = [b"\0\0\0\1", b"\0", b"\0\0\0\2", None]
    rejected = nodes.process(batch([b"a", b"b", b"\xff", b"d"], keys=keys))
    assert [(rejection.index, type(rejection.error).__name__) for rejection in rejected] == [
        (1, "SerializationError"),
        (2, "SerializationError"),
    ]
    assert nodes.values == [b"a", b"d"]


@pytest.mark.parametrize("kind", [calling, calling_whole])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("text", "the serde bytes cannot write this: it is a str"),
        (7, "the serde bytes cannot write this: it is a int"),
        (0, "the serde bytes cannot write this: it is a int"),
        (bytearray(b"x"), "the serde bytes cannot write this: it is a bytearray"),
    ],
)
def test_a_value_that_a_serde_cannot_write_rejects_the_record(
    kind: Callable[[Any], Any], value: object, message: str
) -> None:
    def send(context: ProcessorContext, given: Record | Batch) -> None:
        if isinstance(given, Record):
            context.forward(given.with_value(value))
        else:
            context.forward(given.with_values([value] * len(given)))

    nodes = Nodes(chain(kind(send)))
    (rejection,) = nodes.process(batch([b"1"]))
    assert str(rejection.error) == (
        f'{message}. This is the value for sink "sink": give it another serde, by `out_value` '
        "under serdes: in pipeline.yaml, or value_serde in the call that adds the sink"
    )
    assert nodes.sent == []


@pytest.mark.parametrize("kind", [calling, calling_whole])
def test_a_negative_timestamp_rejects_the_record(kind: Callable[[Any], Any]) -> None:
    def send(context: ProcessorContext, given: Record | Batch) -> None:
        context.forward(Batch([None], [b"x"], [-1]) if isinstance(given, Batch) else late)

    late = Record(None, b"x", -1)
    (rejection,) = Nodes(chain(kind(send))).process(batch([b"1"]))
    assert str(rejection.error) == (
        'sink "sink" got a timestamp that is negative: give an int, 0 to 2**63 - 1, in milliseconds'
    )


def test_columns_of_different_lengths_reject_the_record() -> None:
    def send(context: ProcessorContext, records: Batch) -> None:
        context.forward(Batch(records.keys, [], records.timestamps))

    nodes = Nodes(chain(calling_whole(send)))
    (rejection,) = nodes.process(batch([b"1"]))
    assert str(rejection.error) == (
        "the columns of a batch differ in length: 1 key, 0 values, 1 timestamp, 1 header"
    )
    assert nodes.sent == []


@pytest.mark.parametrize("serde", [serdes.bytes, serdes.string], ids=lambda serde: serde.name)
def test_lists_that_were_forwarded_may_be_used_for_the_next_batch(serde: Any) -> None:
    """What was forwarded waits in the task until the producer takes it."""

    class Reusing(BatchProcessor):
        def __init__(self) -> None:
            self.keys: list[Any] = []
            self.values: list[Any] = []
            self.times: list[int] = []

        def process(self, batch: Batch) -> None:
            self.keys += batch.keys
            self.values += batch.values
            self.times += batch.timestamps
            self.context.forward(Batch(self.keys, self.values, self.times))
            for column in (self.keys, self.values, self.times):
                column.clear()

    builder = TopologyBuilder()
    builder.add_source("source", "in", key_serde=serde, value_serde=serde)
    builder.add_processor("p", Reusing, "source")
    builder.add_sink("sink", "out", "p", key_serde=serde, value_serde=serde)
    nodes = Nodes(builder.build().groups[0])
    nodes.process(batch([b"1", b"2"], keys=[b"a", b"b"], timestamps=[1, 2]))
    nodes.process(batch([b"3", b"4"], keys=[b"c", b"d"], timestamps=[3, 4]))
    first, second = nodes.runtime.outputs
    assert isinstance(first, OutputColumns)
    assert isinstance(second, OutputColumns)
    assert (first.keys, first.values, first.timestamps) == ([b"a", b"b"], [b"1", b"2"], [1, 2])
    assert (second.keys, second.values, second.timestamps) == ([b"c", b"d"], [b"3", b"4"], [3, 4])


def test_more_values_than_records_are_refused() -> None:
    with pytest.raises(StreamsError, match="differ in length"):
        Batch([None], [b"1"], [0]).with_values([b"1", b"2"])
    with pytest.raises(StreamsError, match="differ in length"):
        Batch([None] * 2, [b"1", b"2"], [0, 1]).with_values([b"2"])


@pytest.mark.parametrize("processor", [Each, Whole])
@pytest.mark.parametrize(
    ("value", "headers"), [(b"x" * 150, None), (b"x" * 90, [("h", b"x" * 60)])]
)
def test_an_output_that_its_topic_does_not_take_rejects_the_record(
    processor: Any, value: bytes, headers: KafkaHeaders
) -> None:
    nodes = Nodes(chain(processor), OutputTopics(sizes={"out": 200}))
    columns = None if headers is None else [None, headers, None]
    rejected = nodes.process(batch([b"1", value, b"2"], headers=columns))
    assert [rejection.index for rejection in rejected] == [1]
    assert str(rejected[0].error) == (
        "the output is larger than the 200 bytes that topic out takes (max.message.bytes)"
    )
    assert nodes.values == [b"1", b"2"]


@pytest.mark.parametrize("processor", [Each, Whole])
def test_nothing_of_a_record_is_sent_if_one_of_two_topics_does_not_take_it(
    processor: Any,
) -> None:
    nodes = Nodes(fork(processor, a=processor, b=processor), OutputTopics(sizes={"b": 100}))
    assert len(nodes.process(batch([b"x" * 50, b"1"]))) == 1
    assert nodes.values == [b"1", b"1"]


@pytest.mark.parametrize("error", [EngineError("broker gone"), PipelineError("no such topic")])
@pytest.mark.parametrize("kind", [calling, calling_whole])
@pytest.mark.parametrize("first", [Each, ForwardProcessor])
def test_errors_of_the_engine_pass_through(
    error: Exception, kind: Callable[[Any], Any], first: Any
) -> None:
    def fail(context: ProcessorContext, given: object) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        Nodes(chain(first, kind(fail))).process(batch([b"1", b"2"]))


def test_a_topic_that_cannot_be_found_is_an_error_of_the_engine() -> None:
    class Missing(OutputTopics):
        def limits(self, topic: str) -> TopicLimits:
            raise EngineError(f"no topic {topic}")

    with pytest.raises(EngineError, match="no topic out"):
        Nodes(chain(Whole), Missing()).process(batch([b"1"]))


@pytest.mark.parametrize("kind", [Each, Whole])
def test_a_limit_that_has_changed_is_an_error_of_the_engine(kind: Any) -> None:
    """This is not the record's fault: it may not be too large any more."""
    with pytest.raises(EngineError, match="the limit of out has changed"):
        Nodes(chain(kind), OutputTopics(sizes={"out": 100}, outdated=True)).process(
            batch([b"1" * 100])
        )


# The search for bad records


class Rejecting(BatchProcessor):
    """Counts values; rejects the first value `bad`, after doing everything for those before it."""

    def __init__(self, calls: list[int]) -> None:
        self._calls = calls

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.seen = context.get_state_store("seen")

    def process(self, batch: Batch) -> None:
        self._calls.append(len(batch))
        values = list(batch.values)
        count = values.index(b"bad") if b"bad" in values else len(values)
        for value in values[:count]:
            self.seen.put(value, (self.seen.get(value) or 0) + 1)
        if count:
            self.context.forward(batch.head(count))
        if count < len(values):
            raise RecordRejectedError("bad", batch, count)


def test_a_batch_processor_that_says_which_record_is_bad_saves_the_search() -> None:
    calls: list[int] = []
    nodes = Nodes(chain(lambda: Rejecting(calls), uses=[0]))
    rejected = nodes.process(batch([b"a", b"bad", b"b", b"bad", b"a"]))
    assert [rejection.index for rejection in rejected] == [1, 3]
    assert calls == [5, 3, 1]
    assert nodes.values == [b"a", b"b", b"a"]
    assert content(nodes.stores["seen"]) == {b"a": b"2", b"b": b"1"}


@pytest.mark.parametrize("siblings", [0, 1])
def test_the_index_of_a_grandchild_does_not_count_for_those_before_it(siblings: int) -> None:
    """The work of its parent and a sibling on records after the bad one must be undone."""

    def reject(context: ProcessorContext, records: Batch) -> None:
        values = list(records.values)
        count = values.index(b"bad") if b"bad" in values else len(values)
        if count:
            context.forward(records.head(count))
        if count < len(values):
            raise RecordRejectedError("bad", records, count)

    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("count", CountSeenWhole, "source", stores="seen")
    builder.add_state_store(SEEN)
    for number in range(siblings):
        builder.add_sink(f"sibling {number}", "sibling", "count")
    builder.add_processor("reject", calling_whole(reject), "count")
    builder.add_sink("sink", "out", "reject")
    (group,) = builder.build().groups
    nodes = Nodes(group)

    rejected = nodes.process(batch([b"a", b"bad", b"b", b"c"]))

    assert [rejection.index for rejection in rejected] == [1]
    assert content(nodes.stores["seen"]) == {b"a": b"1", b"b": b"1", b"c": b"1"}
    for topic in ["out", *["sibling"] * siblings]:
        assert [v for t, _, v, _ in nodes.sent if t == topic] == [b"a", b"b", b"c"]


def test_the_index_of_one_child_of_a_source_does_not_count_for_another_child() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_sink("all", "all", "source")
    builder.add_processor("reject", lambda: Rejecting([]), "source", stores="seen")
    builder.add_state_store(SEEN)
    (group,) = builder.build().groups
    nodes = Nodes(group)

    rejected = nodes.process(batch([b"a", b"bad", b"b", b"c"]))

    assert [rejection.index for rejection in rejected] == [1]
    assert nodes.values == [b"a", b"b", b"c"]
    assert content(nodes.stores["seen"]) == {b"a": b"1", b"b": b"1", b"c": b"1"}


@pytest.mark.parametrize("index", [-1, 2, 3, 100])
def test_an_index_that_is_not_in_the_batch_does_not_reject_another_record(index: int) -> None:
    def reject(context: ProcessorContext, records: Batch) -> None:
        if b"bad" in records.values:
            raise RecordRejectedError("bad", records, index)
        context.forward(records)

    nodes = Nodes(chain(calling_whole(reject)))
    rejected = nodes.process(batch([b"bad", b"a"]))
    assert [rejection.index for rejection in rejected] == [0]
    assert nodes.values == [b"a"]


def test_a_serde_that_rejects_a_record_does_not_reject_the_first_one_instead() -> None:
    def read(data: bytes) -> bytes:
        if data == b"bad":
            raise RecordRejectedError("unreadable")
        return data

    builder = TopologyBuilder()
    builder.add_source("source", "in", value_serde=serdes.Serde("picky", bytes, read))
    builder.add_processor("whole", Whole, "source")
    builder.add_sink("sink", "out", "whole")
    (group,) = builder.build().groups
    nodes = Nodes(group)
    rejected = nodes.process(batch([b"a", b"bad", b"b"]))
    assert [rejection.index for rejection in rejected] == [1]
    assert nodes.values == [b"a", b"b"]


values = st.lists(st.sampled_from([b"a", b"b", b"bad"]), max_size=40)


@pytest.mark.parametrize("kinds", STATEFUL)
@given(values=values, cut=st.integers(0, 40))
def test_exactly_the_bad_records_are_found_and_all_others_processed_once_in_order(
    kinds: str, values: list[bytes], cut: int
) -> None:
    counting, failing = STATEFUL[kinds]
    nodes = Nodes(chain(counting, failing, uses=[0]))
    rejected = [rejection.index for rejection in nodes.process(batch(values[:cut]))]
    rejected += [cut + rejection.index for rejection in nodes.process(batch(values[cut:]))]

    good = [value for value in values if value != b"bad"]
    assert rejected == [i for i, value in enumerate(values) if value == b"bad"]
    assert nodes.values == good
    counts = {value: b"%d" % good.count(value) for value in set(good)}
    assert content(nodes.stores["seen"]) == counts


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 1024])
def test_one_bad_record_costs_a_number_of_calls_that_grows_with_the_logarithm(size: int) -> None:
    calls = []

    def process(context: ProcessorContext, records: Batch) -> None:
        calls.append(len(records))
        if b"bad" in records.values:
            raise ValueError

    nodes = Nodes(chain(calling_whole(process)))
    values = [b"a"] * size
    values[size // 3] = b"bad"
    assert len(nodes.process(batch(values))) == 1
    assert len(calls) <= 2 * size.bit_length() + 1
