"""The turns and commits of a task that a PipelineThread has started."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.monitoring.times import TimeCounter
from kafka_pipeline.common.protocol.key_warnings import KeyWarning
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.event_loop import EventLoop
from kafka_pipeline.streams.engine.figures import TaskFigures
from kafka_pipeline.streams.engine.outputs import ELSEWHERE, Dropped
from kafka_pipeline.streams.engine.recent import MinuteLimit, RecentCount
from kafka_pipeline.streams.engine.runtime import UserCall
from kafka_pipeline.streams.event_time.progress import UNKNOWN
from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.taskmanager.clients import Clients, Reader
from kafka_pipeline.taskmanager.global_stores import GlobalStores
from kafka_pipeline.taskmanager.lag_watch import LagWatch
from kafka_pipeline.taskmanager.marks import Marks
from kafka_pipeline.taskmanager.query_channel import RemoteQueries
from kafka_pipeline.taskmanager.task_stores import TaskStores
from kafka_pipeline.taskmanager.time_watch import TimeWatch
from kafka_pipeline.taskmanager.user_errors import UserErrorLog


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The resources that the tasks of one PipelineThread share."""

    config: Config
    tm_id: int
    thread: int
    cluster_id: str
    clients: Clients
    global_stores: GlobalStores
    lag_watch: LagWatch
    time_watch: TimeWatch
    queries: RemoteQueries | None = None
    """The queries of tasks, and the values of references; `None` if no tasks have either."""
    store_resources: StoreResources = field(default_factory=StoreResources)
    """The resources that all stores share, including those of `global_stores`."""
    user_errors: UserErrorLog = field(default_factory=UserErrorLog)
    new_event_loop: Callable[[], EventLoop] = EventLoop
    logged_keys: set[KeyWarning] = field(default_factory=set)
    """Warnings of keys that the log has; the tasks of a processor find the same ones."""
    marks: Marks = field(default_factory=Marks)
    """The calls of user code that are in progress."""


@dataclass(slots=True)
class TaskMemory:
    """The state of a task that outlasts its starts in this process."""

    figures: TaskFigures = field(default_factory=TaskFigures)
    """The figures of processed records, as far as they are committed."""
    transactions: int = 0
    fetched_bytes: int = 0
    """The bytes of the values that were fetched, committed or not."""
    state_bytes: int | None = None
    """The size of the stores at the last commit; `None` if none of them is on disk."""
    turns: TimeCounter = field(default_factory=TimeCounter)
    """How long the turns took."""
    commits: TimeCounter = field(default_factory=TimeCounter)
    """How long the commits took, also those that failed."""
    enforced_lately: RecentCount = field(default_factory=RecentCount)
    letters_lately: RecentCount = field(default_factory=RecentCount)
    dropped_lately: dict[str, RecentCount] = field(default_factory=dict)
    """Records that were left out, by reason."""
    dropped_warnings: MinuteLimit = field(default_factory=lambda: MinuteLimit(1))
    """When the log last told of records that were left out."""
    dropped_in_log: Counter[Dropped] = field(default_factory=Counter)
    """The records that were left out of which the log has told."""
    letter_warnings: MinuteLimit = field(default_factory=lambda: MinuteLimit(1))
    """When the log last told of dead letters."""
    committed: dict[Partition, int] = field(default_factory=dict)
    """The committed positions when this task last asked for them or committed."""
    key_warnings: tuple[KeyWarning, ...] = ()
    """What the last start has found out about the keys of its inputs."""

    def resume_counts(self, positions: Iterable[Committed]) -> None:
        """Count what was rejected from where the committed positions say that it was."""
        for at in positions:
            self.figures.skipped = max(self.figures.skipped, at.skipped)
            self.figures.dead_letters = max(self.figures.dead_letters, at.dead_letters)
            self.figures.resume_dropped(dict(at.dropped))

    def commit_figures(self, done: TaskFigures, now_ms: int) -> None:
        """Count what a transaction has done that was committed at `now_ms`."""
        before = self.figures.dropped_by_reason if done.dropped else {}
        self.figures += done
        self.transactions += 1
        self.enforced_lately.add(done.enforced, now_ms)
        self.letters_lately.add(done.dead_letters, now_ms)
        if done.dropped:
            for reason, count in self.figures.dropped_by_reason.items():
                lately = self.dropped_lately.get(reason) or RecentCount()
                lately.add(count - before.get(reason, 0), now_ms)
                # Other threads look at it.
                self.dropped_lately = {**self.dropped_lately, reason: lately}

    def dropped_in_minute(self, now_ms: int) -> dict[str, int]:
        """Return how many records were left out in the last minute, by reason."""
        counts = {name: lately.in_window(now_ms) for name, lately in self.dropped_lately.items()}
        return {reason: count for reason, count in counts.items() if count}

    def dropped_to_log(self, now_ms: int) -> Counter[Dropped]:
        """Return the records that were left out and are to be logged now, once a minute at most."""
        dropped = self.figures.dropped
        if dropped == self.dropped_in_log:
            return Counter()
        new = dropped - self.dropped_in_log
        new = Counter({each: count for each, count in new.items() if each.place != ELSEWHERE})
        if new and not self.dropped_warnings.admits(now_ms):
            return Counter()
        self.dropped_in_log = dropped
        return new


