"""What a PipelineThread runs of a task, once it has started: turns and commits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

from common.config import Config
from common.kafka.clients import Partition
from common.record_batch import RecordBatch
from common.status import TaskState
from streams.event_loop import EventLoop
from streams.group_task import Figures
from streams.recent import RecentCount
from streams.runtime import Call
from streams.stores.resources import StoreResources
from taskmanager.clients import Clients, Reader
from taskmanager.global_stores import GlobalStores
from taskmanager.lag_watch import LagWatch
from taskmanager.query_channel import RemoteQueries
from taskmanager.user_errors import UserErrorLog


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What the tasks of one PipelineThread share."""

    config: Config
    tm_id: int
    thread: int
    cluster_id: str
    clients: Clients
    global_stores: GlobalStores
    lag_watch: LagWatch
    queries: RemoteQueries | None = None
    """Where the queries of tasks run; `None` if there are no such tasks."""
    store_resources: StoreResources = field(default_factory=StoreResources)
    """What all stores have in common; `global_stores` has the same."""
    user_errors: UserErrorLog = field(default_factory=UserErrorLog)
    event_loop: EventLoop = field(default_factory=EventLoop)
    """Where the calls of `AsyncProcessor`s run."""


@dataclass(slots=True)
class TaskMemory:
    """What is known of a task through all its starts in this process."""

    figures: Figures = field(default_factory=Figures)
    """What was done to records, as far as it is committed."""
    transactions: int = 0
    enforced_lately: RecentCount = field(default_factory=RecentCount)
    settled: dict[Partition, int] = field(default_factory=dict)
    """Positions that were committed when this task last asked, or committed itself."""


class Turn(NamedTuple):
    """What a turn left undone."""

    has_more: bool
    """Whether another turn has something to do at once."""
    wants_commit: bool
    """Whether a processor has asked for a commit."""


class RunningTask(ABC):
    """A task with its clients, stores and nodes.

    The PipelineThread's loop feeds it and asks how it does, whatever is done with it meanwhile.
    Of `turn`, `commit`, `refresh` and `close` one goes on at a time, on whichever thread. After
    any error that a method raises, it is closed, and a new start begins from what Kafka has.
    """

    state: TaskState
    """RUNNING, or STANDBY for a copy."""

    def __init__(self, positions: dict[Partition, int]) -> None:
        self.partitions = tuple(positions)
        """What it reads, all the time."""
        self.read = dict(positions)
        """The offset after the last record that was taken in, by partition."""
        self.readers: dict[Partition, Reader] = {}
        """What reads each partition for it; the PipelineThread chooses that."""
        self._ends: dict[Partition, int] = {}

    # For the loop of the PipelineThread, at any time

    @abstractmethod
    def add(self, batch: RecordBatch) -> None:
        """Take records of one of the task's partitions in."""

    @property
    @abstractmethod
    def has_records(self) -> bool:
        """Whether records wait for a turn."""

    @property
    def is_caught_up(self) -> bool:
        """Whether all that the brokers had when they were last asked is processed."""
        if self.has_records or self.has_calls:
            return False
        return all(self._ends.get(partition, -1) >= at for partition, at in self.read.items())

    @property
    def is_at_its_end(self) -> bool:
        """Whether nothing more is to be expected at once.

        The news that the end is reached comes up to 10 ms after the last record. And the marker of
        a transaction may come after it: should it be a record, what comes before it is committed
        a little early.
        """
        if self.has_records or self.has_calls:
            return False
        return all(
            self._ends.get(partition, -1) >= at
            or 0 <= self.readers[partition].known_end(partition) - at <= 1
            for partition, at in self.read.items()
        )

    @property
    def has_calls(self) -> bool:
        """Whether calls of an `AsyncProcessor` are in flight; `wake` tells when one returns."""
        return False

    @property
    def call(self) -> Call | None:
        """The call of user code that goes on."""
        return None

    def reached_end(self, partition: Partition, offset: int) -> None:
        """Note that the partition had nothing to read at `offset` and after it."""
        self._ends[partition] = offset

    @abstractmethod
    def lose_input(self, reason: str) -> None:
        """Raise what it means that a partition cannot be read on."""

    def is_full(self, partition: Partition) -> bool:
        """Whether so much of a partition waits that no more should be fetched for it."""
        return False

    def is_overfull(self, partition: Partition) -> bool:
        """Whether so much of a partition waits that it must be paused while others are fetched."""
        return False

    # For the loop of the PipelineThread, while nothing is done with it

    @property
    def needs_refresh(self) -> bool:
        """Whether it has not committed for so long that the brokers may soon forget about it."""
        return False

    @property
    def has_lost_connection(self) -> bool:
        """Whether it must start again before it can process any more records."""
        return False

    def require_connection(self) -> None:
        """Raise what a task is started again for if it `has_lost_connection`."""
        assert not self.has_lost_connection

    def wake_in_ms(self) -> int | None:
        """Return in how many ms a turn has something to do though no record comes, or `None`."""
        return None

    # One at a time

    def turn(self, until_s: float) -> Turn:
        """Process what waits, until that time of `time.monotonic` comes."""
        return Turn(has_more=False, wants_commit=False)

    @property
    def has_uncommitted(self) -> bool:
        """Whether anything was done since the last commit that can be committed now."""
        return False

    @property
    def transaction_age_s(self) -> float:
        """Seconds since the open transaction began; 0 without one."""
        return 0.0

    def commit(self) -> None:
        """Commit what was done."""
        assert not self.has_uncommitted

    def refresh(self) -> None:
        """Let the brokers see that the task lives."""
        assert not self.needs_refresh

    def close(self) -> None:
        """Close the processors, the clients and the stores, without a commit."""
        self.release()

    @abstractmethod
    def release(self) -> None:
        """Close the clients and the stores."""

    def abandon(self) -> None:
        """Close the clients, and leave the rest to a call of user code that does not end."""
        self.release()

    def end_abandoned(self, _result: object = None) -> None:
        """Close the rest, as the call has ended after all, or does not use it."""
        self.release()
