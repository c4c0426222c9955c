"""One task of a node group: queues in front of its nodes, and the handling of bad records."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import replace
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.errors import EngineError, PipelineError
from kafka_pipeline.common.protocol.suspects import CallKind
from kafka_pipeline.common.record_batch import OutputRecord, RecordBatch
from kafka_pipeline.streams.clocks import clocked, clocks_of
from kafka_pipeline.streams.engine.exact_sink import SinkStart
from kafka_pipeline.streams.engine.figures import TaskFigures
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.outputs import NOTES, Dropped, OutputColumns
from kafka_pipeline.streams.engine.record_accumulator import RecordAccumulator
from kafka_pipeline.streams.engine.record_queues import (
    NEVER_WAIT,
    Partition,
    RecordQueues,
    RecordSpan,
    parts_of,
)
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError, RejectedRecords
from kafka_pipeline.streams.engine.runtime import GroupRuntime, Rejection, UserCall
from kafka_pipeline.streams.engine.suspect_records import EndedWorkersError, SuspectRecords
from kafka_pipeline.streams.engine.task_environment import TaskEnvironment
from kafka_pipeline.streams.engine.task_time import TaskTime
from kafka_pipeline.streams.engine.timestamp_extraction import timed
from kafka_pipeline.streams.engine.user_errors import reason
from kafka_pipeline.streams.event_time.input_time import SOURCE, InputTime
from kafka_pipeline.streams.event_time.progress import Progress
from kafka_pipeline.streams.event_time.step_time import EXPIRED
from kafka_pipeline.streams.processor import RecordRejectedError
from kafka_pipeline.streams.punctuation import PunctuationType
from kafka_pipeline.streams.timestamps import (
    INVALID_TIMESTAMP,
    UNKNOWN_TIME,
    takes_the_topics,
)

_ACCUMULATING_MS = 5
_SHORT_SPAN = 8
"""The largest span that is cheaper record by record than as a batch."""
_LONG_SPAN = 1_000
"""The largest span that is cheaper together with those of other partitions, where possible."""
_MOST_TURNS = 500
_MOST_TOGETHER = 2_000
_MOST_MIXED = 20_000


class StepResult(NamedTuple):
    """The work left after a `GroupTask.step`."""

    has_more: bool
    """Whether the step ended early, and the next step may process records at once."""
    wants_commit: bool
    """Whether a processor has asked for a commit."""
    took_all: bool = False
    """Whether a task that `accumulates` has processed all that was known of its inputs."""


class GroupTask:
    """Takes batches in and processes their records in order. No Kafka in here.

    The caller fills the task with `add`, calls `step` as long as it `has_more`, sends what `take`
    returns, and commits `position` and the stores. Only one thread at a time may use a task, but
    any thread may read `call`, `waiting` and `is_accumulating`.
    """

    def __init__(
        self,
        group: NodeGroup,
        partitions: Collection[Partition],
        settings: GroupSettings,
        environment: TaskEnvironment,
        *,
        times: Mapping[Partition, int] = {},
        input_time: InputTime | None = None,
        on_user_error: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """Make the nodes; see `GroupRuntime`. Raises whatever users' processors raise in `init`.

        `times` has the committed partition times. `input_time` says how far event time is where
        steps need that, in this task or downstream of its topics. `on_user_error` gets the
        errors that processors raise later, even if `on_error` lets the task go on.
        """
        self._settings = settings
        self._on_user_error = on_user_error
        self._with_values = environment.log_record_values
        self._clock_ms = environment.clock_ms
        self._time = TaskTime(partitions, times)
        self._input_time = input_time
        if input_time is not None:
            self._time.follows_records = input_time.follows_records
        self._passed = UNKNOWN_TIME
        """The event time that the nodes know of."""
        self._runtime = GroupRuntime(group, environment, self._time)
        self._times: dict[tuple[str, ...], int] = {}
        """Those of nodes that do not wait for records that come back."""
        self._apart: set[tuple[str, ...]] = set()
        """The topics that lead to such nodes."""
        if input_time is not None and input_time.returning:
            self._apart = set(filter(None, self._runtime.nodes.held_from.values()))
        self._exact_sinks = self._runtime.nodes.exact_sinks
        idle_ms = NEVER_WAIT if settings.takes_inputs_as_they_come else settings.task_idle_ms
        is_ordered = not settings.takes_inputs_as_they_come
        self._queues = RecordQueues(
            partitions,
            idle_ms,
            is_ordered,
            input_time if group.looks_up else None,
            settings.buffered_records,
            group.feedback_topics,
        )
        self._accumulator = RecordAccumulator() if settings.accumulates else None
        self._takes_turns = (
            is_ordered
            and self._accumulator is None
            and len(partitions) > 1
            and all(self._runtime.nodes.source(topic).takes_records for topic, _ in partitions)
        )
        """Whether records of several partitions are put in order at once where spans are short."""
        together = bool(self._runtime.nodes.meeting_points)
        self._short_span = _LONG_SPAN if together else _SHORT_SPAN
        self._most_turns = _MOST_TOGETHER if together else _MOST_TURNS
        must_order = is_ordered and len(partitions) > 1
        self._is_mixed = must_order and self._runtime.nodes.mixed is not None
        self._figures = TaskFigures()
        self._late: Counter[str] = Counter()
        """How many late entries the figures already include, by store."""
        self._enforced = 0
        self._suspects = SuspectRecords(environment.suspects)
        self._rejected = RejectedRecords(self._runtime, settings, environment, on_user_error)
        self._now_ms = 0
        """The time of the step that is in progress, by its caller's clock."""

    @property
    def runtime(self) -> GroupRuntime:
        """The nodes."""
        return self._runtime

    @property
    def call(self) -> UserCall | None:
        """The call of user code in progress; never blocks."""
        return self._runtime.call

    @property
    def has_uncommitted(self) -> bool:
        """Whether anything was done since the last `take` that can be committed now."""
        if not self.is_committable:
            return False
        figures = self._figures
        return bool(self._runtime.outputs or figures.records_in or figures.dropped)

    @property
    def is_committable(self) -> bool:
        """Whether outputs and stores reflect exactly the records before `position`."""
        return all(node.calls.is_committable for node in self._runtime.nodes.asynchronous)

    @property
    def has_calls(self) -> bool:
        """Whether calls of an `AsyncProcessor` are in flight."""
        return any(map(len, (node.calls for node in self._runtime.nodes.asynchronous)))

    @property
    def accumulates(self) -> bool:
        """Whether records may be held back."""
        return self._accumulator is not None

    @property
    def is_accumulating(self) -> bool:
        """Whether records are held back, which `step` processes as soon as no more come."""
        return self._accumulator is not None and len(self._accumulator) > 0

    def wake_in_ms(self, now_ms: int) -> int | None:
        """Return in how many ms, 0 or more, `step` has something to do even if no record comes.

        `None` if it never has: no records wait for time to pass, and no punctuation is scheduled
        by the wall clock.
        """
        waits = []
        if self.is_accumulating:
            waits.append(_ACCUMULATING_MS)
        if (deadline_ms := self.waits_until_ms) is not None:
            waits.append(deadline_ms - now_ms)
        if self._input_time is not None and (idle_ms := self._input_time.next_idle_ms) is not None:
            waits.append(idle_ms - now_ms)
        if (due_ms := self._runtime.next_wall_clock_punctuation) is not None:
            waits.append(due_ms - self._clock_ms())
        return max(min(waits), 0) if waits else None

    @property
    def waits_until_ms(self) -> int | None:
        """When the wait for other partitions ends, by the clock of `step`; `None` without one."""
        return self._queues.next_deadline_ms

    @property
    def oldest_waiting_ms(self) -> int | None:
        """The timestamp of the oldest record that was added but not processed, or `None`."""
        waiting = [self._queues.oldest_ms]
        if self._accumulator is not None:
            waiting.append(self._accumulator.oldest_ms)
        return min((ms for ms in waiting if ms is not None), default=None)

    def position(self, partition: Partition) -> int | None:
        """Return the offset to commit; `None` if nothing of the partition was read yet."""
        for node in self._runtime.nodes.asynchronous:
            if (position := node.calls.position(partition)) is not None:
                return position
        return self._queues.position(partition)

    def partition_time(self, partition: Partition) -> int:
        """Return the largest timestamp before the position, to commit with it; -1 if none."""
        return self._time.processed(partition)

    def progress(self, partition: Partition) -> Progress:
        """Return how far an input is in event time before the position, to commit with it."""
        known = self._input_time
        assert known is not None, "there is somebody who asks"
        found = known.known(partition)
        if known.writers(partition) != SOURCE:
            return found
        # Of a single source partition, those who ask see for themselves whether it is idle.
        is_idle = found.is_idle and not known.is_single
        time_ms = self._time.processed(partition)
        return Progress(time_ms, is_idle, time_ms)

    def waiting(self, partition: Partition) -> int:
        """Return how many records of the partition wait for `step`."""
        return self._queues.waiting(partition)

    def add(self, batch: RecordBatch) -> None:
        """Take in records that follow everything that was added of their partition.

        Runs the timestamp extractor; raises if the extractor loses what it needs, such as a
        registry.
        """
        for part in self._suspects.parts(batch):
            if self._accumulator is not None:
                self._accumulator.add(part)
            else:
                self._take_in(part)

    def _take_in(self, batch: RecordBatch) -> None:
        partition = (batch.topic, batch.partition)
        end = batch.offsets[-1] + 1
        known = self._input_time
        is_source = known is not None and known.writers(partition) == SOURCE
        known_ms = self._time.taken_in(partition)
        if known is not None and known.writers(partition) > 0:
            batch = clocked(batch)
        parts = self._timed(batch)
        for part in parts:
            clocks = clocks_of(part.timestamps, known_ms) if is_source else None
            self._queues.add(part if clocks is None else replace(part, clocks=clocks))
            if is_source and len(part):
                known_ms = max(known_ms, part.largest_timestamp(0, len(part)))
        self._queues.read_up_to(partition, end)
        if dropped := len(batch) - sum(map(len, parts)):
            self._figures.dropped[Dropped(INVALID_TIMESTAMP, batch.topic)] += dropped

    def _timed(self, batch: RecordBatch) -> list[RecordBatch]:
        """Return the batch with the times that its source's extractor gives; see `timed`."""
        if isinstance(batch.cause, EndedWorkersError):
            return [batch]
        runtime, offsets = self._runtime, batch.offsets
        source, limit = runtime.nodes.source(batch.topic), runtime.time_limit
        has_calls = not takes_the_topics(source.timestamp_extractor)
        if has_calls:
            runtime.mark.set(CallKind.READ, batch.topic, batch.partition, offsets[0], offsets[-1])
        found = timed(batch, source, self._time, limit, with_values=self._with_values)
        if has_calls:
            runtime.mark.clear()
        return found

    def step(
        self,
        now_ms: int,
        ends_reached: Mapping[Partition, int],
        until_s: float = inf,
        all_here: Container[Partition] | None = None,
    ) -> StepResult:
        """Process records that are ready, then do what is due by event time and the wall clock.

        `now_ms` comes from a clock that only goes forward. `ends_reached` has the partitions of
        which everything was added that the brokers are known to have, with their ends; see
        `RecordQueues`. `all_here` has those of which no more records are known to come at once: an
        accumulator does not wait for them. By default, they are those of `ends_reached`. The step
        ends early when `until_s` (of `time.monotonic`) has passed, or after a record whose
        processor asked for a commit, but it processes at least one record. If a record fails,
        raises `ProcessingFailedError` once everything before that record is processed.
        """
        self._now_ms = now_ms
        all_here = ends_reached if all_here is None else all_here
        self._runtime.commit_requested = False
        self._do("a call of user code", self._runtime.require_one_thread)
        try:
            return self._step(now_ms, ends_reached, until_s, all_here)
        finally:
            self._runtime.rest()

    def _step(
        self,
        now_ms: int,
        ends_reached: Mapping[Partition, int],
        until_s: float,
        all_here: Container[Partition],
    ) -> StepResult:
        if self._input_time is not None:
            for partition in self._time.partitions:
                self._input_time.read_up_to(partition, self._read(partition, ends_reached))
        if self._runtime.nodes.asynchronous:
            has_more = self._process_asynchronously(now_ms, ends_reached, until_s)
        else:
            self._stop_waiting(all_here)
            has_more = self._process_all(now_ms, ends_reached, until_s) and len(self._queues) > 0
        self._pass_time(now_ms, ends_reached)
        self._punctuate(PunctuationType.WALL_CLOCK_TIME, self._clock_ms())
        return StepResult(has_more, self._runtime.commit_requested, self._took_all(all_here))

    def _took_all(self, all_here: Container[Partition]) -> bool:
        if self._accumulator is None or self.is_accumulating or len(self._queues):
            return False
        return all(partition in all_here for partition in self._time.partitions)

    def _stop_waiting(self, all_here: Container[Partition]) -> None:
        """Put records into the queues that need not wait for more to come."""
        if self._accumulator is not None:
            for batch in self._accumulator.take(all_here):
                self._take_in(batch)

    def _process_all(self, now_ms: int, ends: Collection[Partition], until_s: float) -> bool:
        """Process records that are ready; return whether that ended early."""
        queues, runtime, accumulator = self._queues, self._runtime, self._accumulator
        ends = ends if accumulator is None else accumulator.without_held(ends)
        is_over = False
        while not is_over and queues.is_processable(now_ms, ends):
            most = None if accumulator is None else accumulator.limit
            span = queues.next_span(most, runtime.next_stream_time_punctuation)
            assert span is not None, "what is processable has a next span"
            if accumulator is None:
                if self._is_mixed:
                    self._process_turns(span, _MOST_MIXED, until_s)
                elif not self._takes_turns or span.stop - span.start > self._short_span:
                    self._process(span, until_s)
                else:
                    self._process_turns(span, self._most_turns, until_s)
                is_over = time.monotonic() >= until_s
            else:
                is_over = self._process_accumulated(span, accumulator)
            self._punctuate_by_stream_time()
            is_over = is_over or runtime.commit_requested
        return is_over

    def _process_asynchronously(
        self, now_ms: int, ends_reached: Container[Partition], until_s: float
    ) -> bool:
        """Take results of calls, and begin other calls; return whether there is more to do now.

        Without a time limit, wait for all calls.
        """
        calls = [node.calls for node in self._runtime.nodes.asynchronous]
        while True:
            for each in calls:
                each.expect()
            is_over = self._take_results(until_s)
            if self._runtime.commit_requested:
                return True
            has_room = self._submit(now_ms, ends_reached)
            if is_over:
                return True
            if any(each.next_result for each in calls):
                continue
            if until_s < inf or not self.has_calls:
                return has_room and self._queues.is_processable(now_ms, ends_reached)
            next(each for each in calls if len(each)).wait()

    def _take_results(self, until_s: float) -> bool:
        """Forward results of calls; return whether something else must be done first."""
        runtime = self._runtime
        for node in runtime.nodes.asynchronous:
            while (entry := node.calls.next_result) is not None:
                error = runtime.emit(node, entry) if entry.error is None else entry.error
                if isinstance(error, EngineError | PipelineError):
                    raise error
                if error is not None:
                    self._reject(entry.batch, Rejection(entry.index, error))
                self._figures.records_in += 1
                self._count_times(entry.batch, entry.index, entry.index + 1)
                if node.calls.remove(entry):
                    runtime.request_commit()
                self._punctuate_by_stream_time()
                if runtime.commit_requested or time.monotonic() >= until_s:
                    return True
        return False

    def _submit(self, now_ms: int, ends_reached: Container[Partition]) -> bool:
        """Begin calls as long as there is room; return whether there still is."""
        queues, runtime = self._queues, self._runtime
        while queues.is_processable(now_ms, ends_reached):
            span = queues.next_span()
            assert span is not None, "what is processable has a next span"
            source = runtime.nodes.source(span.batch.topic)
            if source.asynchronous is None:
                span = queues.next_span(until_ms=runtime.next_stream_time_punctuation) or span
                self._process(span, inf)
                self._punctuate_by_stream_time()
                continue
            calls = source.asynchronous.calls
            room = calls.room
            if self._suspects.is_suspect(span.batch, span.start) or self._is_suspect_in_flight():
                room = 0 if self.has_calls else 1
            stop = min(span.stop, span.start + room)
            if stop <= span.start:
                return False
            calls.submit([source.entry(span.batch, at) for at in range(span.start, stop)])
            queues.advance(span.partition, stop - span.start)
        return True

    def _is_suspect_in_flight(self) -> bool:
        oldest = (node.calls.oldest for node in self._runtime.nodes.asynchronous)
        return any(e is not None and self._suspects.is_suspect(e.batch, e.index) for e in oldest)

    def take(self) -> tuple[list[OutputRecord | OutputColumns], TaskFigures]:
        """Return the outputs and the figures since the last call."""
        figures, self._figures = self._figures, TaskFigures()
        outputs: list[Any] = self._runtime.outputs.copy()
        self._runtime.outputs.clear()
        kinds = set(map(type, outputs))
        if not kinds.isdisjoint(NOTES):
            for each in filter(lambda each: type(each) in NOTES, outputs):
                figures.note(each)
            outputs = [each for each in outputs if type(each) not in NOTES]
        columns: list[OutputColumns] = []
        records = outputs
        if OutputColumns in kinds:
            columns = [each for each in outputs if type(each) is OutputColumns]
            records = [each for each in outputs if type(each) is not OutputColumns]
        figures.records_out = len(records) + sum(len(each.keys) for each in columns)
        # The values of records are their third items.
        values = filter(None, map(itemgetter(2), records))
        figures.sent_bytes = sum(map(len, values)) + sum(each.value_bytes for each in columns)
        for store in self._runtime.nodes.counting_stores:
            if late := store.dropped - self._late[store.name]:
                figures.dropped[Dropped(EXPIRED, store.name)] += late
                self._late[store.name] += late
        total = self._queues.enforced_processing_total
        figures.enforced, self._enforced = total - self._enforced, total
        # Dead letters are outputs, but not results.
        figures.records_out -= figures.dead_letters
        return outputs, figures

    @property
    def has_exact_sinks(self) -> bool:
        """Whether results are committed outside of Kafka."""
        return bool(self._exact_sinks)

    def resume_sinks(self, start: SinkStart) -> None:
        """Let the results that are committed outside of Kafka go on. Raises as `ExactSink.resume`.

        `start` is that of the only input.
        """
        for sink in self._exact_sinks:
            sink.resume(start)

    def write_sinks(self, position: int) -> None:
        """Commit outside of Kafka what was done before a position. Raises as `ExactSink.write`."""
        for sink in self._exact_sinks:
            sink.write(position)

    def close(self) -> None:
        """Close the processors. Raises what they raise."""
        self._runtime.close()

    def _process(self, span: RecordSpan, until_s: float) -> None:
        """Process a span, or only the part of it before something else must be done."""
        start, is_done = self._process_from(span, span.start, until_s)
        while not is_done and start < span.stop and time.monotonic() < until_s:
            start, is_done = self._process_from(span, start, until_s)

    def _process_turns(self, span: RecordSpan, most: int, until_s: float) -> None:
        """Process the next records of all partitions, up to the first one that is rejected."""
        runtime = self._runtime
        if self._suspects.one_at_a_time:
            most = 1
        turns = self._queues.next_turns(most, runtime.next_stream_time_punctuation)
        if not turns:
            self._process(span, until_s)
            return
        if self._is_mixed:
            count, error = runtime.process_mixed(turns[:most])
        else:
            count, error = runtime.process_turns(turns, until_s)
        for batch, start, places in parts_of(turns[:count]):
            self._advance(batch, start, start + len(places))
        if error is not None:
            batch, index = turns[count]
            self._reject(batch, Rejection(index, error))
            self._advance(batch, index, index + 1)

    def _process_from(self, span: RecordSpan, start: int, until_s: float) -> tuple[int, bool]:
        """Process up to and including the first record that is rejected, or to the end.

        Return the index after the last processed record, and whether none was rejected.
        """
        batch = span.batch
        end: Rejection | int
        if batch.error:
            end = Rejection(start, batch.cause or RecordRejectedError(batch.error))
        else:
            end = self._runtime.process(batch, start, span.stop, until_s)
        if not isinstance(end, Rejection):
            self._advance(batch, start, end)
            return end, True
        self._advance(batch, start, end.index)
        self._reject(batch, end)
        self._advance(batch, end.index, end.index + 1)
        return end.index + 1, False

    def _process_accumulated(self, span: RecordSpan, accumulator: RecordAccumulator) -> bool:
        """Process up to the first record that is rejected; return whether that took long enough."""
        started_s, waiting = time.perf_counter(), len(self._queues)
        if self._is_mixed:
            self._process_turns(span, accumulator.limit, inf)
        else:
            self._process_from(span, span.start, inf)
        return accumulator.learn(waiting - len(self._queues), time.perf_counter() - started_s)

    def _punctuate_by_stream_time(self) -> None:
        if self._runtime.next_stream_time_punctuation is not None:
            self._punctuate(PunctuationType.STREAM_TIME, self._time.stream_time)

    def _punctuate(self, type_: PunctuationType, now_ms: int) -> None:
        self._do("a punctuation", lambda: self._runtime.punctuate(type_, now_ms))

    def _pass_time(self, now_ms: int, ends: Mapping[Partition, int]) -> None:
        """Let the nodes know how far event time is, as far as all inputs are known to be."""
        if self._input_time is None:
            return
        time = self._input_time.update(
            now_ms, lambda partition: self.reached(partition, ends), self._time.processed, ends
        )
        times = {
            topics: max(self._input_time.time_of(topics), self._times.get(topics, UNKNOWN_TIME))
            for topics in self._apart
        }
        if time > self._passed or times != self._times:
            self._passed, self._times = time, times
            self._do("a result on close", lambda: self._runtime.pass_time(time, times))

    def is_time_due(self, ends: Mapping[Partition, int]) -> bool:
        """Return whether `step` would let event time go on, even without records."""
        known = self._input_time
        return known is not None and known.is_due(
            lambda place: self.reached(place, ends), lambda place: self._read(place, ends)
        )

    def _read(self, partition: Partition, ends: Mapping[Partition, int]) -> int:
        """Return the offset before which all records of a partition wait or were processed."""
        read = self._queues.read_offset(partition)
        return read if self.is_accumulating else max(read, ends.get(partition, 0))

    def reached(self, partition: Partition, ends: Mapping[Partition, int]) -> int:
        """Return the offset before which all records of a partition have been processed."""
        position = self.position(partition) or 0
        if self._queues.waiting(partition) or self.is_accumulating or self.has_calls:
            return position
        return max(position, ends.get(partition, 0))

    def _do(self, what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except (EngineError, PipelineError):
            raise
        except BaseException as raised:
            error = as_exception(raised)
            self._on_user_error(error)
            why = reason(error, with_values=self._with_values)
            raise ProcessingFailedError(f"{what}: {why}", error) from error

    def _advance(self, batch: RecordBatch, start: int, stop: int) -> None:
        self._queues.advance((batch.topic, batch.partition), stop - start)
        self._figures.records_in += stop - start
        self._count_times(batch, start, stop)

    def _count_times(self, batch: RecordBatch, start: int, stop: int) -> None:
        if start < stop and not batch.error:
            largest_ms = batch.largest_timestamp(start, stop)
            self._time.process((batch.topic, batch.partition), largest_ms)

    def _reject(self, batch: RecordBatch, rejection: Rejection) -> None:
        self._rejected.handle(batch, rejection, self._figures, self._now_ms)
