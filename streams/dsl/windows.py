"""Windows: how time is divided for aggregates.

    from kafka_pipeline import windows

    windows.tumbling(3_600_000, grace_ms=600_000)
    windows.hopping(timedelta(hours=1), advance_ms=timedelta(minutes=5), grace_ms=0)
    windows.calendar("1 day", tz="Europe/Berlin", grace_ms=timedelta(hours=1))

Times are whole milliseconds, or a `timedelta`. A window closes once stream time, the largest
timestamp that the step has seen, has passed the window's end by the grace period; records that come
for it later are dropped. The grace period has no default: too short a one loses late records, and
too long a one delays final results (KIP-633).

`close_after_idle_ms` is for `emit="on_close"`: if no record comes for that long by the wall
clock, all windows close as if time had gone on. By default, windows wait for records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_pipeline.common.calendars import Calendar
from kafka_pipeline.streams.durations import Milliseconds, whole_ms, whole_ms_or_none
from kafka_pipeline.streams.errors import InvalidArgumentError

__all__ = [
    "CalendarWindows",
    "JoinWindows",
    "SessionWindows",
    "SlidingWindows",
    "TimeWindows",
    "calendar",
    "hopping",
    "join",
    "session",
    "sliding",
    "tumbling",
]

MAX_MS = 2**62
"""The longest time, so that sums of two still fit a timestamp."""


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows [start, start + size), one beginning every `advance_ms` from time 0 on."""

    size_ms: int
    advance_ms: int
    grace_ms: int
    close_after_idle_ms: int | None = None

    @property
    def is_tumbling(self) -> bool:
        """Whether each time is in one window."""
        return self.advance_ms == self.size_ms

    @property
    def longest_ms(self) -> int:
        """How long a window is."""
        return self.size_ms

    def starts(self, timestamp: int) -> range:
        """Return the starts of the windows that a time is in, the oldest first."""
        advance_ms = self.advance_ms
        first = max(0, timestamp - self.size_ms + advance_ms) // advance_ms * advance_ms
        return range(first, timestamp + 1, advance_ms)

    def start_of_each(self, timestamps: Sequence[int]) -> list[int]:
        """Return the starts of the tumbling windows that times are in."""
        size_ms = self.size_ms
        return [timestamp - timestamp % size_ms for timestamp in timestamps]

    def end(self, start: int) -> int:
        """Return the end of the window with this start."""
        return start + self.size_ms

    @property
    def delay_ms(self) -> int:
        """How long after its start a window closes."""
        return self.size_ms + self.grace_ms

    def first_open(self, now: int) -> int:
        """Return the first start of a window that has not closed by a stream time."""
        return now - self.delay_ms + 1

    def are_open(self, starts: Sequence[int], nows: Sequence[int]) -> list[bool]:
        """Return for each window, by its start, whether it has not closed by a stream time."""
        delay_ms = self.delay_ms
        return [start > now - delay_ms for start, now in zip(starts, nows, strict=True)]

    def closing(self, closed: int, now: int) -> tuple[int, int]:
        """Return the first and last start of windows that close after `closed`, until `now`."""
        return max(0, self.first_open(closed)), self.first_open(now) - 1

    def next_close(self, closed: int) -> int:
        """Return the stream time at which the next window closes after `closed`."""
        first, advance_ms = max(0, self.first_open(closed)), self.advance_ms
        return -(-first // advance_ms) * advance_ms + self.delay_ms

    def retention_ms(self, *, closes: bool) -> int:
        """Return how long after its start a window is kept: until no record can change it.

        One that was not emitted yet (`closes`) is kept a moment longer, as its store refuses and
        forgets what is exactly as old.
        """
        return self.delay_ms + (1 if closes else 0)


@dataclass(frozen=True, slots=True)
class CalendarWindows:
    """Windows [start, end) that are the days, weeks or months of a time zone."""

    calendar: Calendar
    grace_ms: int
    close_after_idle_ms: int | None = None

    is_tumbling = True

    @property
    def longest_ms(self) -> int:
        """At least how long any of the windows is."""
        return self.calendar.longest_ms

    def starts(self, timestamp: int) -> tuple[int, ...]:
        """Return the start of the window that a time is in."""
        return (self.calendar.span(timestamp)[0],)

    def start_of_each(self, timestamps: Sequence[int]) -> list[int]:
        """Return the starts of the windows that times are in."""
        span, found = self.calendar.span, []
        start = end = 0
        for timestamp in timestamps:
            if not start <= timestamp < end:
                start, end = span(timestamp)
            found.append(start)
        return found

    def end(self, start: int) -> int:
        """Return the end of the window with this start."""
        return self.calendar.span(start)[1]

    def first_open(self, now: int) -> int:
        """Return the first start of a window that has not closed by a stream time."""
        return self.calendar.span(now - self.grace_ms)[0]

    def are_open(self, starts: Sequence[int], nows: Sequence[int]) -> list[bool]:
        """Return for each window, by its start, whether it has not closed by a stream time."""
        grace_ms = self.grace_ms
        first_open = self.start_of_each([max(0, now - grace_ms) for now in nows])
        return [start >= first for start, first in zip(starts, first_open, strict=True)]

    def closing(self, closed: int, now: int) -> tuple[int, int]:
        """Return the first and last start of windows that close after `closed`, until `now`."""
        return self.first_open(closed), self.first_open(now) - 1

    def next_close(self, closed: int) -> int:
        """Return the stream time at which the next window closes after `closed`."""
        return self.calendar.span(closed - self.grace_ms)[1] + self.grace_ms

    def retention_ms(self, *, closes: bool) -> int:
        """Return how long after its start a window is kept: longer than any can change."""
        return self.longest_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows [start, start + difference], both ends included, that begin or end at a record."""

    difference_ms: int
    grace_ms: int
    close_after_idle_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Windows from one record to another with no longer pause than the gap in between."""

    gap_ms: int
    grace_ms: int
    close_after_idle_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """Which records of two streams meet: right ones from `before_ms` before to `after_ms` after."""

    before_ms: int
    after_ms: int
    grace_ms: int

    @property
    def size_ms(self) -> int:
        """How far the first and the last time are apart at which a record can meet another."""
        return self.before_ms + self.after_ms


def tumbling(
    size_ms: Milliseconds,
    *,
    grace_ms: Milliseconds,
    close_after_idle_ms: Milliseconds | None = None,
) -> TimeWindows:
    """Return windows of one size, 1 ms or more, that follow one another without gap or overlap."""
    where = "windows.tumbling"
    size = whole_ms(where, "size_ms", size_ms, 1)
    return TimeWindows(size, size, *_times(where, grace_ms, close_after_idle_ms))


def hopping(
    size_ms: Milliseconds,
    *,
    advance_ms: Milliseconds,
    grace_ms: Milliseconds,
    close_after_idle_ms: Milliseconds | None = None,
) -> TimeWindows:
    """Return windows of one size that begin every `advance_ms`, and so overlap.

    `advance_ms` is from 1 to the size.
    """
    where = "windows.hopping"
    size = whole_ms(where, "size_ms", size_ms, 1)
    advance = whole_ms(where, "advance_ms", advance_ms, 1)
    if advance > size:
        raise InvalidArgumentError(
            f"{where} has an advance_ms of {advance}, above its size_ms of {size}: records between "
            "two windows would be in none"
        )
    return TimeWindows(size, advance, *_times(where, grace_ms, close_after_idle_ms))


def calendar(
    period: str,
    *,
    tz: str,
    grace_ms: Milliseconds,
    close_after_idle_ms: Milliseconds | None = None,
) -> CalendarWindows:
    """Return the days, weeks or months of a time zone as windows.

    `period` is `1 day`, `1 week`, which begins on Monday (ISO 8601), or `1 month`. `tz` is a name
    of the IANA database, such as `Europe/Berlin`. A day has 23 or 25 hours where clocks change. It
    begins with its first moment, which is 01:00 where they skip midnight.
    """
    where = "windows.calendar"
    try:
        found = Calendar(period, tz)
    except ValueError as error:
        raise InvalidArgumentError(f"{where}: {error}") from None
    return CalendarWindows(found, *_times(where, grace_ms, close_after_idle_ms))


def sliding(
    difference_ms: Milliseconds,
    *,
    grace_ms: Milliseconds,
    close_after_idle_ms: Milliseconds | None = None,
) -> SlidingWindows:
    """Return windows of records that are at most `difference_ms` apart, 0 or more (KIP-450).

    There is a window for each set of records that a span of that length can cover.
    """
    where = "windows.sliding"
    difference = whole_ms(where, "difference_ms", difference_ms, 0)
    return SlidingWindows(difference, *_times(where, grace_ms, close_after_idle_ms))


def session(
    gap_ms: Milliseconds,
    *,
    grace_ms: Milliseconds,
    close_after_idle_ms: Milliseconds | None = None,
) -> SessionWindows:
    """Return sessions, which end when no record comes for longer than `gap_ms`, 1 or more."""
    where = "windows.session"
    gap = whole_ms(where, "gap_ms", gap_ms, 1)
    return SessionWindows(gap, *_times(where, grace_ms, close_after_idle_ms))


def join(*, before_ms: Milliseconds, after_ms: Milliseconds, grace_ms: Milliseconds) -> JoinWindows:
    """Return the window of a join of two streams, around the time of each record.

    A record of the left stream meets the records of the right stream that are at most `before_ms`
    older and at most `after_ms` newer; both ends are included. One of the two may be negative if
    the sum is 0 or more: `before_ms=-5, after_ms=10` means from 5 to 10 ms newer.
    """
    where = "windows.join"
    before = whole_ms(where, "before_ms", before_ms, -MAX_MS)
    after = whole_ms(where, "after_ms", after_ms, -MAX_MS)
    if before + after < 0:
        raise InvalidArgumentError(
            f"{where} has a before_ms of {before} and an after_ms of {after}: the window would end "
            "before it begins; their sum must be 0 or more"
        )
    return JoinWindows(before, after, whole_ms(where, "grace_ms", grace_ms, 0))


def _times(where: str, grace_ms: object, close_after_idle_ms: object) -> tuple[int, int | None]:
    idle_ms = whole_ms_or_none(where, "close_after_idle_ms", close_after_idle_ms, 1)
    return whole_ms(where, "grace_ms", grace_ms, 0), idle_ms
