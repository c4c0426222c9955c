"""The inputs of the TaskManager's core (events) and its outputs (commands)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_pipeline.common.protocol.messages import (
    Heartbeat,
    ProcessorReplica,
    Processors,
    Refused,
    ReportRequest,
    Sos,
    Threads,
)
from kafka_pipeline.common.protocol.status import TaskStatus
from kafka_pipeline.common.protocol.suspects import Death
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick


@dataclass(frozen=True, slots=True)
class ThreadConnected:
    """A PipelineThread's worker is up and accepts tasks."""

    thread: int


@dataclass(frozen=True, slots=True)
class ThreadReported:
    """A PipelineThread reported the state of its tasks."""

    thread: int
    tasks: tuple[TaskStatus, ...]


@dataclass(frozen=True, slots=True)
class TaskClosed:
    """A PipelineThread gave a task up, after a revocation or because it lost it (lease, fence)."""

    thread: int
    task: TaskId


@dataclass(frozen=True, slots=True)
class ThreadStopped:
    """A PipelineThread carried out `stop`: all its tasks are committed and closed."""

    thread: int


@dataclass(frozen=True, slots=True)
class ThreadEnding:
    """A PipelineThread's worker ends itself, in order to be started again; `ThreadLost` follows."""

    thread: int
    reason: str


@dataclass(frozen=True, slots=True)
class ThreadDied:
    """The process of a PipelineThread's worker ended, and how.

    If it `goes_on`, another process is already being started. Otherwise, `ThreadLost` follows.
    """

    thread: int
    death: Death
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class ThreadLost:
    """A PipelineThread ended without a request: its worker died or raised."""

    thread: int


@dataclass(frozen=True, slots=True)
class ReportConfirmed:
    """Kafka has confirmed a report of this TaskManager."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """All commands have been read that there were when `CatchUp` came."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The operator wants the TaskManager to shut down cleanly."""


@dataclass(frozen=True, slots=True)
class CodeChanged:
    """Workers that start from now on run other user code: its fingerprints, by module."""

    code: Mapping[str, str]


ThreadEvent = (
    ThreadConnected
    | ThreadReported
    | TaskClosed
    | ThreadStopped
    | ThreadEnding
    | ThreadDied
    | ThreadLost
)

Event = (
    Tick
    | ThreadEvent
    | ReportConfirmed
    | CaughtUp
    | StopRequested
    | CodeChanged
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
    """Log that a PipelineThread was launched long ago but has not come up."""

    thread: int


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Find out where the commands end now; `CaughtUp` follows when they are read."""


@dataclass(frozen=True, slots=True)
class AssignTask:
    """Send a PipelineThread the command to run a task."""

    thread: int
    replica: ProcessorReplica
    epoch: int


@dataclass(frozen=True, slots=True)
class RevokeTask:
    """Send a PipelineThread the command to commit and close a task."""

    thread: int
    task: TaskId


@dataclass(frozen=True, slots=True)
class StopThread:
    """Send a PipelineThread the command to commit and close all its tasks and to end."""

    thread: int


@dataclass(frozen=True, slots=True)
class DumpThread:
    """Have the worker of a hanging PipelineThread write its stacks to its log."""

    thread: int


@dataclass(frozen=True, slots=True)
class KillThread:
    """End the worker of a hanging PipelineThread; `ThreadLost` follows when it is gone."""

    thread: int


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process; `refusal` is set if the JobManager refuses this TaskManager."""

    refusal: str | None = None


Command = (
    LaunchThread
    | ReportWaiting
    | AssignTask
    | RevokeTask
    | StopThread
    | DumpThread
    | KillThread
    | CatchUp
    | Threads
    | Heartbeat
    | Exit
)
