"""What happens to a PipelineThread, and what it is to do about it; see `thread_state`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from common.nodes import TaskId

DEFAULT_MAX_PROCESS_TIME_MS = 300_000
"""How long one call of user code may take, unless its processor says otherwise."""


class Kind(Enum):
    """What an error means for the task."""

    TRANSIENT = auto()
    """A new start may cure it."""
    FENCED = auto()
    """A newer producer has its transactional id; the second time, the task is somebody else's."""
    EXPIRED = auto()
    """Fenced after its transaction had outlived its timeout, most likely by the brokers."""
    FATAL = auto()
    """It stops until the operator has changed something."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task cannot go on."""

    kind: Kind
    reason: str
    commits: bool = False
    """Whether what the task did before is right, and is committed first."""


# Events


@dataclass(frozen=True, slots=True)
class Call:
    """A call of user code that has not returned yet."""

    task: TaskId
    place: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed: milliseconds of a clock that only goes forward.

    `heard_ms` is when the driver was last heard.
    """

    now_ms: int
    heard_ms: int
    calls: tuple[Call, ...] | None = None
    """The calls that go on; `None` if nobody has looked."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The driver gave a task to this thread.

    Turns of one that `is_inline` run no user code: the thread's loop takes them itself.
    """

    task: TaskId
    is_inline: bool
    max_process_time_ms: int = DEFAULT_MAX_PROCESS_TIME_MS


@dataclass(frozen=True, slots=True)
class Revoked:
    """The driver wants tasks back, committed and closed."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The driver wants all tasks back, and the thread to end."""


@dataclass(frozen=True, slots=True)
class Started:
    """A start has succeeded; `wake_in_ms` as in `TurnEnded`."""

    task: TaskId
    wake_in_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StartFailed:
    """A start has failed and left nothing behind; without a failure, it was cancelled."""

    task: TaskId
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Fed:
    """Records of the task came, or the end of its input was reached.

    `has_records` says that some wait, which a turn may be able to process; `is_at_its_end` that
    no more are to be expected at once.
    """

    task: TaskId
    has_records: bool
    is_at_its_end: bool


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn has ended, with the failure that ended it if there was one.

    `has_more` says that another turn has something to do at once, `has_uncommitted` that there is
    something to commit, and nothing under way that must come before. `wake_in_ms` says that a turn
    has something to do in so many milliseconds though no record comes, and `is_at_its_end` that no
    more records are to be expected at once.
    """

    task: TaskId
    has_more: bool = False
    wants_commit: bool = False
    has_uncommitted: bool = False
    is_at_its_end: bool = False
    wake_in_ms: int | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class CommitEnded:
    """A commit, or a refresh of the committed offsets, has ended."""

    task: TaskId
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Disturbed:
    """Something that the task needs has failed, in the background or in another task's hands."""

    task: TaskId
    failure: Failure


@dataclass(frozen=True, slots=True)
class RefreshDue:
    """The task has not committed for so long that brokers may soon forget its offsets."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Closed:
    """A task's processors, clients and stores are closed."""

    task: TaskId


Event = (
    Tick
    | Assigned
    | Revoked
    | StopRequested
    | Started
    | StartFailed
    | Fed
    | TurnEnded
    | CommitEnded
    | Disturbed
    | RefreshDue
    | Closed
)


# Commands


@dataclass(frozen=True, slots=True)
class StartTask:
    """Start a task in the background: `Started` or `StartFailed` follows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class CancelStart:
    """Let a start that goes on end soon; `StartFailed`, or `Started`, follows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class RunTurn:
    """Give a task a turn of at most so many milliseconds and a record: `TurnEnded` follows."""

    task: TaskId
    budget_ms: int


@dataclass(frozen=True, slots=True)
class CommitTask:
    """Commit what a task has done in the background: `CommitEnded` follows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class RefreshTask:
    """Commit a task's offsets again in the background: `CommitEnded` follows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class CloseTask:
    """Close a task's processors, clients and stores, without a commit: `Closed` follows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class AbandonCall:
    """Leave a call of user code behind forever, with the thread that it is on.

    Close the task's clients, and leave its stores alone, which the call may use. Nothing follows.
    """

    task: TaskId


@dataclass(frozen=True, slots=True)
class RestartTask:
    """Tell the operator that a task starts again, and in how many milliseconds."""

    task: TaskId
    reason: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class ReportFailed:
    """Tell the operator that a task has stopped for good."""

    task: TaskId
    reason: str


@dataclass(frozen=True, slots=True)
class ForgetTask:
    """Tell the driver that a task is closed, and forget it."""

    task: TaskId
    reason: str = ""
    """Why it was given up; empty where the driver wanted it back."""


@dataclass(frozen=True, slots=True)
class EndProcess:
    """End the worker's process at once: the commit of a task never ends."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class EndThread:
    """Everything is closed: tell the driver, and end."""


Command = (
    StartTask
    | CancelStart
    | RunTurn
    | CommitTask
    | RefreshTask
    | CloseTask
    | AbandonCall
    | RestartTask
    | ReportFailed
    | ForgetTask
    | EndProcess
    | EndThread
)
