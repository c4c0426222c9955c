"""A PipelineThread for simulations: it takes time, hangs, dies, and is fenced as by Kafka."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from random import Random

from common.messages import ProcessorReplica
from common.nodes import TaskId
from common.status import TaskState, TaskStatus
from taskmanager.events import (
    AssignTask,
    Event,
    RevokeTask,
    StopThread,
    TaskClosed,
    ThreadConnected,
    ThreadLost,
    ThreadReported,
    ThreadStopped,
)

INTERVAL_MS = 1000
LEASE_MS = 3 * INTERVAL_MS
REPORT_EVERY_MS = 500
FENCED_FOR_GOOD = 2
FENCED_WAIT_MS = 1500


class TaskInstance:
    """One run of a task in one worker; `position` is the next input record."""

    __slots__ = ("due_ms", "epoch", "fenced", "fingerprint", "position", "state", "task", "worker")

    def __init__(self, replica: ProcessorReplica, worker: FakePipelineThread) -> None:
        self.task = replica.task
        self.fingerprint = replica.fingerprint
        self.worker = worker
        self.state = TaskState.STARTING
        self.due_ms = 0
        self.fenced = 0
        self.epoch = -1
        """Of its producer, as the transaction coordinator counts them."""
        self.position = -1


class Fences:
    """What Kafka's transaction coordinator guards: the newest producer of each task commits.

    While Kafka is away, nobody can take a task or commit.
    """

    def __init__(self) -> None:
        self.is_away = False
        self.epochs: Counter[TaskId] = Counter()
        self.committed: Counter[TaskId] = Counter()
        self.taken_from_the_living = 0
        """How often a driver had a task taken from another driver's, that could still commit."""
        self._open: defaultdict[TaskId, list[TaskInstance]] = defaultdict(list)
        self._committed_by: dict[TaskId, int] = {}

    def take(self, instance: TaskInstance) -> None:
        """Make `instance` the only one that may commit, at the committed position."""
        task, instances = instance.task, self._open[instance.task]
        if instance not in instances:
            instances.append(instance)
        self.taken_from_the_living += instance.worker.is_connected and any(
            self.may_commit(other) and other.worker.is_connected
            for other in instances
            if other is not instance
        )
        self.epochs[task] += 1
        instance.epoch = self.epochs[task]
        instance.position = self.committed[task]

    def may_commit(self, instance: TaskInstance) -> bool:
        """Whether nobody newer holds the task."""
        return instance.epoch == self.epochs[instance.task]

    def commit(self, instance: TaskInstance) -> bool:
        """Move the committed position, or return False if somebody newer holds the task."""
        task = instance.task
        if self.is_away or not self.may_commit(instance):
            return False
        assert instance.position == self.committed[task], f"{task} lost or repeated records"
        assert instance.epoch >= self._committed_by.get(task, 0), f"{task} commits though fenced"
        self._committed_by[task] = instance.epoch
        self.committed[task] = instance.position = instance.position + 1
        return True

    def release(self, instance: TaskInstance) -> None:
        """Take note that an instance ended in good order."""
        if instance in self._open[instance.task]:
            self._open[instance.task].remove(instance)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a worker takes at most, in milliseconds."""

    launch_ms: int = 2000
    start_ms: int = 2000
    close_ms: int = 1000


class FakePipelineThread:
    """The worker of one PipelineThread, as the TaskManager sees it over the driver channel."""

    def __init__(
        self, number: int, fences: Fences, random: Random, now_ms: int, pace: Pace
    ) -> None:
        self.number = number
        self.tasks: dict[TaskId, TaskInstance] = {}
        self._inbox: deque[AssignTask | RevokeTask | StopThread] = deque()
        self.events: list[Event] = []
        self.alive = True
        self.heard_ms = now_ms
        """When the driver was last heard."""
        self.busy_until_ms = 0
        self.orphaned_until_ms: int | None = None
        self._fences = fences
        self._random = random
        self._pace = pace
        self._connect_at_ms: int | None = now_ms + random.randrange(pace.launch_ms + 1)
        self._closing: list[TaskInstance] = []
        self._stopping = False
        self._report_at_ms = 0
        self._untold: dict[TaskId, None] = {}
        """An ordered set: tasks that have come, or have another state, since its last report."""

    @property
    def is_connected(self) -> bool:
        """Whether the driver can reach the worker."""
        return self.alive and self._connect_at_ms is None and self.orphaned_until_ms is None

    def step(self, now_ms: int) -> None:
        """Do what is due by now, unless busy with one thing that cannot be interrupted."""
        if self.orphaned_until_ms is not None and now_ms >= self.orphaned_until_ms:
            self.alive = False
        if not self.alive or now_ms < self.busy_until_ms:
            return
        if self._connect_at_ms is not None:
            if now_ms < self._connect_at_ms:
                return
            self._connect_at_ms = None
            self.events.append(ThreadConnected(self.number))
        for instance in self._closing:
            self._close(instance)
        self._closing = []
        self._obey(now_ms)
        if now_ms < self.busy_until_ms or not self.alive:
            return
        if now_ms - self.heard_ms > LEASE_MS and self.orphaned_until_ms is None:
            for instance in list(self.tasks.values()):
                self._close(instance)
        self._work(now_ms)
        if now_ms >= self._report_at_ms:
            self._report_at_ms = now_ms + REPORT_EVERY_MS
            changed = [self.tasks[task] for task in self._untold]
            self._untold = {}
            statuses = [TaskStatus(i.task, i.state, fingerprint=i.fingerprint) for i in changed]
            self.events.append(ThreadReported(self.number, tuple(statuses)))

    def send(self, command: AssignTask | RevokeTask | StopThread) -> None:
        """Write to the driver channel, whether or not somebody reads it."""
        if self.is_connected:
            self._inbox.append(command)

    def has(self, task: TaskId) -> bool:
        """Whether it can run a task, now or once it reads what it was sent."""
        return self.is_connected and (
            task in self.tasks
            or any(isinstance(c, AssignTask) and c.replica.task == task for c in self._inbox)
        )

    def die(self) -> None:
        """End as by `kill -9`; the driver is told."""
        self.alive = False
        self.events.append(ThreadLost(self.number))

    def fail_a_task(self) -> None:
        """Meet a record that cannot be processed."""
        for instance in self.tasks.values():
            if instance.state is TaskState.RUNNING:
                self._enter(instance, TaskState.FAILED)
                self._fences.release(instance)
                return

    def _obey(self, now_ms: int) -> None:
        while self._inbox:
            match self._inbox.popleft():
                case AssignTask(_, replica):
                    assert replica.task not in self.tasks, f"{replica.task} assigned twice"
                    self.tasks[replica.task] = TaskInstance(replica, self)
                    self._untold[replica.task] = None
                case RevokeTask(_, task) if task in self.tasks:
                    self._closing.append(self.tasks[task])
                case StopThread():
                    self._stopping = True
                    self._closing = list(self.tasks.values())
        if self._closing:
            # Tasks commit side by side.
            self.busy_until_ms = now_ms + self._random.randrange(self._pace.close_ms + 1) + 1
        elif self._stopping:
            for instance in list(self.tasks.values()):
                self._close(instance)
            self.events.append(ThreadStopped(self.number))
            self.alive = False

    def _close(self, instance: TaskInstance) -> None:
        if instance.state is TaskState.RUNNING:
            self._fences.commit(instance)
        self._fences.release(instance)
        del self.tasks[instance.task]
        self._untold.pop(instance.task, None)
        self.events.append(TaskClosed(self.number, instance.task))

    def _work(self, now_ms: int) -> None:
        """Bring tasks up that are due; a third of those that run has input."""
        if self._fences.is_away:
            return
        running = []
        for instance in self.tasks.values():
            state = instance.state
            if state is TaskState.RUNNING:
                running.append(instance)
            elif state is not TaskState.FAILED and now_ms >= instance.due_ms:
                if state in (TaskState.STARTING, TaskState.RESTARTING):
                    self._fences.take(instance)
                    self._enter(instance, TaskState.RESTORING)
                    instance.due_ms = now_ms + self._random.randrange(self._pace.start_ms + 1)
                else:
                    self._enter(instance, TaskState.RUNNING)
        for instance in running[int(self._random.random() * 3) :: 3]:
            if not self._fences.commit(instance):
                self._be_fenced(instance, now_ms)

    def _enter(self, instance: TaskInstance, state: TaskState) -> None:
        instance.state = state
        self._untold[instance.task] = None

    def _be_fenced(self, instance: TaskInstance, now_ms: int) -> None:
        """Begin anew; the second time, somebody else owns the task."""
        instance.fenced += 1
        if instance.fenced >= FENCED_FOR_GOOD:
            self._close(instance)
        else:
            self._enter(instance, TaskState.RESTARTING)
            instance.due_ms = now_ms + FENCED_WAIT_MS
