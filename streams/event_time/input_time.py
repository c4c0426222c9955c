"""The event time of a task, from what is known of each of its inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from streams.event_time.progress import UNKNOWN, Progress, combined

Partition = tuple[str, int]

SOURCE = 0
"""Instead of a number of writers: the topic is not written by tasks of the job."""

_MOST_MARKS = 50


@dataclass(slots=True)
class _Input:
    """A partition that the task reads, and how many tasks of the job write it."""

    writers: int
    progress: Progress
    marks: deque[tuple[int, Progress]] = field(default_factory=deque)
    """Offsets, and what is known once the task has processed all records before them."""
    last: tuple[int, Progress] | None = None
    """The newest mark, passed or not."""
    empty_since_ms: int | None = None


class InputTime:
    """How far the time of a task is, as far as its inputs are known to be.

    Of a source partition, the task itself knows how far it is: as far as the largest timestamp
    processed, and idle once nothing was there to read for `idle_after_ms`. Of a partition of an
    internal topic, somebody else finds out how far the writers were and which offset their records
    end before: a mark. It counts once the task has processed what is before that offset.

    Any thread may call `learn`; all else is for one thread at a time.
    """

    def __init__(
        self,
        writers: Mapping[Partition, int],
        idle_after_ms: int,
        known: Mapping[Partition, Progress] = {},
        *,
        passes_sources_on: bool = False,
    ) -> None:
        """`writers` has their number by partition; `known` is what was committed.

        With `passes_sources_on`, time goes on with the records of a single source partition too,
        also with those that no step gets: results that are held back must not wait for others.
        """
        self._passes_sources_on = passes_sources_on
        self._idle_after_ms = idle_after_ms
        self._inputs = {
            partition: _Input(count, known.get(partition, Progress()))
            for partition, count in writers.items()
        }
        self.follows_records = len(writers) == 1 and max(writers.values()) <= 1
        """Whether the records of the task come in the order of one clock, as there is one writer:
        each of them then moves the time of a step on, as in Kafka Streams."""
        self._asks = not self.follows_records or any(writers.values())
        self._time_ms = UNKNOWN

    def learn(self, partition: Partition, offset: int, progress: Progress) -> bool:
        """Take in that writers have this progress beyond `offset`; return whether that is new."""
        each = self._inputs[partition]
        marks = each.marks.copy()
        known = marks[-1] if marks else each.last
        each.last = offset, progress
        if known == each.last:
            return False
        if len(marks) < _MOST_MARKS:
            each.marks.append(each.last)
        else:
            # A few of them are enough to go on. `update` may still use the former ones.
            each.marks = deque([*[*marks][::2], each.last])
        return True

    def known(self, partition: Partition) -> Progress:
        """Return how far an internal input is, for the commit."""
        return self._inputs[partition].progress

    def writers(self, partition: Partition) -> int:
        """Return how many tasks of the job write an input; `SOURCE` for that of a source."""
        return self._inputs[partition].writers

    def has_passed(self, partition: Partition, timestamp: int) -> bool:
        """Return whether no record of an internal input with this time, or before it, can come."""
        progress = self._inputs[partition].progress
        return progress.is_idle or progress.time_ms > timestamp

    def update(
        self,
        now_ms: int,
        reached: Callable[[Partition], int],
        clock: Callable[[Partition], int],
        ends: Collection[Partition],
    ) -> int:
        """Take in what was processed; return event time, -1 while unknown. It never goes back.

        `reached` returns the offset before which all records of a partition were processed, `clock`
        the largest timestamp of those, and `ends` are the partitions with nothing left to read.
        """
        for partition, each in self._inputs.items():
            if each.writers == SOURCE:
                self._update_source(each, now_ms, clock(partition), is_empty=partition in ends)
            elif marks := each.marks:
                offset = reached(partition)
                while marks and marks[0][0] <= offset:
                    _, found = marks.popleft()
                    latest_ms = max(each.progress.time_ms, found.time_ms)
                    each.progress = Progress(latest_ms, found.is_idle)
        if self._asks or self._passes_sources_on:
            found = combined(each.progress for each in self._inputs.values())
            self._time_ms = max(self._time_ms, found.time_ms)
        return self._time_ms

    def _update_source(self, each: _Input, now_ms: int, clock: int, *, is_empty: bool) -> None:
        if not is_empty:
            each.empty_since_ms = None
        elif each.empty_since_ms is None:
            each.empty_since_ms = now_ms
        since_ms = each.empty_since_ms
        is_idle = since_ms is not None and now_ms - since_ms >= self._idle_after_ms
        each.progress = Progress(clock, is_idle)

    @property
    def next_idle_ms(self) -> int | None:
        """When a source partition counts as idle, by the clock of `update`; `None` if none will."""
        if self.follows_records:
            return None
        found = [
            each.empty_since_ms + self._idle_after_ms
            for each in self._inputs.values()
            if each.empty_since_ms is not None and not each.progress.is_idle
        ]
        return min(found, default=None)

    def is_due(self, reached: Callable[[Partition], int]) -> bool:
        """Return whether `update` would take in a mark now."""
        return any(
            each.marks[0][0] <= reached(partition)
            for partition, each in self._inputs.items()
            if each.marks
        )
