"""Recognises the queries with GROUP BY that can keep state, on Spark's analyzed plans.

Such a query has one Aggregate, or one Distinct, which groups by all columns. Below it, operators
work record by record; above it are only the SELECT and HAVING. Anything else is refused with the
reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streams.sql.distinct_plan import collecting
from streams.sql.origins import id_of, is_column, nodes_to_input, origin
from streams.sql.plan import (
    Step,
    alias,
    expressions,
    input_column,
    is_input,
    is_window,
    items,
    kind,
    refusal,
    require_lookup,
    require_narrow,
    require_one_input,
    seq,
    step_to_input,
    with_column,
)
from streams.sql.session_plan import is_session, session_of, with_order
from streams.sql.spec import QueryError
from streams.sql.state_shape import OPEN_FROM, Sessions, Window

TIME = "timestamp"
LAST_TIME = "__last_time"
"""A column with the time of the last record of a group, where `timestamp` is another time."""

_AFTER_GROUPS = ("Project", "Filter", "View", "SubqueryAlias", "ResolvedHint")
_GROUPING = ("Aggregate", "Distinct")
_BEFORE_GROUPS = ("Join", "Generate", "Expand", "MapInPandas", "MapInArrow")


@dataclass(frozen=True, slots=True)
class GroupedQuery:
    """An analyzed query with one Aggregate, whose output has a column `timestamp`.

    `window_id` is the id of the grouping column that `window` describes. Rows of a `Window` that
    starts before the `OPEN_FROM` of their record are left out. With `Sessions`, the last grouping
    column is the `ORDER` of records. `time_id` is the id of the `timestamp` of a group, if the
    query gives none, or else of its last record's time. `added` are columns that are not part of
    the result. `record_time_id` is the id of the `timestamp` of records. `has_key` says whether one
    of the grouping columns is the key of the records, and `is_distinct` that it is a SELECT
    DISTINCT.
    """

    plan: Any
    time_id: int | None
    added: Sequence[str]
    record_time_id: int
    window: Window | Sessions | None
    window_id: int | None
    has_key: bool
    is_distinct: bool


def grouped_query(analyzed: Any, rdd_id: int, max_collected: int, jvm: Any) -> GroupedQuery:
    """Return an analyzed query, with the time of the last record of a group if it gives no time.

    It gives an error for a group with more than `max_collected` values in a collection. Raises
    `QueryError` with the reason if no state can be kept for the query.
    """
    require_one_input(analyzed, rdd_id)
    above, aggregate = _way_to_aggregate(analyzed, rdd_id)
    is_distinct = kind(aggregate) == "Distinct"
    if is_distinct:
        aggregate = _as_aggregate(aggregate, jvm)
    child = items(aggregate.children())[0]
    _require_one_aggregate(child, rdd_id)
    require_narrow(child, rdd_id)
    grouping = items(aggregate.groupingExpressions())
    _require_groups(grouping)
    _require_functions(items(aggregate.aggregateExpressions()))
    aggregate = collecting(aggregate, max_collected, jvm)
    key, time = (id_of(input_column(analyzed, name, rdd_id)) for name in ("key", TIME))
    has_key = any(is_column(column, key, child, rdd_id) for column in grouping)
    windows = [column for column in grouping if _is_window(column) or is_session(column)]
    window = _window(windows[0], child, time, rdd_id, jvm) if windows else None
    has_time = any(column.name().lower() == TIME for column in items(analyzed.output()))
    if isinstance(window, Window):
        child = _with_open_windows(windows[0], child, rdd_id, jvm)
        aggregate = aggregate.withNewChildren(seq(jvm, [child]))
    elif window is not None:
        aggregate = with_order(aggregate, rdd_id, jvm)
    times = list[Any]()
    if not has_time:
        # A row that is given once has the time of its first record.
        function = "First" if is_distinct else "Max"
        aggregate, column = _with_time(aggregate, TIME, function, rdd_id, jvm)
        times.append(column)
    if isinstance(window, Window) and (has_time or is_distinct):
        aggregate, column = _with_time(aggregate, LAST_TIME, "Max", rdd_id, jvm)
        times.append(column)
    return GroupedQuery(
        plan=_over(above, aggregate, times, jvm),
        time_id=id_of(times[0]) if times else None,
        added=[LAST_TIME for column in times if column.name() == LAST_TIME],
        record_time_id=time,
        window=window,
        window_id=id_of(windows[0]) if windows else None,
        has_key=has_key,
        is_distinct=is_distinct,
    )


def _as_aggregate(distinct: Any, jvm: Any) -> Any:
    """Return an Aggregate by all columns for SELECT DISTINCT."""
    child = distinct.child()
    if any(map(is_session, items(child.output()))):
        raise QueryError("SELECT DISTINCT with session_window(…): use GROUP BY")
    make = jvm.org.apache.spark.sql.catalyst.plans.logical.Aggregate
    return make(child.output(), child.output(), child, jvm.scala.Option.empty())


def _way_to_aggregate(plan: Any, rdd_id: int) -> tuple[list[Step], Any]:
    """Return the operators above the one that groups, from the result down, and that one."""
    way = []
    while kind(plan) not in _GROUPING:
        if is_input(plan, rdd_id):
            raise QueryError("the query has no GROUP BY, so there is no state to keep")
        step = step_to_input(plan, rdd_id)
        assert step is not None, "the query reads input"
        if kind(plan) not in _AFTER_GROUPS:
            _require_follows(plan, rdd_id)
        way.append(step)
        plan = step.children[step.index]
    return way, plan


def _require_follows(plan: Any, rdd_id: int) -> None:
    """Raise the error for an operator that cannot follow GROUP BY, if it does at all."""
    if kind(plan) == "Join":
        require_lookup(plan, rdd_id)
    if kind(plan) not in _BEFORE_GROUPS:
        raise refusal(plan)
    if any(kind(node) in _GROUPING for node in nodes_to_input(plan, rdd_id)):
        raise QueryError(
            f"only SELECT and HAVING can follow GROUP BY ({kind(plan)}): put the rest into a "
            "processor after this one"
        )


def _require_one_aggregate(child: Any, rdd_id: int) -> None:
    for node in nodes_to_input(child, rdd_id):
        if kind(node) in (*_GROUPING, "Deduplicate"):
            raise QueryError(
                f"a second GROUP BY or DISTINCT below the first ({kind(node)}) needs results that "
                "change later: put the outer one into a processor after this one"
            )


def _require_groups(grouping: list[Any]) -> None:
    if not grouping:
        raise QueryError(
            "aggregates without GROUP BY would be those of a partition, not of the whole topic: "
            "add GROUP BY"
        )
    for column in grouping:
        type_ = str(column.dataType().json())
        if '"map"' in type_:
            raise QueryError(f"GROUP BY {column.sql()}: a map cannot be the key of a group")
        if "collat" in type_:
            raise QueryError(
                f"GROUP BY {column.sql()}: different bytes are equal under its collation, and "
                "groups are found by their bytes: use lower(…) or another function"
            )


def _require_functions(columns: list[Any]) -> None:
    for expression in expressions(columns):
        if kind(expression) == "PythonUDAF":
            raise QueryError(
                f"{expression.name()}: buffers of an aggregate function in Python cannot be "
                "merged: use Spark's functions, or a class with a store"
            )


def _is_window(column: Any) -> bool:
    return kind(column) == "AttributeReference" and is_window(column)


def _window(column: Any, child: Any, time_id: int, rdd_id: int, jvm: Any) -> Window | Sessions:
    """Return a window, from the expression that Spark's analysis made for it."""
    found = origin(column, child, rdd_id)
    if kind(found) != "CreateNamedStruct":
        name = "session_window" if is_session(column) else "window"
        raise QueryError(f"{column.name()}: write {name}(…) into GROUP BY itself, not into a CUBE")
    _require_record_time(items(found.children())[1], child, time_id, rdd_id)
    if is_session(column):
        return session_of(column, found, jvm)
    end = items(found.children())[3]
    add = _first(end, "Add")
    remainder = _first(end, "Remainder")
    return Window(
        column=str(column.name()),
        size_us=int(add.right().value()),
        slide_us=int(remainder.right().value()),
        start_us=int(remainder.left().right().value()),
    )


