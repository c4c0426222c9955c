"""One task: a processor replica and its transactions, from the input records to the commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from typing import Any

from common.clock import wall_clock_ms
from common.errors import EngineError
from common.fault_points import reach
from common.kafka.clients import HopelessError, Partition, TransactionFailedError
from common.messages import ProcessorReplica
from common.nodes import OnError
from common.record_batch import RecordBatch
from common.status import TaskState, TaskStatus
from common.topics import TopicNames
from streams.errors import StreamsError, SupplierError
from streams.group_task import Figures, GroupTask, ProcessingFailedError
from streams.outputs import OutputColumns, described
from streams.recent import RecentCount
from streams.stores.bytes_store import StoreBytes
from streams.topology import NodeGroup
from streams.units import settings_of, sharing_key
from taskmanager.assigned_task import (
    START_TIMEOUT_S,
    AssignedTask,
    TaskContext,
)
from taskmanager.clients import Brokers, Reader, TransactionalProducer
from taskmanager.task_stores import TaskStores

REFRESH_INTERVAL_S = 12 * 3600
DOUBT_INTERVAL_S = 5.0
_REFRESH_TIMEOUT_S = 3
"""For each step: reports wait meanwhile."""


class _Outlet:
    """What a task must know about the topics that it writes to; see `Outlet`."""

    def __init__(self, producer: TransactionalProducer, brokers: Brokers) -> None:
        self._producer = producer
        self._brokers = brokers
        self._partitions: dict[str, int] = {}
        self._doubted_s: dict[str, float] = {}

    def num_partitions(self, topic: str) -> int:
        count = self._partitions.get(topic)
        if count is None:
            count = self._partitions[topic] = self._producer.num_partitions(topic)
        return count

    def size_limit(self, topic: str) -> int:
        try:
            return self._producer.size_limit(topic)
        except KeyError:
            self._producer.learn_size_limit(topic, self._brokers.size_limits([topic])[topic])
            return self._producer.size_limit(topic)

    def doubt(self, topic: str) -> None:
        now_s = time.monotonic()
        if now_s - self._doubted_s.get(topic, float("-inf")) < DOUBT_INTERVAL_S:
            return
        self._doubted_s[topic] = now_s
        limit = self._brokers.size_limits([topic])[topic]
        if not self._producer.knows_size_limit(topic, limit):
            raise TransactionFailedError(f"max.message.bytes of topic {topic} has changed")


class Task(AssignedTask):
    """Runs one processor replica. Not thread-safe: one caller at a time.

    `start` fences whoever ran the task before, then finds out where to go on. Then, any number
    of times: `process` batches of its partitions, and `commit`. After any error that `start`,
    `process` or `commit` raises, `drop` it; `start` begins anew from what Kafka has committed.
    """

    def __init__(self, replica: ProcessorReplica, context: TaskContext, epoch: int) -> None:
        super().__init__(replica, context, epoch)
        names = TopicNames.of(context.config)
        self.partitions = tuple((topic, replica.task.partition) for topic in replica.in_topics)
        self._transactional_id = names.transactional_id(replica.task)
        self._group = names.consumer_group(replica.task.processor)
        self._producer: TransactionalProducer | None = None
        self._stores: TaskStores | None = None
        self._nodes: GroupTask | None = None
        self._opened_at: float | None = None
        self._committed_at = time.monotonic()
        self._read: dict[Partition, int] = {}
        """The offset behind the last record that was taken in."""
        self._settled: dict[Partition, int] = {}
        """Positions that were committed when this task last heard of it."""
        self._committed = Figures()
        self._enforced_lately = RecentCount()
        self._open = Figures()
        self._transactions = 0
        self._transactions_at_start = 0

    def start(self) -> None:
        """Take the task over: fence, restore, find the positions. Blocks; `drop` it on errors.

        Raises `FencedError`, `HopelessError`, `TransactionFailedError`, `StoreLockedError`,
        `StoreUnavailableError`, `OSError` (the state directory), what users' processors raise in
        `init`, or what has stopped a global store.
        """
        started_s = time.monotonic()
        self.state, self.reason = TaskState.STARTING, ""
        # First of all: a start that fails has not committed anything either.
        self._transactions_at_start = self._transactions
        group = self._node_group()
        written = self._written_topics()
        followed = [store.topic for store in group.global_stores]
        brokers = self._context.clients.brokers
        brokers.topic_ids([*self.replica.in_topics, *followed, *written])
        limits = brokers.size_limits(written)
        self._producer = self._context.clients.producer(self._transactional_id, limits)
        # Made early: one that is asked while it connects may take 0.7 s to answer. Of its own, as a
        # reader is for one thread.
        with closing(self._context.clients.reader(self._group)) as reader:
            reach("before-fence")
            self._require_wanted()  # others may run it by now
            self._producer.fence(START_TIMEOUT_S)
            # Only now: before, the old owner could still commit.
            positions = self._find_positions(group, reader)
            self._stores = TaskStores(group.stores, self.replica.state_topics)
            read = self._restore(self._stores, reader) if group.stores else 0
            self._group_metadata = reader.group_metadata
        views = self._open_global_stores(group)
        self._nodes = self._make_nodes(group, self._stores, views, self._producer)
        self.positions, self._read, self._ends = positions, dict(positions), {}
        self._committed_at = time.monotonic()
        self._run(TaskState.RUNNING, read, started_s)

    @property
    def has_open_transaction(self) -> bool:
        """Whether records were processed that are not committed yet."""
        return self._opened_at is not None

    @property
    def transaction_age_s(self) -> float:
        """Seconds since the open transaction began; 0 without one."""
        return 0.0 if self._opened_at is None else time.monotonic() - self._opened_at

    @property
    def has_committed(self) -> bool:
        """Whether it has committed anything since it was last started."""
        return self._transactions > self._transactions_at_start

    @property
    def needs_refresh(self) -> bool:
        """Whether it has not committed for so long that the brokers may soon forget about it."""
        may_be_idle = self.state in (TaskState.RUNNING, TaskState.FAILED)
        is_idle = may_be_idle and self._opened_at is None
        return is_idle and time.monotonic() - self._committed_at > REFRESH_INTERVAL_S

    @property
    def has_lost_connection(self) -> bool:
        """Whether it waits for records, and must start again before it can process any."""
        is_idle = self.state is TaskState.RUNNING and self._opened_at is None
        return is_idle and self._producer is not None and self._producer.is_doubtful

    def require_connection(self) -> None:
        """Raise `FencedError` or `TransactionFailedError` if it `has_lost_connection`."""
        assert self._producer is not None, "a task is started before it loses anything"
        self._producer.require_undisturbed()

    def process(self, batch: RecordBatch) -> None:
        """Take records of one of the task's partitions in; process them if they need not wait.

        All in a transaction, opened if none is. Raises `TransactionFailedError`, `FencedError`,
        `HopelessError`, or `StoreCorruptedError`; and `ProcessingFailedError` for a record that
        is rejected while `on_error` is `fail`, after committing what came before it.
        """
        assert self._nodes is not None, "a task is started before it processes"
        partition = (batch.topic, batch.partition)
        seen = self._count_seen(batch, self._read[partition])
        if seen < len(batch):
            self._read[partition] = batch.offsets[-1] + 1
            nodes = self._nodes
            self._attempt(nodes, lambda: nodes.add(batch.part(seen, len(batch))))

    def turn(self) -> None:
        """Process what has waited for other inputs, and call what is due by the wall clock.

        To be called after `process`, and every now and then while `needs_turns`. Raises as
        `process`.
        """
        nodes = self._nodes
        assert nodes is not None, "a task is started before it processes"

        def work() -> None:
            nodes.process(_monotonic_ms(), self._partitions_at_end())
            nodes.punctuate(wall_clock_ms())

        self._attempt(nodes, work)

    @property
    def needs_turns(self) -> bool:
        """Whether it has records that wait, or punctuations by the wall clock."""
        return self._nodes is not None and self._nodes.needs_turns

    def is_full(self, partition: Partition) -> bool:
        """Whether so many records of a partition wait that its reading should pause."""
        return self._nodes is not None and self._nodes.is_full(partition)

    @property
    def has_gathered(self) -> bool:
        """Whether records wait that `turn` processes as soon as no more come."""
        return self._nodes is not None and self._nodes.has_gathered

    @property
    def wants_commit(self) -> bool:
        """Whether a processor has asked for a commit."""
        return self._nodes is not None and self._nodes.wants_commit

    def _attempt(self, nodes: GroupTask, action: Callable[[], None]) -> None:
        """Let the nodes work, and send what they put out; commit what came before a failure."""
        try:
            action()
        except ProcessingFailedError:
            self._flush(nodes)
            if self._opened_at is not None:
                self.commit()
            raise
        self._flush(nodes)

    def _flush(self, nodes: GroupTask) -> None:
        """Send what the nodes have put out, and note how far they are."""
        producer = self._producer
        assert producer is not None
        outputs, figures = nodes.take()
        if not (outputs or figures.records_in or figures.dropped or self._has_changes()):
            return
        if figures.dropped:
            self.log.warning("records dropped", records=described(figures.dropped))
        if self._opened_at is None:
            producer.begin()
            self._opened_at = time.monotonic()
            reach("before-produce")
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
                    columns.keyless_partition,
                )
        self._open += figures
        for partition in self.partitions:
            position = nodes.position(partition)
            if position is not None:
                self.positions[partition] = position

    def refresh(self) -> bool:
        """Commit the positions that are committed already, in a transaction of their own.

        Brokers forget offsets of a group without members 7 days after the last commit
        (`offsets.retention.minutes`), and transactional ids likewise. Returns and raises as
        `commit` does; of a task that has failed, whose reason is to stay, errors are only logged.
        """
        if self.state is TaskState.FAILED:
            self._committed_at = time.monotonic()
            self._refresh_failed()
            return True
        assert self._producer is not None, "a task is started before it commits"
        self._producer.begin()
        self._opened_at = time.monotonic()
        return self.commit()

    def commit(self) -> bool:
        """Commit the open transaction: outputs, dead letters, state and input positions.

        Local state follows once Kafka has it. Returns False if the producer is in doubt and the
        task must be dropped and started again before it processes more. Blocks for some ms, at
        most the transaction timeout. Raises as `process` does.
        """
        assert self._producer is not None, "a task is started before it commits"
        assert self._stores is not None
        self._stores.send(self._producer, self.replica.task.partition)
        state_offsets = self._producer.commit(self.positions, self._group_metadata)
        self._settled.update(self.positions)
        reach("after-commit")
        self._opened_at, self._committed_at = None, time.monotonic()
        self._transactions += 1
        if self._nodes is not None:
            self._nodes.wants_commit = False
        self._committed += self._open
        self._enforced_lately.add(self._open.enforced, _monotonic_ms())
        self._open = Figures()
        return self._stores.commit(state_offsets) and not self._producer.is_doubtful

    def drop(self) -> None:
        """Let go of producer and store; an open transaction is left for the next owner's fence."""
        self._opened_at, self._open = None, Figures()
        self._close_nodes()
        self._context.global_stores.release(self)
        if self._producer is not None:
            self._producer.close()
            self._producer = None
        if self._stores is not None:
            self._stores.close()
            self._stores = None

    def _close_nodes(self) -> None:
        if self._nodes is None:
            return
        nodes, self._nodes = self._nodes, None
        try:
            nodes.close()
        except Exception as error:
            self.log.warning("a processor did not close cleanly", reason=str(error))

    def status(self) -> TaskStatus:
        """Return what the heartbeat tells."""
        return replace(
            super().status(),
            records_in=self._committed.records_in,
            records_out=self._committed.records_out,
            skipped=self._committed.skipped,
            dead_letters=self._committed.dead_letters,
            dropped=self._committed.dropped_by_reason,
            enforced=self._committed.enforced,
            enforced_per_minute=self._enforced_lately.in_window(_monotonic_ms()),
            transactions=self._transactions,
        )

    def _refresh_failed(self) -> None:
        clients = self._context.clients
        try:
            with (
                closing(clients.producer(self._transactional_id, {})) as producer,
                closing(clients.reader(self._group)) as reader,
            ):
                producer.fence(_REFRESH_TIMEOUT_S)
                positions = reader.committed(self.partitions, _REFRESH_TIMEOUT_S)
                self._require_settled(positions)
                if positions:
                    producer.begin()
                    producer.commit(positions, reader.group_metadata)
        except EngineError as error:
            self.log.warning("offsets are not committed anew", reason=str(error))

    def _open_global_stores(self, group: NodeGroup) -> dict[str, StoreBytes]:
        if not group.global_stores:
            return {}
        self.state = TaskState.RESTORING
        key = sharing_key(self.replica)
        return self._context.global_stores.open(self, group, key, self._progress)

    def _make_nodes(
        self,
        group: NodeGroup,
        stores: TaskStores,
        global_stores: Mapping[str, StoreBytes],
        producer: TransactionalProducer,
    ) -> GroupTask:
        try:
            return GroupTask(
                group,
                self.partitions,
                settings_of(self.replica),
                application_id=self._context.config.job_name or "",
                task_id=str(self.replica.task),
                number=self.replica.task.partition,
                stores=stores.stores,
                outlet=_Outlet(producer, self._context.clients.brokers),
                clock_ms=wall_clock_ms,
                global_stores=global_stores,
            )
        except SupplierError:
            raise
        except StreamsError as error:
            raise HopelessError(str(error)) from error

    def _written_topics(self) -> list[str]:
        replica = self.replica
        dead_letters = (
            replica.dead_letter_topic if replica.on_error is OnError.DEAD_LETTER else None
        )
        extra = [dead_letters] if dead_letters else []
        return [*replica.out_topics, *replica.state_topics.values(), *extra]

    def _find_positions(self, group: NodeGroup, reader: Reader) -> dict[Partition, int]:
        assert self._producer is not None
        positions = reader.committed(self.partitions, START_TIMEOUT_S)
        self._require_settled(positions)
        from_end = False
        for partition in self.partitions:
            if partition not in positions:
                oldest, end = reader.watermarks(partition, START_TIMEOUT_S)
                is_last = group.begins_at_end(partition[0])
                positions[partition] = end if is_last else oldest
                from_end |= is_last
        if from_end:
            # At once: what comes between now and the first transaction must not be left out.
            self._producer.begin()
            self._producer.commit(positions, reader.group_metadata)
        return positions

    def _require_settled(self, committed: dict[Partition, int]) -> None:
        """Raise `TransactionFailedError` where less is committed than was.

        A group coordinator that is elected, deposed and elected again while it loads answers from
        what it has read so far (seen with Kafka 4.2): to go on there would repeat records.
        """
        for partition, settled in self._settled.items():
            found = committed.get(partition)
            if found is None or found < settled:
                topic, number = partition
                raise TransactionFailedError(
                    f"the committed offset of {topic}[{number}] has gone from {settled} back to "
                    f"{found}: the broker has not loaded it yet, or has lost it. "
                    "If it was set back on purpose, start this TaskManager again"
                )
        self._settled.update(committed)

    def _has_changes(self) -> bool:
        return self._stores is not None and self._stores.have_changed

    def _partitions_at_end(self) -> list[Partition]:
        """Return the partitions of which all was read that the brokers were known to have."""
        return [p for p, at in self._read.items() if self._ends.get(p, -1) >= at]


def _monotonic_ms() -> int:
    return int(time.monotonic() * 1000)
