"""The JobManager's decisions: events in, commands out. No clock, thread or Kafka in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from common.messages import (
    HeartbeatEvent,
    JobManagerBeat,
    Message,
    ProcessorReplica,
    Processors,
    Refused,
    Report,
)
from common.nodes import TaskId
from common.status import TaskState
from jobmanager.heartbeat_controller import MISSED_BEATS, HeartbeatController
from jobmanager.load_balancer import balance

REVOKE_PATIENCE_BEATS = 20


@dataclass(frozen=True, slots=True)
class ReignBegan:
    """The JobManager's `sos` is in Kafka, at offset `epoch`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Reported:
    """A TaskManager's report came in, with a heartbeat or as an introduction."""

    report: Report


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. Milliseconds of a clock that only goes forward; several a heartbeat period."""

    now_ms: int


Event = ReignBegan | Reported | Tick


class TaskPhase(StrEnum):
    """Where a task is in its move from one owner to the next.

    ::

        UNASSIGNED ──▶ ASSIGNED ──▶ REVOKING ──▶ UNASSIGNED
             ▲            │             │    (given back, owner down, or out of patience)
             └────────────┴─────────────┘    owner down
    """

    UNASSIGNED = "UNASSIGNED"
    ASSIGNED = "ASSIGNED"
    REVOKING = "REVOKING"


@dataclass(slots=True)
class _Task:
    replica: ProcessorReplica
    phase: TaskPhase = TaskPhase.UNASSIGNED
    owner: int | None = None
    home: int | None = None
    """Where the balancer wants it, or where it last was: its state is likely there."""
    commanded: int = 0
    """Sequence of the last command to the owner about this task."""
    revoked_at_ms: int = 0


@dataclass(slots=True)
class _TaskManager:
    incarnation: str
    threads: int
    beat: int
    sequence: int = 0
    """Of the last command sent."""
    carried_out: int = 0
    """Of the last command that a report confirmed."""
    sent_at_ms: int = 0
    reported: frozenset[TaskId] = frozenset()


@dataclass(slots=True)
class _Batch:
    assign: list[TaskId] = field(default_factory=list)
    revoke: list[TaskId] = field(default_factory=list)


class JobManagerState:
    """Who runs what. `handle` is the only way to change it.

    Level-triggered: every report is compared with what should be, and the difference becomes
    commands. So a command that got lost is repeated, a task that nobody else owns is adopted
    from whoever runs it, and a restarted JobManager needs no memory. Being wrong about who is
    alive costs time, never correctness: tasks fence each other in Kafka.
    """

    def __init__(
        self, replicas: Sequence[ProcessorReplica], tm_number: int, heartbeat_interval_ms: int
    ) -> None:
        self._tasks = {replica.task: _Task(replica) for replica in replicas}
        self._tm_number = tm_number
        self._interval_ms = heartbeat_interval_ms
        self._controller = HeartbeatController(heartbeat_interval_ms)
        self._managers: dict[int, _TaskManager] = {}
        self._down: set[int] = set()
        self._epoch: int | None = None
        self._now_ms = 0
        self._first_report_ms: int | None = None
        self._settled = False
        self._beat_at_ms = 0
        self._commands: list[Message] = []
        self._batches: dict[int, _Batch] = {}

    @property
    def owners(self) -> dict[TaskId, int | None]:
        """The TaskManager that may run each task now; `None` if there is none."""
        return {task_id: task.owner for task_id, task in self._tasks.items()}

    @property
    def live(self) -> dict[int, str]:
        """The TaskManagers that take part, with their incarnations."""
        return {tm_id: manager.incarnation for tm_id, manager in self._managers.items()}

    def handle(self, event: Event) -> list[Message]:
        """Take an event in; return the messages to send, in order."""
        match event:
            case ReignBegan(epoch):
                self._epoch = epoch
            case Reported(report):
                if self._epoch is not None:
                    self._on_report(report)
            case Tick(now_ms):
                self._on_tick(now_ms)
        if self._epoch is not None:
            self._flush()
        commands, self._commands = self._commands, []
        return commands

    def _on_tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        for tm_id in self._controller.tick(now_ms):
            self._remove(tm_id)
        if self._epoch is None:
            return
        if not self._settled and self._may_settle():
            self._settled = True
            self._rebalance()
        self._lose_patience()
        if now_ms >= self._beat_at_ms:
            self._beat_at_ms = now_ms + self._interval_ms
            self._commands.append(JobManagerBeat(self._epoch, 0, self.owners))

    def _may_settle(self) -> bool:
        """Whether everybody has introduced themselves, or has had time to."""
        if self._first_report_ms is None:
            return False
        waited_ms = self._now_ms - self._first_report_ms
        return (
            len(self._managers) == self._tm_number or waited_ms >= MISSED_BEATS * self._interval_ms
        )

    def _on_report(self, report: Report) -> None:
        assert self._epoch is not None
        tm_id = report.tm_id
        if not 0 <= tm_id < self._tm_number:
            reason = f"id {tm_id} is outside 0..{self._tm_number - 1} (tm_number in config.yaml)"
            self._commands.append(Refused(tm_id, report.incarnation, self._epoch, reason))
            return
        manager = self._managers.get(tm_id)
        if manager is not None and manager.incarnation != report.incarnation:
            if report.leaving:
                return
            reason = f"id {tm_id} is taken by a TaskManager that is alive"
            self._commands.append(Refused(tm_id, report.incarnation, self._epoch, reason))
            return
        if manager is not None and report.beat <= manager.beat:
            return
        if report.leaving:
            if manager is not None:
                self._remove(tm_id)
            return
        if manager is None:
            manager = self._admit(report)
        elif not self._settled:
            self._adopt(report)
        self._controller.beat(tm_id)
        manager.beat = report.beat
        manager.reported = frozenset(status.task for status in report.tasks)
        if report.epoch == self._epoch:
            manager.carried_out = max(manager.carried_out, report.sequence)
        self._reconcile(tm_id, manager)

    def _admit(self, report: Report) -> _TaskManager:
        tm_id = report.tm_id
        manager = _TaskManager(report.incarnation, report.threads, report.beat - 1)
        self._managers[tm_id] = manager
        if tm_id in self._down:
            self._down.remove(tm_id)
            self._commands.append(HeartbeatEvent(tm_id, is_up=True))
        if self._first_report_ms is None:
            self._first_report_ms = self._now_ms
        # An answer even if there is nothing to do, so that it knows that it takes part.
        self._batches.setdefault(tm_id, _Batch())
        self._adopt(report)
        if self._settled:
            self._rebalance()
        return manager

    def _adopt(self, report: Report) -> None:
        """Leave tasks that nobody else owns to the one that runs them, but for failed ones."""
        for status in report.tasks:
            task = self._tasks.get(status.task)
            if (
                task is not None
                and task.phase is TaskPhase.UNASSIGNED
                and status.state is not TaskState.FAILED
            ):
                task.phase, task.owner, task.home = TaskPhase.ASSIGNED, report.tm_id, report.tm_id
                task.commanded = 0

    def _remove(self, tm_id: int) -> None:
        """Take a TaskManager that is down or has left out, and give its tasks to others."""
        self._controller.forget(tm_id)
        del self._managers[tm_id]
        self._batches.pop(tm_id, None)
        self._down.add(tm_id)
        self._commands.append(HeartbeatEvent(tm_id, is_up=False))
        for task in self._tasks.values():
            if task.owner == tm_id:
                task.phase, task.owner = TaskPhase.UNASSIGNED, None
        if self._settled:
            self._rebalance()

    def _rebalance(self) -> None:
        """Give every task without an owner to its place, and start to move those misplaced."""
        threads = {tm_id: manager.threads for tm_id, manager in self._managers.items()}
        homes = {t: task.home for t, task in self._tasks.items() if task.home is not None}
        for task_id, target in balance(list(self._tasks), threads, homes).items():
            task = self._tasks[task_id]
            task.home = target
            if task.phase is TaskPhase.UNASSIGNED:
                self._assign(task, target)
            elif task.phase is TaskPhase.ASSIGNED and task.owner != target:
                self._revoke(task)

    def _assign(self, task: _Task, tm_id: int) -> None:
        task.phase, task.owner = TaskPhase.ASSIGNED, tm_id
        self._command(tm_id).assign.append(task.replica.task)

    def _revoke(self, task: _Task) -> None:
        assert task.owner is not None
        batch = self._command(task.owner)
        if task.replica.task in batch.assign:
            # It has not been sent yet, so there is nothing to wait for.
            batch.assign.remove(task.replica.task)
            task.phase, task.owner = TaskPhase.UNASSIGNED, None
            assert task.home is not None
            self._assign(task, task.home)
            return
        task.phase, task.revoked_at_ms = TaskPhase.REVOKING, self._now_ms
        batch.revoke.append(task.replica.task)

    def _reconcile(self, tm_id: int, manager: _TaskManager) -> None:
        """Compare what a TaskManager runs with what it should."""
        for task_id, task in self._tasks.items():
            if task.owner != tm_id or task_id in manager.reported:
                continue
            if manager.carried_out < task.commanded:
                continue
            if task.phase is TaskPhase.REVOKING:
                self._free(task)
            else:
                # It was given up there, or the command got lost.
                self._command(tm_id).assign.append(task_id)
        for task_id in sorted(manager.reported):
            known = self._tasks.get(task_id)
            is_its_own = known is not None and known.owner == tm_id
            if not is_its_own and manager.carried_out == manager.sequence:
                self._command(tm_id).revoke.append(task_id)
        overdue_ms = MISSED_BEATS * self._interval_ms
        if (
            manager.carried_out < manager.sequence
            and self._now_ms - manager.sent_at_ms > overdue_ms
        ):
            self._repeat(tm_id)

    def _repeat(self, tm_id: int) -> None:
        """Say again all that a TaskManager should do: it has not carried out what it was told."""
        batch = self._command(tm_id)
        for task_id, task in self._tasks.items():
            if task.owner == tm_id:
                listed = batch.revoke if task.phase is TaskPhase.REVOKING else batch.assign
                if task_id not in listed:
                    listed.append(task_id)

    def _free(self, task: _Task) -> None:
        task.phase, task.owner = TaskPhase.UNASSIGNED, None
        if task.home in self._managers:
            self._assign(task, task.home)
        else:
            self._rebalance()

    def _lose_patience(self) -> None:
        """Take tasks by force from an owner that does not give them back: fencing makes it safe."""
        patience_ms = REVOKE_PATIENCE_BEATS * self._interval_ms
        for task in self._tasks.values():
            if task.phase is TaskPhase.REVOKING and self._now_ms - task.revoked_at_ms > patience_ms:
                self._free(task)

    def _command(self, tm_id: int) -> _Batch:
        return self._batches.setdefault(tm_id, _Batch())

    def _flush(self) -> None:
        assert self._epoch is not None
        for tm_id, batch in self._batches.items():
            manager = self._managers[tm_id]
            manager.sequence += 1
            manager.sent_at_ms = self._now_ms
            for task_id in (*batch.assign, *batch.revoke):
                if task_id in self._tasks:
                    self._tasks[task_id].commanded = manager.sequence
            self._commands.append(
                Processors(
                    tm_id,
                    manager.incarnation,
                    self._epoch,
                    manager.sequence,
                    assign=tuple(self._tasks[task_id].replica for task_id in batch.assign),
                    revoke=tuple(batch.revoke),
                )
            )
        self._batches = {}
