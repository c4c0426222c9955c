"""The events and commands of a PipelineThread's core; see `thread_state`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from kafka_pipeline.common.pipelines.specs import DEFAULT_MAX_PROCESS_TIME_MS
from kafka_pipeline.common.tasks import TaskId


class FailureKind(Enum):
    """The consequence of an error for the task."""

    TRANSIENT = auto()
    """A new start may cure it."""
    NO_FILES = auto()
    """The process has reached its limit of open files. If that lasts, a new process may cure it."""
    NOT_MADE = auto()
    """Constructors, suppliers or `init` of user code failed. A new start helps only if they behave
    differently then."""
    FENCED = auto()
    """A newer producer has its transactional id; after the second fence, the task has a new
    owner."""
    EXPIRED = auto()
    """Fenced after its transaction had exceeded its timeout, most likely by the brokers."""
    FATAL = auto()
    """The task stops until the operator has changed something."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task cannot go on."""

    kind: FailureKind
    reason: str
    commits: bool = False
    """Whether the task's work before the failure is correct, and is committed first."""


# Events


@dataclass(frozen=True, slots=True)
class TaskCall:
    """A call of user code that has not returned yet.

    `line` is its current line of user code, "" if unknown.
    """

    task: TaskId
    place: str
    since_ms: int
    line: str = ""


@dataclass(frozen=True, slots=True)
class ThreadTick:
    """Time passed: milliseconds of a clock that only goes forward.

    `heard_ms` is when the last message of the driver arrived.
    """

    now_ms: int
    heard_ms: int
    calls: tuple[TaskCall, ...] | None = None
    """The calls in progress; `None` if that was not checked."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The driver gave a task to this thread.

    If the task `is_inline`, its turns run no user code, and the thread's loop runs them itself.
    """

    task: TaskId
    is_inline: bool
    max_process_time_ms: int = DEFAULT_MAX_PROCESS_TIME_MS
    commit_interval_ms: int | None = None
    """How often it commits, even at the end of its input; `None` for the thread's interval."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """The driver takes tasks back; they must be committed and closed.

    In the `hanging` ones, user code still runs, although the tasks do not.
    """

    tasks: tuple[TaskId, ...]
    hanging: frozenset[TaskId] = frozenset()


@dataclass(frozen=True, slots=True)
class ThreadStopRequested:
    """The driver takes all tasks back, and the thread must end."""


@dataclass(frozen=True, slots=True)
class Started:
    """A start has succeeded; `wake_in_ms` as in `TurnEnded`.

    A task that `has_own_thread` does not wait for the turns of other tasks.
    """

    task: TaskId
    wake_in_ms: int | None = None
    has_own_thread: bool = False


@dataclass(frozen=True, slots=True)
class StartFailed:
    """A start has failed and left nothing open; without a failure, it was cancelled."""

    task: TaskId
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Fed:
    """Records of the task arrived, or the end of its input was reached.

    `has_records` means that a turn may be able to process some, and `is_at_its_end` that no more
    are expected at once.
    """

    task: TaskId
    has_records: bool
    is_at_its_end: bool


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn has ended, with the failure that ended it if there was one.

    `has_more` means that another turn would have work at once. `has_uncommitted` means that there
    is work to commit, and that nothing in progress must come first. After `wake_in_ms`
    milliseconds, a turn has work even without new records. `is_at_its_end` means that no more
    records are expected at once. `took_all` means that the turn of a query had all records that had
    arrived when it began; others may have come meanwhile. The turn took `took_ms` milliseconds.
    """

    task: TaskId
    has_more: bool = False
    wants_commit: bool = False
    has_uncommitted: bool = False
    is_at_its_end: bool = False
    took_all: bool = False
    wake_in_ms: int | None = None
    failure: Failure | None = None
    took_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class CommitEnded:
    """A commit, or a refresh of the committed offsets, has ended."""

    task: TaskId
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class DependencyFailed:
    """A resource of the task has failed, in the background or in use by another task."""

    task: TaskId
    failure: Failure


@dataclass(frozen=True, slots=True)
class RefreshDue:
    """The task's last commit is so old that brokers may soon forget its offsets."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class CloseEnded:
    """A task's processors, clients and stores are closed."""

    task: TaskId


Event = (
    ThreadTick
    | Assigned
    | Revoked
    | ThreadStopRequested
    | Started
    | StartFailed
    | Fed
    | TurnEnded
    | CommitEnded
    | DependencyFailed
    | RefreshDue
    | CloseEnded
)


# Commands


@dataclass(frozen=True, slots=True)
class StartTask:
    """Start a task in the background: `Started` or `StartFailed` follows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class CancelStart:
    """Make a start end soon; `StartFailed` or `Started` follows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class RunTurn:
    """Give a task a turn: `TurnEnded` follows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class CommitTask:
    """Commit a task's work in the background: `CommitEnded` follows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class RefreshTask:
    """Commit a task's offsets again in the background: `CommitEnded` follows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class CloseTask:
    """Close a task's processors, clients and stores, without a commit: `CloseEnded` follows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class AbandonCall:
    """Abandon a call of user code forever, together with its thread.

    Close the task's clients, but leave its stores open, since the call may use them. No event
    follows.
    """

    task: TaskId


@dataclass(frozen=True, slots=True)
class RestartTask:
    """Log that a task starts again, and after how many milliseconds."""

    task: TaskId
    reason: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class ReportFailed:
    """Log that a task has stopped for good."""

    task: TaskId
    reason: str


@dataclass(frozen=True, slots=True)
class ForgetTask:
    """Send the driver the end of a task, which is closed, and forget it."""

    task: TaskId
    reason: str = ""
    """Why the task was given up; empty if the driver took it back."""


@dataclass(frozen=True, slots=True)
class EndProcess:
    """End the worker's process at once; the driver starts another one in its place.

    Nothing else stops a commit or a call of user code that does not end, or closes the files that
    user code has left open.
    """

    task: TaskId
    reason: str


@dataclass(frozen=True, slots=True)
class EndThread:
    """End the thread and report that to the driver: everything is closed."""


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
