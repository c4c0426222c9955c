"""A standby: a copy of a task's state on another TaskManager, kept up to its state topics."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from typing import Any

from common.kafka.clients import Partition, TransactionFailedError
from common.messages import ProcessorReplica
from common.record_batch import RecordBatch
from common.status import TaskState, TaskStatus
from common.topics import TopicNames
from streams.stores.segments import SegmentedStore
from taskmanager.assigned_task import AssignedTask, TaskContext
from taskmanager.task_stores import TaskStores


class StandbyTask(AssignedTask):
    """Follows the state topics of a task that runs elsewhere, and never writes to Kafka.

    It has the stores in the very place where the task itself would have them on this TaskManager.
    So a task that comes here reads no more than what this one has not read yet, once it is
    dropped. Only committed records are applied. What is kept in memory is not copied. See Kafka
    Streams' `num.standby.replicas`.
    """

    def __init__(self, replica: ProcessorReplica, context: TaskContext, epoch: int) -> None:
        super().__init__(replica, context, epoch)
        self.partitions: tuple[Partition, ...] = ()
        self._stores: TaskStores | None = None
        self._segmented: dict[Partition, SegmentedStore[Any, Any]] = {}
        self._applied = 0

    def start(self) -> None:
        """Open the stores and read what they do not have yet. Blocks; `drop` it on errors.

        Raises `HopelessError`, `TransactionFailedError`, `StoreLockedError`, or `OSError`.
        """
        started_s = time.monotonic()
        self.state, self.reason = TaskState.STARTING, ""
        # Those of before are not those of stores that may be new, as `drop` would tell them.
        self.positions, self.partitions = {}, ()
        replica, number = self.replica, self.replica.task.partition
        kept = [b for b in self._node_group().stores if b.logged and b.persistent]
        self._stores = TaskStores(kept, replica.state_topics)
        group = TopicNames.of(self._context.config).consumer_group(replica.task.processor)
        with closing(self._context.clients.reader(group)) as reader:
            read = self._restore(self._stores, reader)
        self.positions = self._stores.positions(number)
        self.partitions = tuple(self.positions)
        built = {(replica.state_topics[b.name], number): self._stores.build(b) for b in kept}
        self._segmented = {p: s for p, s in built.items() if isinstance(s, SegmentedStore)}
        self._ends = {}
        self._run(TaskState.STANDBY, read, started_s)

    def process(self, batch: RecordBatch) -> None:
        """Apply records of a state topic. Raises what RocksDB raises when it cannot write."""
        assert self._stores is not None, "a standby is started before it processes"
        partition = (batch.topic, batch.partition)
        batch = batch.part(self._count_seen(batch, self.positions[partition]), len(batch))
        if not len(batch):
            return
        last = dict(zip(batch.keys, batch.values, strict=True))
        changes = {key: value for key, value in last.items() if key is not None}
        self._stores.follow(batch.topic, changes, batch.offsets[-1] + 1)
        self.positions[partition] = batch.offsets[-1] + 1
        self._applied += len(batch)
        if partition in self._segmented:
            self._segmented[partition].expire()

    def reached_end(self, partition: Partition, offset: int) -> None:
        """Take note that the partition had nothing to read at `offset` and behind."""
        super().reached_end(partition, offset)
        # Transaction markers are offsets, too.
        self.positions[partition] = max(offset, self.positions[partition])

    def lose_input(self, reason: str) -> None:
        """Raise `TransactionFailedError`: a new start finds out what the topics still have."""
        raise TransactionFailedError(reason)

    def drop(self) -> None:
        """Close the stores, which remember how far they are."""
        stores, self._stores = self._stores, None
        if stores is None:
            return
        try:
            for (topic, _), position in self.positions.items():
                stores.follow(topic, {}, position)
        except Exception as error:  # a damaged store, or a full disk
            self.log.warning("standby forgets its last position", reason=str(error))
        stores.close()

    def status(self) -> TaskStatus:
        """Return what the heartbeat tells; `records_in` are those of the state topics."""
        return replace(super().status(), records_in=self._applied)
