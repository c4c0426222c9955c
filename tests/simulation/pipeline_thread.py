"""A PipelineThread for simulations: the real core, whose commands take simulated time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kafka_pipeline.common.protocol.messages import MISSED_BEATS
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.events import (
    AssignTask,
    RevokeTask,
    StopThread,
    TaskClosed,
    ThreadConnected,
    ThreadEnding,
    ThreadLost,
    ThreadReported,
    ThreadStopped,
)
from kafka_pipeline.taskmanager.events import Event as DriverEvent
from kafka_pipeline.taskmanager.task_entry import Phase
from kafka_pipeline.taskmanager.thread_events import (
    AbandonCall,
    Assigned,
    CancelStart,
    CloseEnded,
    CloseTask,
    Command,
    CommitEnded,
    CommitTask,
    DependencyFailed,
    EndProcess,
    EndThread,
    Event,
    Failure,
    FailureKind,
    Fed,
    ForgetTask,
    ReportFailed,
    RestartTask,
    Revoked,
    RunTurn,
    Started,
    StartFailed,
    StartTask,
    TaskCall,
    ThreadStopRequested,
    ThreadTick,
    TurnEnded,
)
from kafka_pipeline.taskmanager.thread_state import PipelineThreadState
from tests.simulation.fences import Fences, TaskInstance

INTERVAL_MS = 1000
COMMIT_INTERVAL_MS = 500
TRANSACTION_TIMEOUT_MS = 5000
MAX_PROCESS_TIME_MS = 5000
REPORT_EVERY_MS = 500
FED_OF = 5
"""Of this many running tasks, one gets input in each step; they take turns."""
FAILED_STARTS = 0.02
SLOW = 0.125
"""The share of operations that take any time; the others end within a step."""
HANGING_CALLS = 0.5
"""The share of abandoned calls that never return."""
SLOW_CALLS = 0.02
"""The same share for user code, whose tasks wait for each other."""

FENCED = Failure(FailureKind.FENCED, "fenced by a newer producer")
EXPIRED = Failure(FailureKind.EXPIRED, "fenced as its transaction took too long")
BROKEN = Failure(FailureKind.TRANSIENT, "a connection broke")
REJECTED = Failure(FailureKind.FATAL, "a record cannot be processed", commits=True)


@dataclass(frozen=True, slots=True)
class Pace:
    """The longest time of each operation in a worker, in milliseconds."""

    launch_ms: int = 2000
    start_ms: int = 2000
    turn_ms: int = 1000
    commit_ms: int = 1000
    close_ms: int = 1000


@dataclass(eq=False, slots=True)
class _Operation:
    """An operation on a task that is in progress while the loop of its worker continues."""

    instance: TaskInstance
    began_ms: int
    due_ms: int
    end: Callable[[_Operation], None]


class FakePipelineThread:
    """The worker of one PipelineThread, as the TaskManager sees it over the driver channel.

    It executes the commands of its core, as `taskmanager/pipeline_thread.py` does. Work for which
    that uses other Python threads takes simulated time here.
    """

    def __init__(
        self, number: int, fences: Fences, random: Random, now_ms: int, pace: Pace
    ) -> None:
        self.number = number
        self.tasks: dict[TaskId, TaskInstance] = {}
        self._hanging: set[TaskId] = set()
        self._inbox: deque[AssignTask | RevokeTask | StopThread] = deque()
        self.events: list[DriverEvent] = []
        self.alive = True
        self.heard_ms = now_ms
        """When the last message of the driver arrived."""
        self.busy_until_ms = 0
        self.is_cut_off = False
        """Whether its host does not reach Kafka."""
        self.is_sure = True
        """Whether the driver's last ping said that its tasks may fence others."""
        self.orphaned_until_ms: int | None = None
        self._core = PipelineThreadState(INTERVAL_MS, COMMIT_INTERVAL_MS, TRANSACTION_TIMEOUT_MS)
        self._fences = fences
        self._random = random
        self._pace = pace
        self._now_ms = now_ms
        self._connect_at_ms: int | None = now_ms + random.randrange(pace.launch_ms + 1)
        self._news: deque[Event] = deque()
        self._is_handling = False
        self._operations: list[_Operation] = []
        self._calls: dict[TaskId, TaskCall] = {}
        self._running: list[TaskInstance] = []
        """The tasks that are fetched for: all that run, except standbys."""
        self._fed_first = 0
        self._report_at_ms = 0
        self._changed: dict[TaskId, None] = {}
        """An ordered set: tasks that are new or have changed state since its last report."""

    @property
    def is_connected(self) -> bool:
        """Whether the driver can reach the worker."""
        return self.alive and self._connect_at_ms is None and self.orphaned_until_ms is None

    @property
    def _is_away(self) -> bool:
        """Whether Kafka is out of reach for it."""
        return self._fences.is_away or self.is_cut_off

    def step(self, now_ms: int) -> None:
        """Do one round of the loop, unless the whole process hangs."""
        if self.orphaned_until_ms is not None and now_ms >= self.orphaned_until_ms:
            self.alive = False
        if not self.alive or now_ms < self.busy_until_ms:
            return
        self._now_ms = now_ms
        if self._connect_at_ms is not None:
            if now_ms < self._connect_at_ms:
                return
            self._connect_at_ms = None
            self.events.append(ThreadConnected(self.number))
        if self._inbox:
            self._read_commands()
        if self._operations:
            self._settle()
        if self._running and not self._is_away:
            self._fed_first = (self._fed_first + 1) % FED_OF
            for instance in self._running[self._fed_first :: FED_OF]:
                self._handle(Fed(instance.task, has_records=True, is_at_its_end=False))
        self._handle(ThreadTick(now_ms, self.heard_ms, tuple(self._calls.values())))
        self._check_lease()
        if self.alive and now_ms >= self._report_at_ms:
            self._report()

    def send(self, command: AssignTask | RevokeTask | StopThread) -> None:
        """Write to the driver channel, whether or not the worker reads it."""
        if self.is_connected:
            self._inbox.append(command)

    def has(self, task: TaskId) -> bool:
        """Whether it may run a task, now or after reading the commands that were sent to it."""
        return self.is_connected and (
            task in self.tasks
            or any(isinstance(c, AssignTask) and c.replica.task == task for c in self._inbox)
        )

    def state(self, task: TaskId) -> TaskState:
        """Return the state that reports show for a task."""
        instance, phase = self.tasks[task], self._core.phase(task)
        if phase is Phase.FAILED:
            return TaskState.FAILED
        if instance.is_running:
            return TaskState.STANDBY if task.standby else TaskState.RUNNING
        if instance.is_restoring:
            return TaskState.RESTORING
        return TaskState.RESTARTING if self._core.reason(task) else TaskState.STARTING

    # Faults

    def die(self) -> None:
        """End as by `kill -9`; the driver is notified."""
        self.alive = False
        self.events.append(ThreadLost(self.number))

    def fail_a_task(self) -> None:
        """Give a task a record that cannot be processed."""
        for instance in self._any_that_runs():
            instance.has_bad_record = True

    def hold_a_task(self) -> None:
        """Make a call of user code, or a commit, never end."""
        for instance in self._any_that_runs():
            instance.is_stuck = True

    def fail_a_dependency(self) -> None:
        """Make a task lose a connection."""
        for instance in self._any_that_runs():
            self._operations.append(_Operation(instance, 0, 0, self._dependency_failed))

    def mend(self, now_ms: int) -> None:
        """Make everything that takes long end soon, except user code calls that never end."""
        soon_ms = now_ms + 2 * INTERVAL_MS
        self.busy_until_ms = min(self.busy_until_ms, soon_ms)
        for instance in self.tasks.values():
            instance.is_stuck = False
        for operation in self._operations:
            operation.due_ms = min(operation.due_ms, soon_ms)

    def _any_that_runs(self) -> list[TaskInstance]:
        return [self._random.choice(self._running)] if self._running else []

    # Input of the core

    def _read_commands(self) -> None:
        revoked = []
        while self._inbox:
            match self._inbox.popleft():
                case AssignTask(_, replica):
                    if self._core.is_stopping:
                        continue
                    task = replica.task
                    assert task not in self.tasks, f"{task} assigned twice"
                    instance = self.tasks[task] = TaskInstance(replica, self)
                    self._handle(Assigned(task, instance.is_inline, MAX_PROCESS_TIME_MS))
                case RevokeTask(_, task):
                    revoked.append(task)
                case StopThread():
                    self._handle(ThreadStopRequested())
        if revoked:
            self._handle(Revoked(tuple(revoked), frozenset(self._hanging)))

    def _settle(self) -> None:
        """End the operations that are due; those that need Kafka may have to wait for it."""
        due = [operation for operation in self._operations if operation.due_ms <= self._now_ms]
        for operation in sorted(due, key=lambda operation: operation.due_ms):
            if operation in self._operations:
                self._operations.remove(operation)
                operation.end(operation)

    def _dependency_failed(self, operation: _Operation) -> None:
        instance = operation.instance
        if self.tasks.get(instance.task) is instance:
            self._handle(DependencyFailed(instance.task, BROKEN))

    def _handle(self, event: Event) -> None:
        """Pass an event to the core, execute its commands, and handle the events that follow."""
        self._news.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        while self._news and self.alive:
            for command in self._core.handle(self._news.popleft()):
                if self.alive:
                    self._execute(command)
        self._is_handling = False

    # Decisions of the core

    def _execute(self, command: Command) -> None:
        match command:
            case RunTurn(task):
                self._begin_turn(self.tasks[task])
            case CommitTask(task):
                instance = self.tasks[task]
                self._begin(instance, self._some_ms(self._pace.commit_ms), self._end_commit)
            case StartTask(task):
                self._changed[task] = None
                instance = self.tasks[task]
                instance.is_cancelled = False
                self._begin(instance, self._some_ms(self._pace.start_ms), self._fence)
            case CancelStart(task):
                self.tasks[task].is_cancelled = True
                for operation in self._operations:
                    if operation.instance.task == task:
                        operation.due_ms = self._now_ms
            case CloseTask(task):
                self._begin_close(self.tasks[task])
            case AbandonCall(task):
                self._running.remove(self.tasks[task])
                del self._calls[task]
                if self._random.random() < HANGING_CALLS:
                    self._hanging.add(task)
                self._operations = [o for o in self._operations if o.instance.task != task]
                self._end_run(self.tasks[task])
            case RestartTask(task) | ReportFailed(task):
                self._changed[task] = None
                self._report_at_ms = 0
            case ForgetTask(task):
                instance = self.tasks.pop(task)
                assert not self._fences.is_open(instance), f"{task} is not closed"
                self._changed.pop(task, None)
                self.events.append(TaskClosed(self.number, task))
            case EndProcess(reason=reason):
                self.events.append(ThreadEnding(self.number, reason))
                self.die()
            case EndThread():
                self.events.append(ThreadStopped(self.number))
                self.alive = False

    def _some_ms(self, most_ms: int, share: float = SLOW) -> int:
        """Return the duration of an operation, which is 0 except in a share of cases."""
        random = self._random.random()
        return int(random / share * most_ms) if random < share else 0

    def _begin(
        self, instance: TaskInstance, takes_ms: int, end: Callable[[_Operation], None]
    ) -> None:
        now_ms = self._now_ms
        operation = _Operation(instance, now_ms, now_ms + takes_ms, end)
        if takes_ms:
            self._operations.append(operation)
        else:
            end(operation)

    def _fence(self, operation: _Operation) -> None:
        instance = operation.instance
        if instance.is_cancelled:
            self._handle(StartFailed(instance.task, None))
        elif self._is_away or not self.is_sure:
            self._operations.append(operation)
        else:
            self._fences.take(instance)
            instance.is_restoring = True
            self._changed[instance.task] = None
            takes_ms = self._random.randrange(self._pace.start_ms + 1)
            self._begin(instance, takes_ms, self._end_start)

    def _end_start(self, operation: _Operation) -> None:
        instance, random = operation.instance, self._random.random()
        task, instance.is_restoring = instance.task, False
        self._changed[task] = None
        # A cancellation may come too late.
        if random < (0.5 if instance.is_cancelled else FAILED_STARTS):
            self._fences.release(instance)
            self._handle(StartFailed(task, None if instance.is_cancelled else BROKEN))
        else:
            instance.is_running = True
            if not task.standby:
                self._running.append(instance)
            self._handle(Started(task, has_own_thread=instance.has_own_thread))

    def _begin_turn(self, instance: TaskInstance) -> None:
        is_stuck = instance.is_stuck and not instance.is_inline
        takes_ms = 0 if instance.is_inline else self._some_ms(self._pace.turn_ms, SLOW_CALLS)
        if is_stuck or takes_ms:
            self._calls[instance.task] = TaskCall(instance.task, "`process`", self._now_ms)
        if not is_stuck:
            self._begin(instance, takes_ms, self._end_turn)

    def _end_turn(self, operation: _Operation) -> None:
        instance = operation.instance
        task = instance.task
        self._calls.pop(task, None)
        self._handle(
            TurnEnded(
                task,
                has_uncommitted=True,
                is_at_its_end=self._random.random() < 0.5,
                failure=REJECTED if instance.has_bad_record else None,
            )
        )

    def _end_commit(self, operation: _Operation) -> None:
        instance = operation.instance
        age_ms = self._now_ms - operation.began_ms
        if instance.is_stuck:
            self._operations.append(operation)
            return
        if self._is_away and age_ms < TRANSACTION_TIMEOUT_MS:
            self._operations.append(operation)
            return
        failure = None
        if self._is_away:
            failure = BROKEN
        elif age_ms > TRANSACTION_TIMEOUT_MS:
            failure = EXPIRED
        elif not self._fences.commit(instance):
            failure = FENCED
        self._handle(CommitEnded(instance.task, failure))

    def _begin_close(self, instance: TaskInstance) -> None:
        if not instance.task.standby:
            self._running.remove(instance)
        most_ms = self._pace.close_ms
        if instance.is_inline:
            takes_ms = self._random.randrange(most_ms + 1)
        else:
            takes_ms = self._some_ms(most_ms, SLOW_CALLS)
        self._begin(instance, takes_ms, self._end_close)

    def _end_close(self, operation: _Operation) -> None:
        self._end_run(operation.instance)
        self._handle(CloseEnded(operation.instance.task))

    def _end_run(self, instance: TaskInstance) -> None:
        instance.is_running = False
        self._changed[instance.task] = None
        self._fences.release(instance)

    # Output to others

    def _report(self) -> None:
        self._report_at_ms = self._now_ms + REPORT_EVERY_MS
        core, changed, self._changed = self._core, self._changed, {}
        statuses = [
            TaskStatus(
                task,
                self.state(task),
                core.reason(task),
                self.number,
                self.tasks[task].fingerprint,
                figures={"restarts": core.restarts(task)},
            )
            for task in changed
        ]
        self.events.append(ThreadReported(self.number, tuple(statuses)))

    def _check_lease(self) -> None:
        """Check that tasks are left alone once the driver has been silent for too long."""
        silent_ms = self._now_ms - self.heard_ms
        if silent_ms > MISSED_BEATS * INTERVAL_MS:
            resting = [
                task
                for task in self.tasks
                if self._core.phase(task) in (Phase.IDLE, Phase.WAITING, Phase.FAILED)
            ]
            assert not resting, f"{resting} are kept, with no sign of the driver for {silent_ms} ms"
