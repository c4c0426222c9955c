"""The times of a task: the partition times of its inputs, and its stream time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from kafka_pipeline.streams.clocks import NO_CLOCK
from kafka_pipeline.streams.engine.left_undone import refuse_lost
from kafka_pipeline.streams.engine.record_queues import Partition
from kafka_pipeline.streams.record import Batch, Record
from kafka_pipeline.streams.timestamps import UNKNOWN_TIME


class TaskTime:
    """The largest timestamps that a task has seen, in ms; -1 before the first one.

    A partition has two times. The time of the records taken in is for timestamp extractors. The
    time of the records processed is committed with the offset of the next record. A task that
    starts again goes on from the committed times, and its stream time is the largest of them
    (KAFKA-7994).

    Rejected records count. Records that have no timestamp or cannot be read do not.
    """

    def __init__(
        self, partitions: Collection[Partition], committed: Mapping[Partition, int] = {}
    ) -> None:
        """Begin with the `committed` partition times, or with -1 for partitions without one."""
        self._processed = {p: committed.get(p, UNKNOWN_TIME) for p in partitions}
        self._taken_in = dict(self._processed)
        self.follows_records = True
        """Whether each record moves event time on; see `InputTime.follows_records`."""
        self.clock = NO_CLOCK
        """The clock of the record in hand; -1 if it is in order."""
        self.reached_ms = UNKNOWN_TIME
        """The time that all inputs have reached, also those whose records come back."""
        self.stream_time = max(self._processed.values(), default=UNKNOWN_TIME)
        """The largest timestamp of the records processed, including the one in hand."""

    @property
    def partitions(self) -> Collection[Partition]:
        """The partitions of the task."""
        return self._processed.keys()

    def taken_in(self, partition: Partition) -> int:
        """Return the partition time as extractors see it."""
        return self._taken_in[partition]

    def take_in(self, partition: Partition, time_ms: int) -> None:
        """Set the partition time that extractors see."""
        self._taken_in[partition] = time_ms

    def processed(self, partition: Partition) -> int:
        """Return the partition time to commit, which covers the records before the position."""
        return self._processed[partition]

    def each(self, batch: Batch, receive: Callable[[Record], object]) -> None:
        """Pass the records of a batch on one by one, each with its clock."""
        if batch.clocks is None:
            for record in batch.records():
                if (returned := receive(record)) is not None:
                    refuse_lost(receive, returned)
            return
        for record, self.clock in zip(batch.records(), batch.clocks, strict=True):
            if (returned := receive(record)) is not None:
                refuse_lost(receive, returned)
        self.clock = NO_CLOCK

    def reach(self, time_ms: int) -> None:
        """Raise stream time to the timestamp of the record in hand."""
        if time_ms > self.stream_time:
            self.stream_time = time_ms

    def process(self, partition: Partition, time_ms: int) -> None:
        """Count the largest timestamp of records that the position has passed."""
        if time_ms > self._processed[partition]:
            self._processed[partition] = time_ms
        self.reach(time_ms)
