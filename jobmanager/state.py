"""The JobManager's decisions: events in, commands out. No clock, thread or Kafka in here."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from kafka_pipeline.common.protocol.messages import (
    MISSED_BEATS,
    HeartbeatEvent,
    JobManagerBeat,
    Message,
    ProcessorReplica,
    Processors,
    Refused,
    Report,
    ReportRequest,
)
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.jobmanager.events import (
    Echoed,
    Event,
    LeadershipBegan,
    PipelineChanged,
    Reported,
)
from kafka_pipeline.jobmanager.heartbeat_controller import HeartbeatController
from kafka_pipeline.jobmanager.load_balancer import place
from kafka_pipeline.jobmanager.ownership import LiveTaskManager, NextCommands, OwnedTask, TaskPhase

T = TypeVar("T")
REVOKE_TIMEOUT_BEATS = 20
MOST_MOVES = 32
"""How many tasks a TaskManager must give back at a time, to be moved to others."""
MOST_PATIENCE_BEATS = 48
"""The most heartbeats between two repetitions of a command that is not confirmed."""
MOST_LOSSES = 3
LOSSES_WITHIN_MS = 600_000
"""A TaskManager that is lost so often within this time has something wrong with it."""
MOST_FORMER = 1000
"""How many former TaskManager processes are remembered, to ignore their late reports."""


class JobManagerState:
    """Which TaskManager runs which task. Only `handle` changes this.

    Level-triggered: every report is compared with the desired state, and the difference becomes
    commands. So a lost command is repeated, a task without another owner stays with the TaskManager
    that runs it, and a restarted JobManager needs no memory. A wrong idea of which TaskManagers are
    alive costs time, never correctness: tasks fence each other in Kafka.

    Reports are ignored until there has been both a `LeadershipBegan` and a `Tick`.
    """

    def __init__(
        self, replicas: Sequence[ProcessorReplica], tm_number: int, heartbeat_interval_ms: int
    ) -> None:
        self._tasks: dict[TaskId, OwnedTask] = {}
        self._held: frozenset[str] = frozenset()
        self._held_tasks: frozenset[TaskId] = frozenset()
        self._change(replicas)
        self._least_number = tm_number
        self._tm_number = tm_number
        self._interval_ms = heartbeat_interval_ms
        self._controller = HeartbeatController(heartbeat_interval_ms)
        self._managers: dict[int, LiveTaskManager] = {}
        self._down: set[int] = set()
        self._losses: dict[int, deque[int]] = {}
        """When each TaskManager was counted as down, the last few times."""
        self._former: dict[str, tuple[int, int]] = {}
        """Beat and sequence of former TaskManager processes, by incarnation, latest last."""
        self._asked_ms: dict[str, int] = {}
        """When each incarnation was last asked for a full report, latest last."""
        self._epoch = -1
        self._now_ms = -1
        self._first_report_ms: int | None = None
        self._settled = False
        self._is_rebalance_due = False
        """Whether a task has become free and has no owner yet."""
        self._beat_at_ms = 0
        self._beats = 0
        """The number of the last heartbeat that was sent."""
        self._echoed = 0
        """The number of the last one that came back."""
        self._farewells: list[Processors] = []
        """Commands to TaskManagers that are down: they read them if they come back."""
        self._commands: list[Message] = []
        self._next = NextCommands()

    @property
    def owners(self) -> dict[TaskId, int | None]:
        """The TaskManager that may run each task now; `None` if there is none.

        A standby without a TaskManager is left out: the job does not need it to run.
        """
        return {
            task_id: task.owner
            for task_id, task in self._tasks.items()
            if task.owner is not None or not task_id.standby
        }

    def is_held(self, task_id: TaskId) -> bool:
        """Whether the task, or the task of which this is a copy, must not run."""
        return task_id.processor in self._held or task_id.active in self._held_tasks

    @property
    def is_isolated(self) -> bool:
        """Whether the JobManager's own beats do not come back, so no TaskManager counts as down."""
        return self._controller.is_isolated

    @property
    def later_epoch(self) -> int | None:
        """The newest epoch that a TaskManager follows, if it is newer than the JobManager's own."""
        newest = max((manager.epoch for manager in self._managers.values()), default=-1)
        return newest if newest > self._epoch >= 0 else None

    @property
    def often_lost(self) -> list[int]:
        """The TaskManagers that were down `MOST_LOSSES` times within `LOSSES_WITHIN_MS`."""
        since_ms = self._now_ms - LOSSES_WITHIN_MS
        return sorted(
            tm_id
            for tm_id, losses in self._losses.items()
            if len(losses) == MOST_LOSSES and losses[0] >= since_ms
        )

    @property
    def is_settled(self) -> bool:
        """Whether the TaskManagers have introduced themselves, or have had time to."""
        return self._settled

    @property
    def live(self) -> dict[int, str]:
        """The TaskManagers that take part, with their incarnations."""
        return {tm_id: manager.incarnation for tm_id, manager in self._managers.items()}

    @property
    def tm_number(self) -> int:
        """The number of TaskManagers that may take part: their ids are 0 to `tm_number` - 1."""
        return self._tm_number

    @property
    def code(self) -> dict[int, Mapping[str, str]]:
        """The fingerprints of the user's modules in each TaskManager that takes part."""
        return {tm_id: manager.runs.code for tm_id, manager in self._managers.items()}

    def handle(self, event: Event) -> list[Message]:
        """Handle an event; return the messages to send, in order."""
        match event:
            case LeadershipBegan(epoch):
                self._epoch = epoch
                # An earlier write may have failed, and the last commands may be lost.
                for tm_id in self._managers:
                    self._repeat(tm_id)
            case Tick(now_ms):
                # Reports may still be unread after this tick, as sending commands can block.
                paused_ms = max(now_ms - self._now_ms - self._interval_ms, 0)
                if self._first_report_ms is not None:
                    self._first_report_ms += paused_ms
                self._now_ms = now_ms
                self._on_tick()
            case Reported(report):
                if self._epoch >= 0 and self._now_ms >= 0:
                    self._on_report(report)
            case Echoed(number):
                self._controller.echo()
                self._echoed = max(self._echoed, min(number, self._beats))
            case PipelineChanged(replicas, held, held_tasks, task_managers):
                self._held, self._held_tasks = held, held_tasks
                self._tm_number = max(self._least_number, task_managers)
                self._change(replicas)
                if self._settled:
                    for tm_id, manager in self._managers.items():
                        self._adopt(tm_id, manager)
                    self._rebalance()
        self._flush()
        commands, self._commands = self._commands, []
        return commands

    def running(self, processors: Collection[str]) -> list[TaskId]:
        """Return the tasks of these processors that a TaskManager runs, or may run."""
        found = {
            task_id
            for manager in self._managers.values()
            for task_id in (*manager.tasks, *manager.runs.tasks)
            if task_id.processor in processors and not task_id.standby
        }
        return sorted(found)

    def failed(self, processor: str) -> list[TaskStatus]:
        """Return the statuses of a processor's FAILED tasks, which do not start again."""
        found = {}
        for manager in self._managers.values():
            for task_id, task in manager.tasks.items():
                its = manager.runs.tasks.get(task_id)
                if its is None or its.state is not TaskState.FAILED or task_id.standby:
                    continue
                if task_id.processor == processor and its.fingerprint == task.fingerprint:
                    found[task_id] = its
        return [found[task_id] for task_id in sorted(found)]

    def reported(self, tasks: Collection[TaskId]) -> dict[TaskId, TaskStatus]:
        """Return what their owners report of those tasks that are not to be closed first.

        That may be about a former version.
        """
        found = {}
        for task_id in tasks:
            task = self._tasks.get(task_id)
            if task is None or task.owner is None:
                continue
            manager = self._managers[task.owner]
            its = manager.runs.tasks.get(task_id)
            if its is not None and task_id not in manager.unexpected:
                found[task_id] = its
        return found

    def _change(self, replicas: Sequence[ProcessorReplica]) -> None:
        """Make these the tasks to run, and no others.

        TaskManagers that run another version of a task, or a removed task, show that in their
        reports; see `_is_unexpected`.
        """
        former, self._tasks = self._tasks, {}
        for replica in replicas:
            fingerprint = replica.fingerprint
            task = former.pop(replica.task, None) or OwnedTask(replica, fingerprint)
            task.replica, task.fingerprint = replica, fingerprint
            self._tasks[replica.task] = task
        for task in former.values():
            if task.owner is not None:
                self._next.withdraw(task.owner, task.replica.task)
                self._disown(task)

    def _on_tick(self) -> None:
        for tm_id in self._controller.tick(self._now_ms):
            self._remove(tm_id)
        if self._epoch < 0:
            return
        if self._managers and self._first_report_ms is None:
            # Set here, as a report may be read long after the last tick: sending can block.
            self._first_report_ms = self._now_ms
        if not self._settled and self._may_settle():
            self._settled = True
            self._rebalance()
        self._time_out_revocations()
        if self._now_ms >= self._beat_at_ms:
            self._beat_at_ms = self._now_ms + self._interval_ms
            self._beats += 1
            beat = JobManagerBeat(
                self._epoch,
                0,
                self.owners,
                held=self._held,
                held_tasks=self._held_tasks,
                number=self._beats,
            )
            self._commands.append(beat)

    def _may_settle(self) -> bool:
        """Whether every TaskManager has introduced itself, or has had time to."""
        if self._first_report_ms is None:
            return False
        return len(self._managers) == self._tm_number or self._is_overdue(self._first_report_ms)

    def _is_overdue(self, since_ms: int) -> bool:
        return self._now_ms - since_ms >= MISSED_BEATS * self._interval_ms

    def _on_report(self, report: Report) -> None:
        tm_id, manager = report.tm_id, self._managers.get(report.tm_id)
        if not 0 <= tm_id < self._tm_number:
            last = self._tm_number - 1
            self._refuse(report, f"id {tm_id} is outside 0..{last} (tm_number in config.yaml)")
        elif manager is None:
            former = self._former.get(report.incarnation)
            is_news = former is None or report.beat > former[0]
            if is_news and not report.leaving:
                self._admit(report)
        elif manager.incarnation != report.incarnation:
            if not report.leaving:
                self._refuse(report, f"id {tm_id} is taken by a TaskManager that is alive")
        elif not report.leaving:
            self._take_in(report, manager)
        elif report.beat > manager.beat:
            manager.beat = report.beat
            self._remove(tm_id, has_left=True)

    def _refuse(self, report: Report, reason: str) -> None:
        self._commands.append(Refused(report.tm_id, report.incarnation, self._epoch, reason))

    def _admit(self, report: Report) -> None:
        """Let a TaskManager take part, once a report shows which tasks it runs."""
        tm_id = report.tm_id
        carried_out = report.sequence if report.epoch == self._epoch else 0
        manager = LiveTaskManager(
            report.incarnation,
            report.threads,
            -1,
            carried_out,
            carried_out,
            sent_at_beat=self._beats,
        )
        if not manager.runs.take(report):
            self._ask(report)
            return
        former = self._former.pop(report.incarnation, None)
        if former is not None:
            # It was wrongly taken for dead, and may not have read its earlier commands yet.
            manager.sequence = max(carried_out, former[1])
        self._managers[tm_id] = manager
        if tm_id in self._down:
            self._down.remove(tm_id)
            self._commands.append(HeartbeatEvent(tm_id, is_up=True))
        # Answer even without commands, so that it knows that it takes part.
        self._next.answer(tm_id)
        if self._settled:
            self._adopt(tm_id, manager)
            self._mark_unexpected(manager)
            self._rebalance()
        self._on_life(report, manager)
        self._look_at(report, manager)

    def _take_in(self, report: Report, manager: LiveTaskManager) -> None:
        """Handle a report. One that cannot be read only shows that the TaskManager is alive."""
        if report.beat > manager.beat:
            self._on_life(report, manager)
        if manager.runs.take(report):
            self._look_at(report, manager)
        elif not manager.runs.can_read(report):
            self._ask(report)

    def _on_life(self, report: Report, manager: LiveTaskManager) -> None:
        self._controller.beat(report.tm_id)
        manager.beat, manager.epoch = report.beat, report.epoch

    def _ask(self, report: Report) -> None:
        """Ask for a full report, at most once per heartbeat: the base of this one was missed."""
        asked_ms = self._asked_ms.get(report.incarnation)
        if asked_ms is None or self._now_ms - asked_ms >= self._interval_ms:
            _remember(self._asked_ms, report.incarnation, self._now_ms)
            self._commands.append(ReportRequest(report.tm_id, report.incarnation, self._epoch))

    def _look_at(self, report: Report, manager: LiveTaskManager) -> None:
        """Compare a report with the desired state."""
        if report.epoch == self._epoch:
            manager.carried_out = max(manager.carried_out, report.sequence)
        if not self._settled:
            self._adopt(report.tm_id, manager)
        for status in report.tasks:
            task = self._tasks.get(status.task)
            if task is not None and task.owner == report.tm_id:
                task.suspects = status.suspects
        self._mark_unexpected(manager)
        self._reconcile(report.tm_id, manager)

    def _adopt(self, tm_id: int, manager: LiveTaskManager) -> None:
        """Leave tasks without an owner to the TaskManager that runs them.

        Failed tasks, and tasks whose processor changed in pipeline.yaml, start again instead.
        """
        for status in manager.runs.tasks.values():
            task = self._tasks.get(status.task)
            if task is None or task.phase is not TaskPhase.UNASSIGNED:
                continue
            task.home = tm_id
            is_same = status.fingerprint == task.fingerprint
            if is_same and status.state is not TaskState.FAILED:
                self._own(task, tm_id)
                task.commanded = 0

    def _mark_unexpected(self, manager: LiveTaskManager) -> None:
        """Record the tasks that the TaskManager must close, until a report shows them closed.

        A TaskManager ignores the assignment of a task that it already runs. So without this record,
        an unadopted task that is assigned to it again before it was closed would never start again.
        """
        manager.unexpected = {
            task_id: manager.unexpected.get(task_id)
            for task_id, status in manager.runs.tasks.items()
            if self._is_unexpected(task_id, status, manager)
        }

    def _is_unexpected(self, task_id: TaskId, status: TaskStatus, manager: LiveTaskManager) -> bool:
        """Whether a task has another owner, is unknown, is of another version, or has failed.

        A task that fails after the TaskManager became its owner is left alone.
        """
        task = manager.tasks.get(task_id)
        if task is None or status.fingerprint != task.fingerprint:
            return True
        return status.state is TaskState.FAILED and task_id in manager.unexpected

    def _remove(self, tm_id: int, *, has_left: bool = False) -> None:
        """Remove a TaskManager that is down or has left, and give its tasks to others.

        One that is down may come back: then it first reads that its tasks belong to others.
        """
        self._controller.forget(tm_id)
        manager = self._managers.pop(tm_id)
        known = dict.fromkeys((*manager.tasks, *manager.runs.tasks))
        if known and not has_left:
            manager.sequence += 1
            self._farewells.append(
                Processors(
                    tm_id, manager.incarnation, self._epoch, manager.sequence, revoke=tuple(known)
                )
            )
        if not has_left:
            losses = self._losses.setdefault(tm_id, deque(maxlen=MOST_LOSSES))
            losses.append(self._now_ms)
        _remember(self._former, manager.incarnation, (manager.beat, manager.sequence))
        self._next.forget(tm_id)
        self._down.add(tm_id)
        self._commands.append(HeartbeatEvent(tm_id, is_up=False))
        for task in manager.tasks.values():
            task.phase, task.owner, task.left = TaskPhase.UNASSIGNED, None, tm_id
        if not self._managers:
            # Probably Kafka or this process was away, rather than all of them at once: wait for
            # them.
            self._settled, self._first_report_ms = False, None
        if self._settled:
            self._rebalance()

    def _rebalance(self) -> None:
        """Assign every task without an owner, and start to move the misplaced ones."""
        self._is_rebalance_due = False
        free = {task_id: task for task_id, task in self._tasks.items() if not self.is_held(task_id)}
        targets = place(free, self._managers)
        for manager in self._managers.values():
            manager.misplaced = {}
        for task_id, task in self._tasks.items():
            target = targets.get(task_id)
            if target is not None or (task_id.standby and not self.is_held(task_id)):
                task.home = target
            if target is not None and task.left in self._managers:
                task.left = None
            if task.phase is TaskPhase.UNASSIGNED and target is not None:
                self._assign(task, target)
            elif task.phase is TaskPhase.ASSIGNED and task.owner != target:
                assert task.owner is not None
                self._managers[task.owner].misplaced[task_id] = None
        for manager in self._managers.values():
            self._move_some(manager)

    def _go_on_moving(self, manager: LiveTaskManager) -> None:
        """Move more tasks now that this TaskManager may have given some back."""
        if self._is_rebalance_due:
            self._rebalance()
        else:
            self._move_some(manager)

    def _move_some(self, manager: LiveTaskManager) -> None:
        """Move misplaced tasks, at most `MOST_MOVES` at a time, so that the others run on."""
        while manager.misplaced and len(manager.revoking) < MOST_MOVES:
            task_id = next(iter(manager.misplaced))
            del manager.misplaced[task_id]
            task = manager.tasks.get(task_id)
            if task is not None and task.phase is TaskPhase.ASSIGNED:
                self._move(task, None if self.is_held(task_id) else task.home)

    def _own(self, task: OwnedTask, tm_id: int) -> None:
        """Make a TaskManager the owner of a task that has none."""
        task.phase, task.owner = TaskPhase.ASSIGNED, tm_id
        self._managers[tm_id].tasks[task.replica.task] = task

    def _disown(self, task: OwnedTask) -> None:
        assert task.owner is not None
        manager = self._managers[task.owner]
        del manager.tasks[task.replica.task]
        manager.revoking.pop(task.replica.task, None)
        task.phase, task.owner = TaskPhase.UNASSIGNED, None

    def _assign(self, task: OwnedTask, tm_id: int) -> None:
        self._own(task, tm_id)
        self._next.assign(tm_id, task.replica.task)

    def _move(self, task: OwnedTask, target: int | None) -> None:
        """Ask the owner to give the task back; `target`, if any, gets it afterwards."""
        assert task.owner is not None
        if self._next.withdraw(task.owner, task.replica.task):
            # The owner never got the task, so there is nothing to wait for.
            self._disown(task)
            if target is not None:
                self._assign(task, target)
        else:
            task.phase, task.revoked_at_ms = TaskPhase.REVOKING, self._now_ms
            self._managers[task.owner].revoking[task.replica.task] = None
            self._next.revoke(task.owner, task.replica.task)

    def _reconcile(self, tm_id: int, manager: LiveTaskManager) -> None:
        """Compare the tasks that a TaskManager runs with those that it should run."""
        for task_id, task in list(manager.tasks.items()):
            knows = manager.carried_out >= task.commanded
            # Freeing an earlier task may have moved this one.
            if task.owner != tm_id or task_id in manager.runs.tasks or not knows:
                continue
            is_to_go = task_id in manager.misplaced or self.is_held(task_id)
            if task.phase is TaskPhase.REVOKING or is_to_go:
                self._free(task)
            else:
                # The TaskManager gave it up, or the command got lost.
                self._next.assign(tm_id, task_id)
        self._go_on_moving(manager)
        self._revoke_unexpected(tm_id, manager)
        if manager.carried_out >= manager.sequence:
            manager.patience_beats = MISSED_BEATS
        elif self._echoed - manager.sent_at_beat >= manager.patience_beats:
            # Not by the clock: this report may be old, as commands can block. If they do because
            # Kafka is slow, repetitions make it worse, so each one gets twice the time.
            manager.patience_beats = min(2 * manager.patience_beats, MOST_PATIENCE_BEATS)
            self._repeat(tm_id)

    def _revoke_unexpected(self, tm_id: int, manager: LiveTaskManager) -> None:
        """Revoke the tasks that it must close. Those that it owns are assigned again later."""
        if manager.carried_out < manager.sequence:
            return
        for task_id, revoked_ms in sorted(manager.unexpected.items()):
            if revoked_ms is None or self._is_overdue(revoked_ms):
                manager.unexpected[task_id] = self._now_ms
                self._next.revoke(tm_id, task_id)

    def _repeat(self, tm_id: int) -> None:
        """Repeat all of a TaskManager's tasks to it, as its last commands were not carried out."""
        manager = self._managers[tm_id]
        self._next.answer(tm_id)
        for task_id, task in manager.tasks.items():
            is_to_close = task_id in manager.unexpected or self.is_held(task_id)
            if task.phase is TaskPhase.REVOKING or is_to_close:
                self._next.revoke(tm_id, task_id)
            else:
                self._next.assign(tm_id, task_id)

    def _free(self, task: OwnedTask) -> None:
        """Take a task from its owner, which has given it back, and pass it on."""
        self._disown(task)
        if self.is_held(task.replica.task):
            return
        if task.home in self._managers:
            self._assign(task, task.home)
        else:
            self._is_rebalance_due = True

    def _time_out_revocations(self) -> None:
        """Take tasks from an owner that does not give them back in time: fencing makes it safe."""
        timeout_ms = REVOKE_TIMEOUT_BEATS * self._interval_ms
        for manager in self._managers.values():
            for task_id in list(manager.revoking):
                task = manager.tasks[task_id]
                if self._now_ms - task.revoked_at_ms <= timeout_ms:
                    break  # The tasks after it were asked back later.
                self._free(task)
            self._go_on_moving(manager)

    def _flush(self) -> None:
        farewells, self._farewells = self._farewells, []
        if self._managers:  # without any, nobody else has their tasks
            self._commands += farewells
        for tm_id, command in self._next.take():
            manager = self._managers[tm_id]
            manager.sequence += 1
            manager.sent_at_beat = self._beats
            for task_id in (*command.assign, *command.revoke):
                if task_id in manager.tasks:
                    manager.tasks[task_id].commanded = manager.sequence
            self._commands.append(
                Processors(
                    tm_id,
                    manager.incarnation,
                    self._epoch,
                    manager.sequence,
                    assign=tuple(self._tasks[task_id].assignment for task_id in command.assign),
                    revoke=tuple(command.revoke),
                )
            )


def _remember(memory: dict[str, T], incarnation: str, value: T) -> None:
    """Store a value for a process; drops the oldest value once there are too many."""
    memory.pop(incarnation, None)
    memory[incarnation] = value
    if len(memory) > MOST_FORMER:
        del memory[next(iter(memory))]
