"""A task as a PipelineThread's core knows it: its current phase, and what happens to it next."""

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
    """How often a task failed lately; decides how long it waits before it starts again.

    If it has committed in between, it is not the same failure every time.
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
    """A task as the driver gave it to this thread, across all its starts."""

    task: TaskId
    is_inline: bool
    max_process_time_ms: int
    phase: Phase = Phase.WAITING
    due_ms: int = 0
    """When the task starts, while it is WAITING."""
    restarts: int = 0
    reason: str = ""
    equal_starts: int = 0
    """How many starts in a row user code has ended for the same reason."""
    has_committed: bool = False
    """Whether the task has committed since it last started."""
    backoff: Backoff = field(default_factory=Backoff)
    end: Release | Failure | None = None
    """How the task is to end, once no thread works on it."""
    is_ready: bool = False
    """Whether a turn would have something to do."""
    wake_ms: int | None = None
    uncommitted_since_ms: int | None = None
    turn_began_ms: int = 0
    has_own_thread: bool = False
    share_ms: float = 0.0
    """How much of the shared thread's time counts as the task's. The smallest share is next."""
    is_at_its_end: bool = False
    call_since_ms: int = -1
    """When the call of user code began that `call_age_ms` refers to."""
    call_age_ms: int = 0
    """How long the call has taken, without the time in which this process did not run."""
    commit_age_ms: int = 0
    """How long the current commit has taken, likewise."""
    early_commit_ms: int = 0
    """From when on the end of the input is a reason to commit."""
    wants_commit: bool = False
    needs_refresh: bool = False

    @property
    def shares_thread(self) -> bool:
        """Whether only one task of this kind at a time has a turn, or is closed."""
        return not (self.is_inline or self.has_own_thread)

    def begin(self) -> None:
        """Reset what belongs to the last run."""
        self.has_committed = self.is_ready = self.wants_commit = self.needs_refresh = False
        self.wake_ms = self.uncommitted_since_ms = None
        self.is_at_its_end, self.early_commit_ms = False, 0
