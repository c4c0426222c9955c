"""The turns and commits of a task that a PipelineThread has started."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import ReadError
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
from kafka_pipeline.taskmanager.offset_doubt import OffsetDoubt
from kafka_pipeline.taskmanager.past_records import PastRecords
from kafka_pipeline.taskmanager.remote_queries import RemoteQueries
from kafka_pipeline.taskmanager.start_gate import StartGate
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
    """Runs the queries of tasks, and expands references; `None` if no task needs either."""
    store_resources: StoreResources = field(default_factory=StoreResources)
    """The resources that all stores share, including those of `global_stores`."""
    user_errors: UserErrorLog = field(default_factory=UserErrorLog)
    new_event_loop: Callable[[], EventLoop] = EventLoop
    logged_keys: set[KeyWarning] = field(default_factory=set)
    """Key warnings that were logged: the tasks of a processor find the same ones."""
    marks: Marks = field(default_factory=Marks)
    """The calls of user code that are in progress."""
    gate: StartGate = field(default_factory=StartGate)
    """Closed while the tasks may belong to other TaskManagers."""


@dataclass(slots=True)
class TaskMemory:
    """The state of a task that outlives its starts in this process."""

    figures: TaskFigures = field(default_factory=TaskFigures)
    """The figures of processed and committed records."""
    transactions: int = 0
    fetched_bytes: int = 0
    """The bytes of the fetched values, whether or not committed."""
    state_bytes: int | None = None
    """The size of the stores at the last commit; `None` if none of them is on disk."""
    turns: TimeCounter = field(default_factory=TimeCounter)
    """The durations of the turns."""
    commits: TimeCounter = field(default_factory=TimeCounter)
    """The durations of the commits, including failed ones."""
    enforced_lately: RecentCount = field(default_factory=RecentCount)
    letters_lately: RecentCount = field(default_factory=RecentCount)
    dropped_lately: dict[str, RecentCount] = field(default_factory=dict)
    """Records that were left out recently, by reason."""
    dropped_warnings: MinuteLimit = field(default_factory=lambda: MinuteLimit(1))
    """Limits the log entries about records that were left out."""
    dropped_in_log: Counter[Dropped] = field(default_factory=Counter)
    """The records that were left out and are already logged."""
    letter_warnings: MinuteLimit = field(default_factory=lambda: MinuteLimit(1))
    """Limits the log entries about dead letters."""
    committed: dict[Partition, int] = field(default_factory=dict)
    """The committed positions at this task's last look-up or commit."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """The ids of inputs and state topics, by which one that is created again is recognized."""
    key_warnings: tuple[KeyWarning, ...] = ()
    """The results of the last start's check of the inputs' keys."""
    doubt: OffsetDoubt = field(default_factory=OffsetDoubt)
    """The positions that a leader does not have, until others have confirmed or denied that."""

    def resume_counts(self, positions: Iterable[Committed]) -> None:
        """Continue the counts of rejected and dropped records from the committed positions."""
        for at in positions:
            self.figures.skipped = max(self.figures.skipped, at.skipped)
            self.figures.dead_letters = max(self.figures.dead_letters, at.dead_letters)
            self.figures.resume_dropped(dict(at.dropped))

    def commit_figures(self, done: TaskFigures, now_ms: int) -> None:
        """Add the figures of a transaction that was committed at `now_ms`."""
        before = self.figures.dropped_by_reason if done.dropped else {}
        self.figures += done
        self.transactions += 1
        self.enforced_lately.add(done.enforced, now_ms)
        self.letters_lately.add(done.dead_letters, now_ms)
        if done.dropped:
            for reason, count in self.figures.dropped_by_reason.items():
                lately = self.dropped_lately.get(reason) or RecentCount()
                lately.add(count - before.get(reason, 0), now_ms)
                # Replaced, not changed, since other threads read it.
                self.dropped_lately = {**self.dropped_lately, reason: lately}

    def dropped_in_minute(self, now_ms: int) -> dict[str, int]:
        """Return the number of records left out in the last minute, by reason."""
        counts = {name: lately.in_window(now_ms) for name, lately in self.dropped_lately.items()}
        return {reason: count for reason, count in counts.items() if count}

    def dropped_to_log(self, now_ms: int) -> Counter[Dropped]:
        """Return the records left out that are to be logged now, at most once a minute."""
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
    """A task's event time, and the largest timestamp processed; -1 while unknown."""

    time_ms: int = UNKNOWN
    newest_ms: int = UNKNOWN


