"""What the text of a query says about its groups, without Spark.

The JobManager has no Spark, but must know which stores and topics a query needs. So the text is
looked at here: whether it groups records, by which windows, and whether the key is a grouping
column. When Spark has analyzed the query, each task checks that this is so, and refuses the query
if not. A mistake here can therefore not make a wrong result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_pipeline.common.calendars import Calendar
from kafka_pipeline.common.specs import CalendarSpec, SessionSpec, WindowSpec
from kafka_pipeline.streams.sql.spec import CALENDAR_WINDOW, NO_NUMBERED_SESSIONS, QueryError

if TYPE_CHECKING:
    from kafka_pipeline.streams.sql.query_tree import Time

_MAY_GROUP = re.compile(
    rf"group\s*(by|--|/\*)|distinct|(row_number|rank)`?\s*\(|{CALENDAR_WINDOW}", re.IGNORECASE
)
_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*([+-]?\d+)\s+([a-z]+)\s*")
_HOW = "write its times as text, such as window(timestamp, '1 hour')"


@dataclass(frozen=True, slots=True)
class GroupBy:
    """What records are grouped by: `has_key` if their key is one of the grouping `columns`.

    `is_numbered` says that it is the PARTITION BY of `row_number()`.
    """

    window: WindowSpec | CalendarSpec | SessionSpec | None
    has_key: bool
    columns: Sequence[str] = field(default=(), compare=False)
    is_numbered: bool = False


def read_groups(query: str, tables: Collection[str] = ()) -> GroupBy | None:
    """Return what a query groups its records by; `None` if it does not group them.

    `tables` are the names of its lookup tables. Whatever else it reads are its inputs.

    Raises `QueryError` for windows that it cannot read, or that are not possible. Also raises it
    for a text that cannot be read at all, if it has GROUP BY, DISTINCT or `row_number()`.
    """
    if not _MAY_GROUP.search(query):
        return None
    from kafka_pipeline.streams.sql.query_tree import find_groups

    groups = find_groups(query, tables)
    if groups is None:
        return None
    windows: set[WindowSpec | CalendarSpec | SessionSpec] = {
        *map(_window, groups.windows),
        *map(_calendar, groups.calendars),
        *map(_session, groups.sessions),
    }
    if len(windows) > 1:
        raise QueryError(
            "the query has two different windows: put one of them into a processor after this one"
        )
    if groups.is_numbered and groups.sessions:
        raise QueryError(NO_NUMBERED_SESSIONS)
    window = next(iter(windows), None)
    return GroupBy(window, groups.has_key, groups.columns, groups.is_numbered)


def _window(times: Sequence[Time]) -> WindowSpec:
    if not 1 <= len(times) <= 3:
        raise QueryError(f"window(…) takes a time and a duration: {_HOW}")
    size, slide, start = ([_milliseconds(time) for time in times] + [None, None])[:3]
    assert size is not None
    slide, start = size if slide is None else slide, start or 0
    if not 0 < slide <= size or abs(start) >= slide:
        raise QueryError(
            "window(…) needs a duration above 0, a slide of up to the duration, and a start below "
            "the slide"
        )
    return WindowSpec(size_ms=size, slide_ms=slide, start_ms=start)


def _calendar(arguments: Sequence[Time]) -> CalendarSpec:
    match arguments:
        case [str(period), str(zone)]:
            try:
                Calendar(period, zone)
            except ValueError as error:
                raise QueryError(f"{CALENDAR_WINDOW}(…): {error}") from None
            return CalendarSpec(period=period, zone=zone)
    raise QueryError(
        f"{CALENDAR_WINDOW}(…) takes timestamp, and a period and a zone as text: write "
        f"{CALENDAR_WINDOW}(timestamp, '1 day', 'Europe/Berlin')"
    )


def _session(times: Sequence[Time]) -> SessionSpec:
    gap = microseconds(times[0]) if len(times) == 1 and isinstance(times[0], str) else None
    if gap is None:
        raise QueryError(
            "the gap of session_window(…) cannot be read: write it as text, such as "
            "session_window(timestamp, '5 minutes')"
        )
    if gap <= 0 or gap % 1000:
        raise QueryError("the gap of session_window(…) must be whole milliseconds, 1 or more")
    return SessionSpec(gap_ms=gap // 1000)


def _milliseconds(time: Time) -> int:
    found = microseconds(time) if isinstance(time, str) else time
    if found is None:
        raise QueryError(f"the times of window(…) cannot be read: {_HOW}")
    if found % 1000:
        raise QueryError("the times of window(…) must be whole milliseconds")
    return found // 1000


def microseconds(text: str) -> int | None:
    """Return how long an interval such as `1 hour 30 minutes` is; `None` if it cannot be read."""
    text, total = text.strip().lower().removeprefix("interval "), 0
    while text:
        found = _PART.match(text)
        unit = found[2].removesuffix("s") if found else ""
        if found is None or unit not in _UNITS_US:
            return None
        total += int(found[1]) * _UNITS_US[unit]
        text = text[found.end() :]
    return total
