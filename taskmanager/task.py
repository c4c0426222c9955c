"""One task: a processor replica and its transactions, from the input records to the commit."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import structlog

from common.config import Config
from common.fault_points import reach
from common.kafka.admin import Admin
from common.kafka.clients import Partition
from common.kafka.data import PartitionReader
from common.kafka.task_producer import TaskProducer
from common.messages import ProcessorReplica
from common.nodes import OnError
from common.record_batch import RecordBatch
from common.status import TaskState, TaskStatus
from common.topics import TopicNames
from streams.processor import create_processor
from streams.results import Results
from streams.stores.rocksdb import RocksDBStore
from taskmanager.restore import restore

START_TIMEOUT_S = 60
REFRESH_INTERVAL_S = 12 * 3600


class StartCancelledError(Exception):
    """The task was cancelled while it started. The caller, who did that, closes it."""


class RecordFailedError(Exception):
    """A record cannot be processed and `on_error` is `fail`. The caller stops the task."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What the tasks of one PipelineThread share."""

    config: Config
    tm_id: int
    thread: int
    cluster_id: str
    admin: Admin
    reader: PartitionReader
    """Fetches for those tasks that have no input in common."""


@dataclass(slots=True)
class _Figures:
    """What was done to records, in one transaction or in all that committed."""

    records_in: int = 0
    records_out: int = 0
    skipped: int = 0
    dead_letters: int = 0

    def add(self, other: _Figures) -> None:
        self.records_in += other.records_in
        self.records_out += other.records_out
        self.skipped += other.skipped
        self.dead_letters += other.dead_letters


