"""Recognises the queries with `OVER (…)` over their records, on Spark's analyzed plans.

Such a query has one Window. Below it, each record becomes rows; above it, each row becomes results.
Spark computes the Window over rows that a task has kept: those that are due, and those that are in
their frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams.sql.catalyst import Catalyst
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.over_shape import EXAMPLE, IS_DUE, ORIGIN, PLACE, UNBOUNDED
from kafka_pipeline.streams.sql.plan import (
    PlanStep,
    expressions,
    id_of,
    input_column,
    is_column,
    kind,
    refusal,
    require_narrow,
    require_one_input,
    steps_to_input,
    with_column,
)
from kafka_pipeline.streams.sql.spec import QueryError


@dataclass(frozen=True, slots=True)
class OverQuery:
    """An analyzed query with one Window; `above` are the operators from the result down to it.

    `partitions` are the columns of PARTITION BY, without constants, and `kept` those of a row that
    the query uses. `key_at` is the index of the one that is the key of the records, `None` if none
    is. Frames reach `rows_before` rows and `range_ms` back.
    """

    above: list[PlanStep]
    window: Any
    rdd_id: int
    partitions: list[Any]
    key_at: int | None
    kept: list[Any]
    rows_before: int
    range_ms: int

    def rows(self, make: Catalyst) -> Any:
        """Return the plan from records to rows."""
        plan = self.window.child()
        for name in ORIGIN:
            plan = with_column(plan, name, self.rdd_id, make)
        named = [
            make.alias(make.normalized(column), f"partition{at}")
            for at, column in enumerate(self.partitions)
        ]
        named += [make.alias(column, f"column{at}") for at, column in enumerate(self.kept)]
        origin = [input_column(plan, name, self.rdd_id) for name in ORIGIN]
        return make.project([*named, *origin], plan)

    def results(self, rows: Any, make: Catalyst) -> Any:
        """Return the plan from rows to the results of those that are due, with their `PLACE`."""
        given = {str(column.name()): column for column in items(rows.output())}
        columns = [
            make.alias(given[f"column{at}"], column.name(), column.exprId())
            for at, column in enumerate(self.kept)
        ]
        place, is_due = given[PLACE], given[IS_DUE]
        plan = make.project([*columns, given["timestamp"], place, is_due], rows)
        plan = make.filter(is_due, self._windows(plan, place, make))
        for step in reversed(self.above):
            plan = step.over(plan, make)
        return plan

    def _windows(self, plan: Any, place: Any, make: Catalyst) -> Any:
        """Return the Window over rows. In frames of rows, those that tie have a certain order."""
        groups, order = self.window.partitionSpec(), self.window.orderSpec()
        (by_time,) = items(order)
        certain = make.seq([by_time, make.with_children(by_time, [place])])
        by_rows, by_range = list[Any](), list[Any]()
        for column in items(self.window.windowExpressions()):
            function, spec = items(column.child().children())
            if kind(spec.frameSpecification().frameType()) == "RangeFrame":
                by_range.append(column)
                continue
            spec = make.expressions.WindowSpecDefinition(groups, certain, spec.frameSpecification())
            made = make.with_children(column.child(), [function, spec])
            by_rows.append(make.with_children(column, [made]))
        for columns, ordered in ((by_range, order), (by_rows, certain)):
            if columns:
                plan = make.logical.Window(make.seq(columns), groups, ordered, plan, make.none)
        return plan


def over_query(analyzed: Any, rdd_id: int) -> OverQuery:
    """Cut an analyzed query at its Window. Raises `QueryError` with the reason if it cannot be."""
    require_one_input(analyzed, rdd_id)
    above, window = _way_to_window(analyzed, rdd_id)
    child = window.child()
    require_narrow(child, rdd_id)
    key, time = (id_of(input_column(analyzed, name, rdd_id)) for name in ("key", "timestamp"))
    partitions = [column for column in items(window.partitionSpec()) if not column.foldable()]
    keys = (at for at, each in enumerate(partitions) if is_column(each, key, child, rdd_id))
    orders = items(window.orderSpec())
    if (
        len(orders) != 1
        or not is_column(orders[0].child(), time, child, rdd_id)
        or str(orders[0].direction().sql()) != "ASC"
    ):
        raise QueryError(
            "ORDER BY of OVER (…) must be timestamp, the time of the record, and nothing else: "
            f"write {EXAMPLE}. If the time is in a field, the source names it: "
            "timestamp: {field: …}"
        )
    reaches = [_reach(each.child()) for each in items(window.windowExpressions())]
    used = {id_of(column) for column in items(analyzed.output())}
    for node in (window, *(step.node for step in above)):
        used |= {id_of(column) for column in items(node.references().toSeq())}
    return OverQuery(
        above,
        window,
        rdd_id,
        partitions,
        next(keys, None),
        [column for column in items(child.output()) if id_of(column) in used],
        max(rows for rows, _ in reaches),
        max(range_ms for _, range_ms in reaches),
    )


def _way_to_window(plan: Any, rdd_id: int) -> tuple[list[PlanStep], Any]:
    way, steps = list[PlanStep](), steps_to_input(plan, rdd_id)
    for step in steps:
        if kind(step.node) == "Window":
            break
        if kind(step.node) not in ("Project", "Filter", "View", "SubqueryAlias", "ResolvedHint"):
            raise refusal(step.node)
        way.append(step)
    else:
        raise QueryError("there is no OVER (…) in the query that Spark reads")
    if any(kind(below.node) == "Window" for below in steps):
        raise QueryError(
            "one SELECT has OVER (…) with different PARTITION BY or ORDER BY: write the same "
            "ones, or put one of them into a subquery of FROM"
        )
    return way, step.node


def _reach(call: Any) -> tuple[int, int]:
    """Return how many rows, and how many ms, the frame of a function reaches back."""
    function, spec = items(call.children())
    name = str(function.prettyName())
    for each in expressions([function]):
        if kind(each) in ("PythonUDF", "PythonUDAF"):
            raise QueryError(f"{each.name()}: OVER (…) takes functions of Spark, not of Python")
    if kind(function) == "Lead":
        raise QueryError("lead(…) would wait for later rows of unknown times: use lag(…)")
    if kind(function) == "Lag":
        if function.ignoreNulls():
            raise QueryError("lag(…) IGNORE NULLS may look at any number of rows: leave it out")
        offset = _bound(function.offset(), name)
        if offset > 0:
            raise QueryError("lag(…) with a negative offset is lead(…), which waits for later rows")
        return -offset, 0
    frame = spec.frameSpecification()
    lower, upper = (_bound(each, name) for each in (frame.lower(), frame.upper()))
    if upper > 0:
        raise QueryError(
            f"{name}(…) OVER (…) reaches rows after the current one: end the frame with CURRENT ROW"
        )
    if kind(frame.frameType()) == "RowFrame":
        return max(-lower, 0), 0
    return 0, -(lower // 1000)


def _bound(value: Any, name: str) -> int:
    """Return a bound of a frame, in rows or in µs; a row before the current one is -1."""
    match kind(value):
        case "CurrentRow":
            return 0
        case "UnboundedPreceding":
            raise QueryError(f"{name}(…): {UNBOUNDED}")
        case "UnboundedFollowing":
            return 1
    if not value.foldable() or "YearMonth" in str(value.dataType().toString()):
        raise QueryError(f"{name}(…): a bound of OVER (…) must be a constant, without months")
    found = value.eval(None)
    if not isinstance(found, int):
        raise QueryError(f"{name}(…): a bound of OVER (…) must be a whole number, or an interval")
    return found
