"""The limit for timestamps ahead of the clock, and advice for wrong units.

A timestamp in microseconds, taken for milliseconds, is in the year 57868. It would move event time
there, and every record after it would be late, for good (SPARK-56243).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_pipeline.streams.errors import InvalidTimestampError
from kafka_pipeline.streams.record import items_of

_YEAR_2000_MS, _YEAR_2100_MS = 946_684_800_000, 4_102_444_800_000
_FINER = (("microseconds", 1000), ("nanoseconds", 1_000_000))


class TimeLimit:
    """The latest timestamp that records may have: `ahead_ms` after the wall clock.

    Timestamps up to `until_ms` are known to be right, since the clock only goes forward: comparing
    with it is all that most records cost. There is no limit if `ahead_ms` is `None`.
    """

    __slots__ = ("_ahead_ms", "_clock_ms", "checked", "until_ms")

    def __init__(self, clock_ms: Callable[[], int], ahead_ms: int | None) -> None:
        self._clock_ms = clock_ms
        self._ahead_ms = ahead_ms
        self.until_ms = 2**63 if ahead_ms is None else clock_ms() + ahead_ms
        self.checked: object = None
        """The column of timestamps that is known to be right."""

    def require_column(self, what: str, timestamps: Sequence[int]) -> None:
        """Do as `require` for a column, unless it is `checked`. Takes about 10 ns per item."""
        if timestamps is self.checked or self._ahead_ms is None:
            return
        try:
            items = timestamps if timestamps.__class__ is list else items_of(timestamps)
            latest = max(items, default=0)
            is_right = latest <= self.until_ms
        except TypeError:
            # A sink says what is wrong with the type of a timestamp.
            return
        if not is_right:
            self.require(what, latest)
        self.checked = timestamps

    def require(self, what: str, timestamp: int) -> None:
        """Raise `InvalidTimestampError` if a timestamp is too late; `what` has it.

        Call this if it is after `until_ms`.
        """
        if self._ahead_ms is None:
            return
        self.until_ms = self._clock_ms() + self._ahead_ms
        if timestamp > self.until_ms:
            why = (
                f"more than {self._ahead_ms} ms ahead of the clock (max_timestamp_ahead_ms in "
                f"config.yaml){unit_advice(timestamp)}"
            )
            raise InvalidTimestampError(
                f"{what} has the timestamp {timestamp}, which is {why}",
                shown=f"{what} has a timestamp that is {why}",
            )


def unit_advice(timestamp: int) -> str:
    """Return in which unit a timestamp seems to be, as a clause; "" if that is milliseconds."""
    found = [unit for unit, factor in _FINER if _is_plausible(timestamp // factor)]
    if _is_plausible(timestamp * 1000):
        found.append("seconds")
    return f"; it looks like {found[0]}, and must be in milliseconds" if found else ""


def _is_plausible(time_ms: int) -> bool:
    return _YEAR_2000_MS <= time_ms < _YEAR_2100_MS
