"""The windows of queries, on Spark's analyzed plans.

Spark knows neither calendars nor what is late. A batch has hidden columns for both, which this
module brings to the operator that groups. Spark would also merge the sessions of a batch itself.
They are merged with those in a store here, and which of those are open depends on the order of the
records. So Spark gives a row for each group and time instead, with the `ORDER` of its records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_pipeline.common.pipelines.specs import CalendarSpec, SessionSpec, WindowSpec, WindowsSpec
from kafka_pipeline.streams.sql.catalyst import Catalyst
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.plan import (
    all_nodes,
    expressions,
    id_of,
    input_column,
    is_column,
    is_window,
    kind,
    origin,
    step_to_input,
    type_of,
    with_column,
)
from kafka_pipeline.streams.sql.spec import CALENDAR_WINDOW, QueryError
from kafka_pipeline.streams.sql.state_shape import OPEN_FROM, ORDER, PERIOD

_NOW = ("CurrentTimestamp", "Now", "LocalTimestamp")
_SESSION_MARK = "spark.sessionWindow"


def is_session(column: Any) -> bool:
    """Whether a grouping column is what `session_window(…)` gives."""
    return kind(column) == "AttributeReference" and _SESSION_MARK in str(column.metadata().json())


def window_of(
    column: Any, child: Any, time_id: int, rdd_id: int, make: Catalyst, calendar: Sequence[str]
) -> WindowsSpec:
    """Return a window, from the expression that Spark's analysis made for it."""
    found = origin(column, child, rdd_id)
    name = "session_window" if is_session(column) else CALENDAR_WINDOW if calendar else "window"
    if kind(found) != "CreateNamedStruct":
        raise QueryError(f"{column.name()}: write {name}(…) into GROUP BY itself, not into a CUBE")
    _require_record_time(name, items(found.children())[1], child, time_id, rdd_id)
    if is_session(column):
        return _sessions(found, make)
    if calendar:
        period, zone = calendar
        return CalendarSpec(period=period, zone=zone)
    end = items(found.children())[3]
    add, remainder = (
        next(each for each in expressions([end]) if kind(each) == name)
        for name in ("Add", "Remainder")
    )
    return WindowSpec(
        size_ms=_whole_ms(add.right().value()),
        slide_ms=_whole_ms(remainder.right().value()),
        start_ms=_whole_ms(remainder.left().right().value()),
    )


def require_one_window(analyzed: Any) -> None:
    """Raise `QueryError` if a plan makes windows in two places: one may be that of a table."""
    places = sum(
        any(map(_makes_window, items(node.projectList())))
        for node in all_nodes(analyzed)
        if kind(node) == "Project"
    )
    if places > 1:
        raise QueryError(
            f"a query with {CALENDAR_WINDOW}(…) may have windows in one place only: where it "
            "groups the records of its input. Put others into a processor before this one"
        )


def with_open_windows(window: Any, child: Any, rdd_id: int, make: Catalyst) -> Any:
    """Return the rows below an Aggregate without those for windows that have closed."""
    carried = with_column(child, OPEN_FROM, rdd_id, make)
    start, open_from = make.field(window, 0), input_column(child, OPEN_FROM, rdd_id)
    return make.filter(make.expressions.GreaterThanOrEqual(start, open_from), carried)


def with_periods(plan: Any, rdd_id: int, make: Catalyst) -> Any:
    """Return a plan, below the operator that groups, whose window is the `PERIOD` of a record."""
    if kind(plan) == "Project" and any(map(_makes_window, items(plan.projectList()))):
        child = with_column(items(plan.children())[0], PERIOD, rdd_id, make)
        period = input_column(child, PERIOD, rdd_id)
        columns = [
            make.alias(period, str(column.name()), column.exprId())
            if _makes_window(column)
            else column
            for column in items(plan.projectList())
        ]
        return make.project(columns, child)
    step = step_to_input(plan, rdd_id)
    assert step is not None, "a window is a column of the records"
    return step.over(with_periods(step.child, rdd_id, make), make)