class Turn(NamedTuple):
    """The work that a turn left undone."""

    has_more: bool
    """Whether another turn could do some work at once."""
    wants_commit: bool
    """Whether a processor has asked for a commit."""
    took_all: bool = False
    """See `StepResult`."""


class RunningTask(ABC):
    """A task with its clients, stores and nodes.

    The PipelineThread's loop feeds it and reads its state at any time, whatever other threads do
    with it. Only one of `turn`, `commit`, `refresh` and `close` runs at a time, on any thread.
    After any error of a method, the caller closes the task; a new start begins from the state in
    Kafka.
    """

    state: TaskState
    """RUNNING, or STANDBY for a copy."""

    def __init__(
        self,
        positions: dict[Partition, int],
        stores: TaskStores,
        past: Mapping[Partition, PastRecords] = {},
    ) -> None:
        self.past = dict(past)
        """The records before those that the brokers have, by partition; the loop takes them."""
        self.stores = stores
        """The stores; other threads may read their committed content."""
        self.partitions = tuple(positions)
        """The partitions that the task reads; they never change."""
        self.read = dict(positions)
        """The offset after the last record that the task has received, by partition."""
        self.readers: dict[Partition, Reader] = {}
        """The reader of each partition; the PipelineThread chooses it."""
        self._ends: dict[Partition, int] = {}

    # For the loop of the PipelineThread, at any time

    @abstractmethod
    def add(self, batch: RecordBatch) -> None:
        """Add records of one of the task's partitions."""

    @property
    @abstractmethod
    def has_records(self) -> bool:
        """Whether records are waiting for a turn."""

    @property
    def is_caught_up(self) -> bool:
        """Whether the task has processed all records that the brokers had at the last request."""
        if self.has_records or self.has_calls:
            return False
        return all(self._ends.get(partition, -1) >= at for partition, at in self.read.items())

    @property
    def is_at_its_end(self) -> bool:
        """Whether no more records are expected at once.

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
        """Whether its turns mostly wait, so that they must not delay those of other tasks."""
        return False

    @property
    def call(self) -> UserCall | None:
        """The call of user code that is in progress."""
        return None

    @property
    def event_time(self) -> EventTime:
        """The task's event time."""
        return EventTime()

    def reached_end(self, partition: Partition, offset: int) -> None:
        """Record that the partition had no records at `offset` or later."""
        self._ends[partition] = offset

    @abstractmethod
    def loss_of_input(self, error: ReadError) -> EngineError:
        """Return the error for a task one of whose partitions cannot be read any further."""

    def is_full(self, partition: Partition) -> bool:
        """Whether so many of a partition's records are waiting that no more should be fetched."""
        return False

    def is_overfull(self, partition: Partition) -> bool:
        """Whether so many of a partition's records are waiting that it must be paused."""
        return False

    # For the loop of the PipelineThread, while no other thread works on the task

    @property
    def is_time_due(self) -> bool:
        """Whether a turn could advance event time, even if no record is waiting."""
        return False

    @property
    def needs_refresh(self) -> bool:
        """Whether the offsets must be committed again, although no records were processed."""
        return False

    @property
    def has_lost_connection(self) -> bool:
        """Whether the task must start again before it can process more records."""
        return False

    def require_connection(self) -> None:
        """Raise the error that makes the task start again if it `has_lost_connection`."""
        assert not self.has_lost_connection

    def wake_in_ms(self) -> int | None:
        """Return after how many ms a turn has work even without new records; `None` if never."""
        return None

    # One at a time

    def turn(self, until_s: float) -> Turn:
        """Process waiting records until `time.monotonic()` reaches `until_s`."""
        return Turn(has_more=False, wants_commit=False)

    @property
    def has_uncommitted(self) -> bool:
        """Whether there is work since the last commit that can be committed now."""
        return False

    @property
    def transaction_age_s(self) -> float:
        """Seconds since the open transaction began; 0 without one."""
        return 0.0

    def commit(self) -> None:
        """Commit the work since the last commit."""
        assert not self.has_uncommitted

    def refresh(self) -> None:
        """Commit the positions again, so that the brokers do not forget them."""
        assert not self.needs_refresh

    def close(self) -> None:
        """Close the processors, the clients and the stores, without a commit."""
        self.release()

    @abstractmethod
    def release(self) -> None:
        """Close the clients and the stores."""

    def abandon(self) -> None:
        """Close the clients; leave the rest to a call of user code that does not return."""
        self.release()

    def end_abandoned(self, _result: object = None) -> None:
        """Close the rest, after the abandoned call has returned, or if it does not use the rest."""
        self.release()