class Task:
    """Runs one processor replica. Not thread-safe: one caller at a time.

    `start` fences whoever ran the task before, then finds out where to go on. Then, any number
    of times: `process` batches of its partitions, and `commit`. After any error that `start`,
    `process` or `commit` raises, `drop` it; `start` begins anew from what Kafka has committed.
    """

    def __init__(self, replica: ProcessorReplica, context: TaskContext, epoch: int) -> None:
        names = TopicNames.of(context.config)
        self.replica = replica
        self.partitions: tuple[Partition, ...] = tuple(
            (topic, replica.task.partition) for topic in replica.in_topics
        )
        self.positions: dict[Partition, int] = {}
        self.state = TaskState.STARTING
        self.reason = ""
        self.restarts = 0
        self.is_cancelled = False
        self.reader = context.reader
        """Fetches for this task; the caller may choose another one."""
        self.log = structlog.get_logger().bind(
            task=str(replica.task),
            epoch=epoch,
            task_manager=context.tm_id,
            thread=context.thread,
        )
        self._context = context
        self._transactional_id = names.transactional_id(replica.task)
        self._group = names.consumer_group(replica.task.processor)
        self._producer: TaskProducer | None = None
        self._store: RocksDBStore | None = None
        self._opened_at: float | None = None
        self._committed_at = 0.0
        self._failure: str | None = None
        self._ends: dict[Partition, int] = {}
        self._restored = (0, 0)
        self._committed = _Figures()
        self._open = _Figures()
        self._transactions = 0
        self._transactions_at_start = 0

    def start(self) -> None:
        """Take the task over: fence, restore, find the positions. Blocks; `drop` it on errors.

        Raises `FencedError`, `HopelessError`, `TransactionFailedError`, `StoreLockedError` or
        `OSError` (the state directory).
        """
        started = time.monotonic()
        self.state, self.reason = TaskState.STARTING, ""
        self._failure = None
        written = self._written_topics()
        self._context.admin.topic_ids([*self.replica.in_topics, *written])
        limits = self._context.admin.size_limits(written)
        self._producer = TaskProducer(self._context.config, self._transactional_id, limits)
        # Made early: one that is asked while it connects may take 0.7 s to answer. Of its own, as
        # one that looks up offsets fetches nothing meanwhile.
        with closing(PartitionReader(self._context.config, self._group)) as reader:
            self._producer.fence(START_TIMEOUT_S)
            # Only now: before, the old owner could still commit.
            positions = self._find_positions(reader)
            read = self._restore(reader) if self.replica.state_topic else 0
            self._group_metadata = reader.group_metadata
        self._processor = create_processor(self.replica.type, self.replica.config, self._store)
        self.positions, self._ends = positions, {}
        self._committed_at = time.monotonic()
        self._transactions_at_start = self._transactions
        self.state = TaskState.RUNNING
        self.log.info(
            "task runs",
            positions={f"{topic}-{number}": at for (topic, number), at in positions.items()},
            state_records_read=read,
            seconds=round(time.monotonic() - started, 3),
        )

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
        is_idle = self.state is TaskState.RUNNING and self._opened_at is None
        return is_idle and time.monotonic() - self._committed_at > REFRESH_INTERVAL_S

    @property
    def is_caught_up(self) -> bool:
        """Whether all that the brokers had when they were last asked is processed."""
        return all(self._ends.get(p, -1) >= at for p, at in self.positions.items())

    def reached_end(self, partition: Partition, offset: int) -> None:
        """Take note that the partition had nothing to read at `offset` and behind."""
        self._ends[partition] = offset

    def process(self, batch: RecordBatch) -> None:
        """Process records of one of the task's partitions in a transaction, opened if none is.

        Raises `TransactionFailedError`, `FencedError` or `HopelessError`; and
        `RecordFailedError` for a record that is rejected while `on_error` is `fail`, after
        committing what came before it.
        """
        assert self._producer is not None, "a task is started before it processes"
        partition = (batch.topic, batch.partition)
        start = self._skip_seen(batch, self.positions[partition])
        first, size = start, len(batch)
        if start == size:
            return
        if self._opened_at is None:
            self._producer.begin()
            self._opened_at = time.monotonic()
            reach("before-produce")
        while start < size and self._failure is None:
            values, rejection = (
                Results([], batch.error) if batch.error else self._processor.process(batch, start)
            )
            start = self._send(batch, start, values)
            if rejection is not None:
                start = self._reject(batch, start, rejection)
        self._open.records_in += start - first
        self.positions[partition] = (
            batch.offsets[start] if start < size else batch.offsets[size - 1] + 1
        )
        if self._failure is not None:
            self.commit()
            raise RecordFailedError(self._failure)

    def refresh(self) -> bool:
        """Commit the positions that are committed already, in a transaction of their own.

        Brokers forget offsets of a group without members 7 days after the last commit
        (`offsets.retention.minutes`), and transactional ids likewise. Returns and raises as
        `commit` does.
        """
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
        store, partition = self._store, self.replica.task.partition
        changes = store.uncommitted if store else {}
        if self.replica.state_topic and changes:
            self._producer.send_state(self.replica.state_topic, partition, changes)
        state_offset = self._producer.commit(self.positions, self._group_metadata)
        reach("after-commit")
        self._opened_at, self._committed_at = None, time.monotonic()
        self._transactions += 1
        self._committed.add(self._open)
        self._open = _Figures()
        if store and changes:
            if state_offset is None:
                return False
            store.commit(state_offset)
        return not self._producer.is_doubtful

    def cancel(self) -> None:
        """Let a `start` that goes on in another thread end soon, with `StartCancelledError`."""
        self.is_cancelled = True

    def drop(self) -> None:
        """Let go of producer and store; an open transaction is left for the next owner's fence."""
        self._opened_at, self._open = None, _Figures()
        if self._producer is not None:
            self._producer.close()
            self._producer = None
        if self._store is not None:
            self._store.close()
            self._store = None

    def fail(self, reason: str) -> None:
        """Stop for good; the status tells the reason."""
        self.drop()
        self.state, self.reason = TaskState.FAILED, reason
        self.log.error("task failed", reason=reason)

    def status(self) -> TaskStatus:
        """Return what the heartbeat tells."""
        return TaskStatus(
            task=self.replica.task,
            state=self.state,
            thread=self._context.thread,
            reason=self.reason,
            records_in=self._committed.records_in,
            records_out=self._committed.records_out,
            skipped=self._committed.skipped,
            dead_letters=self._committed.dead_letters,
            transactions=self._transactions,
            restarts=self.restarts,
            lag=self._lag(),
            restored=self._restored[0],
            to_restore=self._restored[1],
        )

    def _written_topics(self) -> list[str]:
        replica = self.replica
        dead_letters = (
            replica.dead_letter_topic if replica.on_error is OnError.DEAD_LETTER else None
        )
        extra = [topic for topic in (replica.state_topic, dead_letters) if topic is not None]
        return [*replica.out_topics, *extra]

    def _find_positions(self, reader: PartitionReader) -> dict[Partition, int]:
        positions = reader.committed(self.partitions, START_TIMEOUT_S)
        for partition in self.partitions:
            # Asked for all: a reader that has not looked for a partition's broker before it
            # reads finds it only with its next round of metadata, up to 1 s later.
            oldest = self._context.reader.low_watermark(partition, START_TIMEOUT_S)
            positions.setdefault(partition, oldest)
        return positions

    def _restore(self, reader: PartitionReader) -> int:
        context, replica = self._context, self.replica
        assert replica.state_topic is not None, "only stateful tasks restore"
        self.state = TaskState.RESTORING
        topic_id = context.admin.topic_ids([replica.state_topic])[replica.state_topic]
        self._store = RocksDBStore(
            store_directory(context.config, context.tm_id, replica),
            store_identity(replica, context.cluster_id, topic_id, context.tm_id),
        )
        partition = (replica.state_topic, replica.task.partition)
        return restore(self._store, partition, reader, context.admin, self._progress)

    def _progress(self, restored: int, total: int) -> None:
        self._restored = (restored, total)
        if self.is_cancelled:
            raise StartCancelledError

    def _skip_seen(self, batch: RecordBatch, position: int) -> int:
        # librdkafka has delivered records again after an assignment (its issues 4637, 5345).
        if batch.offsets[0] >= position:
            return 0
        seen = sum(offset < position for offset in batch.offsets)
        self.log.warning("records delivered twice are ignored", records=seen)
        return seen

    def _send(self, batch: RecordBatch, start: int, values: list[bytes | None]) -> int:
        """Send the outputs of the records from `start` on; return the index behind them."""
        assert self._producer is not None
        # All of the topics take a record or none: they would differ for ever.
        topic = min(self.replica.out_topics, key=self._producer.size_limit)
        limit = self._producer.size_limit(topic)
        sent = 0
        while sent < len(values):
            rest = values[sent:] if sent else values
            count = self._producer.count_fitting(limit, batch, start + sent, rest)
            for out_topic in self.replica.out_topics:
                self._producer.send_columns(out_topic, batch, start + sent, rest[:count])
                self._open.records_out += count
            sent += count
            if sent < len(values):
                reason = f"the output is larger than the {limit} bytes that topic {topic} takes"
                self._undeliverable(batch, start + sent, f"{reason} (max.message.bytes)")
                sent += 1
        return start + sent

    def _reject(self, batch: RecordBatch, index: int, reason: str) -> int:
        """Deal with a record that the processor rejects; return the index to go on at."""
        if self.replica.on_error is OnError.FAIL:
            self._failure = f"{_place(batch, index)}: {reason}"
            return index
        self._put_aside(batch, index, "RecordRejected", reason)
        return index + 1

    def _undeliverable(self, batch: RecordBatch, index: int, reason: str) -> None:
        if self.replica.on_error is OnError.FAIL:
            # State may already count later records of the batch, so nothing of it can commit.
            raise RecordFailedError(f"{_place(batch, index)}: {reason}")
        self._put_aside(batch, index, "RecordTooLarge", reason)

    def _put_aside(self, batch: RecordBatch, index: int, error: str, reason: str) -> None:
        if self.replica.on_error is OnError.SKIP:
            self._open.skipped += 1
            return
        assert self._producer is not None
        assert self.replica.dead_letter_topic is not None, "dead_letter comes with a topic"
        topic, key, value = self.replica.dead_letter_topic, batch.keys[index], batch.values[index]
        headers = [
            *((batch.headers[index] if batch.headers else None) or []),
            *_error_headers(batch, index, error, reason),
        ]
        if not self._producer.fits(topic, key, value, headers):
            raise RecordFailedError(
                f"{_place(batch, index)}: {reason}; and as a dead letter it is larger than the "
                f"{self._producer.size_limit(topic)} bytes that topic {topic} takes "
                "(max.message.bytes)"
            )
        partition = batch.partition if key is None else -1
        self._producer.send(topic, key, value, batch.timestamps[index], headers, partition)
        self._open.dead_letters += 1

    def _lag(self) -> int | None:
        if self.state is not TaskState.RUNNING:
            return None
        lag = 0
        for partition, position in list(self.positions.items()):
            # The position stays behind transaction markers, so the end says more than a difference.
            if self._ends.get(partition, -1) < position:
                end = self.reader.known_end(partition)
                if end < 0:
                    return None
                lag += max(end - position, 0)
        return lag


