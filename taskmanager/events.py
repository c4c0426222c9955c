"""What the TaskManager's core takes in (events) and what it wants done (commands)."""

from __future__ import annotations

from dataclasses import dataclass

from common.messages import (
    Heartbeat,
    ProcessorReplica,
    Processors,
    Refused,
    ReportRequest,
    Sos,
    Threads,
)
from common.nodes import TaskId
from common.status import TaskStatus


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. Milliseconds of a clock that only goes forward; several a heartbeat period."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class ThreadConnected:
    """A PipelineThread's worker is up and takes tasks."""

    thread: int


@dataclass(frozen=True, slots=True)
class ThreadReported:
    """A PipelineThread told how its tasks do."""

    thread: int
    tasks: tuple[TaskStatus, ...]


@dataclass(frozen=True, slots=True)
class TaskClosed:
    """A PipelineThread gave a task up, after a revocation or because it lost it (lease, fence)."""

    thread: int
    task: TaskId


@dataclass(frozen=True, slots=True)
class ThreadStopped:
    """A PipelineThread obeyed `stop`: all is committed and closed."""

    thread: int


@dataclass(frozen=True, slots=True)
class ThreadLost:
    """A PipelineThread ended without being told to: its worker died or raised."""

    thread: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The operator wants the TaskManager to end in good order."""


Event = (
    Tick
    | ThreadConnected
    | ThreadReported
    | TaskClosed
    | ThreadStopped
    | ThreadLost
    | StopRequested
    | Sos
    | Processors
    | Refused
    | ReportRequest
)


@dataclass(frozen=True, slots=True)
class LaunchThread:
    """Start a PipelineThread (again)."""

    thread: int


@dataclass(frozen=True, slots=True)
class ReportWaiting:
    """Tell the operator that a PipelineThread was launched, but has not come up for long."""

    thread: int


@dataclass(frozen=True, slots=True)
class AssignTask:
    """Tell a PipelineThread to run a task."""

    thread: int
    replica: ProcessorReplica
    epoch: int


@dataclass(frozen=True, slots=True)
class RevokeTask:
    """Tell a PipelineThread to commit and close a task."""

    thread: int
    task: TaskId


@dataclass(frozen=True, slots=True)
class StopThread:
    """Tell a PipelineThread to commit and close all its tasks and to end."""

    thread: int


@dataclass(frozen=True, slots=True)
class DumpThread:
    """Let the worker of a PipelineThread that hangs write its stacks to its log."""

    thread: int


@dataclass(frozen=True, slots=True)
class KillThread:
    """End the worker of a PipelineThread that hangs; `ThreadLost` follows when it is gone."""

    thread: int


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process; `refusal` is set if the JobManager does not let it take part."""

    refusal: str | None = None


Command = (
    LaunchThread
    | ReportWaiting
    | AssignTask
    | RevokeTask
    | StopThread
    | DumpThread
    | KillThread
    | Threads
    | Heartbeat
    | Exit
)
