"""A standby: a copy of a task's state on another TaskManager, kept up to its state topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from typing import Any

from common.kafka.clients import Partition, TransactionFailedError
from common.record_batch import RecordBatch
from common.status import TaskState
from common.topics import TopicNames
from streams.stores.segments import SegmentedStore
from taskmanager.running_task import RunningTask, TaskMemory
from taskmanager.task_start import TaskStart
from taskmanager.task_stores import TaskStores


class StandbyStart(TaskStart):
    """The start of a standby."""

    def run(self) -> StandbyTask:
        """Open the stores and read what they do not have yet; see `TaskStart.run`."""
        began_s = time.monotonic()
        watch, task = self._context.lag_watch, self._replica.task
        # Its positions of before are not those of stores that may be new.
        watch.forget(task)
        replica, number = self._replica, self._replica.task.partition
        kept = [b for b in self._node_group().stores if b.logged and b.persistent]
        stores = TaskStores(kept, replica.state_topics, self._context.store_resources)
        group = TopicNames.of(self._context.config).consumer_group(replica.task.processor)
        with ExitStack() as undo:
            undo.callback(stores.close)
            with closing(self._context.clients.reader(group)) as reader:
                read = self._restore(stores, reader)
            built = {(replica.state_topics[b.name], number): stores.build(b) for b in kept}
            undo.pop_all()
        segmented = {p: s for p, s in built.items() if isinstance(s, SegmentedStore)}
        positions = stores.positions(number)
        self._log_start("standby follows", positions, read, began_s)

        def note(positions: Mapping[Partition, int]) -> None:
            watch.done_up_to(task, positions)

        return StandbyTask(stores, segmented, positions, note, self._memory, self._log)


class StandbyTask(RunningTask):
    """Follows the state topics of a task that runs elsewhere, and never writes to Kafka.

    It has the stores in the very place where the task itself would have them on this TaskManager.
    So a task that comes here reads no more than what this one has not read yet, once it is
    closed. Only committed records are applied. What is kept in memory is not copied. See Kafka
    Streams' `num.standby.replicas`.
    """

    state = TaskState.STANDBY

    def __init__(
        self,
        stores: TaskStores,
        segmented: Mapping[Partition, SegmentedStore[Any, Any]],
        positions: dict[Partition, int],
        note: Callable[[Mapping[Partition, int]], None],
        memory: TaskMemory,
        log: Any,
    ) -> None:
        super().__init__(positions)
        self._stores = stores
        self._segmented = segmented
        self._note = note
        """Is told how far it is."""
        note(positions)
        self._memory = memory
        self._log = log

    @property
    def has_records(self) -> bool:
        """Never: what comes is applied at once."""
        return False

    def add(self, batch: RecordBatch) -> None:
        """Apply records of a state topic. Raises what RocksDB raises when it cannot write."""
        partition = (batch.topic, batch.partition)
        last = dict(zip(batch.keys, batch.values, strict=True))
        changes = {key: value for key, value in last.items() if key is not None}
        self._stores.follow(batch.topic, changes, batch.offsets[-1] + 1)
        self.read[partition] = batch.offsets[-1] + 1
        self._note(self.read)
        self._memory.figures.records_in += len(batch)
        if partition in self._segmented:
            self._segmented[partition].expire()

    def reached_end(self, partition: Partition, offset: int) -> None:
        """Note that the partition had nothing to read at `offset` and after it."""
        super().reached_end(partition, offset)
        # Transaction markers are offsets, too.
        self.read[partition] = max(offset, self.read[partition])
        self._note(self.read)

    def lose_input(self, reason: str) -> None:
        """Raise `TransactionFailedError`: a new start finds out what the topics still have."""
        raise TransactionFailedError(reason)

    def release(self) -> None:
        """Close the stores, which remember how far they are."""
        try:
            for (topic, _), position in self.read.items():
                self._stores.follow(topic, {}, position)
        except Exception as error:  # a damaged store, or a full disk
            self._log.warning("standby forgets its last position", reason=str(error))
        self._stores.close()
