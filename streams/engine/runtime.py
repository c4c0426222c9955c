"""Runs a node group for one task: records in, outputs and state changes out. No Kafka in here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import inf
from threading import get_ident
from time import monotonic
from typing import NoReturn, TypeGuard, TypeVar

from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.code.user_frames import place_of_definition
from kafka_pipeline.common.errors import EngineError, PipelineError
from kafka_pipeline.common.protocol.suspects import CallKind
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.clocks import NO_CLOCK
from kafka_pipeline.streams.durations import Milliseconds, whole_ms
from kafka_pipeline.streams.engine.arguments import require_int
from kafka_pipeline.streams.engine.async_calls import PendingCall
from kafka_pipeline.streams.engine.call_size import CallSize
from kafka_pipeline.streams.engine.left_undone import never_run, refuse_lost
from kafka_pipeline.streams.engine.mixed import MixedBatch, runs_of
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.outputs import Output
from kafka_pipeline.streams.engine.record_queues import Turn, parts_of
from kafka_pipeline.streams.engine.running import RunningSource
from kafka_pipeline.streams.engine.running_async import RunningAsync
from kafka_pipeline.streams.engine.running_group import RunningGroup
from kafka_pipeline.streams.engine.task_environment import TaskEnvironment
from kafka_pipeline.streams.engine.task_time import TaskTime
from kafka_pipeline.streams.engine.time_limit import TimeLimit
from kafka_pipeline.streams.errors import InvalidArgumentError, StreamsError
from kafka_pipeline.streams.processor import RecordRejectedError
from kafka_pipeline.streams.punctuation import (
    Cancellable,
    PunctuationQueue,
    PunctuationType,
    Punctuator,
    first_due_ms,
)
from kafka_pipeline.streams.record import Batch, Record
from kafka_pipeline.streams.timestamps import UNKNOWN_TIME

T = TypeVar("T")

_CALL_S = 0.05
"""How long one call of a `BatchProcessor` should take; the thread's other tasks wait meanwhile."""
_FEWEST_RECORDS = 100
_FEW_RECORDS = 4
"""So many records cost less one by one."""
_MOST_RECORDS = 1_000_000


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call of user code that has not returned yet, as another thread sees it."""

    place: str
    """A description of the call and its records: "`process` of orders[3]@1200"."""
    since_s: float
    """When the call began, by `time.monotonic`."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A record that cannot be processed, and its error; all records before it are processed."""

    index: int
    error: Exception


