"""A PipelineThread's core, driven by a test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.task_entry import Phase
from kafka_pipeline.taskmanager.thread_events import (
    Assigned,
    CloseEnded,
    Command,
    CommitEnded,
    Event,
    Failure,
    FailureKind,
    Fed,
    RestartTask,
    Started,
    StartTask,
    TaskCall,
    ThreadTick,
    TurnEnded,
)
from kafka_pipeline.taskmanager.thread_state import PipelineThreadState

HEARTBEAT_MS, COMMIT_MS, BUDGET_MS = 1000, 100, 80
MAX_PROCESS_MS = 5000
TIMEOUT_MS = 15_000
TRANSIENT = Failure(FailureKind.TRANSIENT, "a broker is away")
NO_FILES = Failure(FailureKind.NO_FILES, "no sockets")
FENCED = Failure(FailureKind.FENCED, "fenced: newer")
EXPIRED = Failure(FailureKind.EXPIRED, "fenced: too old")
FATAL = Failure(FailureKind.FATAL, "a right is missing")
REJECTED = Failure(FailureKind.FATAL, "record in[0]@2: no good", commits=True)


def task(number: int) -> TaskId:
    return TaskId("P", number)


class Host:
    """A core and a clock; the driver is never silent."""

    def __init__(self) -> None:
        self.core = PipelineThreadState(HEARTBEAT_MS, COMMIT_MS, TIMEOUT_MS)
        self.now_ms = 1000
        self.heard_ms: int | None = None
        self.take(self.tick(0))

    def tick(self, ms: int, *calls: TaskCall) -> ThreadTick:
        self.now_ms += ms
        heard_ms = self.now_ms if self.heard_ms is None else self.heard_ms
        return ThreadTick(self.now_ms, heard_ms, calls)

    def work(self, ms: int, *calls: TaskCall) -> list[Command]:
        """Let time pass while the process runs and calls go on; return the commands at the end."""
        said: list[Command] = []
        for step in [1000] * (ms // 1000) + [ms % 1000] * (ms % 1000 > 0):
            said = self.take(self.tick(step, *calls))
        return said

    def take(self, *events: Event) -> list[Command]:
        return [command for event in events for command in self.core.handle(event)]

    def wait(self, ms: int) -> list[Command]:
        return self.take(self.tick(ms))

    def phase(self, number: int = 0) -> Phase:
        return self.core.phase(task(number))


def running(numbers: Iterable[int] = (0,), is_inline: bool = False) -> Host:
    """Return a host whose tasks run, and have nothing to do."""
    host = Host()
    for number in numbers:
        started = host.take(Assigned(task(number), is_inline, MAX_PROCESS_MS))
        assert started == [StartTask(task(number))]
        assert host.take(Started(task(number))) == []
    return host


def fed(number: int = 0, has_records: bool = True, is_at_its_end: bool = False) -> Fed:
    return Fed(task(number), has_records, is_at_its_end)


def ended(number: int = 0, **others: Any) -> TurnEnded:
    return TurnEnded(task(number), **({"has_uncommitted": True} | others))


def restart_delay_ms(host: Host, failure: Failure) -> int:
    """Let a commit fail; return the pause before the start, which then succeeds."""
    host.take(fed(), ended(wants_commit=True), CommitEnded(task(0), failure))
    (command,) = host.take(CloseEnded(task(0)))
    assert isinstance(command, RestartTask)
    if command.delay_ms:
        assert host.wait(command.delay_ms - 1) == []
    assert host.wait(1 if command.delay_ms else 0) == [StartTask(task(0))]
    host.take(Started(task(0)))
    return command.delay_ms
