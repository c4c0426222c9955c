"""Draws windows: as functions, as table functions, and those of calendars."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.random_sql.expressions import Expression
from tests.random_sql.queries import Window
from tests.random_sql.sources import Source

GRACE_MIN = 60
_WINDOWS = (
    "window({time}, '1 hour')",
    "window({time}, '10 minutes')",
    "window({time}, '1 day')",
    "window({time}, '1 hour', '20 minutes')",
    "window({time}, '1 hour', '20 minutes', '5 minutes')",
    "window({time}, '1 hour', '1 hour', '15 minutes')",
)
_SESSION = "session_window({time}, '9 minutes')"
_ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC")
CALENDAR = "__calendar"
"""A column of the judge's input: the period of a calendar, in place of what Spark does not have."""


def window(chance: random.Random, source: Source, *, sessions: bool = False) -> Window:
    """Return a window over the time of the records."""
    time = f"{source.prefix}timestamp"
    if sessions and chance.random() < 0.25:
        sql = _SESSION.format(time=time)
        return Window(sql, "session_window.start", "session_window.end", is_session=True)
    if not source.prefix and chance.random() < 0.25:
        return _calendar(chance)
    return Window(chance.choice(_WINDOWS).format(time=time))


def window_of_changes(chance: random.Random, source: Source) -> Window | None:
    """Return a window over the time of upserts, in some cases."""
    time = f"{source.prefix}timestamp"
    return Window(chance.choice(_WINDOWS).format(time=time)) if chance.random() < 0.3 else None


def _calendar(chance: random.Random) -> Window:
    period, zone = chance.choice(("day", "week", "month")), chance.choice(_ZONES)
    sql = f"calendar_window(timestamp, '1 {period}', '{zone}')"
    judged = ((sql, CALENDAR), *((f"window.{each}", f"{CALENDAR}.{each}") for each in _SIDES))
    return Window(sql, judged=judged)


_SIDES = ("start", "end")


def calendar_of(query_window: Window | None) -> str:
    """Return the expression for `CALENDAR`, or nothing if the window is another one."""
    if query_window is None or not query_window.sql.startswith("calendar_window"):
        return ""
    _, period, _, zone, _ = query_window.sql.split("'")
    unit = period.removeprefix("1 ")
    start = f"date_trunc('{unit}', from_utc_timestamp(timestamp, '{zone}'))"
    end = f"{start} + INTERVAL 1 {unit}"
    bounds = zip(_SIDES, (start, end), strict=True)
    # The first period begins in 1970.
    parts = ", ".join(
        f"'{side}', greatest(to_utc_timestamp({at}, '{zone}'), timestamp_millis(0))"
        for side, at in bounds
    )
    return f"named_struct({parts})"


def table_function(chance: random.Random, source: Source, groups: Sequence[Expression]) -> Window:
    """Return a window that a function in FROM gives; the source then reads that function."""
    kind = chance.choice(("TUMBLE", "HOP", "SESSION"))
    time = "DESCRIPTOR(timestamp)"
    by = "window_start, window_end"
    if kind == "SESSION":
        columns = ", ".join(each.sql for each in groups)
        columns = f"({columns})" if len(groups) > 1 else columns
        call = f"SESSION(TABLE input PARTITION BY {columns}, {time}, INTERVAL '9' MINUTES)"
        judged = [(by, "session_window(timestamp, '9 minutes')")]
        judged += [(f"window_{each}", f"session_window.{each}") for each in _SIDES]
        source.sql, source.nesting = f"TABLE({call})", ""  # GROUP BY makes its windows
        judged.append((source.sql, "input"))
        return Window(by, "window_start", "window_end", is_session=True, judged=tuple(judged))
    call, spark = chance.choice(
        (
            ("TUMBLE(TABLE input, {0}, INTERVAL '10' MINUTES)", "'10 minutes'"),
            (
                "TUMBLE(DATA => TABLE input, TIMECOL => {0}, SIZE => INTERVAL '1' HOUR)",
                "'1 hour'",
            ),
            (
                "TUMBLE(TABLE input, {0}, INTERVAL '1' HOUR, INTERVAL '15' MINUTES)",
                "'1 hour', '1 hour', '15 minutes'",
            ),
        )
        if kind == "TUMBLE"
        else (
            ("HOP(TABLE input, {0}, INTERVAL '20' MINUTES, INTERVAL '1' HOUR)", _HOP),
            (
                "HOP(TABLE input, {0}, INTERVAL '20' MINUTES, INTERVAL '1' HOUR, INTERVAL '5' "
                "MINUTES)",
                f"{_HOP}, '5 minutes'",
            ),
        )
    )
    source.sql = f"TABLE({call.format(time)})"
    columns = "*, w.start AS window_start, w.end AS window_end"
    instead = f"(SELECT {columns} FROM (SELECT *, window(timestamp, {spark}) AS w FROM input))"
    return Window(by, "window_start", "window_end", judged=((source.sql, instead),))


_HOP = "'1 hour', '20 minutes'"
