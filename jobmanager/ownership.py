"""Who owns which task, and the commands that tell the TaskManagers so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kafka_pipeline.common.protocol.messages import MISSED_BEATS, ProcessorReplica
from kafka_pipeline.common.protocol.reported_tasks import ReportedTasks
from kafka_pipeline.common.protocol.suspects import Suspect
from kafka_pipeline.common.tasks import TaskId


class TaskPhase(StrEnum):
    """Where a task is in its move from one owner to the next.

    ::

        UNASSIGNED ──▶ ASSIGNED ──▶ REVOKING ──▶ UNASSIGNED
             ▲            │             │    (given back, owner down, or too slow)
             └────────────┴─────────────┘    owner down
    """

    UNASSIGNED = "UNASSIGNED"
    ASSIGNED = "ASSIGNED"
    REVOKING = "REVOKING"


@dataclass(slots=True)
class OwnedTask:
    """A task, and the TaskManager that owns it."""

    replica: ProcessorReplica
    fingerprint: str
    """The replica's fingerprint, kept because the replica computes it each time."""
    phase: TaskPhase = TaskPhase.UNASSIGNED
    owner: int | None = None
    home: int | None = None
    """The TaskManager that the balancer chose, or the last owner: it likely has the state."""
    left: int | None = None
    """The owner before, if that is gone: once it is back, it likely has the state, too."""
    commanded: int = 0
    """Sequence of the last command to the owner about this task."""
    revoked_at_ms: int = 0
    suspects: tuple[Suspect, ...] = ()
    """What it did when workers ended, as its last owner reported it: the next owner is warned."""

    @property
    def assignment(self) -> ProcessorReplica:
        """The replica as it is assigned."""
        return replace(self.replica, suspects=self.suspects) if self.suspects else self.replica


@dataclass(slots=True)
class LiveTaskManager:
    """A TaskManager that takes part."""

    incarnation: str
    threads: int
    beat: int
    """The counter of its newest report, even of one that could not be read."""
    sequence: int
    """The number of the last command sent."""
    carried_out: int
    """The number of the last command that a report confirmed."""
    epoch: int = -1
    """The epoch in its newest report."""
    sent_at_beat: int = 0
    """The number of the JobManager's last heartbeat before that command."""
    patience_beats: int = MISSED_BEATS
    """How many heartbeats of the JobManager later a report must confirm it."""
    tasks: dict[TaskId, OwnedTask] = field(default_factory=dict)
    """The tasks that it owns."""
    revoking: dict[TaskId, None] = field(default_factory=dict)
    """The tasks that it was asked to give back, in this order."""
    misplaced: dict[TaskId, None] = field(default_factory=dict)
    """The tasks that it will be asked to give back, once it has given others back."""
    runs: ReportedTasks = field(default_factory=ReportedTasks)
    """The tasks that it runs, according to its reports."""
    unexpected: dict[TaskId, int | None] = field(default_factory=dict)
    """The tasks that it reported and has to close, and when each was last revoked."""


@dataclass(slots=True)
class NextCommand:
    """The content of the next command to a TaskManager; dicts serve as ordered sets."""

    assign: dict[TaskId, None] = field(default_factory=dict)
    revoke: dict[TaskId, None] = field(default_factory=dict)


class NextCommands:
    """The next command to each TaskManager, until all of them are taken and sent."""

    def __init__(self) -> None:
        self._commands: dict[int, NextCommand] = {}

    def answer(self, tm_id: int) -> None:
        """Send a command even if there is nothing to do."""
        self._commands.setdefault(tm_id, NextCommand())

    def assign(self, tm_id: int, task: TaskId) -> None:
        """Have a task started."""
        self._commands.setdefault(tm_id, NextCommand()).assign[task] = None

    def revoke(self, tm_id: int, task: TaskId) -> None:
        """Have a task closed; this drops its assignment from the command, which can come later."""
        command = self._commands.setdefault(tm_id, NextCommand())
        command.assign.pop(task, None)
        command.revoke[task] = None

    def withdraw(self, tm_id: int, task: TaskId) -> bool:
        """Drop an assignment that was not sent yet; return whether there was one."""
        command = self._commands.get(tm_id)
        if command is None or task not in command.assign:
            return False
        del command.assign[task]
        return True

    def forget(self, tm_id: int) -> None:
        """Send nothing to a TaskManager that is gone."""
        self._commands.pop(tm_id, None)

    def take(self) -> Iterator[tuple[int, NextCommand]]:
        """Return the commands, and begin new ones."""
        commands, self._commands = self._commands, {}
        return iter(commands.items())
