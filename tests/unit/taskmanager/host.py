"""A TaskManager's core for its tests: with a clock, and commands of a JobManager."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafka_pipeline.common.pipelines.specs import ForwardSpec
from kafka_pipeline.common.protocol.messages import (
    Heartbeat,
    ProcessorReplica,
    Processors,
    Report,
    Threads,
)
from kafka_pipeline.common.protocol.reported_tasks import ReportedTasks
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.taskmanager.events import (
    Command,
    Event,
    ThreadConnected,
    ThreadReported,
)
from kafka_pipeline.taskmanager.state import TaskManagerState

START_MS = 700_000
EPOCH = 5


def task(partition: int) -> TaskId:
    return TaskId("P", partition)


def replica(partition: int) -> ProcessorReplica:
    return ProcessorReplica(
        task(partition), ForwardSpec(), ("source",), ("sink",), ("in",), ("out",)
    )


class Host:
    """A TaskManager's core, its clock and the JobManager's command counter."""

    def __init__(self, threads: int, transaction_timeout_ms: int = 15_000, spares: int = 0) -> None:
        identity = Report(3, "me", threads, beat=0, host="h", pid=99, interval_ms=1000)
        self.state = TaskManagerState(identity, transaction_timeout_ms, spares)
        self.now_ms = START_MS
        self.sequence = 0
        self.reported = ReportedTasks()
        """What somebody knows who reads all reports."""

    def take(self, *events: Event) -> list[Command]:
        """Hand events in; return all commands, with reports as full as what they add up to."""
        commands = [command for event in events for command in self.state.handle(event)]
        return [self._completed(command) for command in commands]

    def _completed(self, command: Command) -> Command:
        if not isinstance(command, Threads | Heartbeat):
            return command
        assert self.reported.take(command.report)
        tasks = tuple(self.reported.tasks.values())
        report = replace(command.report, tasks=tasks, base=None, closed=())
        return replace(command, report=report)

    def turn(self, *events: Event) -> list[Command]:
        """Hand events in as a turn of the daemon's loop does: then it ticks, and may report."""
        return [*self.take(*events), *self.tick(0)]

    def tick(self, after_ms: int = 250) -> list[Command]:
        """Let time pass."""
        self.now_ms += after_ms
        return self.take(Tick(self.now_ms))

    def command(
        self,
        assign: Sequence[int] = (),
        revoke: Sequence[int] = (),
        epoch: int = EPOCH,
        sequence: int | None = None,
        incarnation: str = "me",
        replicas: Sequence[ProcessorReplica] = (),
    ) -> list[Command]:
        """Take a command of the JobManager in, in a turn of its own."""
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        return self.turn(
            Processors(
                3,
                incarnation,
                epoch,
                sequence,
                assign=(*(replica(n) for n in assign), *replicas),
                revoke=tuple(task(n) for n in revoke),
            )
        )

    def report(self) -> Report:
        """Return the report of the next heartbeat."""
        return reports(self.tick(1000))[-1]


def reports(commands: Sequence[Command]) -> list[Report]:
    return [command.report for command in commands if isinstance(command, Threads | Heartbeat)]


def others(commands: Sequence[Command]) -> list[Command]:
    return [command for command in commands if not isinstance(command, Threads | Heartbeat)]


def listed(report: Report) -> dict[int, TaskState]:
    return {status.task.partition: status.state for status in report.tasks}


def running_host(
    threads: int = 1,
    assign: Sequence[int] = (),
    transaction_timeout_ms: int = 15_000,
    spares: int = 0,
) -> Host:
    """Return a host whose threads are up and run these tasks."""
    host = Host(threads, transaction_timeout_ms, spares)
    host.tick()
    host.take(*(ThreadConnected(number) for number in range(threads)))
    host.command(assign)
    for task_id, number in host.state.tasks.items():
        host.take(ThreadReported(number, (TaskStatus(task_id, TaskState.RUNNING),)))
    return host