class EventTime(NamedTuple):
    """How far a task is in event time, and the largest timestamp processed; -1 while unknown."""

    time_ms: int = UNKNOWN
    newest_ms: int = UNKNOWN


class Turn(NamedTuple):
    """The work that a turn left undone."""

    has_more: bool
    """Whether another turn would have something to do at once."""
    wants_commit: bool
    """Whether a processor has asked for a commit."""


class RunningTask(ABC):
    """A task with its clients, stores and nodes.

    The PipelineThread's loop feeds it and asks for its state at any time, whatever other threads
    do with it. Only one of `turn`, `commit`, `refresh` and `close` runs at a time, on any thread.
    After any error that a method raises, the task is closed, and a new start begins from what
    Kafka has.
    """

    state: TaskState
    """RUNNING, or STANDBY for a copy."""

    def __init__(self, positions: dict[Partition, int], stores: TaskStores) -> None:
        self.stores = stores
        """The stores, of which other threads may read what is committed."""
        self.partitions = tuple(positions)
        """The partitions that the task reads; they never change."""
        self.read = dict(positions)
        """The offset after the last record that the task has taken in, by partition."""
        self.readers: dict[Partition, Reader] = {}
        """The reader of each partition; the PipelineThread chooses it."""
        self._ends: dict[Partition, int] = {}

    # For the loop of the PipelineThread, at any time

    @abstractmethod
    def add(self, batch: RecordBatch) -> None:
        """Take in records of one of the task's partitions."""

    @property
    @abstractmethod
    def has_records(self) -> bool:
        """Whether records wait for a turn."""

    @property
    def is_caught_up(self) -> bool:
        """Whether the task has processed all that the brokers had when they were last asked."""
        if self.has_records or self.has_calls:
            return False
        return all(self._ends.get(partition, -1) >= at for partition, at in self.read.items())

    @property
    def is_at_its_end(self) -> bool:
        """Whether no more records are to be expected at once.

        The end of a partition is reported up to 10 ms after its last record. The last offset may
        also be the marker of a transaction. If it is a record instead, the records before it are
        committed a little early.
        """
        if self.has_records or self.has_calls:
            return False
        return all(self._is_at_end_of(partition, at) for partition, at in self.read.items())

    def _is_at_end_of(self, partition: Partition, at: int) -> bool:
        if self._ends.get(partition, -1) >= at:
            return True
        reader = self.readers.get(partition)
        return reader is not None and 0 <= reader.known_end(partition) - at <= 1

    @property
    def has_calls(self) -> bool:
        """Whether calls of an `AsyncProcessor` are in flight; `wake` is called as each returns."""
        return False

    @property
    def has_own_thread(self) -> bool:
        """Whether its turns mostly wait for others; they must not hold up those of siblings."""
        return False

    @property
    def call(self) -> UserCall | None:
        """The call of user code that is in progress."""
        return None

    @property
    def event_time(self) -> EventTime:
        """How far the task is in event time."""
        return EventTime()

    def reached_end(self, partition: Partition, offset: int) -> None:
        """Record that the partition had nothing to read at `offset` and after it."""
        self._ends[partition] = offset

    @abstractmethod
    def loss_of_input(self, reason: str) -> EngineError:
        """Return the error of a task one of whose partitions cannot be read any further."""

    def is_full(self, partition: Partition) -> bool:
        """Whether so many of a partition's records wait that no more should be fetched."""
        return False

    def is_overfull(self, partition: Partition) -> bool:
        """Whether so many of a partition's records wait that the partition must be paused."""
        return False

    # For the loop of the PipelineThread, while nothing is done with it

    @property
    def is_time_due(self) -> bool:
        """Whether a turn would let event time go on, even if no record waits."""
        return False

    @property
    def needs_refresh(self) -> bool:
        """Whether the offsets must be committed again, although no records were processed."""
        return False

    @property
    def has_lost_connection(self) -> bool:
        """Whether the task must start again before it can process any more records."""
        return False

    def require_connection(self) -> None:
        """Raise the error that makes the task start again if it `has_lost_connection`."""
        assert not self.has_lost_connection

    def wake_in_ms(self) -> int | None:
        """Return after how many ms a turn has work even if no record comes, or `None`."""
        return None

    # One at a time

    def turn(self, until_s: float) -> Turn:
        """Process waiting records until `time.monotonic()` reaches `until_s`."""
        return Turn(has_more=False, wants_commit=False)

    @property
    def has_uncommitted(self) -> bool:
        """Whether the task has done anything since its last commit that can be committed now."""
        return False

    @property
    def transaction_age_s(self) -> float:
        """Seconds since the open transaction began; 0 without one."""
        return 0.0

    def commit(self) -> None:
        """Commit the work since the last commit."""
        assert not self.has_uncommitted

    def refresh(self) -> None:
        """Show the brokers that the task is alive."""
        assert not self.needs_refresh

    def close(self) -> None:
        """Close the processors, the clients and the stores, without a commit."""
        self.release()

    @abstractmethod
    def release(self) -> None:
        """Close the clients and the stores."""

    def abandon(self) -> None:
        """Close the clients, and leave the rest to a call of user code that does not return."""
        self.release()

    def end_abandoned(self, _result: object = None) -> None:
        """Close the rest: the call has returned after all, or does not use it."""
        self.release()
