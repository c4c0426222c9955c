"""Compares the groups that Spark finds in a query with those that pipeline.yaml says it has.

The JobManager has no Spark. It takes the groups from the text of a query, or from the key
`group_by` of a function.
"""

from __future__ import annotations

from kafka_pipeline.common.durations import spoken
from kafka_pipeline.common.specs import (
    CalendarSpec,
    GroupingSpec,
    SessionSpec,
    WindowSpec,
    WindowsSpec,
)
from kafka_pipeline.streams.sql.spec import CALENDAR_WINDOW, QueryError
from kafka_pipeline.streams.sql.state_shape import AnyWindow, Periods, Sessions, StateShape, Window


def require_as_planned(shape: StateShape, grouping: GroupingSpec, function: str = "") -> None:
    """Raise `QueryError` if Spark finds other groups than pipeline.yaml says.

    The query is a `function` of a DataFrame, or the text of a query.
    """
    if function:
        _require_as_in_keys(shape, grouping, function)
    else:
        _require_as_in_text(shape, grouping)
    if grouping.emit == "on_update" and shape.loses_rows:
        raise QueryError(
            "WHERE leaves out rows by columns that are not in PARTITION BY. So a place may have a "
            "row at first and none later, and its key must be deleted then: give a key that is "
            "made of the columns of PARTITION BY and of the place, use emit: on_close, or put the "
            "condition below row_number() or into a processor after this one"
        )


def undeclared(function: str, window: AnyWindow | None, *, has_key: bool) -> QueryError:
    """Return the error for a function that groups records without a key `group_by`."""
    wanted = _group_by(_planned(window), has_key=has_key)
    return QueryError(f"{function} groups records, and pipeline.yaml does not say so: add {wanted}")


def _require_as_in_keys(shape: StateShape, grouping: GroupingSpec, function: str) -> None:
    found, has_key = _planned(shape.window), grouping.stage == "whole"
    if found != grouping.window or shape.has_key != has_key:
        raise QueryError(
            f"{function} groups records by something else than pipeline.yaml says, which is "
            f"{_group_by(grouping.window, has_key=has_key)}: write "
            f"{_group_by(found, has_key=shape.has_key)}"
        )


def _planned(window: AnyWindow | None) -> WindowSpec | SessionSpec | None:
    """Return a window of Spark as pipeline.yaml says it; functions have none of calendars."""
    match window:
        case Window():
            # Windows are the same if they begin a slide earlier or later.
            start_us = window.start_us % window.slide_us
            times = [_whole(time) for time in (window.size_us, window.slide_us, start_us)]
            return WindowSpec(size_ms=times[0], slide_ms=times[1], start_ms=times[2])
        case Sessions():
            if window.gap_us <= 0:
                raise QueryError("the gap of session_window(…) must be above 0")
            return SessionSpec(gap_ms=_whole(window.gap_us))
    return None


def _whole(time_us: int) -> int:
    if time_us % 1000:
        raise QueryError("the times of windows must be whole milliseconds")
    return time_us // 1000


def _group_by(window: WindowsSpec | None, *, has_key: bool) -> str:
    """Return the key `group_by` as it is in pipeline.yaml."""
    parts = ["key: true"] if has_key else []
    match window:
        case WindowSpec():
            parts.append(f"window: {spoken(window.size_ms)}")
            if window.slide_ms != window.size_ms:
                parts.append(f"slide: {spoken(window.slide_ms)}")
            if window.start_ms:
                parts.append(f"offset: {spoken(window.start_ms)}")
        case SessionSpec():
            parts.append(f"session: {spoken(window.gap_ms)}")
    return f"group_by: {{{', '.join(parts)}}}"


def _require_as_in_text(shape: StateShape, grouping: GroupingSpec) -> None:
    found, wanted = shape.window, grouping.window
    if _function(found) != _function(wanted):
        name = _function(wanted) or _function(found)
        raise QueryError(
            f"{name} must be one of the columns of GROUP BY, PARTITION BY or SELECT DISTINCT"
        )
    if isinstance(found, Sessions) and isinstance(wanted, SessionSpec):
        if found.gap_us != 1000 * wanted.gap_ms:
            raise QueryError(f"the gap of session_window(…) is {found.gap_us} µs for Spark")
    elif isinstance(found, Window) and isinstance(wanted, WindowSpec):
        times = (found.size_us, found.slide_us, found.start_us)
        if times != tuple(1000 * ms for ms in (wanted.size_ms, wanted.slide_ms, wanted.start_ms)):
            raise QueryError(f"the times of window(…) are {times} µs for Spark: write them as text")
    if grouping.stage == "whole" and not shape.has_key:
        raise QueryError(
            "GROUP BY or PARTITION BY has a column key that is not the key of the records: give it "
            "another name"
        )


def _function(window: AnyWindow | WindowsSpec | None) -> str:
    """Return the name of the function that gives a window; "" without one."""
    match window:
        case None:
            return ""
        case Periods() | CalendarSpec():
            return f"{CALENDAR_WINDOW}(…)"
        case Sessions() | SessionSpec():
            return "session_window(…)"
    return "window(…)"
