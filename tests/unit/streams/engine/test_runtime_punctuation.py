"""Punctuations of a node group: when they are called, what they may do, and when they fail."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from kafka_pipeline import (
    Batch,
    Cancellable,
    InvalidArgumentError,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsError,
)
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.builtin.forward import ForwardProcessor
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from tests.unit.streams.nodes import (
    CountSeen,
    Each,
    Nodes,
    Tasks,
    Whole,
    batch,
    calling,
    chain,
    content,
    starting,
)

STREAM = PunctuationType.STREAM_TIME
WALL_CLOCK = PunctuationType.WALL_CLOCK_TIME
DEFAULT = GroupSettings()


def every(interval: int, call: Callable[[ProcessorContext, int], None]) -> type[Processor]:
    """Return a processor that forwards, and calls `call(context, time)` by stream time."""
    return starting(lambda c: c.schedule(interval, STREAM, lambda time: call(c, time)))


def tick(context: ProcessorContext, time: int) -> None:
    context.forward(Record(None, b"tick %d" % time, time))


def values(task: Tasks, *timestamps: int) -> list[bytes | None]:
    """Process records, whose values are their times, as one batch; return what was put out."""
    records = batch([b"%d" % at for at in timestamps], timestamps=timestamps)
    return [value for _, _, value, _ in task.run(records)]


# Stream time


@pytest.mark.parametrize("behind", [Each, ForwardProcessor, Whole])
def test_it_is_called_right_behind_the_record_that_makes_it_due(behind: Any) -> None:
    """The same as in Kafka Streams, but independent of how records are cut into batches."""
    task = Tasks(chain(every(10, tick), behind), DEFAULT)
    assert values(task, 42, 42, 51, 52, 61, 65, 71, 72, 95, 101, 102) == [
        *[b"42", b"tick 42", b"42"],
        *[b"51", b"tick 51", b"52"],
        *[b"61", b"tick 61", b"65"],
        *[b"71", b"tick 71", b"72"],
        *[b"95", b"tick 95", b"101", b"tick 101", b"102"],
    ]


class TickWhole(ForwardProcessor):
    """Forwards batches, and a tick every 10 ms."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(10, STREAM, lambda time: tick(context, time))


def test_batches_end_where_a_punctuation_is_due() -> None:
    task = Tasks(chain(TickWhole), DEFAULT)
    assert values(task, 1, 2, 11, 12, 13, 30) == [
        *[b"1", b"tick 1"],
        *[b"2", b"11", b"tick 11"],
        *[b"12", b"13", b"30", b"tick 30"],
    ]


def test_it_is_called_once_after_a_gap_and_stays_on_its_grid() -> None:
    task = Tasks(chain(every(20, tick)), DEFAULT)
    assert values(task, 20, 142, 155, 160) == [
        *[b"20", b"tick 20"],
        *[b"142", b"tick 142"],
        b"155",
        *[b"160", b"tick 160"],
    ]


def test_without_records_it_is_not_called() -> None:
    task = Tasks(chain(every(1, tick)), DEFAULT)
    task.clock.now_ms = 1_000_000
    task.task.step(1_000_000, task.partitions)
    assert task.taken() == []


def test_late_records_do_not_call_it_again() -> None:
    task = Tasks(chain(every(10, tick)), DEFAULT)
    assert values(task, 25, 3, 9, 29) == [b"25", b"tick 25", b"3", b"9", b"29"]


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_what_a_record_schedules_is_called_right_behind_it(cut: int) -> None:
    def schedule_at_second(context: ProcessorContext, record: Record) -> None:
        context.forward(record)
        if record.value == b"2":
            context.schedule(10, STREAM, lambda time: tick(context, time))

    task = Tasks(chain(calling(schedule_at_second)), DEFAULT)
    times = [1, 2, 3, 4]
    assert values(task, *times[:cut]) + (values(task, *times[cut:]) if cut < 4 else []) == [
        *[b"1", b"2", b"tick 2"],
        *[b"3", b"4"],
    ]


def test_one_record_can_make_several_due() -> None:
    fired: list[str] = []

    def schedule(context: ProcessorContext) -> None:
        context.schedule(10, STREAM, lambda time: fired.append("ten"))
        context.schedule(25, STREAM, lambda time: fired.append("twenty-five"))

    task = Tasks(chain(starting(schedule)), DEFAULT)
    values(task, 1)
    assert fired == ["ten", "twenty-five"]
    values(task, 30)
    assert fired[2:] == ["ten", "twenty-five"]


