"""A processor replica at work: its records, its turns, and its transactions."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from kafka_pipeline.common.clock import monotonic_ms, shown_moment, wall_clock_ms
from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.committed import Committed, InputProgress, offsets_of
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import Partition, TransactionFailedError
from kafka_pipeline.common.kafka.data import ReadError
from kafka_pipeline.common.process.fault_points import reach
from kafka_pipeline.common.protocol.key_warnings import KeyWarning
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.topics import TopicLimits
from kafka_pipeline.streams.engine.figures import TaskFigures
from kafka_pipeline.streams.engine.group_task import GroupTask, StepResult
from kafka_pipeline.streams.engine.key_watch import KeyWatch
from kafka_pipeline.streams.engine.outputs import OutputColumns
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.engine.runtime import UserCall
from kafka_pipeline.streams.engine.user_errors import reason
from kafka_pipeline.streams.event_time.input_time import InputTime
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.pipeline.units import settings_of
from kafka_pipeline.taskmanager.clients import Brokers, TransactionalProducer
from kafka_pipeline.taskmanager.past_records import PastRecords
from kafka_pipeline.taskmanager.running_task import (
    EventTime,
    RunningTask,
    TaskContext,
    TaskMemory,
    Turn,
)
from kafka_pipeline.taskmanager.task_stores import TaskStores
from kafka_pipeline.taskmanager.user_errors import log_context

REFRESH_INTERVAL_S = 12 * 3600
FIRST_REFRESH_S = 60.0
"""When a task that has started commits its former offsets again, unless it has committed others:
it may never run for so long as the interval, as with a restart each day."""
TELL_INTERVAL_S = 1.0
"""The shortest interval of commits without records, which only publish the task's event time."""
RECHECK_INTERVAL_S = 5.0
BUFFERED_BYTES = 16 * 1024 * 1024
"""If this many bytes of a partition are waiting, no more is fetched for it."""
_OVERFULL = 4
"""The partition is paused only once so many further batches, or times as many bytes, are waiting: a
pause makes librdkafka drop the records that it has fetched ahead, and fetch them again later."""


class KafkaOutputTopics:
    """What nodes need to know about their output topics; see `streams.engine.outputs`."""

    def __init__(
        self,
        producer: TransactionalProducer,
        brokers: Brokers,
        limits: Mapping[str, TopicLimits],
    ) -> None:
        """`limits` has those of the topics that the producer knows."""
        self._producer = producer
        self._brokers = brokers
        self._partitions: dict[str, int] = {}
        self._limits = dict(limits)
        self._rechecked_s: dict[str, float] = {}

    def num_partitions(self, topic: str) -> int:
        count = self._partitions.get(topic)
        if count is None:
            count = self._partitions[topic] = self._producer.num_partitions(topic)
        return count

    def limits(self, topic: str) -> TopicLimits:
        if topic not in self._limits:
            found = self._brokers.topic_limits([topic])[topic]
            self._producer.learn_size_limit(topic, found.size_bytes)
            self._limits[topic] = found
        return replace(self._limits[topic], size_bytes=self._producer.size_limit(topic))

    def recheck_limits(self, topic: str) -> None:
        now_s = time.monotonic()
        if now_s - self._rechecked_s.get(topic, float("-inf")) < RECHECK_INTERVAL_S:
            return
        self._rechecked_s[topic] = now_s
        if self._brokers.topic_limits([topic])[topic] != self._limits[topic]:
            raise TransactionFailedError(f"the settings of topic {topic} have changed")


