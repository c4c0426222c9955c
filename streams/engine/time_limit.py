"""How far the timestamps of records may be ahead of the clock, and what is said of wrong ones.

A timestamp in microseconds, taken for milliseconds, is in the year 57868. It would move event time
there, and every record after it would be late, for good (SPARK-56243).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streams.errors import InvalidTimestampError

_YEAR_2000_MS = 946_684_800_000
_DAY_MS = 86_400_000
_FINER = (("microseconds", 1000), ("nanoseconds", 1_000_000))


class TimeLimit:
    """The latest timestamp that records may have: `ahead_ms` after the wall clock.

    Timestamps up to `until_ms` are known to be right, since the clock only goes forward: comparing
    with it is all that most records cost. Without a limit, all are.
    """

    __slots__ = ("_ahead_ms", "_clock_ms", "until_ms")

    def __init__(self, clock_ms: Callable[[], int], ahead_ms: int | None) -> None:
        """There is no limit if `ahead_ms` is `None`."""
        self._clock_ms = clock_ms
        self._ahead_ms = ahead_ms
        self.until_ms = 2**63 if ahead_ms is None else clock_ms() + ahead_ms

    def require(self, what: str, timestamps: Sequence[int]) -> None:
        """Raise `InvalidTimestampError` if one of them is too late; `what` has them.

        Call this if one of them is after `until_ms`.
        """
        if self._ahead_ms is None:
            return
        now_ms = self._clock_ms()
        self.until_ms = now_ms + self._ahead_ms
        latest = max(timestamps)
        if latest > self.until_ms:
            why = (
                f"more than {self._ahead_ms} ms ahead of the clock (max_timestamp_ahead_ms in "
                f"config.yaml){unit_advice(latest, now_ms)}"
            )
            raise InvalidTimestampError(
                f"{what} has the timestamp {latest}, which is {why}",
                shown=f"{what} has a timestamp that is {why}",
            )


def unit_advice(timestamp: int, now_ms: int) -> str:
    """Return in which unit a timestamp seems to be, as a clause; "" if that is milliseconds."""
    found = [unit for unit, factor in _FINER if _is_plausible(timestamp // factor, now_ms)]
    if _is_plausible(timestamp * 1000, now_ms):
        found.append("seconds")
    return f"; it looks like {found[0]}, and must be in milliseconds" if found else ""


def _is_plausible(time_ms: int, now_ms: int) -> bool:
    return _YEAR_2000_MS <= time_ms <= now_ms + _DAY_MS