def _require_record_time(start: Any, child: Any, time_id: int, rdd_id: int) -> None:
    """Raise the error for a window whose start is not made of the `timestamp` of records."""
    for expression in expressions([start]):
        if kind(expression) != "PreciseTimestampConversion":
            continue
        time = expression.child()
        if "timestamp" not in str(time.dataType().catalogString()):
            continue  # from microseconds back to a time
        if kind(time) != "AttributeReference" or not is_column(time, time_id, child, rdd_id):
            raise QueryError(
                f"window(…) is over {time.sql()}: it must be over timestamp, the time of the "
                "record, which says what comes late and when windows close. Let a sql processor "
                f"before this one give {time.sql()} AS timestamp"
            )


def _with_open_windows(window: Any, child: Any, rdd_id: int, jvm: Any) -> Any:
    """Return the rows below an Aggregate without those for windows that have closed."""
    carried = with_column(child, OPEN_FROM, rdd_id, jvm)
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    start = expressions.GetStructField(window, 0, jvm.scala.Option.empty())
    is_open = expressions.GreaterThanOrEqual(start, input_column(child, OPEN_FROM, rdd_id))
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Filter(is_open, carried)


def _first(expression: Any, name: str) -> Any:
    """Return the outermost expression of a kind."""
    if kind(expression) == name:
        return expression
    for child in items(expression.children()):
        found = _first(child, name)
        if found is not None:
            return found
    return None


def _with_time(aggregate: Any, name: str, function: str, rdd_id: int, jvm: Any) -> tuple[Any, Any]:
    """Return an aggregate with the time of the first or last record of each group, and the column.

    `function` is First, the first one that was read, or Max.
    """
    child = with_column(items(aggregate.children())[0], TIME, rdd_id, jvm)
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    record_time = input_column(child, TIME, rdd_id)
    found = getattr(expressions.aggregate, function)
    made = found(record_time, False) if function == "First" else found(record_time)
    time = alias(made.toAggregateExpression(), name, jvm)
    columns = seq(jvm, [*items(aggregate.aggregateExpressions()), time])
    make = jvm.org.apache.spark.sql.catalyst.plans.logical.Aggregate
    with_time = make(aggregate.groupingExpressions(), columns, child, aggregate.hint())
    return with_time, time.toAttribute()


def _over(above: list[Step], aggregate: Any, added: list[Any], jvm: Any) -> Any:
    """Return operators over an aggregate; they pass the columns on that were added to it."""
    logical = jvm.org.apache.spark.sql.catalyst.plans.logical
    plan = aggregate
    for step in reversed(above):
        if kind(step.node) == "Project":
            columns = [*items(step.node.projectList()), *added]
            plan = logical.Project(seq(jvm, columns), plan)
        else:
            plan = step.over(plan, jvm)
    return plan
