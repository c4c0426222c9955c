"""A standby: a copy of a task's state on another TaskManager, kept up to date from its topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from typing import Any

from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import Partition, TransactionFailedError
from kafka_pipeline.common.kafka.data import ReadError
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.stores.segments import SegmentedStore
from kafka_pipeline.taskmanager.running_task import RunningTask, TaskMemory
from kafka_pipeline.taskmanager.task_start import TaskStart
from kafka_pipeline.taskmanager.task_stores import TaskStores


class StandbyStart(TaskStart):
    """The start of a standby."""

    def run(self) -> StandbyTask:
        """Open the stores and read the records that they lack; see `TaskStart.run`."""
        began_s = time.monotonic()
        watch, task = self._context.lag_watch, self._replica.task
        # The former positions may not match the stores, which may be new.
        watch.forget(task)
        replica, number = self._replica, self._replica.task.partition
        kept = [b for b in self._node_group().stores if b.logged and b.persistent]
        stores = TaskStores(kept, replica.state_topics, self._context.store_resources)
        group = self._context.config.topic_names.consumer_group(replica.task.processor)
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

    The standby's stores are in the folders that the task itself would use on this TaskManager. So
    when the standby is closed and the task comes here, the task reads only the records that the
    standby has not read yet. Only committed records are applied. State that is kept in memory is
    not copied. See Kafka Streams' `num.standby.replicas`.
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
        super().__init__(positions, stores)
        self._segmented = segmented
        self._note = note
        """Called with the current positions."""
        note(positions)
        self._memory = memory
        self._log = log

    @property
    def has_records(self) -> bool:
        """Return False: the standby applies records as soon as they arrive."""
        return False

    def add(self, batch: RecordBatch) -> None:
        """Apply records of a state topic. Raises RocksDB's error if it cannot write."""
        partition = (batch.topic, batch.partition)
        last = dict(zip(batch.keys, batch.values, strict=True))
        changes = {key: value for key, value in last.items() if key is not None}
        self.stores.follow(batch.topic, changes, batch.offsets[-1] + 1)
        self.read[partition] = batch.offsets[-1] + 1
        self._note(self.read)
        self._memory.figures.records_in += len(batch)
        if partition in self._segmented:
            self._segmented[partition].follow_drops(changes)

    def reached_end(self, partition: Partition, offset: int) -> None:
        """Record that the partition had nothing to read at `offset` and after it."""
        super().reached_end(partition, offset)
        # Transaction markers take up offsets too.
        self.read[partition] = max(offset, self.read[partition])
        self._note(self.read)

    def loss_of_input(self, error: ReadError) -> EngineError:
        """Return a `TransactionFailedError`; a new start finds out what the topics still have."""
        return TransactionFailedError(str(error))

    def release(self) -> None:
        """Close the stores, which keep their positions."""
        try:
            for (topic, _), position in self.read.items():
                self.stores.follow(topic, {}, position)
        except Exception as error:  # a damaged store, or a full disk
            self._log.warning("the last position of a standby was not saved", reason=str(error))
        self.stores.close()