def store_directory(config: Config, tm_id: int, replica: ProcessorReplica) -> Path:
    """Return the directory of a task's store, its own per TaskManager."""
    job = f"job_{config.job_name}" if config.job_name else "job"
    return config.state_dir / job / f"taskmanager_{tm_id}" / str(replica.task)


def store_identity(
    replica: ProcessorReplica, cluster_id: str, topic_id: str, tm_id: int
) -> dict[str, str]:
    """Return what the content of a task's store belongs to.

    The TaskManager is part of it, as a copy of another one's directory is as old as the copy.
    """
    return {
        "cluster": cluster_id,
        "topic": topic_id,
        "task": str(replica.task),
        "task_manager": str(tm_id),
    }


def _place(batch: RecordBatch, index: int) -> str:
    return f"record {batch.topic}[{batch.partition}]@{batch.offsets[index]}"


def _error_headers(
    batch: RecordBatch, index: int, error: str, reason: str
) -> list[tuple[str, bytes | None]]:
    """Return the headers of KIP-1034, as Kafka Streams writes them to its dead letter queues."""
    return [
        ("__streams.errors.exception", error.encode()),
        ("__streams.errors.message", reason.encode()),
        ("__streams.errors.topic", batch.topic.encode()),
        ("__streams.errors.partition", b"%d" % batch.partition),
        ("__streams.errors.offset", b"%d" % batch.offsets[index]),
    ]
