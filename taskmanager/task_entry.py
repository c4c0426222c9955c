"""A task in a PipelineThread's core: its current phase, and its next steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.thread_events import Failure

BACKOFF_RESET_MS = 60_000
FIRST_DELAY_MS = 500
MAX_DELAY_MS = 30_000


class Phase(Enum):
    """The operation in progress on a task; only one thread works on a task at a time.

    ::

        WAITING ─▶ STARTING ─▶ IDLE ◀─▶ TURNING
           ▲          │         ◀─▶ COMMITTING
           │          ▼         │
           └────── CLOSING ◀────┘    an error that a new start may cure, a revocation
                      └─▶ FAILED     stopped for good, with a reason
    """

    WAITING = auto()
    """The task waits for its next start."""
    STARTING = auto()
    """Another thread fences, restores and calls `init`."""
    IDLE = auto()
    """The task has its clients, stores and nodes, and no thread works on it."""
    TURNING = auto()
    """A thread processes the task's records."""
    COMMITTING = auto()
    """Another thread commits the task's work, or commits its offsets again."""
    CLOSING = auto()
    """A thread closes the task's processors, clients and stores."""
    FAILED = auto()
    """The task is closed, and does not start again by itself."""


@dataclass(slots=True)
class Backoff:
    """The recent failures of a task; they decide on the pause before its next start.

    A commit in between resets the pause: the task is not failing for the same reason each time.
    """

    failures: int = 0
    fenced: int = 0
    last_ms: int = 0

    def count(self, now_ms: int, is_fenced: bool, has_committed: bool) -> None:
        if now_ms - self.last_ms > BACKOFF_RESET_MS:
            self.failures = self.fenced = 0
        if has_committed:
            self.failures = 0
        self.failures += 1
        self.fenced += is_fenced
        self.last_ms = now_ms

    @property
    def delay_ms(self) -> int:
        if self.failures <= 1:
            return 0
        return min(FIRST_DELAY_MS << min(self.failures - 2, 16), MAX_DELAY_MS)


@dataclass(frozen=True, slots=True)
class Release:
    """The end of a task that this thread no longer owns: it is closed and forgotten."""

    reason: str = ""
    commits: bool = True
    """Whether the task's work is committed first."""


@dataclass(slots=True)
class TaskEntry:
    """An assigned task, across all its starts on this thread."""

    task: TaskId
    is_inline: bool
    max_process_time_ms: int
    own_commit_interval_ms: int | None = None
    """See `Assigned.commit_interval_ms`."""
    phase: Phase = Phase.WAITING
    due_ms: int = 0
    """When a WAITING task starts."""
    restarts: int = 0
    reason: str = ""
    no_files_since_ms: int | None = None
    """Since when the task cannot start for want of open files."""
    equal_starts: int = 0
    """The number of starts in a row that user code has ended for the same reason."""
    has_committed: bool = False
    """Whether the task has committed since it last started."""
    backoff: Backoff = field(default_factory=Backoff)
    end: Release | Failure | None = None
    """How the task is to end, once no thread works on it."""
    is_ready: bool = False
    """Whether a turn could do some work."""
    wake_ms: int | None = None
    uncommitted_since_ms: int | None = None
    turn_began_ms: int = 0
    turn_ms: float = 0.0
    """How long the last turn took."""
    has_own_thread: bool = False
    share_ms: float = 0.0
    """The part of the shared thread's time that counts as the task's. The smallest one is next."""
    is_at_its_end: bool = False
    took_all: bool = False
    """Whether the last turn of a query had all records that had arrived when it began."""
    call_since_ms: int = -1
    """When the call of user code began that `call_age_ms` refers to."""
    call_age_ms: int = 0
    """The duration of the call, without the time in which this process did not run."""
    commit_age_ms: int = 0
    """The duration of the current commit, likewise."""
    commit_began_ms: int = 0
    """When the last commit began."""
    commit_took_ms: int = 0
    """How long the last commit took that has ended."""
    early_commit_ms: int = 0
    """The time from which on the end of the input is a reason to commit."""
    wants_commit: bool = False
    needs_refresh: bool = False

    @property
    def shares_thread(self) -> bool:
        """Whether its turns and its close run on the thread that tasks with user code share."""
        return not (self.is_inline or self.has_own_thread)

    @property
    def commits_first(self) -> bool:
        """Whether a commit that waits must come before the next records.

        Built-in types send outputs with each turn, into a transaction that would stay open. If a
        task has asked for the commit, it may be impossible later: with results in key order,
        further records begin calls, and nothing can be committed until all of them return.
        """
        return self.is_inline or self.wants_commit

    def begin(self) -> None:
        """Reset what belongs to the last run."""
        self.has_committed = self.is_ready = self.wants_commit = self.needs_refresh = False
        self.wake_ms = self.uncommitted_since_ms = None
        self.is_at_its_end = self.took_all = False
        self.early_commit_ms = 0
