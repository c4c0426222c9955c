"""Decides which producer of each task may commit, like Kafka's transaction coordinator."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Protocol

from kafka_pipeline.common.pipelines.specs import ClassSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of

FENCE_MEMORY_MS = 60_000
"""An owner that is fenced twice within this time leaves the task to the other owner."""


class Worker(Protocol):
    """The process in which a task runs."""

    is_cut_off: bool
    """Whether its host does not reach Kafka."""

    @property
    def is_connected(self) -> bool:
        """Whether the driver can reach the worker."""

    def state(self, task: TaskId) -> TaskState:
        """Return the state that reports show for a task."""


class TaskInstance:
    """A task in one worker, across all its starts; `position` is the next input record."""

    __slots__ = (
        "epoch",
        "fenced_ms",
        "has_bad_record",
        "is_cancelled",
        "is_fenced",
        "is_restoring",
        "is_running",
        "is_stuck",
        "position",
        "replica",
        "task",
        "worker",
    )

    def __init__(self, replica: ProcessorReplica, worker: Worker) -> None:
        self.task = replica.task
        self.replica = replica
        self.worker = worker
        self.is_cancelled = self.is_restoring = self.is_running = False
        self.has_bad_record = False
        """Whether its next turn meets a record that cannot be processed."""
        self.is_stuck = False
        """Whether its next turn or commit never ends."""
        self.epoch = -1
        """The epoch of its producer, as the transaction coordinator counts epochs."""
        self.position = -1
        self.is_fenced = False
        """Whether it has found, since it last took the task, that a newer owner holds the task."""
        self.fenced_ms: list[int] = []
        """The times at which it found that it was fenced."""

    @property
    def is_inline(self) -> bool:
        """Whether its turns run no user code, so that the loop of its thread runs them."""
        return bool(self.task.standby) or kind_of(self.replica.spec).is_inline

    @property
    def has_own_thread(self) -> bool:
        """Whether its turns wait for no turn of another task."""
        spec = self.replica.spec
        return isinstance(spec, ClassSpec) and spec.code == "shop:Async"

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the processor replica that runs."""
        return self.replica.fingerprint

    @property
    def state(self) -> TaskState:
        """The state that reports show for the task."""
        return self.worker.state(self.task)


class Fences:
    """Kafka's transaction coordinator, which lets only the newest producer of each task commit.

    While Kafka is away, no process can take a task or commit. Standbys, which Kafka does not guard,
    are counted like tasks.
    """

    def __init__(self) -> None:
        self.is_away = False
        self.epochs: Counter[TaskId] = Counter()
        self.committed: Counter[TaskId] = Counter()
        self.taken_from_the_living = 0
        """How often a reachable worker took a task from another reachable one that could commit."""
        self._open: defaultdict[TaskId, list[TaskInstance]] = defaultdict(list)
        self._committed_by: dict[TaskId, int] = {}
        self._now_ms = 0

    def advance(self, now_ms: int, *, is_away: bool) -> None:
        """Let time pass."""
        self._now_ms, self.is_away = now_ms, is_away

    def take(self, instance: TaskInstance) -> None:
        """Make `instance` the only one that may commit, at the committed position."""
        task, instances = instance.task, self._open[instance.task]
        if instance not in instances:
            instances.append(instance)
        self.taken_from_the_living += instance.worker.is_connected and any(
            self.may_commit(other) and other.worker.is_connected and not other.worker.is_cut_off
            for other in instances
            if other is not instance
        )
        lately = [at_ms for at_ms in instance.fenced_ms if self._now_ms - at_ms < FENCE_MEMORY_MS]
        assert len(lately) < 2, f"two owners of {task} fence each other"
        self.epochs[task] += 1
        instance.epoch, instance.is_fenced = self.epochs[task], False
        instance.position = self.committed[task]

    def may_commit(self, instance: TaskInstance) -> bool:
        """Whether no newer owner holds the task."""
        return instance.epoch == self.epochs[instance.task]

    def commit(self, instance: TaskInstance) -> bool:
        """Advance the committed position, or return False if a newer owner holds the task."""
        task = instance.task
        assert not self.is_away, "nobody can commit now"
        assert not instance.is_fenced, f"{task} goes on though it knows that it is fenced"
        if not self.may_commit(instance):
            instance.is_fenced = True
            instance.fenced_ms.append(self._now_ms)
            return False
        assert instance.position == self.committed[task], f"{task} lost or repeated records"
        assert instance.epoch >= self._committed_by.get(task, 0), f"{task} commits though fenced"
        self._committed_by[task] = instance.epoch
        self.committed[task] = instance.position = instance.position + 1
        return True

    def release(self, instance: TaskInstance) -> None:
        """Record that the clients of an instance are closed."""
        self._open[instance.task].remove(instance)

    def is_open(self, instance: TaskInstance) -> bool:
        """Whether an instance has clients that are not closed."""
        return instance in self._open[instance.task]
