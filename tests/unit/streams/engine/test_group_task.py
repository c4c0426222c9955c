"""A task of a node group: bad records, the order of several inputs, positions and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafka_pipeline import (
    LogAndSkipOnInvalidTimestamp,
    ProcessorContext,
    Record,
    RecordRejectedError,
    TopologyBuilder,
    UsePartitionTimeOnInvalidTimestamp,
    serdes,
)
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.builtin.forward import ForwardProcessor
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.group_task import StepResult
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.timestamps import RecordView
from tests.unit.streams.nodes import (
    CountSeen,
    CountSeenWhole,
    Each,
    OutputTopics,
    Tasks,
    Whole,
    batch,
    calling,
    chain,
    content,
    sent,
    without_place,
)

FAIL = GroupSettings()
SKIP = GroupSettings(on_error=OnError.SKIP)
DEAD_LETTER = GroupSettings(on_error=OnError.DEAD_LETTER, dead_letter_topic="dead")
BOTH = pytest.mark.parametrize(
    ("counting", "failing"), [(CountSeen, Each), (CountSeenWhole, Whole)], ids=["each", "whole"]
)


def figures(task: Tasks) -> dict[str, int]:
    """Return the figures since the last call, by name, without those that are 0."""
    found = task.task.take()[1]
    named = {
        "in": found.records_in,
        "out": found.records_out,
        "skipped": found.skipped,
        "dead": found.dead_letters,
        **found.dropped_by_reason,
    }
    return {name: count for name, count in named.items() if count}


# on_error


@BOTH
def test_fail_stops_in_front_of_the_bad_record_with_all_before_it_done(
    counting: Any, failing: Any
) -> None:
    task = Tasks(chain(counting, failing, uses=[0]), FAIL, number=2)
    with pytest.raises(ProcessingFailedError) as raised:
        task.run(batch([b"a", b"b", b"bad", b"c"], partition=2, offset=10))
    assert str(raised.value).startswith("record in[2]@12: ValueError: no good (tests/unit/")
    assert isinstance(raised.value.error, ValueError)
    assert task.task.position(("in", 2)) == 12
    assert content(task.stores["seen"]) == {b"a": b"1", b"b": b"1"}
    outputs, counted = task.task.take()
    assert [value for _, _, value, _ in sent(outputs)] == [b"a", b"b"]
    assert (counted.records_in, counted.records_out) == (2, 2)


@BOTH
def test_skip_leaves_bad_records_out(counting: Any, failing: Any) -> None:
    task = Tasks(chain(counting, failing, uses=[0]), SKIP)
    task.task.add(batch([b"bad", b"a", b"bad", b"bad", b"b"]))
    task.task.step(0, task.partitions)
    assert task.task.position(("in", 0)) == 5
    assert content(task.stores["seen"]) == {b"a": b"1", b"b": b"1"}
    assert figures(task) == {"in": 5, "out": 2, "skipped": 3}


@BOTH
def test_dead_letters_carry_the_record_and_what_was_wrong(counting: Any, failing: Any) -> None:
    task = Tasks(chain(counting, failing, uses=[0]), DEAD_LETTER, number=3)
    records = batch(
        [b"a", b"bad", b"bad", b"b"],
        keys=[None, b"k", None, None],
        timestamps=[5, 6, 7, 8],
        partition=3,
        offset=40,
        headers=[None, [("h", b"1")], None, None],
    )
    task.task.add(records)
    task.task.step(0, task.partitions)
    outputs, counted = task.task.take()
    letters = [without_place(out) for out in outputs if isinstance(out, tuple) and out[0] == "dead"]

    def described(offset: bytes) -> list[tuple[str, bytes]]:
        return [
            ("__streams.errors.exception", b"builtins.ValueError"),
            ("__streams.errors.message", b"ValueError: no good"),
            ("__streams.errors.topic", b"in"),
            ("__streams.errors.partition", b"3"),
            ("__streams.errors.offset", offset),
            ("__streams.errors.processor", b"1"),
        ]

    assert letters == [
        ("dead", b"k", b"bad", -1, 6, [("h", b"1"), *described(b"41")]),
        ("dead", None, b"bad", 3, 7, described(b"42")),
    ]
    assert [(topic, value) for topic, _, value, _ in sent(outputs)] == [
        ("out", b"a"),
        ("dead", b"bad"),
        ("dead", b"bad"),
        ("out", b"b"),
    ]
    assert (counted.records_in, counted.records_out, counted.dead_letters) == (4, 2, 2)
    assert content(task.stores["seen"]) == {b"a": b"1", b"b": b"1"}


def test_a_dead_letter_without_key_goes_to_a_partition_that_its_topic_has() -> None:
    def fail(context: ProcessorContext, record: Record) -> None:
        raise ValueError("no good")

    task = Tasks(chain(calling(fail)), DEAD_LETTER, OutputTopics({"dead": 2}), number=3)
    task.task.add(batch([b"bad"], keys=[None], partition=3))
    task.task.step(0, task.partitions)
    ((letter,), _) = task.task.take()
    assert isinstance(letter, tuple)
    assert (letter[0], letter[3]) == ("dead", 1)


def dead_letter(error: Exception, value: bytes = b"x") -> dict[str, bytes | None]:
    """Return the headers of the dead letter that an error leads to."""

    def fail(context: ProcessorContext, record: Record) -> None:
        raise error

    task = Tasks(chain(calling(fail)), DEAD_LETTER, log_record_values=True)
    task.task.add(batch([value]))
    task.task.step(0, task.partitions)
    ((output,), _) = task.task.take()
    assert isinstance(output, tuple)
    return dict(output[5] or [])


@pytest.mark.parametrize(
    ("error", "name", "message"),
    [
        (RecordRejectedError("not today"), b"RecordRejected", b"not today"),
        (KeyError("k"), b"builtins.KeyError", b"KeyError: 'k'"),
        (ValueError("\ud800 \xfc"), b"builtins.ValueError", b"ValueError: \\ud800 \xc3\xbc"),
    ],
)
def test_dead_letters_name_the_error(error: Exception, name: bytes, message: bytes) -> None:
    headers = dead_letter(error)
    assert headers["__streams.errors.exception"] == name
    assert (headers["__streams.errors.message"] or b"").split(b" (tests/")[0] == message


@pytest.mark.parametrize("processor", [Each, ForwardProcessor])
def test_an_output_that_is_too_large_is_a_bad_record(processor: Any) -> None:
    task = Tasks(chain(processor), DEAD_LETTER, OutputTopics(sizes={"out": 100}))
    task.task.add(batch([b"1", b"x" * 50, b"2"]))
    task.task.step(0, task.partitions)
    outputs, _ = task.task.take()
    assert [(topic, value) for topic, _, value, _ in sent(outputs)] == [
        ("out", b"1"),
        ("dead", b"x" * 50),
        ("out", b"2"),
    ]
    (letter,) = (each for each in outputs if isinstance(each, tuple) and each[0] == "dead")
    headers = dict(without_place(letter)[5] or [])
    assert headers["__streams.errors.exception"] == b"RecordTooLarge"
    assert headers["__streams.errors.message"] == (
        b"the output is larger than the 100 bytes that topic out takes"
    )


@pytest.mark.parametrize("processor", [calling(lambda c, r: c.forward(r)), ForwardProcessor])
def test_sent_bytes_are_those_of_the_values(processor: Any) -> None:
    """One processor forwards records, the other one columns."""
    task = Tasks(chain(processor), SKIP)
    task.task.add(batch([b"one", None, b"", b"fourth"]))
    task.task.step(0, task.partitions)
    counted = task.task.take()[1]
    assert (counted.records_out, counted.sent_bytes) == (4, len(b"onefourth"))
    assert task.task.take()[1].sent_bytes == 0


def test_a_dead_letter_that_is_too_large_itself_stops_the_task() -> None:
    task = Tasks(chain(Each), DEAD_LETTER, OutputTopics(sizes={"dead": 150}))
    with pytest.raises(ProcessingFailedError) as raised:
        task.run(batch([b"a", b"bad"]))
    said = "; and as a dead letter it is larger than the 150 bytes that topic dead takes"
    assert said in str(raised.value)
    assert task.task.position(("in", 0)) == 1
    assert task.taken() == [("out", None, b"a", 0)]


@pytest.mark.parametrize("settings", [FAIL, SKIP, DEAD_LETTER])
def test_errors_of_the_engine_are_no_matter_of_on_error(settings: GroupSettings) -> None:
    def fail(context: ProcessorContext, record: Record) -> None:
        raise EngineError("the disk is full")

    task = Tasks(chain(calling(fail)), settings)
    with pytest.raises(EngineError, match="the disk is full"):
        task.run(batch([b"a"]))
    assert task.task.position(("in", 0)) == 0


@pytest.mark.parametrize("settings", [FAIL, SKIP])
def test_a_batch_that_was_read_with_an_error_is_a_bad_record(settings: GroupSettings) -> None:
    task = Tasks(chain(CountSeen, uses=[0]), settings)
    broken = batch([b"a"], offset=1)
    broken.error = "its headers are broken"
    batches = [batch([b"x"]), broken, batch([b"y"], offset=2)]
    if settings is SKIP:
        assert [value for _, _, value, _ in task.run(*batches)] == [b"x", b"y"]
        return
    with pytest.raises(ProcessingFailedError, match=r"record in\[0\]@1: its headers are broken"):
        task.run(*batches)
    assert task.task.position(("in", 0)) == 1


# Positions and figures


def test_the_position_is_that_of_the_first_record_that_is_not_processed() -> None:
    task = Tasks(chain(Each, topics=["a", "b"]), FAIL)
    assert task.task.position(("a", 0)) is None
    task.task.add(batch([b"1", b"2"], topic="a", offset=7))
    assert task.task.position(("a", 0)) == 7
    task.task.step(0, task.partitions)
    assert task.task.position(("a", 0)) == 9
    assert task.task.position(("b", 0)) is None


def test_offsets_may_have_gaps() -> None:
    task = Tasks(chain(Each), FAIL)
    records = RecordBatch("in", 0, [None] * 3, [b"a", b"bad", b"b"], [0, 0, 0], [3, 7, 20])
    with pytest.raises(ProcessingFailedError, match="@7"):
        task.run(records)
    assert task.task.position(("in", 0)) == 7


def test_what_was_taken_is_not_given_again() -> None:
    task = Tasks(chain(Each), SKIP)
    task.task.add(batch([b"1", b"bad"]))
    task.task.step(0, task.partitions)
    assert figures(task) == {"in": 2, "out": 1, "skipped": 1}
    assert figures(task) == {}
    assert task.taken() == []


def test_records_that_a_partitioner_drops_are_counted() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_sink("sink", "out", "source", partitioner=lambda *_: set())
    task = Tasks(builder.build().groups[0], FAIL)
    task.task.add(batch([b"1", b"2"]))
    task.task.step(0, task.partitions)
    assert figures(task) == {"in": 2, "partitioner": 2}


# Several inputs


def two(*settings: Any, **others: Any) -> Tasks:
    return Tasks(chain(Each, topics=["a", "b"]), GroupSettings(*settings, **others))


def at(topic: str, *timestamps: int, offset: int = 0) -> RecordBatch:
    """Return records whose values are topic and time."""
    values = [b"%s%d" % (topic.encode(), timestamp) for timestamp in timestamps]
    return batch(values, timestamps=timestamps, topic=topic, offset=offset)


def worked(task: Tasks, now_ms: int, ends_reached: Sequence[str] = ()) -> list[bytes | None]:
    task.task.step(now_ms, {(topic, 0): 0 for topic in ends_reached})
    return [value for _, _, value, _ in task.taken()]


def test_records_of_two_inputs_are_processed_in_the_order_of_their_timestamps() -> None:
    task = two()
    task.task.add(at("a", 10, 20, 30))
    task.task.add(at("b", 5, 25, 35))
    assert worked(task, 0, ["a", "b"]) == [b"b5", b"a10", b"a20", b"b25", b"a30", b"b35"]


def test_records_of_one_partition_keep_their_order() -> None:
    task = two()
    task.task.add(at("a", 50, 1, 2))
    task.task.add(at("b", 10, 60))
    assert worked(task, 0, ["a", "b"]) == [b"b10", b"a50", b"a1", b"a2", b"b60"]


def test_without_waiting_an_empty_input_is_ignored() -> None:
    task = two(max_task_idle_ms=-1)
    task.task.add(at("a", 10))
    assert worked(task, 0) == [b"a10"]
    assert task.enforced == 0


def test_by_default_an_empty_input_is_waited_for_until_it_was_read_to_its_end() -> None:
    task = two()
    task.task.add(at("a", 10))
    assert worked(task, 0, ["a"]) == []
    assert worked(task, 1_000_000, ["a"]) == []
    task.task.add(at("b", 5))
    assert worked(task, 1_000_000, ["a"]) == [b"b5"]
    assert task.enforced == 0
    assert worked(task, 1_000_000, ["a", "b"]) == [b"a10"]
    assert task.enforced == 1


def test_an_input_at_its_end_is_waited_for_as_long_as_configured() -> None:
    task = two(max_task_idle_ms=100)
    task.task.add(at("a", 10))
    assert worked(task, 0, ["a", "b"]) == []
    assert worked(task, 99, ["a", "b"]) == []
    assert task.enforced == 0
    assert worked(task, 100, ["a", "b"]) == [b"a10"]
    assert task.enforced == 1


def test_a_late_input_that_comes_in_time_goes_first() -> None:
    task = two(max_task_idle_ms=100)
    task.task.add(at("a", 10))
    assert worked(task, 0, ["a", "b"]) == []
    task.task.add(at("b", 5))
    assert worked(task, 50, ["a", "b"]) == [b"b5"]
    assert task.enforced == 0


def test_what_takes_inputs_as_they_come_waits_for_none_and_keeps_batches_whole() -> None:
    task = two(takes_inputs_as_they_come=True, max_task_idle_ms=1000)
    task.task.add(at("a", 10, 30))
    task.task.add(at("b", 5, 20))
    task.task.add(at("a", 1, offset=2))
    assert worked(task, 0) == [b"a10", b"a30", b"b5", b"b20", b"a1"]


def test_a_task_without_records_does_nothing() -> None:
    task = two()
    assert task.task.step(0, {("a", 0): 0, ("b", 0): 0}) == StepResult(False, False)
    assert not task.task.has_uncommitted


def test_a_bad_record_of_one_input_does_not_hold_up_the_other() -> None:
    task = Tasks(chain(Each, topics=["a", "b"]), SKIP)
    task.task.add(batch([b"bad", b"bad"], timestamps=[1, 3], topic="a"))
    task.task.add(batch([b"1", b"2"], timestamps=[2, 4], topic="b"))
    assert worked(task, 0, ["a", "b"]) == [b"1", b"2"]
    assert (task.task.position(("a", 0)), task.task.position(("b", 0))) == (2, 2)


# Timestamps


def with_extractor(extractor: Any, value_serde: Serde[Any] = serdes.bytes) -> NodeGroup:
    builder = TopologyBuilder()
    builder.add_source("source", "in", value_serde=value_serde, timestamp_extractor=extractor)
    builder.add_sink("sink", "out", "source", value_serde=value_serde)
    return builder.build().groups[0]


def times(task: Tasks) -> list[int]:
    outputs, _ = task.task.take()
    found: list[int] = []
    for output in outputs:
        found += [output[4]] if isinstance(output, tuple) else output.timestamps
    return found


def test_a_record_without_a_valid_timestamp_fails_by_default() -> None:
    task = Tasks(chain(Each), FAIL)
    with pytest.raises(ProcessingFailedError) as raised:
        task.run(batch([b"1", b"2"], timestamps=[5, -1], offset=3))
    assert str(raised.value) == (
        "record in[0]@4: the record has no valid timestamp: use another "
        "timestamp extractor to read it"
    )
    assert task.task.position(("in", 0)) == 4
    assert [value for _, _, value, _ in task.taken()] == [b"1"]


def test_on_error_decides_about_a_record_without_a_valid_timestamp() -> None:
    task = Tasks(chain(Each), DEAD_LETTER)
    task.task.add(batch([b"1", b"2", b"3"], timestamps=[5, -1, 4]))
    task.task.step(0, task.partitions)
    outputs, counted = task.task.take()
    assert [
        (output[0], output[2], output[4]) for output in outputs if isinstance(output, tuple)
    ] == [
        ("out", b"1", 5),
        ("dead", b"2", 5),
        ("out", b"3", 4),
    ]
    assert counted.dead_letters == 1


def test_records_may_be_dropped_for_their_timestamps() -> None:
    task = Tasks(with_extractor(LogAndSkipOnInvalidTimestamp()), FAIL)
    task.task.add(batch([b"1", b"2", b"3"], timestamps=[-1, 5, -1]))
    task.task.step(0, task.partitions)
    assert task.task.position(("in", 0)) == 3
    assert figures(task) == {"in": 1, "out": 1, "invalid timestamp": 2}


def test_a_batch_of_which_all_is_dropped_moves_the_position() -> None:
    task = Tasks(with_extractor(LogAndSkipOnInvalidTimestamp()), FAIL)
    task.task.add(batch([b"1"], timestamps=[-1], offset=9))
    assert task.task.step(0, task.partitions) == StepResult(False, False)
    assert task.task.has_uncommitted
    assert task.task.position(("in", 0)) == 10


def test_records_may_take_the_largest_timestamp_before_them() -> None:
    task = Tasks(with_extractor(UsePartitionTimeOnInvalidTimestamp()), FAIL)
    task.task.add(batch([b"1", b"2", b"3"], timestamps=[7, -1, 3]))
    task.task.add(batch([b"4"], timestamps=[-1], offset=3))
    task.task.step(0, task.partitions)
    assert times(task) == [7, 7, 3, 7]


def test_extracted_timestamps_decide_about_the_order_and_go_on_to_the_outputs() -> None:
    group = with_extractor(lambda record, partition_time: record.value["at"], serdes.json)
    task = Tasks(group, FAIL)
    task.task.add(batch([b'{"at":70}', b'{"at":30}'], timestamps=[1, 2]))
    task.task.step(0, task.partitions)
    assert times(task) == [70, 30]
    assert task.task.partition_time(*task.partitions) == 70


@pytest.mark.parametrize("settings", [FAIL, SKIP])
def test_what_an_extractor_or_its_serde_raises_concerns_one_record(
    settings: GroupSettings,
) -> None:
    def read(data: bytes) -> int:
        return int(data)

    number = Serde("number", lambda value: b"%d" % value, read)
    task = Tasks(with_extractor(lambda record, time: record.value, number), settings)
    records = batch([b"5", b"x", b"6"], timestamps=[0, 0, 0])
    if settings is SKIP:
        task.task.add(records)
        task.task.step(0, task.partitions)
        assert times(task) == [5, 6]
        return
    with pytest.raises(ProcessingFailedError, match=r"record in\[0\]@1: ValueError"):
        task.run(records)


def test_an_extractor_reads_what_it_looks_at_and_once() -> None:
    read: list[bytes] = []

    def counted(data: bytes) -> bytes:
        read.append(data)
        return data

    def extract(record: RecordView, partition_time: int) -> int:
        return int(record.value) if record.offset and record.value == record.value else 1

    task = Tasks(with_extractor(extract, Serde("counted", lambda value: value, counted)), FAIL)
    task.task.add(batch([b"5", b"6"]))
    assert read == [b"6"]
    task.task.step(0, task.partitions)
    assert times(task) == [1, 6]
    assert read == [b"6", b"5", b"6"]


def test_a_record_that_cannot_be_read_has_a_time_if_its_extractor_does_not_look_at_it() -> None:
    number = Serde("number", lambda value: b"%d" % value, int)
    task = Tasks(with_extractor(lambda record, time: 10 + record.offset, number), SKIP)
    task.task.add(batch([b"5", b"x"], timestamps=[0, 0]))
    task.task.step(0, task.partitions)
    assert times(task) == [10]
    assert task.task.partition_time(*task.partitions) == 11


def test_a_bad_timestamp_does_not_change_the_batch_of_the_caller() -> None:
    task = Tasks(chain(Each), SKIP)
    records = batch([b"1"], timestamps=[-1])
    task.run(records)
    assert records == batch([b"1"], timestamps=[-1])
