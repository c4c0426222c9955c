"""Periods of a time zone, compared with a walk along the clock of the zone."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from kafka_pipeline.common.calendars import Calendar

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def shown(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M}"


def name(day: date, period: str) -> tuple[int, ...]:
    """Return what the periods of a calendar are called."""
    match period:
        case "1 day":
            return (day.toordinal(),)
        case "1 week":
            return tuple(day.isocalendar())[:2]
    return day.year, day.month


def walked(time_ms: int, period: str, zone: str) -> tuple[int, int]:
    """Return the span of the period, found minute by minute."""
    at = ZoneInfo(zone)

    def name_at(minute: int) -> tuple[int, ...]:
        return name(datetime.fromtimestamp(minute * 60, at).date(), period)

    first = last = time_ms // MINUTE_MS
    here = name_at(first)
    while first and name_at(first - 1) == here:
        first -= 1
    while name_at(last) == here:
        last += 1
    return first * MINUTE_MS, last * MINUTE_MS


@pytest.mark.parametrize(
    ("zone", "period", "time", "start", "hours"),
    [
        ("Europe/Berlin", "1 day", "2024-03-31 12:00", "2024-03-30 23:00", 23),
        ("Europe/Berlin", "1 day", "2024-10-27 00:59", "2024-10-26 22:00", 25),
        ("Europe/Berlin", "1 day", "2024-10-27 01:00", "2024-10-26 22:00", 25),
        ("Europe/Berlin", "1 day", "2024-10-27 23:00", "2024-10-27 23:00", 24),
        ("Europe/Berlin", "1 week", "2024-10-27 12:00", "2024-10-20 22:00", 169),
        ("Europe/Berlin", "1 month", "2024-10-27 12:00", "2024-09-30 22:00", 745),
        # Clocks skip midnight.
        ("America/Sao_Paulo", "1 day", "2018-11-04 12:00", "2018-11-04 03:00", 23),
        ("Asia/Beirut", "1 day", "2024-03-31 12:00", "2024-03-30 22:00", 23),
        # Clocks go back to midnight, and to the day before, in St. John's at 00:01.
        ("America/Havana", "1 day", "2024-11-03 05:30", "2024-11-03 04:00", 25),
        ("Asia/Beirut", "1 day", "2023-10-28 21:30", "2023-10-27 21:00", 25),
        ("America/Sao_Paulo", "1 day", "2018-02-18 02:30", "2018-02-17 02:00", 25),
        ("America/St_Johns", "1 day", "2010-11-07 02:45", "2010-11-07 02:30", 25),
        ("America/St_Johns", "1 day", "2010-11-07 02:15", "2010-11-06 02:30", 24),
        # The 30th was left out.
        ("Pacific/Apia", "1 day", "2011-12-30 09:59", "2011-12-29 10:00", 24),
        ("Pacific/Apia", "1 day", "2011-12-30 10:00", "2011-12-30 10:00", 24),
        ("Pacific/Apia", "1 month", "2011-12-15 10:00", "2011-12-01 10:00", 720),
        ("Asia/Kolkata", "1 day", "2024-07-01 18:30", "2024-07-01 18:30", 24),
        ("Australia/Lord_Howe", "1 day", "2024-04-06 23:00", "2024-04-06 13:00", 24.5),
        # Nothing begins before 1970, which begins on a Thursday.
        ("Europe/Berlin", "1 day", "1970-01-01 00:00", "1970-01-01 00:00", 23),
        ("UTC", "1 week", "1970-01-01 00:00", "1970-01-01 00:00", 96),
    ],
)
def test_periods_begin_with_the_clock_of_the_zone(
    zone: str, period: str, time: str, start: str, hours: float
) -> None:
    found, end = Calendar(period, zone).span(ms(time))
    assert (shown(found), (end - found) / HOUR_MS) == (start, hours)


@pytest.mark.parametrize(("period", "samples"), [("1 day", 60), ("1 week", 10), ("1 month", 3)])
@pytest.mark.parametrize(
    "zone",
    [
        "UTC",
        "Europe/Berlin",
        "America/Sao_Paulo",
        "Asia/Beirut",
        "Asia/Kolkata",
        "Asia/Kathmandu",
        "Australia/Lord_Howe",
        "America/Havana",
        "Africa/Casablanca",
        "Pacific/Apia",
        "Pacific/Kwajalein",
        "Antarctica/Troll",
    ],
)
def test_periods_are_those_of_a_walk_along_the_clock(zone: str, period: str, samples: int) -> None:
    chance = random.Random(f"{zone} {period}")
    calendar = Calendar(period, zone)
    for _ in range(samples):
        time = chance.randrange(ms("1973-01-01"), ms("2035-01-01"))
        assert calendar.span(time) == walked(time, period, zone), shown(time)


@pytest.mark.parametrize("period", ["1 day", "1 week", "1 month"])
@pytest.mark.parametrize("zone", ["America/St_Johns", "Pacific/Apia", "America/Sao_Paulo"])
def test_periods_follow_one_another_without_gap_or_overlap(zone: str, period: str) -> None:
    calendar = Calendar(period, zone)
    start = 0
    while start < ms("2035-01-01"):
        found, end = calendar.span(start)
        assert found == start
        assert calendar.span(end - 1) == (start, end)
        assert 0 < end - start < calendar.longest_ms
        start = end


def test_times_after_the_year_9999_have_periods_too() -> None:
    calendar = Calendar("1 week", "Europe/Berlin")
    for time in (2**62, 2**63 - 1):
        start, end = calendar.span(time)
        assert start <= time < end
        assert end - start in (167 * HOUR_MS, 168 * HOUR_MS, 169 * HOUR_MS)


@pytest.mark.parametrize(
    ("period", "zone", "problem"),
    [
        ("1 dya", "UTC", '"1 dya" is not a period: write "1 day", "1 week" or "1 month"'),
        ("2 days", "UTC", '"2 days" is not a period'),
        ("1 day", "Europe/Berln", '"Europe/Berln" is not a time zone, did you mean "Europe/Berl'),
        ("1 day", "+02:00", '"\\+02:00" is not a time zone'),
    ],
)
def test_unknown_periods_and_zones_are_refused(period: str, zone: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Calendar(period, zone)
