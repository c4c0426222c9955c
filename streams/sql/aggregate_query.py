"""Recognises the queries with GROUP BY that can keep state, on Spark's analyzed plans.

Such a query has one Aggregate. Below it, operators work record by record; above it are only the
SELECT and HAVING. Anything else is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streams.sql.plan import (
    Step,
    alias,
    input_time,
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
    with_timestamp,
)
from streams.sql.spec import QueryError

TIME = "timestamp"
_AFTER_GROUPS = ("Project", "Filter", "View", "SubqueryAlias", "ResolvedHint")
_SESSION_MARK = "spark.sessionWindow"
_BEFORE_GROUPS = ("Join", "Generate", "Expand", "MapInPandas", "MapInArrow")


@dataclass(frozen=True, slots=True)
class Window:
    """The grouping column that `window(…)` gives, a struct of `start` and `end`; µs throughout.

    Windows start at `start_us + n * slide_us` since the epoch, for whole n. In tumbling windows,
    `slide_us` equals `size_us`.
    """

    column: str
    size_us: int
    slide_us: int
    start_us: int


@dataclass(frozen=True, slots=True)
class GroupedQuery:
    """An analyzed query with one Aggregate, whose output has a column `timestamp`.

    `time_id` is the id of that column if it was added here. `window_id` is that of the grouping
    column that `window` describes.
    """

    plan: Any
    time_id: int | None
    window: Window | None
    window_id: int | None


def grouped_query(analyzed: Any, rdd_id: int, jvm: Any) -> GroupedQuery:
    """Return an analyzed query, with the time of the last record of a group if it gives no time.

    Raises `QueryError` with the reason if no state can be kept for the query.
    """
    require_one_input(analyzed, rdd_id)
    above, aggregate = _way_to_aggregate(analyzed, rdd_id)
    child = items(aggregate.children())[0]
    _require_one_aggregate(child, rdd_id)
    require_narrow(child, rdd_id)
    grouping = items(aggregate.groupingExpressions())
    _require_groups(grouping)
    _require_functions(items(aggregate.aggregateExpressions()))
    window_column = next((column for column in grouping if _is_window(column)), None)
    window = None if window_column is None else _window(window_column, child, rdd_id)
    window_id = None if window_column is None else int(window_column.exprId().id())
    if any(column.name().lower() == TIME for column in items(analyzed.output())):
        return GroupedQuery(analyzed, None, window, window_id)
    plan, time_id = _with_last_time(above, aggregate, rdd_id, jvm)
    return GroupedQuery(plan, time_id, window, window_id)


def _way_to_aggregate(plan: Any, rdd_id: int) -> tuple[list[Step], Any]:
    """Return the operators above the Aggregate, from the result down, and the Aggregate."""
    way = []
    while kind(plan) != "Aggregate":
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
    if any(kind(node) == "Aggregate" for node in _nodes_to_input(plan, rdd_id)):
        raise QueryError(
            f"only SELECT and HAVING can follow GROUP BY ({kind(plan)}): put the rest into a "
            "processor after this one"
        )


def _nodes_to_input(plan: Any, rdd_id: int) -> Iterator[Any]:
    while True:
        yield plan
        step = step_to_input(plan, rdd_id)
        if step is None:
            return
        plan = step.children[step.index]


def _require_one_aggregate(child: Any, rdd_id: int) -> None:
    for node in _nodes_to_input(child, rdd_id):
        if kind(node) in ("Aggregate", "Distinct", "Deduplicate"):
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
        if _metadata_has(column, _SESSION_MARK):
            raise QueryError(
                "session_window(…) merges windows as records come: use a session window of the "
                "Python API"
            )
        if '"map"' in type_:
            raise QueryError(f"GROUP BY {column.sql()}: a map cannot be the key of a group")
        if "collat" in type_:
            raise QueryError(
                f"GROUP BY {column.sql()}: different bytes are equal under its collation, and "
                "groups are found by their bytes: use lower(…) or another function"
            )


def _require_functions(columns: list[Any]) -> None:
    for expression in _expressions(columns):
        if kind(expression) == "AggregateExpression" and expression.isDistinct():
            name = expression.aggregateFunction().prettyName()
            raise QueryError(
                f"{name}(DISTINCT …) needs all values of a group: use approx_count_distinct, or "
                "size(collect_set(…)) for few values"
            )
        if kind(expression) == "PythonUDAF":
            raise QueryError(
                f"{expression.name()}: buffers of an aggregate function in Python cannot be "
                "merged: use Spark's functions, or a class with a store"
            )


def _expressions(roots: list[Any]) -> Iterator[Any]:
    waiting = [*roots]
    while waiting:
        expression = waiting.pop()
        yield expression
        waiting += items(expression.children())


def _metadata_has(column: Any, mark: str) -> bool:
    return kind(column) in ("AttributeReference", "Alias") and mark in str(column.metadata().json())


def _is_window(column: Any) -> bool:
    return kind(column) == "AttributeReference" and is_window(column)


def _window(column: Any, child: Any, rdd_id: int) -> Window:
    """Return size and slide of a window, from the expression that TimeWindowing made for it."""
    wanted, found = int(column.exprId().id()), None
    for node in _nodes_to_input(child, rdd_id):
        given = _given(node, wanted)
        if given is None:
            continue
        if kind(given) != "AttributeReference":
            found = given
            break
        wanted = int(given.exprId().id())
    if found is None:
        raise QueryError(f"{column.name()}: write window(…) into GROUP BY itself")
    end = items(found.children())[3]
    add = _first(end, "Add")
    remainder = _first(end, "Remainder")
    return Window(
        column=str(column.name()),
        size_us=int(add.right().value()),
        slide_us=int(remainder.right().value()),
        start_us=int(remainder.left().right().value()),
    )


def _given(node: Any, wanted: int) -> Any | None:
    """Return the expression by which a node gives the column with an id; `None` if it does not."""
    if kind(node) == "Project":
        for column in items(node.projectList()):
            if kind(column) == "Alias" and column.exprId().id() == wanted:
                return column.child()
    if kind(node) == "Expand":
        for index, column in enumerate(items(node.output())):
            if column.exprId().id() == wanted:
                return node.projections().apply(0).apply(index)
    return None


def _first(expression: Any, name: str) -> Any:
    """Return the outermost expression of a kind."""
    if kind(expression) == name:
        return expression
    for child in items(expression.children()):
        found = _first(child, name)
        if found is not None:
            return found
    return None


def _with_last_time(above: list[Step], aggregate: Any, rdd_id: int, jvm: Any) -> tuple[Any, int]:
    """Return the plan with the time of the last record of each group, and that column's id."""
    child = with_timestamp(items(aggregate.children())[0], rdd_id, jvm)
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    last = expressions.aggregate.Max(input_time(child, rdd_id)).toAggregateExpression()
    time = alias(last, TIME, jvm)
    logical = jvm.org.apache.spark.sql.catalyst.plans.logical
    plan = logical.Aggregate(
        aggregate.groupingExpressions(),
        seq(jvm, [*items(aggregate.aggregateExpressions()), time]),
        child,
        aggregate.hint(),
    )
    for step in reversed(above):
        if kind(step.node) == "Project":
            columns = [*items(step.node.projectList()), time.toAttribute()]
            plan = logical.Project(seq(jvm, columns), plan)
        else:
            plan = step.over(plan, jvm)
    return plan, int(time.exprId().id())
