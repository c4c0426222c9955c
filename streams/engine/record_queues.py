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
from collections.abc import Collection, Container, Sequence
from itertools import accumulate, islice, repeat
from typing import NamedTuple, Protocol

from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.timestamps import UNKNOWN_TIME

Partition = tuple[str, int]
"""Topic and number."""

NEVER_WAIT = -1
_NO_LIMIT = 2**63


Turn = tuple[RecordBatch, int]
"""One record: a batch, and an index in it."""


def parts_of(turns: Sequence[Turn]) -> list[tuple[RecordBatch, int, list[int]]]:
    """Return each batch of some turns, with its first index, and the places of its records there.

    The records of a batch are consecutive, and in order.
    """
    parts = []
    left = list(range(len(turns)))
    while left:
        batch, start = turns[left[0]]
        parts.append((batch, start, [place for place in left if turns[place][0] is batch]))
        left = [place for place in left if turns[place][0] is not batch]
    return parts


class InnerInputs(Protocol):
    """What is known of the internal partitions of a task; `InputTime` knows it."""

    def writers(self, partition: Partition) -> int:
        """Return how many tasks of the job write a partition; 0 or less if none is waited for."""

    def complete_until(self, partition: Partition) -> int:
        """Return the time before which all records of a partition were added."""


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
    """The batches of one partition; `start` is the index of the head in the first batch.

    `times` says when each record of the first batch is next: at its timestamp. If the partition is
    `mixed`, the head may hide an older record, so that it is next at the time of that one.
    """

    __slots__ = (
        "batches",
        "deadline_ms",
        "head_ms",
        "idle_ms",
        "is_mixed",
        "next_offset",
        "partition",
        "size",
        "start",
        "times",
    )

    def __init__(self, partition: Partition, idle_ms: int, *, is_mixed: bool) -> None:
        self.partition = partition
        self.idle_ms = idle_ms
        self.is_mixed = is_mixed
        self.clear()

    def clear(self) -> None:
        self.batches: deque[RecordBatch] = deque()
        self.times: Sequence[int] = ()
        self.start = 0
        self.size = 0
        self.head_ms = UNKNOWN_TIME
        self.next_offset: int | None = None
        self.deadline_ms: int | None = None

    def add(self, batch: RecordBatch) -> None:
        self.batches.append(batch)
        if len(self.batches) == 1 or self.is_mixed:
            self._order()
        self.size += len(batch)
        self.next_offset = batch.offsets[-1] + 1
        self.deadline_ms = None

    def _order(self) -> None:
        """Find out when the records of the first batch are next."""
        first = self.batches[0]
        self.times = first.timestamps
        if self.is_mixed:
            later = (each.smallest_timestamp for each in islice(self.batches, 1, None))
            least = min(later, default=_NO_LIMIT)
            backwards = accumulate(reversed(first.timestamps), min, initial=least)
            self.times = [*backwards][:0:-1]
        self.head_ms = self.times[self.start]

    def take(self, count: int) -> None:
        """Remove at least one record of the first batch."""
        batch = self.batches[0]
        stop = self.start + count
        self.size -= count
        self.start = stop
        if stop < len(batch):
            self.head_ms = self.times[stop]
            return
        self.batches.popleft()
        self.start, self.times, self.head_ms = 0, (), UNKNOWN_TIME
        if self.batches:
            self._order()


