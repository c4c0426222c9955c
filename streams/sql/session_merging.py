"""Merges records into sessions, one after the other. Times are in ms.

As in Spark and in the DSL, a record exactly one gap after the last record of a session belongs to
it. A session closes once stream time exceeds the end of this gap by more than the grace period. It
no longer changes then, so the division of records into batches makes no difference.
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

    `parts` are row numbers in merge order. If a row connects sessions, the parts of the oldest
    session come first, and the row comes last.
    """

    start: int
    last: int
    parts: list[int]


class SessionsOfKey:
    """The sessions of one key, in the order of their last records."""

    def __init__(
        self, windows: SessionWindows, kept: Iterable[Session], *, judges_alone: bool = False
    ) -> None:
        """Begin with the stored sessions.

        With `judges_alone`, a record is late by its own time, whatever session it would join.
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
        """Add a row of records with this time; `now` is the stream time that may make it late.

        Returns false if the row is late: it belongs to no open session.
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
        """Whether a closed session within the gap of an added record could not take it."""
        for session in reversed(self._found):
            if session.last + self._gap_ms < time:
                break
            if session.last + self._delay_ms < now and session.start <= time + self._gap_ms:
                return True
        return False

    def _near(self, time: int, now: int) -> list[int]:
        """Return the indexes of the open sessions within the gap of a record, latest first."""
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
    """The `ORDER` of the records of a batch, and the stream time that may make each of them late.

    The number of a record is its index in the batch. Consecutive records in order share the number
    of the first one, so that those with the same time can share a row.
    """

    order: _Times
    least: _Times
    """The stream time for the records with a number, at least; their own time may be later."""

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
        # A record that is out of order stands alone, and the next run of records begins after it.
        begins = np.concatenate([[True], ~in_order[1:] | ~in_order[:-1]])
        return cls(np.maximum.accumulate(np.where(begins, np.arange(len(times)), 0)), nows)

    def late_by(self, order: _Times, times: _Times) -> _Times:
        """Return the stream time that may make each row late, by its number and time."""
        return np.maximum(self.least[order], times)
