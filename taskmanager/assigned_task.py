"""What a task and a standby have in common: how a PipelineThread starts, feeds and drops them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

import structlog

from common.config import Config
from common.errors import ConfigError
from common.kafka.clients import HopelessError, Partition
from common.messages import ProcessorReplica
from common.record_batch import RecordBatch
from common.status import TaskState, TaskStatus
from streams.errors import StreamsError
from streams.topology import NodeGroup
from streams.units import group_of
from streams.user_code import UserCode
from taskmanager.clients import Clients, Reader
from taskmanager.global_stores import GlobalStores
from taskmanager.query_channel import RemoteQueries
from taskmanager.task_stores import TaskStores, store_identity, task_directory

START_TIMEOUT_S = 60


class StartCancelledError(Exception):
    """The task was cancelled while it started. The caller, who did that, closes it."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What the tasks of one PipelineThread share."""

    config: Config
    tm_id: int
    thread: int
    cluster_id: str
    clients: Clients
    reader: Reader
    """Fetches for those tasks that have no input in common."""
    global_stores: GlobalStores
    queries: RemoteQueries | None = None
    """Where the queries of tasks run; `None` if there are no such tasks."""


class AssignedTask(ABC):
    """What a PipelineThread runs. Not thread-safe: one caller at a time.

    After `start`, any number of times: `process` batches of its partitions. After any error that a
    method raises, `drop` it; `start` begins anew. What is said here of transactions holds for
    those who have none.
    """

    partitions: tuple[Partition, ...]
    """What it reads, all the time."""

    def __init__(self, replica: ProcessorReplica, context: TaskContext, epoch: int) -> None:
        self.replica = replica
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
        self._fingerprint = replica.fingerprint
        self._ends: dict[Partition, int] = {}
        self._restored = (0, 0)
        self._restore_began = 0.0

    @abstractmethod
    def start(self) -> None:
        """Find out where to go on. Blocks; `drop` it on errors."""

    @abstractmethod
    def process(self, batch: RecordBatch) -> None:
        """Take records of one of the task's partitions in."""

    @abstractmethod
    def drop(self) -> None:
        """Let go of clients and stores."""

    def status(self) -> TaskStatus:
        """Return what the heartbeat tells; the figures are those of the subclass."""
        return TaskStatus(
            task=self.replica.task,
            state=self.state,
            thread=self._context.thread,
            # It may quote what cannot be encoded, such as half of an emoji.
            reason=self.reason.encode(errors="backslashreplace").decode(),
            restarts=self.restarts,
            lag=self._lag(),
            restored=self._restored[0],
            to_restore=self._restored[1],
            restore_eta_s=self._restore_eta_s(),
            fingerprint=self._fingerprint,
        )

    @property
    def has_open_transaction(self) -> bool:
        """Whether records were processed that are not committed yet."""
        return False

    @property
    def transaction_age_s(self) -> float:
        """Seconds since the open transaction began; 0 without one."""
        return 0.0

    @property
    def has_committed(self) -> bool:
        """Whether it has committed anything since it was last started."""
        return False

    @property
    def needs_refresh(self) -> bool:
        """Whether it has not committed for so long that the brokers may soon forget about it."""
        return False

    @property
    def has_lost_connection(self) -> bool:
        """Whether it waits for records, and must start again before it can process any."""
        return False

    def require_connection(self) -> None:
        """Raise what a task is started again for if it `has_lost_connection`."""
        assert not self.has_lost_connection

    @property
    def needs_turns(self) -> bool:
        """Whether it has records that wait, or punctuations by the wall clock."""
        return False

    @property
    def has_gathered(self) -> bool:
        """Whether records wait that `turn` processes as soon as no more come."""
        return False

    @property
    def wants_commit(self) -> bool:
        """Whether a processor has asked for a commit."""
        return False

    @property
    def is_running(self) -> bool:
        """Whether it takes records in."""
        return self.state in (TaskState.RUNNING, TaskState.STANDBY)

    @property
    def is_caught_up(self) -> bool:
        """Whether all that the brokers had when they were last asked is processed."""
        return all(self._ends.get(p, -1) >= at for p, at in self.positions.items())

    def reached_end(self, partition: Partition, offset: int) -> None:
        """Take note that the partition had nothing to read at `offset` and behind."""
        self._ends[partition] = offset

    def lose_input(self, reason: str) -> None:
        """Take note that a partition cannot be read on; raises `HopelessError`."""
        raise HopelessError(reason)

    def is_full(self, partition: Partition) -> bool:
        """Whether so many records of a partition wait that its reading should pause."""
        return False

    def turn(self) -> None:
        """Do what is due though no record came; to be called if it `needs_turns`."""
        assert not self.needs_turns

    def commit(self) -> bool:
        """Commit the open transaction. Returns False if the task must be dropped now."""
        return True

    def refresh(self) -> bool:
        """Let the brokers see that the task lives. Returns False if it must be dropped now."""
        return True

    def cancel(self) -> None:
        """Let a `start` that goes on in another thread end soon, with `StartCancelledError`."""
        self.is_cancelled = True

    def fail(self, reason: str) -> None:
        """Stop for good; the status tells the reason."""
        self.drop()
        self.state, self.reason = TaskState.FAILED, reason
        self.log.error("task failed", reason=reason)

    def _run(self, state: TaskState, state_records_read: int, started_s: float) -> None:
        self.state = state
        self.log.info(
            "task runs" if state is TaskState.RUNNING else "standby follows",
            positions={f"{topic}-{number}": at for (topic, number), at in self.positions.items()},
            state_records_read=state_records_read,
            seconds=round(time.monotonic() - started_s, 3),
        )

    def _node_group(self) -> NodeGroup:
        try:
            queries = self._context.queries
            return group_of(
                self.replica,
                UserCode.of(self._context.config),
                queries and queries.while_waiting(self._require_wanted),
            )
        except (ConfigError, StreamsError) as error:
            raise HopelessError(str(error)) from error

    def _restore(self, stores: TaskStores, reader: Reader) -> int:
        """Open the stores and bring them up to their state topics; return the records read."""
        context, replica = self._context, self.replica
        self.state = TaskState.RESTORING
        stores.open(
            task_directory(context.config, context.tm_id, replica),
            store_identity(replica, context.cluster_id, context.tm_id),
            context.clients.brokers.topic_ids([*replica.state_topics.values()]),
        )
        return stores.restore(
            replica.task.partition, reader, context.clients.brokers, self._progress
        )

    def _progress(self, restored: int, total: int) -> None:
        if not restored:
            self._restore_began = time.monotonic()
        self._restored = (restored, total)
        self._require_wanted()

    def _require_wanted(self) -> None:
        if self.is_cancelled:
            raise StartCancelledError

    def _count_seen(self, batch: RecordBatch, position: int) -> int:
        """Return how many records of a batch come before `position`."""
        # librdkafka has delivered records again after an assignment (its issues 4637, 5345).
        seen = batch.count_before(position)
        if seen:
            self.log.warning("records delivered twice are ignored", records=seen)
        return seen

    def _restore_eta_s(self) -> int | None:
        restored, total = self._restored
        if self.state is not TaskState.RESTORING or not restored:
            return None
        # A standby's owner goes on writing, so it may have got more than there was at first.
        left = max(total - restored, 0)
        return round((time.monotonic() - self._restore_began) * left / restored)

    def _lag(self) -> int | None:
        if not self.is_running:
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