def test_a_rejected_record_makes_it_due_as_any_other() -> None:
    task = Tasks(chain(every(10, tick), Each), GroupSettings(on_error=OnError.SKIP))
    records = batch([b"bad", b"x"], timestamps=[15, 16])
    assert [value for _, _, value, _ in task.run(records)] == [b"tick 15", b"x"]


# The wall clock


def test_wall_clock_time_counts_from_the_moment_of_scheduling() -> None:
    fired: list[int] = []
    task = Tasks(
        chain(starting(lambda context: context.schedule(10, WALL_CLOCK, fired.append))), DEFAULT
    )
    for now_ms in (5, 14, 15, 35, 40):
        task.clock.now_ms = now_ms
        task.task.step(0, task.partitions)
    assert fired == [14, 35, 40]


def test_records_do_not_call_what_is_due_by_the_wall_clock() -> None:
    fired: list[int] = []
    schedule = starting(lambda context: context.schedule(10, WALL_CLOCK, fired.append))
    task = Tasks(chain(schedule), DEFAULT)
    values(task, 1000)
    assert fired == []


# With a start (KIP-1146)


def test_a_start_aligns_calls_by_the_wall_clock() -> None:
    fired: list[int] = []

    def schedule(context: ProcessorContext, record: Record) -> None:
        context.schedule(60, WALL_CLOCK, fired.append, 0)

    task = Tasks(chain(calling(schedule)), DEFAULT)
    task.clock.now_ms = 70
    values(task, 1)
    for now_ms in (119, 120, 190, 239, 240):
        task.clock.now_ms = now_ms
        task.task.step(0, task.partitions)
    assert fired == [120, 190, 240]


def test_a_start_aligns_calls_by_stream_time() -> None:
    fired: list[int] = []

    def schedule_at_40(context: ProcessorContext, record: Record) -> None:
        if record.value == b"40":
            context.schedule(10, STREAM, fired.append, 33)

    early = starting(lambda context: context.schedule(10, STREAM, fired.append, 25))
    task = Tasks(chain(early, calling(schedule_at_40)), DEFAULT)
    values(task, 24, 25, 34, 35)
    assert fired == [25, 35]
    values(task, 40, 42, 43)
    assert fired[2:] == [43]


@pytest.mark.parametrize("start", [-1, 0.5, True])
def test_a_start_that_is_not_a_time_is_refused(start: Any) -> None:
    schedule = starting(lambda context: context.schedule(10, WALL_CLOCK, print, start))
    with pytest.raises(InvalidArgumentError, match="schedule: start must be a whole number, 0 or"):
        Tasks(chain(schedule), DEFAULT)


# What callbacks may do


def test_a_callback_may_cancel_itself() -> None:
    fired: list[int] = []

    def schedule(context: ProcessorContext) -> None:
        def call(time: int) -> None:
            fired.append(time)
            handle.cancel()

        handle: Cancellable = context.schedule(1, STREAM, call)

    task = Tasks(chain(starting(schedule)), DEFAULT)
    values(task, 1, 2, 3)
    assert fired == [1]


def test_a_record_may_cancel_it() -> None:
    handles: list[Cancellable] = []
    schedule = starting(
        lambda c: handles.append(c.schedule(10, STREAM, lambda time: tick(c, time)))
    )

    def cancel(context: ProcessorContext, record: Record) -> None:
        context.forward(record)
        if record.value == b"20":
            handles[0].cancel()

    task = Tasks(chain(schedule, calling(cancel)), DEFAULT)
    assert values(task, 10, 20, 30) == [b"10", b"tick 10", b"20", b"30"]


def test_a_callback_may_schedule_another_one_which_is_called_at_its_next_time() -> None:
    fired: list[tuple[str, int]] = []

    def schedule(context: ProcessorContext) -> None:
        def first(time: int) -> None:
            fired.append(("first", time))
            handle.cancel()
            context.schedule(100, STREAM, lambda time: fired.append(("second", time)))

        handle: Cancellable = context.schedule(10, STREAM, first)

    task = Tasks(chain(starting(schedule)), DEFAULT)
    values(task, 5, 99, 100)
    assert fired == [("first", 5), ("second", 100)]