def with_order(aggregate: Any, rdd_id: int, make: Catalyst) -> Any:
    """Return an aggregate by the `ORDER` of records too, which does not merge sessions."""
    child = with_column(items(aggregate.children())[0], ORDER, rdd_id, make)
    order = input_column(child, ORDER, rdd_id)
    grouping = items(aggregate.groupingExpressions())
    sessions = {id_of(column) for column in grouping if is_session(column)}
    unmarked = [
        _unmarked(column, sessions, make) if is_session(column) else column for column in grouping
    ]
    columns = items(aggregate.aggregateExpressions())
    child = _with_unmarked(child, sessions, rdd_id, make)
    return make.aggregate([*unmarked, order], columns, child, aggregate.hint())


def _with_unmarked(plan: Any, sessions: set[int], rdd_id: int, make: Catalyst) -> Any:
    """Return a plan whose columns with these ids have no mark.

    The mark is what makes Spark merge sessions. Its optimizer takes it from the operators below.
    """
    step = step_to_input(plan, rdd_id)
    if step is None:
        return plan
    child = _with_unmarked(step.child, sessions, rdd_id, make)
    if kind(plan) != "Project":
        return step.over(child, make)
    given = [_unmarked(column, sessions, make) for column in items(plan.projectList())]
    return make.project(given, child)


def _unmarked(column: Any, sessions: set[int], make: Catalyst) -> Any:
    if id_of(column) not in sessions:
        return column
    nothing = make.spark.types.Metadata.empty()
    if kind(column) != "Alias":
        return column.withMetadata(nothing)
    return make.alias(column.child(), column.name(), column.exprId(), nothing)


def _require_record_time(name: str, start: Any, child: Any, time_id: int, rdd_id: int) -> None:
    """Raise the error for a window whose start is not made of the `timestamp` of records."""
    of_records = set[int]()
    for expression in expressions([start]):
        if kind(expression) != "PreciseTimestampConversion":
            continue
        time = expression.child()
        is_column_of_plan = kind(time) == "AttributeReference"
        if is_column_of_plan and id_of(time) in of_records:
            continue
        if "timestamp" not in type_of(time):
            continue  # from microseconds back to a time
        if not is_column_of_plan or not is_column(time, time_id, child, rdd_id):
            raise QueryError(
                f"{name}(…) is over {time.sql()}: it must be over timestamp, the time of the "
                f"record, which says what comes late and when windows close. {_where_from(time)}"
            )
        of_records.add(id_of(time))


def _where_from(time: Any) -> str:
    """Say how the `timestamp` of records becomes another time."""
    if any(kind(each) in _NOW for each in expressions([time])):
        return "For the time at which records are read, the source says timestamp: wall_clock"
    return (
        "If that is a field of the records, the source names it: timestamp: {field: …}. Otherwise, "
        f"let a sql processor before this one give {time.sql()} AS timestamp"
    )


def _sessions(made: Any, make: Catalyst) -> SessionSpec:
    """Return the sessions of `session_window(…)`, from the struct that it makes.

    Raises `QueryError` if the gap is not a constant number of milliseconds above 0.
    """
    end = items(made.children())[3]
    gap = next(each.right() for each in expressions([end]) if kind(each) == "TimestampAddInterval")
    if not gap.foldable():
        raise QueryError("the gap of session_window(…) must be a constant, such as '5 minutes'")
    intervals = make.catalyst.util.IntervalUtils
    microseconds = make.jvm.java.util.concurrent.TimeUnit.MICROSECONDS
    # With months of 31 days and of none.
    gap_us, without_months_us = (
        int(intervals.getDuration(gap.eval(None), microseconds, days)) for days in (31, 0)
    )
    if gap_us != without_months_us:
        raise QueryError("the gap of session_window(…) has months, whose lengths differ: use days")
    if gap_us <= 0:
        raise QueryError("the gap of session_window(…) must be above 0")
    return SessionSpec(gap_ms=_whole_ms(gap_us))


def _whole_ms(time_us: int) -> int:
    """Return a time of a window in ms. Raises `QueryError` unless it is whole milliseconds."""
    if time_us % 1000:
        raise QueryError("the times of windows must be whole milliseconds")
    return int(time_us) // 1000


def _makes_window(column: Any) -> bool:
    """Whether a column of a SELECT is made by `window(…)`, and not passed on."""
    is_made = kind(column) == "Alias" and kind(column.child()) == "CreateNamedStruct"
    return is_made and is_window(column)