class GroupRuntime:
    """The nodes of a group, with their processors, stores and punctuations.

    Records that the nodes send are collected in `outputs`, and changes of state in the stores'
    open transactions; the caller takes both. Only one thread at a time may use a runtime.
    """

    def __init__(self, group: NodeGroup, environment: TaskEnvironment, task_time: TaskTime) -> None:
        """Make the nodes and set up the processors. Raises whatever user code raises."""
        self.is_global = group.is_global
        """Whether the nodes fill a global store, and are not a task."""
        self.application_id = environment.application_id
        self.task_id = environment.task_id
        self.clock_ms = environment.clock_ms
        self.time_limit = TimeLimit(environment.clock_ms, environment.max_timestamp_ahead_ms)
        self.outputs: list[Output] = []
        self.task_time = task_time
        # `TaskView` says what these are.
        self.batch: RecordBatch | None = None
        self.index = 0
        self.time = UNKNOWN_TIME
        self.commit_requested = False
        """Whether a processor has asked for a commit; the caller resets it."""
        self.thread = get_ident()
        """Python's id of the thread that called the nodes last."""
        self._of_other_thread: StreamsError | None = None
        """What another thread was refused."""
        self._is_interrupted = False
        """Whether the caller has something to do after the record: a new punctuation by stream time
        may be due, or a processor asks for a commit."""
        self._call_began_s: float | None = None
        self._called = ("", 0, 0, 0)
        """The topic, partition, first and last offset of the call, if `batch` is `None`."""
        self._call_size = CallSize(_CALL_S, _FEWEST_RECORDS, _MOST_RECORDS)
        self._failed: tuple[RecordBatch, int] | None = None
        """A batch, and the index after a run of records of which one is known to be rejected."""
        self._queues = {type_: PunctuationQueue() for type_ in PunctuationType}
        self.mark = environment.new_mark()
        """Says which call of user code is in progress, if the process ends."""
        self.mark.set(CallKind.INIT)
        try:
            self.nodes = RunningGroup(group, self, self.outputs, environment)
            """The nodes, with their processors and stores."""
        finally:
            self.mark.clear()
        self._set_marks, self._undos = self.nodes.undo_marks
        self._meeting_points = self.nodes.meeting_points
        self._lookup_tables = self.nodes.lookup_tables
        self._by_stream_time = self._queues[PunctuationType.STREAM_TIME]
        self._by_stream_time.skip(task_time.stream_time)
        self.rest()

    @property
    def next_stream_time_punctuation(self) -> int | None:
        """The stream time at which a punctuation is due; `None` if none is scheduled."""
        return self._by_stream_time.next_ms

    @property
    def next_wall_clock_punctuation(self) -> int | None:
        """When a punctuation by the wall clock is due; `None` if none is scheduled."""
        return self._queues[PunctuationType.WALL_CLOCK_TIME].next_ms

    def process(
        self, batch: RecordBatch, start: int, stop: int, until_s: float = inf
    ) -> Rejection | int:
        """Process the records of a batch from `start` to `stop`, up to the first rejected one.

        A rejected record leaves no trace in outputs and stores; the caller handles it, and calls
        again with the index after it. Otherwise, returns the index after the last record
        processed. That is `stop`, unless the time `until_s` (of `time.monotonic`) has passed, a
        processor asked for a commit, a punctuation was scheduled that may be due before `stop`, or
        some of the next records were rejected as a batch; the next calls then find out which of
        them is at fault. At least one record is processed.
        """
        self.thread = get_ident()
        source, offsets = self.nodes.source(batch.topic), batch.offsets
        first, last = offsets[start], offsets[stop - 1]
        self.mark.set(CallKind.PROCESS, batch.topic, batch.partition, first, last)
        try:
            if not source.is_columnar or (source.takes_records and stop - start <= _FEW_RECORDS):
                turns = zip(repeat(batch), range(start, stop), strict=False)
                count, error = self._process_turns(turns, until_s)
                return start + count if error is None else Rejection(start + count, error)
            self.batch = None
            return self._process_columns(source, batch, start, stop, until_s)
        finally:
            self._call_began_s = None
            self.mark.clear()

    @property
    def call(self) -> UserCall | None:
        """The call of user code in progress; any thread may read this, and it never blocks."""
        since_s, batch, index = self._call_began_s, self.batch, self.index
        if since_s is None:
            return self._oldest_async_call()
        if batch is not None and index < len(batch):
            where = f"{batch.topic}[{batch.partition}]@{batch.offsets[index]}"
            return UserCall(f"`process` of {where}", since_s)
        topic, partition, first, last = self._called
        if not topic:
            return UserCall("a punctuation", since_s)
        return UserCall(f"`process` of {topic}[{partition}]@{first} to {last}", since_s)

    def emit(self, node: RunningAsync, entry: PendingCall) -> Exception | None:
        """Forward the results of a call; if that fails, undo all of it and return the error."""
        self.batch, self.index = entry.batch, entry.index
        self.task_time.reach(entry.batch.timestamps[entry.index])
        clocks = entry.batch.clocks
        self.task_time.clock = NO_CLOCK if clocks is None else clocks[entry.index]
        mark = self._set_undo_mark()
        self._call_began_s = monotonic()
        self._mark_turns([(entry.batch, entry.index)])
        try:
            self.outputs += entry.notes
            node.emit(entry.results)
        except (EngineError, PipelineError):
            raise
        except BaseException as raised:
            error = as_exception(raised)
            self._undo(mark)
            return error
        finally:
            self._call_began_s = None
            self.mark.clear()
        return None

    def _oldest_async_call(self) -> UserCall | None:
        for node in self.nodes.asynchronous:
            entry = node.calls.oldest
            if entry is not None and not entry.is_done:
                where = f"{entry.batch.topic}[{entry.batch.partition}]@{entry.offset}"
                return UserCall(f"`process` of {where}", entry.began_s)
        return None

    def request_commit(self) -> None:
        """Ask for a commit after the record that is being processed."""
        self.commit_requested = self._is_interrupted = True

    def refuse_thread(self, node: str) -> NoReturn:
        """Raise `StreamsError` for a node that forwards from a thread that is not the task's.

        That thread may ignore it, so the next `require_one_thread` raises it, too.
        """
        self._of_other_thread = StreamsError(
            f'"{node}" forwards from a thread of its own, which may lose records: forward from '
            "process or from a punctuation"
        )
        raise self._of_other_thread

    def require_one_thread(self) -> None:
        """Raise `StreamsError` if another thread has forwarded, or has changed a store at rest."""
        if self._of_other_thread is not None:
            raise self._of_other_thread
        if name := self.nodes.changed_store:
            raise StreamsError(
                f'the store "{name}" was changed while its task was not called, by a thread of its '
                "own, which may lose changes: use stores in process or in a punctuation"
            )

    def rest(self) -> None:
        """Set the undo mark after a step: what stores get until the next one is not the task's."""
        self._set_undo_mark()

    def punctuate(self, type_: PunctuationType, now: int) -> bool:
        """Call the punctuations of a type that are due at `now`; return whether any was.

        If a callback raises, undoes everything that the callbacks did, and raises the error.
        """
        queue = self._queues[type_]
        next_ms = queue.next_ms
        if next_ms is None or next_ms > now:
            return False
        return self._without_record(
            CallKind.PUNCTUATION, lambda: queue.punctuate(now, self._call) > 0
        )

    def pass_time(self, time: int, times: Mapping[tuple[str, ...], int] = {}) -> None:
        """Let the nodes know that event time has gone on, parents first.

        Nodes that hold back records of certain topics may have other `times`. If one raises, undoes
        everything that they did, and raises the error.
        """
        self._without_record(CallKind.TIME, lambda: self._pass_time(time, times))

    def _pass_time(self, time: int, times: Mapping[tuple[str, ...], int]) -> None:
        self.time = max(time, 0)
        self.task_time.reached_ms = time
        self._call_began_s = monotonic()
        for node, topics in self.nodes.following_time:
            if (reached := times.get(topics, time)) > UNKNOWN_TIME:
                node.time_passed(reached)

    def _without_record(self, kind: CallKind, action: Callable[[], T]) -> T:
        self.thread = get_ident()
        self.batch, self.task_time.clock = None, NO_CLOCK
        self._called = ("", 0, 0, 0)
        mark = self._set_undo_mark()
        self.mark.set(kind)
        try:
            return action()
        except BaseException:
            self._undo(mark)
            raise
        finally:
            self._call_began_s = None
            self.mark.clear()

    def schedule(
        self,
        interval_ms: Milliseconds,
        punctuation_type: PunctuationType,
        callback: Punctuator,
        start: int | None,
    ) -> Cancellable:
        """Schedule a punctuation; see `ProcessorContext.schedule`."""
        interval = whole_ms("schedule", "interval_ms", interval_ms, 1)
        if start is not None:
            require_int("schedule: start", start, 0)
        if not isinstance(punctuation_type, PunctuationType):
            raise _wrong("a punctuation is of a PunctuationType, not", punctuation_type)
        if not callable(callback):
            raise _wrong("a punctuation calls a function with the time, not", callback)
        if made := never_run(callback):
            raise InvalidArgumentError(
                f"a punctuation calls a plain function, not {made}: calling it runs nothing"
                f"{place_of_definition(callback)}"
            )
        if self.is_global:
            raise StreamsError(
                "the processor of a global store cannot schedule: it belongs to no task"
            )
        by_stream_time = punctuation_type is PunctuationType.STREAM_TIME
        self._is_interrupted |= by_stream_time
        now = self.task_time.stream_time if by_stream_time else self.clock_ms()
        first = first_due_ms(punctuation_type, interval, now, start)
        return self._queues[punctuation_type].schedule(interval, callback, first)

    def close(self) -> None:
        """Close the processors, parents first. Raises the first error that one of them raised.

        Raises `StreamsError` if one has changed a store: the last commit came before.
        """
        self.thread = get_ident()
        self.mark.set(CallKind.CLOSE)
        self._set_undo_mark()
        try:
            self.nodes.close()
            if name := self.nodes.changed_store:
                raise StreamsError(
                    f'the store "{name}" was changed in close, after the last commit, so the '
                    "change is lost: use stores in process or in a punctuation"
                )
        finally:
            self.mark.clear()
            for queue in self._queues.values():
                queue.clear()

    def _call(self, callback: Callable[[int], object], time: int) -> None:
        self.time = time
        self._call_began_s = monotonic()
        if (returned := callback(time)) is not None:
            refuse_lost(callback, returned)

    def process_mixed(self, turns: Sequence[Turn]) -> tuple[int, Exception | None]:
        """Process the first of these records, which are of several sources, as batches.

        Returns what `process_turns` returns; there is a `mixed` processor.
        """
        assert self.nodes.mixed is not None
        receive, tables = self.nodes.mixed.receive_batch, self._lookup_tables
        (first, at), self.batch, self.task_time.clock = turns[0], None, NO_CLOCK
        stop = self._turns_to_failed(turns) or len(turns)
        mark, stream_time = self._set_undo_mark(), self.task_time.stream_time
        self._mark_turns(turns)
        try:
            while True:
                batch: MixedBatch | None = None
                last = max(index for each, index in turns[:stop] if each is first)
                offsets = first.offsets[at], first.offsets[last]
                self._called = (first.topic, first.partition, *offsets)
                self._call_began_s = monotonic()
                try:
                    for run in runs_of(turns[:stop], tables):
                        for topic, updates in run.updates.items():
                            tables[topic].process(MixedBatch.of_turns(updates))
                        if run.records:
                            batch = MixedBatch.of_turns(run.records)
                            self.time = batch.timestamps[0]
                            self.task_time.reach(self.time)
                            receive(batch)
                        self.task_time.reach(run.latest_ms)
                    return stop, None
                except (EngineError, PipelineError):
                    raise
                except BaseException as raised:
                    error = as_exception(raised)
                    if not tables and _is_exact(error, batch):
                        return error.index, error
                    self._undo(mark)
                    self.task_time.stream_time = stream_time
                    if stop == 1:
                        return 0, error
                self._failed = turns[stop - 1][0], turns[stop - 1][1] + 1
                stop //= 2
        finally:
            self._call_began_s = None
            self.mark.clear()

    def _mark_turns(self, turns: Sequence[Turn]) -> None:
        """Mark a call about one record, or about records of several partitions."""
        self.thread = get_ident()
        batch, index = turns[0]
        if len(turns) > 1:
            self.mark.set(CallKind.PROCESS)
            return
        offset = batch.offsets[index]
        self.mark.set(CallKind.PROCESS, batch.topic, batch.partition, offset, offset)

    def process_turns(
        self, turns: Sequence[Turn], until_s: float = inf
    ) -> tuple[int, Exception | None]:
        """Process records in their order, up to the first rejected one; see `process`.

        They go one by one unless those of different sources meet only at a `MeetingPoint`. Returns
        how many were processed, and the error of the record after them if it was rejected.
        """
        self._mark_turns(turns)
        try:
            failing = self._turns_to_failed(turns)
            if not failing and self._meeting_points and len(turns) > _FEW_RECORDS:
                if until_s < inf:
                    turns = turns[: self._call_size.limit]
                if self._process_together(turns):
                    return len(turns), None
                failing = len(turns)
            count, error = self._process_turns(turns[:failing] if failing else turns, until_s)
            if count < failing:
                batch, index = turns[failing - 1]
                self._failed = batch, index + 1
            return count, error
        finally:
            self._call_began_s = None
            self.mark.clear()

    def _turns_to_failed(self, turns: Sequence[Turn]) -> int:
        """Return how many of these records are up to the end of those that failed together."""
        if self._failed is None:
            return 0
        (failed, end), self._failed = self._failed, None
        ends = (n for n, (each, i) in enumerate(turns, 1) if each is failed and i + 1 == end)
        return next(ends, 0)

    def _process_together(self, turns: Sequence[Turn]) -> bool:
        """Process records of several sources as a batch of each; undo that if one of them fails."""
        (first, at), self.batch, self.task_time.clock = turns[0], None, NO_CLOCK
        parts = parts_of(turns)
        mark = self._set_undo_mark()
        self.time = first.timestamps[at]
        self.task_time.reach(self.time)
        last = at + len(parts[0][2]) - 1
        self._called = (first.topic, first.partition, first.offsets[at], first.offsets[last])
        began_s = self._call_began_s = monotonic()
        try:
            self._receive_parts(parts)
        except (EngineError, PipelineError):
            raise
        except BaseException as raised:
            as_exception(raised)
            for point in self._meeting_points:
                point.give_up()
            self._undo(mark)
            return False
        self._call_size.learn(len(turns), monotonic() - began_s)
        return True

    def _receive_parts(self, parts: Iterable[tuple[RecordBatch, int, list[int]]]) -> None:
        """Pass on records of each source: a batch, its first index, and their places in order."""
        for point in self._meeting_points:
            point.begin()
        for batch, start, places in parts:
            source = self.nodes.source(batch.topic)
            columns = source.columns(batch, start, start + len(places))
            columns.offsets = places
            self.time_limit.checked = columns.timestamps
            for receive_batch in source.batch_receivers:
                receive_batch(columns)
        for point in self._meeting_points:
            point.end()

    def _process_turns(self, turns: Iterable[Turn], until_s: float) -> tuple[int, Exception | None]:
        set_marks, outputs, task_time = self._set_marks, self.outputs, self.task_time
        source_of = self.nodes.source
        current: RecordBatch | None = None
        self._is_interrupted = False
        count = 0
        now_s = monotonic()
        for batch, index in turns:
            if batch is not current:
                self.batch = current = batch
                source = source_of(batch.topic)
                receivers, read_key, read_value = (
                    source.receivers,
                    source.read_key,
                    source.read_value,
                )
                keys, values, timestamps, headers, clocks = (
                    batch.keys,
                    batch.values,
                    batch.timestamps,
                    batch.headers,
                    batch.clocks,
                )
                task_time.clock = NO_CLOCK
            self.index = index
            if clocks is not None:
                task_time.clock = clocks[index]
            self._call_began_s = now_s
            timestamp = timestamps[index]
            if timestamp > task_time.stream_time:
                task_time.stream_time = timestamp
            for set_mark in set_marks:
                set_mark()
            mark = len(outputs)
            key, value = keys[index], values[index]
            try:
                record = Record(
                    None if key is None else read_key(key),
                    None if value is None else read_value(value),
                    timestamp,
                    () if headers is None else tuple(headers[index] or ()),
                )
                for receive in receivers:
                    if (returned := receive(record)) is not None:
                        refuse_lost(receive, returned)
            except (EngineError, PipelineError):
                raise
            except BaseException as raised:
                error = as_exception(raised)
                self._undo(mark)
                return count, error
            count += 1
            now_s = monotonic()
            if self._is_interrupted or now_s >= until_s:
                break
        return count, None

    def _process_columns(
        self, source: RunningSource, batch: RecordBatch, start: int, stop: int, until_s: float
    ) -> Rejection | int:
        """Process as many records as possible as one batch, by halving it as long as it fails.

        With a time limit, the batch is no larger than one call should take.
        """
        if until_s < inf:
            stop = min(stop, start + self._call_size.limit)
        failed, self._failed = self._failed, None
        if failed is not None and failed[0] is batch and start < failed[1] < stop:
            stop = failed[1]
        mark = self._set_undo_mark()
        self.time = batch.timestamps[start]
        self.task_time.reach(self.time)
        self.task_time.clock = NO_CLOCK
        while True:
            columns = None
            offsets = batch.offsets
            self._called = (batch.topic, batch.partition, offsets[start], offsets[stop - 1])
            began_s = self._call_began_s = monotonic()
            try:
                columns = source.columns(batch, start, stop)
                self.time_limit.checked = columns.timestamps
                for receive_batch in source.batch_receivers:
                    receive_batch(columns)
                self._call_size.learn(stop - start, monotonic() - began_s)
                return stop
            except (EngineError, PipelineError):
                raise
            except BaseException as raised:
                error = as_exception(raised)
                if _is_exact(error, columns) and len(source.batch_receivers) == 1:
                    return Rejection(start + error.index, error)
                self._undo(mark)
                if stop - start == 1:
                    return Rejection(start, error)
            self._failed = batch, stop
            stop = (start + stop) // 2

    def _set_undo_mark(self) -> int:
        """Set the undo mark of all stores; return that of the outputs, for `_undo`."""
        for set_mark in self._set_marks:
            set_mark()
        return len(self.outputs)

    def _undo(self, mark: int) -> None:
        """Undo everything since the last undo mark."""
        del self.outputs[mark:]
        for undo in self._undos:
            undo()


def _is_exact(error: Exception, batch: Batch | None) -> TypeGuard[RecordRejectedError]:
    """Whether an error says which record of a batch is at fault."""
    return (
        isinstance(error, RecordRejectedError)
        and batch is not None
        and error.batch is batch
        and 0 <= error.index < len(batch)
    )


def _wrong(words: str, given: object) -> InvalidArgumentError:
    """Return an error about an argument, which may come from a record."""
    return InvalidArgumentError(f"{words} {given!r}", shown=f"{words} a {type(given).__name__}")
