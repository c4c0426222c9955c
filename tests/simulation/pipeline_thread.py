"""A PipelineThread for simulations: it takes time, hangs, dies, and is fenced as by Kafka."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

from common.nodes import TaskId
from common.status import TaskState, TaskStatus
from taskmanager.state import (
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

    __slots__ = ("due_ms", "fenced", "position", "state", "task")

    def __init__(self, task: TaskId) -> None:
        self.task = task
        self.state = TaskState.STARTING
        self.due_ms = 0
        self.fenced = 0
        self.position = -1


class Fences:
    """What Kafka's transaction coordinator guards: the newest producer of each task commits."""

    def __init__(self) -> None:
        self.holder: dict[TaskId, TaskInstance] = {}
        self.committed: Counter[TaskId] = Counter()
        self.commits = 0
        self.taken_from_the_living = 0
        """How often a task was taken over while its former instance was not closed."""

    def take(self, instance: TaskInstance) -> None:
        """Make `instance` the only one that may commit, at the committed position."""
        holder = self.holder.get(instance.task)
        if holder is not None and holder is not instance:
            self.taken_from_the_living += 1
        self.holder[instance.task] = instance
        instance.position = self.committed[instance.task]

    def commit(self, instance: TaskInstance) -> bool:
        """Move the committed position, or return False if somebody newer holds the task."""
        task = instance.task
        if self.holder.get(task) is not instance:
            return False
        assert instance.position == self.committed[task], f"{task} lost or repeated records"
        self.committed[task] = instance.position = instance.position + 1
        self.commits += 1
        return True

    def release(self, instance: TaskInstance) -> None:
        """Take note that an instance ended in good order."""
        if self.holder.get(instance.task) is instance:
            del self.holder[instance.task]


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
        self.inbox: list[AssignTask | RevokeTask | StopThread] = []
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
        self._closing: TaskInstance | None = None
        self._stopping = False
        self._report_at_ms = 0

    @property
    def is_connected(self) -> bool:
        """Whether the driver can reach the worker."""
        return self.alive and self._connect_at_ms is None and self.orphaned_until_ms is None

    def step(self, now_ms: int) -> None:
        """Do what is due by now, unless busy with one thing that cannot be interrupted."""
        if not self.alive or now_ms < self.busy_until_ms:
            return
        if self._connect_at_ms is not None:
            if now_ms < self._connect_at_ms:
                return
            self._connect_at_ms = None
            self.events.append(ThreadConnected(self.number))
        if self.orphaned_until_ms is not None and now_ms >= self.orphaned_until_ms:
            self.alive = False
            return
        if self._closing is not None:
            self._close(self._closing)
            self._closing = None
        self._obey(now_ms)
        if now_ms < self.busy_until_ms or not self.alive:
            return
        if now_ms - self.heard_ms > LEASE_MS and self.orphaned_until_ms is None:
            for instance in list(self.tasks.values()):
                self._close(instance)
        self._work(now_ms)
        if now_ms >= self._report_at_ms:
            self._report_at_ms = now_ms + REPORT_EVERY_MS
            statuses = tuple(TaskStatus(i.task, i.state) for i in self.tasks.values())
            self.events.append(ThreadReported(self.number, statuses))

    def die(self) -> None:
        """End as by `kill -9`; the driver is told."""
        self.alive = False
        self.events.append(ThreadLost(self.number))

    def fail_a_task(self) -> None:
        """Meet a record that cannot be processed."""
        for instance in self.tasks.values():
            if instance.state is TaskState.RUNNING:
                instance.state = TaskState.FAILED
                self._fences.release(instance)
                return

    def _obey(self, now_ms: int) -> None:
        while self.inbox:
            match self.inbox.pop(0):
                case AssignTask(_, replica):
                    assert replica.task not in self.tasks, f"{replica.task} assigned twice"
                    self.tasks[replica.task] = TaskInstance(replica.task)
                case RevokeTask(_, task) if task in self.tasks:
                    self._closing = self.tasks[task]
                    self._be_busy(now_ms)
                    return
                case StopThread():
                    self._stopping = True
                    self._be_busy(now_ms)
                    return
        if self._stopping:
            for instance in list(self.tasks.values()):
                self._close(instance)
            self.events.append(ThreadStopped(self.number))
            self.alive = False

    def _be_busy(self, now_ms: int) -> None:
        self.busy_until_ms = now_ms + self._random.randrange(self._pace.close_ms + 1) + 1

    def _close(self, instance: TaskInstance) -> None:
        if instance.state is TaskState.RUNNING:
            self._fences.commit(instance)
        self._fences.release(instance)
        del self.tasks[instance.task]
        self.events.append(TaskClosed(self.number, instance.task))

    def _work(self, now_ms: int) -> None:
        for instance in list(self.tasks.values()):
            if instance.state is TaskState.STARTING and now_ms >= instance.due_ms:
                self._fences.take(instance)
                instance.state = TaskState.RESTORING
                instance.due_ms = now_ms + self._random.randrange(self._pace.start_ms + 1)
            elif instance.state is TaskState.RESTORING and now_ms >= instance.due_ms:
                instance.state = TaskState.RUNNING
            elif instance.state is TaskState.RUNNING:
                has_input = self._random.random() < 0.3
                if has_input and not self._fences.commit(instance):
                    self._be_fenced(instance, now_ms)

    def _be_fenced(self, instance: TaskInstance, now_ms: int) -> None:
        """Begin anew; the second time, somebody else owns the task."""
        instance.fenced += 1
        if instance.fenced >= FENCED_FOR_GOOD:
            self._close(instance)
        else:
            instance.state = TaskState.STARTING
            instance.due_ms = now_ms + FENCED_WAIT_MS
