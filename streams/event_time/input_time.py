"""The event time of a task, from the progress of each of its inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_pipeline.streams.event_time.progress import UNKNOWN, PartProgress, Progress, combined

Partition = tuple[str, int]

SOURCE = 0
"""Instead of a number of writers: the topic is not written by tasks of the job."""

FEEDBACK = -1
"""Instead of a number of writers: the task's own records come back by it. It says nothing about
event time: it holds nothing back, and expects no records."""

_MOST_MARKS = 50
_END_OF_TIME = 2**63


class Mark(NamedTuple):
    """The progress of an internal input once all its records before `offset` are processed.

    `foreign` is the same without writers whose records may depend on the task itself.
    """

    offset: int
    progress: Progress
    foreign: Progress


class Origins(NamedTuple):
    """The processors that read the records of an input from sources; see `PartProgress`.

    `foreign` leaves out those whose records may depend on the task itself.
    """

    all: frozenset[str]
    foreign: frozenset[str]


@dataclass(slots=True)
class _Input:
    """A partition that the task reads, and how many tasks of the job write it."""

    writers: int
    origins: Origins
    progress: Progress
    marks: deque[Mark] = field(default_factory=deque)
    """The marks with unprocessed records before them."""
    unread: deque[Mark] = field(default_factory=deque)
    """The marks with unread records before them."""
    read: Progress = field(default_factory=Progress)
    """The progress of the unread records that do not depend on the task."""
    read_mark: int = 0
    """The offset of the last mark whose records are all read."""
    is_covered: bool = False
    """Whether the task has read nothing beyond that mark."""
    empty_since_ms: int | None = None
    empty_at: int = 0
    """The offset of the end at which a source partition has been since then."""


class InputTime:
    """The event time of a task, from the progress of its inputs.

    The task itself knows the progress of a source partition: the largest timestamp processed, idle
    once there was nothing to read for `idle_after_ms`. For a partition of an internal topic, the
    caller supplies the progress of the writers and the offset at which their records end: a `Mark`.
    It counts once the task has processed the records before that offset. Those of a feedback topic
    have their own times, and nobody promises when they come. Nor does a topic count whose records
    are only looked up: a table may be much younger than the stream that looks its rows up.

    Any thread may call `learn`, and read `time_ms`; all else is for one thread at a time.
    """

    def __init__(
        self,
        writers: Mapping[Partition, int],
        idle_after_ms: int,
        known: Mapping[Partition, Progress] = {},
        origins: Mapping[Partition, Origins] = {},
        *,
        looked_up: Collection[str] = (),
        returning: Collection[str] = (),
        passes_sources_on: bool = False,
    ) -> None:
        """`writers` has their number by partition; `known` is what was committed.

        A partition without `origins` shares them with no other. The topics in `looked_up` do not
        move time on. Those in `returning` have records that may depend on the task's own.

        With `passes_sources_on`, the records of source partitions advance time too, even those that
        reach no step: results that are held back must not wait for further records.
        """
        self.returning = returning
        self._passes_sources_on = passes_sources_on
        self._idle_after_ms = idle_after_ms
        self._inputs = {
            partition: _Input(
                count,
                origins.get(partition) or Origins(*[frozenset([str(partition)])] * 2),
                (at := known.get(partition, Progress())),
                read=at,
            )
            for partition, count in writers.items()
        }
        self._known = {each: at for each, at in self._inputs.items() if at.writers != FEEDBACK}
        """The inputs whose progress is known."""
        self._timed = {each: at for each, at in self._known.items() if each[0] not in looked_up}
        """Those that say something about event time."""
        self.is_single = len(self._timed) == 1
        """Whether there is one such input only."""
        self.follows_records = all(at.writers == SOURCE for at in self._known.values())
        """Whether each record moves the time of a step on, as in Kafka Streams. They are those of
        sources, which are taken in the order of time."""
        self._time_ms = UNKNOWN
        self._news: deque[Mapping[Partition, Mark]] = deque()
        self._newest: dict[Partition, Mark] = {}

    def learn(self, marks: Mapping[Partition, Mark]) -> None:
        """Take in the progress of the writers of internal inputs, all as of one moment."""
        new = {each: mark for each, mark in marks.items() if self._newest.get(each) != mark}
        if new:
            self._newest |= new
            self._news.append(new)

    @property
    def time_ms(self) -> int:
        """Event time at the last `update`; any thread may read it."""
        return self._time_ms

    def known(self, partition: Partition) -> Progress:
        """Return the progress of an internal input, for the commit."""
        return self._inputs[partition].progress

    def writers(self, partition: Partition) -> int:
        """Return how many tasks of the job write an input, `SOURCE`, or `FEEDBACK`."""
        return self._inputs[partition].writers

    def read_up_to(self, partition: Partition, offset: int) -> None:
        """Take in that all records of an internal input before `offset` were read."""
        self._take_news()
        each = self._inputs[partition]
        while each.unread and each.unread[0].offset <= offset:
            mark = each.unread.popleft()
            each.read_mark = mark.offset
            each.read = _later(each.read, mark.foreign, is_last=not each.unread)
        each.is_covered = offset <= each.read_mark

    def complete_until(self, partition: Partition) -> int:
        """Return the time before which all records of an internal input were read.

        Records that may depend on the task itself do not count.
        """
        asked = self._inputs[partition]
        if asked.read.is_idle and all(
            _knows_as_much(asked, each)
            for each in self._known.values()
            if each is not asked and each.origins.all <= asked.origins.foreign
        ):
            return _END_OF_TIME
        return asked.read.time_ms

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
        self._take_news()
        for partition, each in self._known.items():
            if each.writers == SOURCE:
                end = reached(partition) if partition in ends else None
                self._update_source(each, now_ms, clock(partition), end)
            elif each.marks:
                offset = reached(partition)
                while each.marks and each.marks[0].offset <= offset:
                    mark = each.marks.popleft()
                    each.progress = _later(each.progress, mark.progress, is_last=not each.marks)
        if not self.follows_records or self._passes_sources_on:
            self._time_ms = max(self._time_ms, self._combined(self._timed.values()))
        return self._time_ms

    def time_of(self, topics: Collection[str]) -> int:
        """Return the time that the inputs have reached that lead to a node from these topics.

        What the task holds back there must not wait for records that come back to the task because
        of it, as in a foreign-key join: those who send them know nothing of what is held back, so
        they would be ahead of it. It may go back.
        """
        return self._combined(
            each
            for (topic, _), each in self._timed.items()
            if topic in topics or topic not in self.returning
        )

    def _combined(self, inputs: Iterable[_Input]) -> int:
        parts = (
            PartProgress(each.progress, each.origins.all, has_all=each.writers != SOURCE)
            for each in inputs
        )
        return combined(parts).time_ms

    def _take_news(self) -> None:
        while self._news:
            for partition, mark in self._news.popleft().items():
                each = self._inputs[partition]
                _add(each.marks, mark)
                _add(each.unread, mark)
                # There may be something ahead of the mark.
                each.progress = each.progress._replace(is_idle=False)
                each.read = each.read._replace(is_idle=False)

    def _update_source(self, each: _Input, now_ms: int, clock: int, end: int | None) -> None:
        if end is None:
            each.empty_since_ms = None
        elif each.empty_since_ms is None or each.empty_at != end:
            each.empty_since_ms, each.empty_at = now_ms, end
        since_ms = each.empty_since_ms
        is_idle = since_ms is not None and now_ms - since_ms >= self._idle_after_ms
        each.progress = Progress(clock, is_idle, clock)

    @property
    def next_idle_ms(self) -> int | None:
        """When a source partition counts as idle, by the clock of `update`; `None` if none will."""
        if self.is_single:
            return None
        found = [
            each.empty_since_ms + self._idle_after_ms
            for each in self._timed.values()
            if each.empty_since_ms is not None and not each.progress.is_idle
        ]
        return min(found, default=None)

    def is_due(self, reached: Callable[[Partition], int], read: Callable[[Partition], int]) -> bool:
        """Return whether `update` or `read_up_to` would pass a mark now."""
        self._take_news()
        return any(
            (each.marks and each.marks[0].offset <= reached(partition))
            or (each.unread and each.unread[0].offset <= read(partition))
            for partition, each in self._inputs.items()
        )


def _add(marks: deque[Mark], mark: Mark) -> None:
    """Append a mark; drops every other one when there are too many."""
    if len(marks) >= _MOST_MARKS:
        kept = [*marks][::2]
        marks.clear()
        marks += kept
    marks.append(mark)


def _later(before: Progress, found: Progress, *, is_last: bool) -> Progress:
    """Return the progress after one more mark. Time never goes back.

    An input is idle only after its last mark: records may follow before the next one.
    """
    return Progress(
        max(before.time_ms, found.time_ms),
        found.is_idle and is_last,
        max(before.sources_ms, found.sources_ms),
    )


def _knows_as_much(asked: _Input, other: _Input) -> bool:
    """Return whether another input is idle, and knows of no later progress of the sources."""
    known = other.read
    return known.is_idle and other.is_covered and known.sources_ms <= asked.read.sources_ms