class RecordQueues:
    """The queues of a task, one for each of its input partitions.

    `max_task_idle_ms` says how long to wait for a partition without records before the others
    are processed, in an order that then depends on chance (KIP-695):

    - `NEVER_WAIT`, -1: do not wait.
    - 0: wait until everything that the broker has of the partition was read.
    - more: once everything was read, wait that much longer for records that may be produced in
      the meantime. The waits for several partitions run at the same time. Records of `feedback`
      topics, which may depend on those that wait, are not waited for in this way.

    Of an internal partition, `inner` says more: a record waits until nothing that is as old can
    come of it any more, even if everything was read. If several tasks write it, their records are
    mixed, and the oldest that waits counts for all ahead of it. So a record sees what others have
    sent of its own time. Only a partition with too many waiting records goes ahead.

    Unless `is_ordered`, timestamps do not matter: the partitions take turns, a batch each.

    Methods that take a partition raise `ValueError` if it is not one of the task's.
    """

    def __init__(
        self,
        partitions: Collection[Partition],
        max_task_idle_ms: int,
        is_ordered: bool = True,
        inner: InnerInputs | None = None,
        most_waiting: int = _NO_LIMIT,
        feedback: Collection[str] = (),
    ) -> None:
        """`most_waiting` is how many records of a partition are too many to wait for others."""
        waits = max_task_idle_ms != NEVER_WAIT and len(partitions) > 1
        self._inner = inner if waits and is_ordered else None
        self._most_waiting = most_waiting
        self._queues = {
            partition: _Queue(
                partition,
                0 if partition[0] in feedback else max_task_idle_ms,
                is_mixed=self._inner is not None and self._inner.writers(partition) > 1,
            )
            for partition in partitions
        }
        self._in_order = list(self._queues.values())
        self._waits = max_task_idle_ms != NEVER_WAIT and len(self._in_order) > 1
        self._is_ordered = is_ordered
        self._size = 0
        self._ahead: _Queue | None = None
        """A partition with too many waiting records, which goes ahead of the others."""
        self._complete_until = _NO_LIMIT
        """The time up to which no input can bring an earlier record."""
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

        `ends_reached` has the partitions that were read up to their end offset; a partition with
        an unknown end is not in it. `now_ms` comes from a clock that
        only goes forward. Call this before each span, and also while no records come: the wait for
        a partition begins with the first call that finds it read to its end.
        """
        if self._inner is not None and self._size and not self._is_passed(self._inner):
            return False
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
                queue.deadline_ms = now_ms + queue.idle_ms
            if now_ms < queue.deadline_ms:
                waiting = True
            else:
                enforced = True
        if waiting or not self._size:
            return False
        self.enforced_processing_total += enforced
        return True

    def _is_passed(self, inner: InnerInputs) -> bool:
        """Return whether nothing as old as the next record can come of internal partitions.

        If that cannot be found out, as too much waits of one of them, that one is next.
        """
        self._ahead, self._complete_until = None, _NO_LIMIT
        queue, _ = self._next()
        for other in self._in_order:
            is_known = other.size and not other.is_mixed
            if other is queue or is_known or inner.writers(other.partition) <= 0:
                continue
            until_ms = inner.complete_until(other.partition)
            if until_ms <= queue.head_ms:
                if other.size < self._most_waiting:
                    return False
                self._ahead = other
                return True
            self._complete_until = min(self._complete_until, until_ms)
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
        times = queue.times
        batch, start = queue.batches[0], queue.start
        stop = len(batch)
        if max_records is not None:
            stop = min(stop, start + max_records)
        last_ms = _NO_LIMIT if until_ms is None else until_ms
        if taken_over_ms != _NO_LIMIT or last_ms != _NO_LIMIT:
            timestamps = batch.timestamps
            for index in range(start, stop):
                if times[index] >= taken_over_ms:
                    stop = index
                    break
                if timestamps[index] >= last_ms:
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
        if self._ahead is not None:
            return []
        # What is at this time, or after it, may have to wait.
        end = self._complete_until, -1
        for number, queue in enumerate(self._in_order):
            if queue.size:
                window = queue.times[queue.start : queue.start + max_records]
                # A record that is older than the one before it is next as soon as that one is done.
                reached = list(accumulate(window, max))
                heads.append((number, queue, reached))
                end = min(end, (reached[-1], number))
        waiting: list[Turn] = []
        times: list[int] = []
        for number, queue, reached in heads:
            # At equal timestamps, earlier queues are next.
            count = (bisect_right if number <= end[1] else bisect_left)(reached, end[0])
            indices = range(queue.start, queue.start + count)
            waiting += zip(repeat(queue.batches[0], count), indices, strict=True)
            times += reached[:count]
        order = sorted(range(len(times)), key=times.__getitem__)
        turns = [waiting[place] for place in order]
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
        if self._ahead is not None:
            return self._ahead, self._ahead.head_ms + 1
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
        return chosen, min(taken_over_ms, self._complete_until)

    def read_offset(self, partition: Partition) -> int:
        """Return the offset before which all records were added or left out; 0 if none was."""
        return self._queue(partition).next_offset or 0

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
