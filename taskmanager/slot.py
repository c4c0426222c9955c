"""A task as a PipelineThread's core knows it: what is done with it, and what is to become of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from common.nodes import TaskId
from taskmanager.thread_events import Failure

CALM_MS = 60_000
FIRST_DELAY_MS = 500
MAX_DELAY_MS = 30_000


class Phase(Enum):
    """What is done with a task now; it is in one thread's hands at a time.

    ::

        WAITING ─▶ STARTING ─▶ IDLE ◀─▶ TURNING
           ▲          │         ◀─▶ COMMITTING
           │          ▼         │
           └────── CLOSING ◀────┘    an error that a new start may cure, a revocation
                      └─▶ FAILED     stopped for good, with a reason
    """

    WAITING = auto()
    """For its next start."""
    STARTING = auto()
    """Another thread fences, restores and calls `init`."""
    IDLE = auto()
    """It has its clients, stores and nodes, and nothing is done with it."""
    TURNING = auto()
    """Its records are processed."""
    COMMITTING = auto()
    """Another thread commits, or commits its offsets again."""
    CLOSING = auto()
    """Its processors, clients and stores are closed."""
    FAILED = auto()
    """It is closed, and does not start again by itself."""


@dataclass(slots=True)
class Backoff:
    """How often a task failed lately; decides how long it waits before it starts again.

    What it has committed in between shows that it is not the same failure forever.
    """

    failures: int = 0
    fenced: int = 0
    last_ms: int = 0

    def count(self, now_ms: int, is_fenced: bool, has_committed: bool) -> None:
        if now_ms - self.last_ms > CALM_MS:
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
    """The end of a task that is not this thread's any more: it is closed and forgotten."""

    reason: str = ""
    commits: bool = True
    """Whether what the task did before is committed first."""


@dataclass(slots=True)
class Slot:
    """A task as the driver gave it to this thread, through all its starts."""

    task: TaskId
    is_inline: bool
    max_process_time_ms: int
    phase: Phase = Phase.WAITING
    due_ms: int = 0
    """When it starts, while it is WAITING."""
    restarts: int = 0
    reason: str = ""
    has_committed: bool = False
    """Whether it has committed since it last started."""
    backoff: Backoff = field(default_factory=Backoff)
    end: Release | Failure | None = None
    """What is to become of it, as soon as nothing is done with it."""
    is_ready: bool = False
    """Whether a turn has something to do."""
    wake_ms: int | None = None
    uncommitted_since_ms: int | None = None
    turn_began_ms: int = 0
    is_queued: bool = False
    """Whether it waits for the thread of user code, to have a turn there."""
    is_at_its_end: bool = False
    call_since_ms: int = -1
    """When the call of user code began that `call_age_ms` is about."""
    call_age_ms: int = 0
    """How long it has taken, without the time in which this process did not run."""
    commit_age_ms: int = 0
    """The same of the commit that goes on."""
    wants_commit: bool = False
    needs_refresh: bool = False

    def begin(self) -> None:
        """Forget what was of the last run."""
        self.has_committed = self.is_ready = self.wants_commit = self.needs_refresh = False
        self.wake_ms = self.uncommitted_since_ms = None
        self.is_at_its_end = False
