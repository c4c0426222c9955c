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
_END_OF_TIME = 2**63


@dataclass(slots=True)
class _Input:
    """A partition that the task reads, and how many tasks of the job write it."""

    writers: int
    progress: Progress
    marks: deque[tuple[int, Progress]] = field(default_factory=deque)
    """Offsets, and what is known once the task has processed all records before them."""
    unread: deque[tuple[int, Progress]] = field(default_factory=deque)
    """The marks that the task has not read up to."""
    read: Progress = field(default_factory=Progress)
    """What is known of the records to come that the task has not even read."""
    last: tuple[int, Progress] | None = None
    """The newest mark, passed or not."""
    empty_since_ms: int | None = None


class InputTime:
    """How far the time of a task is, as far as its inputs are known to be.

    Of a source partition, the task itself knows how far it is: as far as the largest timestamp
    processed, and idle once nothing was there to read for `idle_after_ms`. Of a partition of an
    internal topic, somebody else finds out how far the writers were and which offset their records
    end before: a mark. It counts once the task has processed what is before that offset.

    Any thread may call `learn`, and read `time_ms`; all else is for one thread at a time.
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
            partition: _Input(count, (at := known.get(partition, Progress())), read=at)
            for partition, count in writers.items()
        }
        self.is_single = len(writers) == 1
        """Whether there is one input only."""
        self.follows_records = not any(writers.values())
        """Whether each record moves the time of a step on, as in Kafka Streams. They are those of
        sources, which are taken in the order of time."""
        self._asks = not self.follows_records or any(writers.values())
        self._time_ms = UNKNOWN

    def learn(self, partition: Partition, offset: int, progress: Progress) -> bool:
        """Take in that writers have this progress beyond `offset`; return whether that is new."""
        each, mark = self._inputs[partition], (offset, progress)
        if each.last == mark:
            return False
        each.last = mark
        each.marks = _with_mark(each.marks, mark)
        each.unread = _with_mark(each.unread, mark)
        return True

    @property
    def time_ms(self) -> int:
        """Event time at the last `update`; any thread may read it."""
        return self._time_ms

    def known(self, partition: Partition) -> Progress:
        """Return how far an internal input is, for the commit."""
        return self._inputs[partition].progress

    def writers(self, partition: Partition) -> int:
        """Return how many tasks of the job write an input; `SOURCE` for that of a source."""
        return self._inputs[partition].writers

    def read_up_to(self, partition: Partition, offset: int) -> None:
        """Take in that all records of an internal input before `offset` were read."""
        each = self._inputs[partition]
        each.read = _taken(each.unread, offset, each.read)

    def complete_until(self, partition: Partition) -> int:
        """Return the time before which all records of an internal input were read."""
        read = self._inputs[partition].read
        return _END_OF_TIME if read.is_idle else read.time_ms

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
            elif each.marks:
                each.progress = _taken(each.marks, reached(partition), each.progress)
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
        if self.is_single:
            return None
        found = [
            each.empty_since_ms + self._idle_after_ms
            for each in self._inputs.values()
            if each.empty_since_ms is not None and not each.progress.is_idle
        ]
        return min(found, default=None)

    def is_due(self, reached: Callable[[Partition], int], read: Callable[[Partition], int]) -> bool:
        """Return whether `update` or `read_up_to` would take in a mark now."""
        return any(
            (each.marks and each.marks[0][0] <= reached(partition))
            or (each.unread and each.unread[0][0] <= read(partition))
            for partition, each in self._inputs.items()
        )


def _with_mark(
    marks: deque[tuple[int, Progress]], mark: tuple[int, Progress]
) -> deque[tuple[int, Progress]]:
    """Return the marks with one more; a few are enough to go on. Others may use the former ones."""
    known = marks.copy()
    if len(known) < _MOST_MARKS:
        marks.append(mark)
        return marks
    return deque([*[*known][::2], mark])


def _taken(marks: deque[tuple[int, Progress]], offset: int, before: Progress) -> Progress:
    """Take out the marks up to an offset, and return what is known then."""
    while marks and marks[0][0] <= offset:
        _, found = marks.popleft()
        before = Progress(max(before.time_ms, found.time_ms), found.is_idle)
    return before
