"""Merges records into sessions, one after the other. Times are in ms.

As in Spark and in the DSL, a record that comes exactly the gap after the last one of a session
belongs to it. A session closes once stream time is later than this by more than the grace period.
It no longer changes then, so it makes no difference in which batches records come.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from kafka_pipeline.streams.clocks import late_by
from kafka_pipeline.streams.dsl.windows import SessionWindows

_Times = npt.NDArray[np.int64]


@dataclass(slots=True)
class Session:
    """A session from its first to its last record.

    `parts` are numbers of rows in the order in which they are merged. Where a row connects
    sessions, the parts of the one that began first come first, and the row comes last.
    """

    start: int
    last: int
    parts: list[int]


class SessionsOfKey:
    """The sessions of one key, in the order of their last records."""

    def __init__(
        self, windows: SessionWindows, kept: Iterable[Session], *, judges_alone: bool = False
    ) -> None:
        """Begin with the sessions that were kept.

        With `judges_alone`, whether a record is late depends on it alone, and not on what others
        have added to the session that it would be in.
        """
        self._judges_alone = judges_alone
        self._gap_ms = windows.gap_ms
        self._delay_ms = windows.gap_ms + windows.grace_ms
        self._found = sorted(kept, key=attrgetter("last"))

    @property
    def found(self) -> Sequence[Session]:
        """All sessions, closed ones included."""
        return self._found

    def add(self, time: int, now: int, row: int) -> bool:
        """Add a row of records with this time, which may be late by the time `now`.

        Returns false if they are late: they belong to no session that is open.
        """
        if self._judges_alone and time + self._delay_ms < now:
            return False
        near = self._near(time, now)
        if not near:
            if time + self._delay_ms < now:
                return False
            merged = Session(time, time, [])
        else:
            sessions = [self._found.pop(index) for index in near]
            merged, *others = sorted(sessions, key=attrgetter("start"))
            for other in others:
                merged.parts += other.parts
                merged.last = max(merged.last, other.last)
            merged.start, merged.last = min(merged.start, time), max(merged.last, time)
        merged.parts.append(row)
        place = bisect(self._found, merged.last, key=attrgetter("last"))
        self._found.insert(place, merged)
        return True

    def is_next_to_closed(self, time: int, now: int) -> bool:
        """Whether a record that was added is not in a session next to it, as that has closed."""
        for session in reversed(self._found):
            if session.last + self._gap_ms < time:
                break
            if session.last + self._delay_ms < now and session.start <= time + self._gap_ms:
                return True
        return False

    def _near(self, time: int, now: int) -> list[int]:
        """Return the places of the open sessions that a record belongs to, the last ones first."""
        near = []
        for index in range(len(self._found) - 1, -1, -1):
            session = self._found[index]
            # All before this one ended even earlier.
            if session.last + self._gap_ms < time or session.last + self._delay_ms < now:
                break
            if session.start <= time + self._gap_ms:
                near.append(index)
        return near


@dataclass(frozen=True, slots=True)
class RecordOrder:
    """The `ORDER` of the records of a batch, and the time that each of them may be late by.

    A number is the place of a record in the batch. Records in a row that are not behind any clock
    have the number of the first of them: so they may be in one row for each time.
    """

    order: _Times
    least: _Times
    """The time that the records with a number may be late by, unless their own one is later."""

    @classmethod
    def of(
        cls, times: _Times, clocks: Sequence[int] | None, now: int, *, follows_records: bool
    ) -> RecordOrder:
        """Take the times of records; see `late_by`, which has the other arguments."""
        nows = late_by(times, clocks, now, follows_records=follows_records)
        in_order = times >= (nows if follows_records or clocks is None else np.asarray(clocks))
        if not follows_records:
            in_order = np.full(len(times), True) if clocks is None else in_order
            nows = np.where(in_order, now, nows)
        # One that is not in order is alone, and another row of records begins after it.
        begins = np.concatenate([[True], ~in_order[1:] | ~in_order[:-1]])
        return cls(np.maximum.accumulate(np.where(begins, np.arange(len(times)), 0)), nows)

    def late_by(self, order: _Times, times: _Times) -> _Times:
        """Return the time that rows of records with these numbers and times may be late by."""
        return np.maximum(self.least[order], times)
