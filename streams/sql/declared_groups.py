"""Compares the groups that Spark finds in a query with those that pipeline.yaml declares.

The JobManager has no Spark. It takes the groups from the text of a query, or from the key
`group_by` of a function.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from kafka_pipeline.common.config.durations import spoken
from kafka_pipeline.common.pipelines.specs import (
    CalendarSpec,
    GroupingSpec,
    SessionSpec,
    WindowSpec,
    WindowsSpec,
)
from kafka_pipeline.streams.sql.spec import CALENDAR_WINDOW, QueryError
from kafka_pipeline.streams.sql.state_shape import StateShape


def require_as_planned(shape: StateShape, grouping: GroupingSpec, function: str = "") -> None:
    """Raise `QueryError` if Spark finds other groups than pipeline.yaml declares.

    The query is a `function` of a DataFrame, or the text of a query.
    """
    if function:
        _require_as_in_keys(shape, grouping, function)
    else:
        _require_as_in_text(shape, grouping)
    # Results that follow updates come with them only.
    otherwise = "" if shape.row_count else ", or use emit: on_close"
    if grouping.emit == "on_update" and shape.loses_rows and shape.ranked == "row_number":
        raise QueryError(
            "a row may move to another place, and the result with its former key must be replaced "
            "then: give a key that is made of all columns of PARTITION BY and of the place, or of "
            f"others that name the row{otherwise}"
        )
    if grouping.emit == "on_update" and shape.loses_rows and shape.ranked:
        raise QueryError(
            f"a row may lose its place to a better one, and its key must be deleted then; and rows "
            f"that tie have one place in {shape.ranked}(), so the place does not tell them apart: "
            "give a key that is made of all columns of PARTITION BY, and of others that name the "
            f"row{otherwise}"
        )
    if grouping.emit == "on_update" and shape.loses_rows and shape.row_count:
        raise QueryError(
            "over updates, a place may have a row at first and none later, and its key must be "
            "deleted then: give a key that is made of the columns of PARTITION BY and of the place"
        )
    if grouping.emit == "on_update" and shape.loses_rows:
        raise QueryError(
            "WHERE leaves out rows by columns that are not in PARTITION BY. So a place may have a "
            "row at first and none later, and its key must be deleted then: give a key that is "
            "made of the columns of PARTITION BY and of the place, use emit: on_close, or put the "
            "condition below row_number() or into a processor after this one"
        )


def undeclared(function: str, window: WindowsSpec | None, *, has_key: bool) -> QueryError:
    """Return the error for a function that groups records without a key `group_by`."""
    wanted = _group_by(window, has_key=has_key)
    return QueryError(f"{function} groups records, and pipeline.yaml does not say so: add {wanted}")


def _require_as_in_keys(shape: StateShape, grouping: GroupingSpec, function: str) -> None:
    found, has_key = _started_in_time(shape.window), grouping.stage == "whole"
    if found != grouping.window or shape.has_key != has_key:
        raise QueryError(
            f"{function} groups records by something else than pipeline.yaml says, which is "
            f"{_group_by(grouping.window, has_key=has_key)}: write "
            f"{_group_by(found, has_key=shape.has_key)}"
        )


def _started_in_time(window: WindowsSpec | None) -> WindowsSpec | None:
    """Return a window with its start below one slide, as pipeline.yaml declares it."""
    if not isinstance(window, WindowSpec):
        return window
    return structs.replace(window, start_ms=window.start_ms % window.slide_ms)


def _group_by(window: WindowsSpec | None, *, has_key: bool) -> str:
    """Return the key `group_by` as it is in pipeline.yaml; functions have no calendars."""
    parts = ["key: true"] if has_key else []
    match _started_in_time(window):
        case WindowSpec(size_ms=size_ms, slide_ms=slide_ms, start_ms=start_ms):
            parts.append(f"window: {spoken(size_ms)}")
            if slide_ms != size_ms:
                parts.append(f"slide: {spoken(slide_ms)}")
            if start_ms:
                parts.append(f"offset: {spoken(start_ms)}")
        case SessionSpec(gap_ms=gap_ms):
            parts.append(f"session: {spoken(gap_ms)}")
    return f"group_by: {{{', '.join(parts)}}}"


def _require_as_in_text(shape: StateShape, grouping: GroupingSpec) -> None:
    if shape.readings and not grouping.keeps_values:
        raise QueryError(
            "the text does not show that a function needs the values of all rows, which are kept "
            "over updates: write it by its usual name, such as stddev, collect_list or max"
        )
    found, wanted = shape.window, grouping.window
    name = _FUNCTIONS[type(wanted or found)]
    if type(found) is not type(wanted):
        raise QueryError(
            f"{name} must be one of the columns of GROUP BY, PARTITION BY or SELECT DISTINCT"
        )
    if found is not None and found != wanted:
        spec: Any = found
        times = ", ".join(f"{part} {value}" for part, value in structs.asdict(spec).items())
        raise QueryError(f"for Spark, the times of {name} are {times}: write them as text")
    if grouping.stage == "whole" and not shape.has_key:
        raise QueryError(
            "GROUP BY or PARTITION BY has a column key that is not the key of the records: give it "
            "another name"
        )


_FUNCTIONS = {
    WindowSpec: "window(…)",
    CalendarSpec: f"{CALENDAR_WINDOW}(…)",
    SessionSpec: "session_window(…)",
    type(None): "",
}
"""The functions that give windows."""
