"""The records that a task has read but not processed, and the order in which they come.

A task with several inputs processes records in the order of their timestamps (KIP-353). The head
of a partition is its oldest unprocessed record. The partition whose head has the smallest timestamp
is next; if timestamps are equal, the partition that the task names first. Records of one partition
are never reordered.

    queues.add(batch)
    if queues.is_processable(now_ms, ends_reached) and (span := queues.next_span()):
        ...  # process span.batch from span.start to span.stop
        queues.advance(span.partition, span.stop - span.start)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Container
from itertools import accumulate, repeat
from typing import NamedTuple

from common.record_batch import RecordBatch
from streams.timestamps import UNKNOWN_TIME

Partition = tuple[str, int]
"""Topic and number."""

NEVER_WAIT = -1
_NO_LIMIT = 2**63


Turn = tuple[RecordBatch, int]
"""One record: a batch, and an index in it."""


class RecordSpan(NamedTuple):
    """Consecutive records of one partition: `batch` from index `start` to `stop`, exclusive."""

    batch: RecordBatch
    start: int
    stop: int

    @property
    def partition(self) -> Partition:
        """The partition of the records."""
        return self.batch.topic, self.batch.partition


class _Queue:
    """The batches of one partition; `start` is the index of the head in the first batch."""

    __slots__ = (
        "batches",
        "deadline_ms",
        "head_ms",
        "next_offset",
        "partition",
        "size",
        "start",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.clear()

    def clear(self) -> None:
        self.batches: deque[RecordBatch] = deque()
        self.start = 0
        self.size = 0
        self.head_ms = UNKNOWN_TIME
        self.next_offset: int | None = None
        self.deadline_ms: int | None = None

    def add(self, batch: RecordBatch) -> None:
        if not self.batches:
            self.head_ms = batch.timestamps[0]
        self.batches.append(batch)
        self.size += len(batch)
        self.next_offset = batch.offsets[-1] + 1
        self.deadline_ms = None

    def take(self, count: int) -> None:
        """Remove at least one record of the first batch."""
        batch = self.batches[0]
        stop = self.start + count
        self.size -= count
        if stop == len(batch):
            self.batches.popleft()
            stop = 0
        self.start = stop
        self.head_ms = self.batches[0].timestamps[stop] if self.batches else UNKNOWN_TIME


class RecordQueues:
    """The queues of a task, one for each of its input partitions.

    `max_task_idle_ms` says how long to wait for a partition without records before the others
    are processed, in an order that then depends on chance (KIP-695):

    - `NEVER_WAIT`, -1: do not wait.
    - 0: wait until everything that the broker has of the partition was read.
    - more: once everything was read, wait that much longer for records that may be produced in
      the meantime. The waits for several partitions run at the same time.

    Unless `is_ordered`, timestamps do not matter: the partitions take turns, a batch each.

    Methods that take a partition raise `ValueError` if it is not one of the task's.
    """

    def __init__(
        self, partitions: Collection[Partition], max_task_idle_ms: int, is_ordered: bool = True
    ) -> None:
        self._queues = {partition: _Queue(partition) for partition in partitions}
        self._in_order = list(self._queues.values())
        self._waits = max_task_idle_ms != NEVER_WAIT and len(self._in_order) > 1
        self._max_task_idle_ms = max_task_idle_ms
        self._is_ordered = is_ordered
        self._size = 0
        self.enforced_processing_total = 0
        """How often records were let through although a partition to wait for had none."""

    def __len__(self) -> int:
        """Return how many records are waiting."""
        return self._size

    @property
    def oldest_ms(self) -> int | None:
        """The smallest timestamp among the heads of the partitions; `None` if no record waits."""
        return min((queue.head_ms for queue in self._in_order if queue.size), default=None)

    # Filling

    def add(self, batch: RecordBatch) -> None:
        """Append records, with the timestamps by which to order them, to those of the partition.

        The batch is not copied, so nobody may change it from now on.
        """
        queue = self._queue((batch.topic, batch.partition))
        if len(batch):
            queue.add(batch)
            self._size += len(batch)

    def read_up_to(self, partition: Partition, offset: int) -> None:
        """Note that all records before `offset` were added or are to be left out.

        `position` then moves past offsets after the last record: those of dropped records, and
        those without a record, such as transaction markers.
        """
        queue = self._queue(partition)
        if queue.next_offset is None or queue.next_offset < offset:
            queue.next_offset = offset

    def waiting(self, partition: Partition) -> int:
        """Return how many records of the partition wait. Any thread may call this."""
        return self._queue(partition).size

    # Taking

    def is_processable(self, now_ms: int, ends_reached: Container[Partition]) -> bool:
        """Return whether there are records and none has to wait for another partition.

        `ends_reached` has the partitions of which everything was read that the broker is known
        to have; a partition whose end is unknown is not in it. `now_ms` comes from a clock that
        only goes forward. Call this before each span, and also while no records come: the wait for
        a partition begins with the first call that finds it read to its end.
        """
        if not self._waits:
            return self._size > 0
        waiting = enforced = False
        for queue in self._in_order:
            if queue.size:
                continue
            if queue.partition not in ends_reached:
                queue.deadline_ms = None
                waiting = True
                continue
            if queue.deadline_ms is None:
                queue.deadline_ms = now_ms + self._max_task_idle_ms
            if now_ms < queue.deadline_ms:
                waiting = True
            else:
                enforced = True
        if waiting or not self._size:
            return False
        self.enforced_processing_total += enforced
        return True

    @property
    def next_deadline_ms(self) -> int | None:
        """When the wait for other partitions ends, by the clock of `is_processable`.

        `None` if no records wait, or if the passing of time alone does not end their wait.
        """
        if not self._waits or not self._size:
            return None
        deadlines = [q.deadline_ms for q in self._in_order if not q.size]
        # A partition whose end is not known yet has no deadline, and all must have one.
        known = [deadline for deadline in deadlines if deadline is not None]
        return max(known) if len(known) == len(deadlines) and known else None

    def next_span(
        self, max_records: int | None = None, until_ms: int | None = None
    ) -> RecordSpan | None:
        """Return the records that come next, or `None` if there are none; removes nothing.

        They are the longest span of one partition and one batch before another partition's head
        is next, up to `max_records`, which is at least 1. The span ends with the first record
        whose timestamp is `until_ms` or later: a punctuation that is due then fires after it.
        """
        if not self._size:
            return None
        queue, taken_over_ms = self._next()
        batch, start = queue.batches[0], queue.start
        stop = len(batch)
        if max_records is not None:
            stop = min(stop, start + max_records)
        last_ms = _NO_LIMIT if until_ms is None else until_ms
        if taken_over_ms != _NO_LIMIT or last_ms != _NO_LIMIT:
            timestamps = batch.timestamps
            for index in range(start, stop):
                timestamp = timestamps[index]
                if timestamp >= taken_over_ms:
                    stop = index
                    break
                if timestamp >= last_ms:
                    stop = index + 1
                    break
        return RecordSpan(batch, start, stop)

    def next_turns(self, max_records: int, until_ms: int | None = None) -> list[Turn]:
        """Return the records that come next, of all partitions; removes nothing.

        They are up to `max_records` of the first batch of each partition, and no more than are
        certain to be next whatever comes after these batches. There are none if the next record
        cannot be processed at all: its batch has an `error`. They end as a span does by `until_ms`.
        """
        heads: list[tuple[int, _Queue, list[int]]] = []
        end = _NO_LIMIT, 0
        for number, queue in enumerate(self._in_order):
            if queue.size:
                window = queue.batches[0].timestamps[queue.start : queue.start + max_records]
                # A record that is older than the one before it is next as soon as that one is done.
                reached = list(accumulate(window, max))
                heads.append((number, queue, reached))
                end = min(end, (reached[-1], number))
        entries: list[tuple[int, int, int, RecordBatch]] = []
        for number, queue, reached in heads:
            # At equal timestamps, earlier queues are next.
            count = (bisect_right if number <= end[1] else bisect_left)(reached, end[0])
            indices = range(queue.start, queue.start + count)
            entries += zip(reached, repeat(number), indices, repeat(queue.batches[0]), strict=False)
        entries.sort()
        turns = [(batch, index) for *_, index, batch in entries]
        if turns and turns[-1][0].error:
            turns.pop()
        if until_ms is not None:
            due = (n for n, (batch, at) in enumerate(turns, 1) if batch.timestamps[at] >= until_ms)
            turns = turns[: next(due, None)]
        return turns

    def _next(self) -> tuple[_Queue, int]:
        """Return the queue that is next, and the timestamp at which another queue takes over.

        At equal timestamps, an earlier queue takes over, but a later queue does not.
        """
        if len(self._in_order) == 1:
            return self._in_order[0], _NO_LIMIT
        chosen: _Queue | None = None
        head_ms = taken_over_ms = _NO_LIMIT
        for queue in self._in_order:
            if not queue.size:
                continue
            if not self._is_ordered:
                return queue, _NO_LIMIT
            if queue.head_ms < head_ms:
                # The one that was chosen so far comes before this one, so it takes over when equal.
                chosen, head_ms, taken_over_ms = queue, queue.head_ms, head_ms
            elif queue.head_ms + 1 < taken_over_ms:
                taken_over_ms = queue.head_ms + 1
        assert chosen is not None, "records wait"
        return chosen, taken_over_ms

    def advance(self, partition: Partition, count: int) -> None:
        """Remove the first `count` records of a partition, which were processed or skipped.

        `count` is at most the number of records that `next_span` returned.
        """
        queue = self._queue(partition)
        left = len(queue.batches[0]) - queue.start if queue.batches else 0
        if not 0 <= count <= left:
            raise ValueError(f"cannot take {count} of {left} records")
        if count:
            queue.take(count)
            self._size -= count
            if not self._is_ordered and count == left:
                self._in_order.remove(queue)
                self._in_order.append(queue)

    def clear(self) -> None:
        """Forget all records and positions, as before the task starts again."""
        for queue in self._in_order:
            queue.clear()
        self._size = 0

    # Position

    def position(self, partition: Partition) -> int | None:
        """Return the offset to commit: the head's, or the one after everything that was read.

        `None` if nothing of the partition was read yet: the committed offset still holds.
        """
        queue = self._queue(partition)
        return queue.batches[0].offsets[queue.start] if queue.batches else queue.next_offset

    def _queue(self, partition: Partition) -> _Queue:
        queue = self._queues.get(partition)
        if queue is None:
            topic, number = partition
            raise ValueError(f"{topic}-{number} is none of the task's inputs")
        return queue