def test_the_context_tells_the_time_of_the_punctuation_and_no_record() -> None:
    told: list[tuple[object, ...]] = []

    def tell(context: ProcessorContext, time: int) -> None:
        told.append(
            (
                time,
                context.timestamp,
                context.stream_time,
                context.topic,
                context.partition,
                context.offset,
                list(context.headers),
            )
        )

    task = Tasks(chain(every(10, tell), Each), DEFAULT)
    task.run(batch([b"1"], timestamps=[7], headers=[[("h", b"1")]]))
    assert told == [(7, 7, 7, None, None, None, [])]


def test_a_callback_forwards_batches_as_well() -> None:
    def send(context: ProcessorContext, time: int) -> None:
        context.forward(Batch([None, None], [b"a", b"b"], [time, time]))

    task = Tasks(chain(every(10, send), Each), DEFAULT)
    assert values(task, 1) == [b"1", b"a", b"b"]


def test_headers_of_one_callback_do_not_show_in_the_next() -> None:
    sent: list[int] = []

    def send(context: ProcessorContext, time: int) -> None:
        sent.append(len(context.headers))
        context.forward(Record(None, b"x", time, [("h", b"1")]))

    task = Tasks(chain(every(1, send), Each), DEFAULT)
    values(task, 1, 2)
    assert sent == [0, 0]


def test_nothing_is_called_after_close() -> None:
    nodes = Nodes(chain(every(1, tick)))
    nodes.runtime.close()
    assert nodes.runtime.next_stream_time_punctuation is None
    assert not nodes.runtime.punctuate(STREAM, 1_000)


# Mistakes and failures


@pytest.mark.parametrize("interval", [0, -1])
def test_an_interval_is_at_least_a_millisecond(interval: int) -> None:
    with pytest.raises(ValueError, match=f"interval_ms={interval}: .* 1 or more"):
        Nodes(chain(every(interval, tick)))


def test_a_type_that_is_none_is_refused_clearly() -> None:
    schedule: Any = starting(lambda context: context.schedule(1, "stream time", print))  # type: ignore[arg-type]
    with pytest.raises(StreamsError, match="is of a PunctuationType, not 'stream time'"):
        Nodes(chain(schedule))


class Storing(CountSeen):
    """Counts a tick and forwards it, and raises an error then, by both kinds of time."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(10, STREAM, self._tick)
        context.schedule(10, WALL_CLOCK, self._tick)

    def _tick(self, time: int) -> None:
        self.process(Record(None, b"tick", time))
        raise self._error


def test_one_that_raises_fails_the_task_and_leaves_no_trace() -> None:
    task = Tasks(
        chain(lambda: Storing(ValueError("broken")), uses=[0]), DEFAULT, log_record_values=True
    )
    with pytest.raises(ProcessingFailedError) as raised:
        task.run(batch([b"1", b"2"], timestamps=[5, 6]))
    assert re.fullmatch(
        r"a punctuation: ValueError: broken "
        r'\(tests/unit/streams/engine/test_runtime_punctuation.py:\d+ in _tick, processor "0"\)',
        str(raised.value),
    )
    assert isinstance(raised.value.error, ValueError)
    assert task.taken() == [("out", None, b"1", 0)]
    assert content(task.stores["seen"]) == {b"1": b"1"}
    assert task.task.position(("in", 0)) == 1


def test_one_that_raises_by_the_wall_clock_fails_the_task_as_well() -> None:
    task = Tasks(
        chain(lambda: Storing(ValueError("broken")), uses=[0]), DEFAULT, log_record_values=True
    )
    task.clock.now_ms += 10
    with pytest.raises(ProcessingFailedError, match="a punctuation: ValueError: broken"):
        task.task.step(0, task.partitions)
    assert task.taken() == []
    assert content(task.stores["seen"]) == {}


def test_errors_of_the_engine_pass_through_a_punctuation() -> None:
    task = Tasks(chain(lambda: Storing(EngineError("gone")), uses=[0]), DEFAULT)
    task.clock.now_ms += 10
    with pytest.raises(EngineError, match="gone"):
        task.task.step(0, task.partitions)


def test_one_that_succeeds_keeps_what_it_stored_when_a_record_fails_afterwards() -> None:
    class Remembering(CountSeen):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            context.schedule(10, STREAM, lambda time: self.seen.put(b"tick", time))

    task = Tasks(chain(Remembering, Each, uses=[0]), DEFAULT)
    with pytest.raises(ProcessingFailedError):
        task.run(batch([b"1", b"bad"], timestamps=[5, 6]))
    assert content(task.stores["seen"]) == {b"1": b"1", b"tick": b"5"}