class Task(RunningTask):
    """Runs one processor replica; see `RunningTask`, and `ProcessorStart` for how it is created.

    A task of a built-in type sends its outputs at the end of each turn. Outputs of user code are
    kept until the commit: no transaction is open while user code runs, so it may take as long as it
    likes.
    """

    state = TaskState.RUNNING

    def __init__(
        self,
        replica: ProcessorReplica,
        context: TaskContext,
        memory: TaskMemory,
        log: Any,
        *,
        producer: TransactionalProducer,
        stores: TaskStores,
        nodes: GroupTask,
        key_watch: KeyWatch,
        input_time: InputTime | None,
        holds: tuple[tuple[str, int], ...],
        positions: dict[Partition, Committed],
        past: Mapping[Partition, PastRecords],
        group_metadata: Any,
        kept_ms: Mapping[str, int],
    ) -> None:
        """`input_time` is the event time of the inputs, `None` if no task needs it.

        Records may wait in the nodes for as much event time as `holds` says, see `InputProgress`.
        `kept_ms` says at which age Kafka deletes the records of each output topic.
        """
        super().__init__(offsets_of(positions), stores, past)
        self._replica = replica
        self._context = context
        self._memory = memory
        self._log = log
        self._kept_ms = kept_ms
        self._producer = producer
        self._nodes = nodes
        self._key_watch = key_watch
        memory.key_warnings = ()
        self._input_time = input_time
        self._holds = holds
        self._tells_progress = input_time is not None and bool(replica.arcs)
        self._group_metadata = group_metadata
        self._sends_early = kind_of(replica.spec).is_inline
        self._positions = positions
        """The positions that the open transaction commits."""
        self._epochs = {partition: at.leader_epoch for partition, at in positions.items()}
        """The largest leader epochs of the records that have arrived."""
        self._figures = TaskFigures()
        """The figures of the open transaction."""
        self._opened_at_s: float | None = None
        self._committed_at_s = time.monotonic()
        self._refresh_after_s = FIRST_REFRESH_S if memory.committed else REFRESH_INTERVAL_S
        self._closing: UserCall | None = None
        self._inbox: deque[RecordBatch] = deque()
        """The records that have arrived since the last turn began."""
        self._arrived = dict.fromkeys(self.partitions, 0)
        self._taken_in = dict.fromkeys(self.partitions, 0)
        """Counts of records: those that arrived, counted by the loop, and those moved from `_inbox`
        to the nodes, counted by the thread that has the turn."""
        self._ends_seen: dict[Partition, int] = {}
        """The ends of partitions that the reader knew when their last records arrived."""
        self._bytes = dict.fromkeys(self.partitions, 0)
        """The bytes that have arrived since the partition last had no waiting records."""
        buffered = settings_of(replica).buffered_records
        self._full = buffered
        self._overfull = buffered + _OVERFULL * context.config.max_batch_records

    # For the loop of the PipelineThread, at any time

    def add(self, batch: RecordBatch) -> None:
        """Take in records of one of the task's partitions; a turn processes them."""
        partition = (batch.topic, batch.partition)
        if not self._waiting(partition):
            self._bytes[partition] = 0
        size = batch.value_bytes()
        self._bytes[partition] += size
        self._memory.fetched_bytes += size
        self.read[partition] = batch.offsets[-1] + 1
        self._arrived[partition] += len(batch)
        self._inbox.append(batch)
        if (reader := self.readers.get(partition)) is not None:
            self._epochs[partition] = reader.leader_epoch(partition)
            if self._nodes.accumulates:
                # After all else: once `_all_here` sees it, the inbox has the records before it.
                self._ends_seen[partition] = reader.known_end(partition)

    @property
    def has_records(self) -> bool:
        return any(map(self._waiting, self.partitions)) or self._nodes.is_accumulating

    @property
    def has_calls(self) -> bool:
        return self._nodes.has_calls

    @property
    def has_own_thread(self) -> bool:
        """Whether Spark or the calls of an `AsyncProcessor` do the work.

        Tasks that read global stores share the thread that updates these stores.
        """
        nodes = self._nodes.runtime.nodes
        waits = kind_of(self._replica.spec).needs_spark or bool(nodes.asynchronous)
        return waits and not nodes.reads_global_stores

    @property
    def call(self) -> UserCall | None:
        return self._closing or self._nodes.call

    @property
    def event_time(self) -> EventTime:
        """The event time of the task, by its inputs if they are watched, or else by its records."""
        newest_ms, known = max(map(self._nodes.partition_time, self.partitions)), self._input_time
        time_ms = newest_ms if known is None else known.time_ms
        if known is not None and known.follows_records:
            time_ms = max(time_ms, newest_ms)
        return EventTime(time_ms, newest_ms)

    def reached_end(self, partition: Partition, offset: int) -> None:
        super().reached_end(partition, offset)
        # Committed offsets do not step over the markers of transactions.
        watch, task = self._context.lag_watch, self._replica.task
        watch.nothing_between(task, partition, self.read[partition], offset)

    def loss_of_input(self, error: ReadError) -> EngineError:
        """Return the error that ends the task: no records are skipped."""
        return self._memory.doubt.claim(error)

    def is_full(self, partition: Partition) -> bool:
        waiting = self._waiting(partition)
        return waiting >= self._full or (waiting > 0 and self._bytes[partition] >= BUFFERED_BYTES)

    def is_overfull(self, partition: Partition) -> bool:
        waiting, size = self._waiting(partition), self._bytes[partition]
        return waiting >= self._overfull or (waiting > 0 and size >= _OVERFULL * BUFFERED_BYTES)

    def _waiting(self, partition: Partition) -> int:
        in_inbox = self._arrived[partition] - self._taken_in[partition]
        return in_inbox + self._nodes.waiting(partition)

    # For the loop of the PipelineThread, while no other thread works on the task

    @property
    def is_time_due(self) -> bool:
        return self._nodes.is_time_due(self._ends_taken_in())

    @property
    def needs_refresh(self) -> bool:
        """Whether the offsets must be committed again, although no records were processed.

        Either the last commit is so old that the brokers may soon forget it, or event time has
        advanced without records, which the readers of the results must learn.
        """
        # With order by key, outputs of calls must not be committed before the calls return.
        if self._nodes.has_calls:
            return False
        age_s = time.monotonic() - self._committed_at_s
        if self._tells_progress and age_s >= TELL_INTERVAL_S:
            ends = self._ends_taken_in()
            if any(self._progress(p, ends) != self._positions[p].progress for p in self.partitions):
                return True
        return age_s > self._refresh_after_s

    @property
    def has_lost_connection(self) -> bool:
        """Whether a connection broke; False while a transaction is open, which may still commit."""
        return self._opened_at_s is None and self._producer.is_suspect

    def require_connection(self) -> None:
        """Raise `FencedError` or `TransactionFailedError` if it `has_lost_connection`."""
        self._producer.require_connected()

    def wake_in_ms(self) -> int | None:
        return self._nodes.wake_in_ms(monotonic_ms())

    # One at a time

    def turn(self, until_s: float) -> Turn:
        """Process waiting records, at least one, until `time.monotonic()` reaches `until_s`.

        Raises `TransactionFailedError`, `FencedError`, `NonRetriableError`, or
        `StoreCorruptedError`. Raises `ProcessingFailedError` for a record that is rejected while
        `on_error` is `fail`; the records before it are processed, and may be committed.
        """
        try:
            with log_context(self._replica.task):
                step = self._step(until_s)
        except ProcessingFailedError:
            self._send_early()
            raise
        finally:
            self._note_oldest()
        self._send_early()
        return Turn(*step)

    def _step(self, until_s: float) -> StepResult:
        # First the ends, then the records: all records before these ends are in the inbox.
        ends, all_here = self._ends_reached(), self._all_here()
        while self._inbox:
            batch = self._inbox.popleft()
            if found := self._key_watch.look(batch):
                self._warn_of_keys(found)
            self._nodes.add(batch)
            self._taken_in[batch.topic, batch.partition] += len(batch)
        self._note_oldest()
        return self._nodes.step(monotonic_ms(), ends, until_s, all_here | ends.keys())

    def _warn_of_keys(self, found: Sequence[KeyWarning]) -> None:
        self._memory.key_warnings = self._key_watch.warnings
        logged = self._context.logged_keys
        for warning in found:
            if warning not in logged:
                logged.add(warning)
                self._log.warning(
                    "records with the same key do not meet",
                    topic=warning.topic,
                    reason=warning.text,
                )

    @property
    def has_uncommitted(self) -> bool:
        has_sent = self._opened_at_s is not None
        has_changed = self.stores.have_changed and self._nodes.is_committable
        return has_sent or self._nodes.has_uncommitted or has_changed

    @property
    def transaction_age_s(self) -> float:
        return 0.0 if self._opened_at_s is None else time.monotonic() - self._opened_at_s

    def commit(self) -> None:
        """Commit outputs, dead letters, state and input positions in one transaction.

        Before it, and before that transaction opens, exact sinks commit what is theirs.
        Local state is committed after Kafka has confirmed. Blocks for some ms, at most the
        transaction timeout. Raises `TransactionFailedError`, `FencedError`, `NonRetriableError`, or
        `StoreCorruptedError`; the transaction may be committed all the same.
        """
        self._write_sinks()
        self._send()
        self._commit()

    def refresh(self) -> None:
        """Commit the positions again, without records, in a separate transaction.

        Brokers forget offsets of a group without members 7 days after the last commit
        (`offsets.retention.minutes`), and transactional ids likewise. Raises as `commit` does.
        """
        self._write_sinks()
        self._begin()
        self._note_positions()
        self._commit()

    def close(self) -> None:
        self._closing = UserCall("`close`", time.monotonic())
        try:
            with log_context(self._replica.task):
                self._nodes.close()
        except BaseException as raised:
            error = as_exception(raised)
            self._context.user_errors.record(error, self._log)
            with_values = self._context.config.log_record_values
            why = reason(error, with_values=with_values)
            self._log.warning("a processor did not close cleanly", reason=why)
        self.release()

    def release(self) -> None:
        """Close the clients and the stores; the next fence aborts an open transaction."""
        self.abandon()
        self.stores.close()

    def abandon(self) -> None:
        self._opened_at_s = None
        self._context.time_watch.forget(self._replica.task, self._input_time)
        self._context.global_stores.release(self._replica.task)
        self._producer.close()

    def end_abandoned(self, _result: object = None) -> None:
        """Close the stores, because the next start or a standby needs their folders."""
        self.stores.close()

    # Transactions

    def _write_sinks(self) -> None:
        if not self._nodes.has_exact_sinks:
            return
        (partition,) = self.partitions
        position = self._nodes.position(partition)
        reach("before-write")
        self._nodes.write_sinks(self._positions[partition].offset if position is None else position)
        reach("after-write")

    def _send_early(self) -> None:
        if self._sends_early and self._nodes.has_uncommitted:
            self._send()

    def _send(self) -> None:
        """Send the outputs of the nodes, and record their positions."""
        outputs, figures = self._nodes.take()
        if self._opened_at_s is None:
            self._begin()
        producer = self._producer
        run: Any
        for kind, run in groupby(outputs, type):
            if kind is not OutputColumns:
                producer.send_records(list(run))
                continue
            for columns in run:
                producer.send_columns(
                    columns.topic,
                    columns.keys,
                    columns.values,
                    columns.timestamps,
                    columns.headers,
                    columns.partitions,
                )
        self._figures += figures
        self._note_positions()

    def _note_positions(self) -> None:
        """Take the nodes' positions and times over, for the commit."""
        before = self._memory.figures
        skipped = before.skipped + self._figures.skipped
        dead_letters = before.dead_letters + self._figures.dead_letters
        dropped = self._dropped()
        ends = self._ends_taken_in()
        for partition in self.partitions:
            position, former = self._nodes.position(partition), self._positions[partition]
            progress = self._progress(partition, ends)
            if position is None:
                self._positions[partition] = former._replace(progress=progress)
                continue
            time_ms = self._nodes.partition_time(partition)
            self._positions[partition] = Committed(
                position,
                time_ms,
                skipped,
                dead_letters,
                progress,
                dropped,
                leader_epoch=self._epochs[partition],
            )

    def _dropped(self) -> tuple[tuple[str, int], ...]:
        """Return all records that the task has dropped, including those of the open transaction."""
        before, done = self._memory.figures, self._figures
        if not before.dropped and not done.dropped:
            return ()
        both = TaskFigures(dropped=before.dropped) + TaskFigures(dropped=done.dropped)
        return tuple(both.dropped_by_reason.items())

    def _progress(
        self, partition: Partition, ends: Mapping[Partition, int]
    ) -> InputProgress | None:
        """Return the progress of an input for readers of the results; `None` if none needs it."""
        if not self._tells_progress:
            return None
        reached = max(self._nodes.reached(partition, ends), self._positions[partition].offset)
        found = self._nodes.progress(partition)
        return InputProgress(reached, found.time_ms, found.sources_ms, found.is_idle, self._holds)

    def _begin(self) -> None:
        self._producer.begin()
        self._opened_at_s = time.monotonic()
        reach("before-produce")

    def _commit(self) -> None:
        memory = self._memory
        self.stores.send(self._producer, self._replica.task.partition)
        if not self.stores.are_proven:
            self.stores.prove(self._producer.deliver_state())
        state_offsets = self._producer.commit(self._positions, self._group_metadata)
        offsets = offsets_of(self._positions)
        memory.committed.update(offsets)
        self._context.lag_watch.done_up_to(self._replica.task, offsets)
        reach("after-commit")
        self._opened_at_s, self._committed_at_s = None, time.monotonic()
        self._refresh_after_s = REFRESH_INTERVAL_S
        now_ms = monotonic_ms()
        memory.commit_figures(self._figures, now_ms)
        if self._figures.dead_letters and memory.letter_warnings.admits(now_ms):
            self._log.warning(
                "records go to the dead letters",
                topic=self._replica.dead_letter_topic,
                total=memory.figures.dead_letters,
            )
        self._warn_of_old_results()
        self._figures = TaskFigures()
        if not self.stores.commit(state_offsets) or self._producer.is_suspect:
            raise TransactionFailedError("a connection broke during the commit")
        memory.state_bytes = self.stores.disk_bytes()

    def _warn_of_old_results(self) -> None:
        """Log once if Kafka deletes results soon: it does so by the records' own times."""
        if not self._kept_ms:
            return
        newest_ms = max(each.time_ms for each in self._positions.values())
        if newest_ms < 0:
            return
        kept, self._kept_ms = self._kept_ms, {}
        age_ms = wall_clock_ms() - newest_ms
        for topic, kept_ms in kept.items():
            if kept_ms < age_ms:
                self._log.warning(
                    "Kafka deletes these results soon, as their own times are older than what the "
                    'topic keeps; what to do: docs/how-to/troubleshoot.md, "No results come"',
                    topic=topic,
                    retention_ms=kept_ms,
                    newest=shown_moment(newest_ms),
                )

    def _note_oldest(self) -> None:
        oldest_ms = self._nodes.oldest_waiting_ms
        self._context.lag_watch.oldest_waits_since(self._replica.task, oldest_ms)

    def _ends_reached(self) -> dict[Partition, int]:
        """Return the ends of the partitions that were read up to the last known end."""
        return {p: end for p, at in self.read.items() if (end := self._ends.get(p, -1)) >= at}

    def _all_here(self) -> set[Partition]:
        """Return the partitions of which all records that the reader knew of have arrived.

        The last offset may be the marker of a transaction. If it is a record, that comes next.
        """
        seen = self._ends_seen
        return {p for p, at in self.read.items() if 0 <= seen.get(p, -1) - at <= 1}

    def _ends_taken_in(self) -> dict[Partition, int]:
        """Return the ends of partitions whose records have all left the inbox.

        Records may arrive while a turn runs, or while the task waits for one. Their ends are looked
        up first: an end arrives after all records before it.
        """
        ends = self._ends_reached()
        return {p: end for p, end in ends.items() if self._arrived[p] == self._taken_in[p]}
