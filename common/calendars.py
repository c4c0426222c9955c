"""Days, weeks and months in a time zone, as ranges of ms since the epoch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from kafka_pipeline.common.suggest import one_of
from kafka_pipeline.common.zones import zone_named

_DAY_MS = 86_400_000
# The calendar and the zones' rules repeat after 400 years, a whole number of weeks. `datetime` ends
# with the year 9999, so later times are looked up some cycles earlier.
_CYCLE_MS = 146_097 * _DAY_MS
_LAST_MS = 221_845_392_000_000
_KEPT = 4096


@dataclass(frozen=True, slots=True)
class _Period:
    """A unit of the calendar, whose periods are numbered without gaps."""

    number: Callable[[date], int]
    first_day: Callable[[int], date]
    most_days: int


_PERIODS: Mapping[str, _Period] = {
    "1 day": _Period(date.toordinal, date.fromordinal, 1),
    # The first day of the year 1 is a Monday, with the ordinal 1.
    "1 week": _Period(
        lambda day: (day.toordinal() - 1) // 7, lambda number: date.fromordinal(7 * number + 1), 7
    ),
    "1 month": _Period(
        lambda day: 12 * day.year + day.month - 1,
        lambda number: date(number // 12, number % 12 + 1, 1),
        31,
    ),
}


@dataclass(frozen=True, slots=True)
class Calendar:
    """Consecutive periods in a zone: `1 day`, `1 week` from Monday, or `1 month`.

    A period begins with the first moment of its first day: later than midnight where clocks skip
    midnight, and at the first of two midnights where they go back. No period begins before 1970.
    """

    period: str
    zone: str

    def __post_init__(self) -> None:
        """Raise ValueError, with a message for the user, if the period or the zone is unknown."""
        for given in (self.period, self.zone):
            if not isinstance(given, str):
                raise ValueError(f"{given!r} is not a string")
        if self.period not in _PERIODS:
            raise ValueError(f'"{self.period}" is not a period: write {one_of(_PERIODS)}')
        zone_named(self.zone)

    @property
    def longest_ms(self) -> int:
        """An upper bound of a period's length: no zone repeats more than a day."""
        return (_PERIODS[self.period].most_days + 1) * _DAY_MS

    def span(self, time_ms: int) -> tuple[int, int]:
        """Return the start and the end of the period that contains a time; the end is exclusive.

        Times before 1970 are in the first period.
        """
        time_ms = max(0, time_ms)
        later_ms = max(0, (time_ms - _LAST_MS) // _CYCLE_MS + 1) * _CYCLE_MS
        time_ms -= later_ms
        day = datetime.fromtimestamp(time_ms // 1000, _zone(self.zone)).date()
        number = _PERIODS[self.period].number(day)
        end_ms = _start_ms(self.period, self.zone, number + 1)
        if time_ms >= end_ms:
            # Clocks went back over midnight, so the next day has begun already.
            number += 1
            end_ms = _start_ms(self.period, self.zone, number + 1)
        start_ms = _start_ms(self.period, self.zone, number)
        return max(0, start_ms) + later_ms, end_ms + later_ms


_zone = lru_cache(zone_named)


@lru_cache(_KEPT)
def _start_ms(period: str, zone: str, number: int) -> int:
    return 1000 * _first_second(_PERIODS[period].first_day(number), _zone(zone))


def _first_second(day: date, zone: ZoneInfo) -> int:
    """Return the first second of this day, or of the next one if the zone skips this day."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    found = int(midnight.timestamp())
    before = int(midnight.replace(fold=1).timestamp())
    if before >= found:
        return found  # midnight exists, once or twice
    return before + bisect_left(
        range(before, found), day, key=lambda at: datetime.fromtimestamp(at, zone).date()
    )
