"""The consumers of a PipelineThread, and which task gets what they fetch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from common.kafka.clients import Partition
from common.nodes import TaskId
from common.topics import TopicNames
from taskmanager.clients import Reader
from taskmanager.running_task import RunningTask, TaskContext

Delivery = tuple[TaskId, RunningTask, Callable[[], None]]
"""A task, and what tells it of something that was fetched."""


@dataclass(slots=True)
class _Lane:
    """A consumer and the tasks that it fetches for, no two of them with an input in common."""

    reader: Reader
    owners: dict[Partition, tuple[TaskId, RunningTask]] = field(default_factory=dict)
    fed: set[Partition] = field(default_factory=set)
    """Those of which records came with the last fetch: only they can have become too many."""

    @property
    def is_hungry(self) -> bool:
        return any(not task.is_full(partition) for partition, (_, task) in self.owners.items())

    def adjust_pauses(self) -> None:
        """Pause the partitions of which far too much waits, and resume those that can take more."""
        paused = self.reader.paused
        full = {p for p in self.fed - paused if self.owners[p][1].is_overfull(p)}
        hungry = {p for p in paused if not self.owners[p][1].is_full(p)}
        if full:
            self.reader.pause(full)
        if hungry:
            self.reader.resume(hungry)


class Lanes:
    """Fetches for all tasks of a PipelineThread.

    A consumer reads a partition once, but two processors may both read the source: the second one
    gets a consumer of its own.
    """

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._group = TopicNames.of(context.config).fetch_group
        self._lanes: list[_Lane] = []
        self._lane_of: dict[TaskId, _Lane] = {}

    @property
    def are_hungry(self) -> bool:
        """Whether any task can take more records."""
        return any(lane.is_hungry for lane in self._lanes)

    def add(self, task_id: TaskId, task: RunningTask) -> None:
        """Start to fetch for a task, from where it is."""
        lane = self._find(task)
        self._lane_of[task_id] = lane
        lane.owners.update((partition, (task_id, task)) for partition in task.partitions)
        task.reader = lane.reader
        lane.reader.assign(task.read)

    def remove(self, task_id: TaskId, task: RunningTask) -> None:
        """Stop to fetch for a task, if anything is."""
        lane = self._lane_of.pop(task_id, None)
        if lane is None:
            return
        # A pause outlasts the assignment, whoever gets the partition next.
        lane.reader.resume(lane.reader.paused.intersection(task.partitions))
        lane.reader.unassign(task.partitions)
        lane.fed.difference_update(task.partitions)
        for partition in task.partitions:
            del lane.owners[partition]

    def fetch(self, wait_s: float) -> Iterator[Delivery]:
        """Yield what has come, in order for each partition; wait for it if there is nothing yet."""
        hungry = [lane for lane in self._lanes if lane.is_hungry]
        for lane in hungry:
            lane.adjust_pauses()
            fetched = lane.reader.fetch(
                self._context.config.max_batch_records, wait_s / len(hungry)
            )
            lane.fed.clear()
            for batch in fetched.batches:
                partition = (batch.topic, batch.partition)
                if partition in lane.owners:
                    lane.fed.add(partition)
                    task_id, task = lane.owners[partition]
                    yield task_id, task, partial(task.add, batch)
            for partition, offset in fetched.ends:
                if partition in lane.owners:
                    task_id, task = lane.owners[partition]
                    yield task_id, task, partial(task.reached_end, partition, offset)
            for partition, reason in fetched.errors:
                if partition in lane.owners:
                    task_id, task = lane.owners[partition]
                    where = f"{partition[0]}[{partition[1]}]"
                    yield task_id, task, partial(task.lose_input, f"{where}: {reason}")

    def close(self) -> None:
        """Close the consumers."""
        for lane in self._lanes:
            lane.reader.close()

    def _find(self, task: RunningTask) -> _Lane:
        for lane in self._lanes:
            if lane.owners.keys().isdisjoint(task.partitions):
                return lane
        clients = self._context.clients
        self._lanes.append(_Lane(clients.reader(self._group, is_watched=True)))
        return self._lanes[-1]
