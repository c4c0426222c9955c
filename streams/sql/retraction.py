"""Rewrites the aggregates of a query over a changelog, so that rows can be taken out again.

Records then come as rows with a `CHANGE`: 1 for a new row of the table, and -1 for one that was
replaced or deleted. An aggregate function becomes one of sums that are signed by it. The smallest
and the largest value and collections are no sums: for these, a store keeps all values of a group
(`KeptValues`). So it does for functions with DISTINCT, which are sums of the values that a group
gets and loses. For variances and their like, it keeps exact sums. A group without rows has no
result. Works on Spark's analyzed plans, as types are known there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kafka_pipeline.streams.sql.best_rows import BestRows
from kafka_pipeline.streams.sql.catalyst import Catalyst, replaced
from kafka_pipeline.streams.sql.distinct_plan import (
    SAME_WITH_DUPLICATES,
    bounded,
    require_told_apart,
    with_arguments,
)
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.kept_distinct_plan import OF_ENDS, OF_MOMENTS
from kafka_pipeline.streams.sql.plan import (
    PlanStep,
    id_of,
    input_column,
    kind,
    type_of,
    with_column,
)
from kafka_pipeline.streams.sql.spec import QueryError

CHANGE = "__change"
"""A column of records: 1 for a row of the table that is new, and -1 for one that it lost."""

CHANGE_TIME = "__change_time"
"""A column of records: the time of the record that has changed the row."""

_ROWS = "__rows"
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")
_SORTED = (*_WHOLE, *_FLOATS, "boolean", "date", "timestamp", "timestamp_ntz", "string", "binary")
"""The types of values that a store keeps in their order, next to decimals."""

_OF_DISTINCT = ("Average", "Count", "Sum")
_INVERTIBLE = (
    "count, count_if, sum, avg, min, max, min_by, max_by, bool_and, bool_or, stddev, variance, "
    "collect_list and collect_set"
)
_ADVICE = (
    f"use {_INVERTIBLE}, aggregate the groups as a table of the DSL, with Table.group_by, or let "
    "the query that sends the updates give each result once, by a window and emit: on_close"
)


def retracting(
    aggregate: Any,
    above: Sequence[PlanStep],
    rdd_id: int,
    max_collected: int,
    make: Catalyst,
    best: BestRows | None,
) -> tuple[Any, list[PlanStep], Collection[int]]:
    """Return an Aggregate that adds and takes out rows, the operators above it, and its arguments.

    The operators are `above`, and a condition that leaves out groups without rows. The arguments
    are the ids of the columns whose values the caller keeps; see `with_arguments`. A group with
    more than `max_collected` values in a collection is an error; of `best` rows, all of a group are
    one. Raises `QueryError` for a function that cannot take a row out.
    """
    child = items(aggregate.children())[0]
    for name in (CHANGE, CHANGE_TIME):
        child = with_column(child, name, rdd_id, make)
    change = input_column(child, CHANGE, rdd_id)
    output, groups = items(aggregate.output()), items(aggregate.groupingExpressions())
    signed = _Signed(change, groups, max_collected, make, best)
    columns = [
        replaced(each, signed.of_kept_values, make)
        for each in items(aggregate.aggregateExpressions())
    ]
    marked = make.aggregate(groups, columns, child, aggregate.hint())
    marked, arguments = with_arguments(marked, make)
    columns = [
        replaced(each, signed.function, make) for each in items(marked.aggregateExpressions())
    ]
    rows = make.alias(make.aggregates.Sum(change).toAggregateExpression(), _ROWS)
    made = make.aggregate(groups, [*columns, rows], marked.child(), aggregate.hint())
    if best is not None and best.ranking is not None:
        # The rows that a group had are there too, even if it has none any more.
        is_there = make.expressions.IsNotNull(rows.toAttribute())
    else:
        is_there = make.expressions.GreaterThan(rows.toAttribute(), make.zero("bigint"))
    condition = make.filter(is_there, made)
    visible = make.project(output, condition)
    steps = [*above, PlanStep(visible, [condition], 0), PlanStep(condition, [made], 0)]
    return made, steps, arguments


def counts_rows(function: Any, change_id: int) -> bool:
    """Whether an aggregate function is the number of rows of a group; see `retracting`."""
    if kind(function) != "Sum":
        return False
    child = items(function.children())[0]
    return kind(child) == "AttributeReference" and id_of(child) == change_id


class _Signed:
    """Rewrites the functions of one Aggregate, with the column of `CHANGE`."""

    def __init__(
        self,
        change: Any,
        groups: Sequence[Any],
        max_collected: int,
        make: Catalyst,
        best: BestRows | None,
    ) -> None:
        self._list = "collect_list" if best is None else "row_number"
        self._is_ranked = best is not None and best.ranking is not None
        self._change = change
        self._groups = groups
        self._max_collected = max_collected
        self._make = make
        self._expressions = make.expressions
        self._zero = make.zero("bigint")

    def of_kept_values(self, expression: Any) -> Any | None:
        """Return a function that sees kept values, as one with DISTINCT; `None` for others.

        A row that FILTER leaves out has nulls instead of values.
        """
        if kind(expression) != "AggregateExpression":
            return None
        function, condition = expression.aggregateFunction(), expression.filter()
        values = items(function.children())
        if kind(function) in OF_ENDS:
            _require_sorted(function.prettyName(), type_of(values[-1]))
        elif kind(function) == "CollectSet":
            require_told_apart(function)
        elif not expression.isDistinct():
            if kind(function) not in (*OF_MOMENTS, "CollectList"):
                return None
        elif kind(function) in SAME_WITH_DUPLICATES:
            return function.toAggregateExpression(False, condition)
        elif kind(function) in _OF_DISTINCT:
            require_told_apart(function)
        else:
            raise _not_invertible(f"{function.prettyName()}(DISTINCT …)")
        if condition.isDefined():
            values = [self._make.only_if(condition.get(), value) for value in values]
        seeing = self._make.with_children(function, values)
        return seeing.toAggregateExpression(True, self._make.none)

    def function(self, expression: Any) -> Any | None:
        """Return what replaces an expression; `None` if nothing does."""
        if kind(expression) != "AggregateExpression":
            return None
        function, condition = expression.aggregateFunction(), expression.filter()
        name = str(function.prettyName())
        made = None
        children = items(function.children())
        match kind(function):
            case "Count":
                made = self._count(children, condition)
            case "CountIf":
                made = self._count_if(children[0], condition)
            case "Sum" if name == "sum":
                made = self._sum(children[0], condition)
            case "Average" if name in ("avg", "mean"):
                made = self._average(function, children[0], condition)
            case "BoolAnd":
                trues, count = self._truths(children[0], condition)
                made = self._if_any(count, self._expressions.EqualTo(trues, count))
            case "BoolOr":
                trues, count = self._truths(children[0], condition)
                made = self._if_any(count, self._is_positive(trues))
            case "CollectList" if self._is_ranked:
                versions = self._array(children[0])
                made = self._make.aggregates.Last(versions, False).toAggregateExpression()
            case "CollectList":
                made = self._collection(self._array(children[0]), self._list)
            case "CollectSet":
                values = self._expressions.ArrayDistinct(self._array(children[0]))
                made = self._collection(values, name)
            case other if other in OF_ENDS or other in OF_MOMENTS:
                made = expression
        if made is None:
            raise _not_invertible(f"{name}(…)")
        return made

    def _count(self, values: Sequence[Any], condition: Any) -> Any:
        are_there = self._expressions.IsNotNull(values[0])
        for value in values[1:]:
            are_there = self._expressions.And(are_there, self._expressions.IsNotNull(value))
        return self._count_if(are_there, condition)

    def _count_if(self, is_counted: Any, condition: Any) -> Any:
        change = self._expressions.If(is_counted, self._change, self._zero)
        values = self._make.seq([self._total(change, condition), self._zero])
        return self._expressions.Coalesce(values)

    def _sum(self, value: Any, condition: Any) -> Any | None:
        type_ = type_of(value)
        count = self._count([value], condition)
        if type_ in _FLOATS:
            return self._if_any(count, self._sum_of_floats(value, condition))
        if type_ in _WHOLE:
            value = self._cast(value, "bigint")
        elif not type_.startswith("decimal("):
            return None
        return self._if_any(count, self._total(self._signed(value), condition))

    def _average(self, function: Any, value: Any, condition: Any) -> Any | None:
        """Return what the function makes of a sum and a count."""
        type_ = type_of(value)
        if type_.startswith("decimal("):
            total = self._total(self._signed(value), condition)
        elif type_ in _WHOLE:
            # A double would lose the small values next to a large one that is taken out later.
            whole = self._cast(value, "decimal(20,0)")
            total = self._cast(self._total(self._signed(whole), condition), "double")
        elif type_ in _FLOATS:
            total = self._sum_of_floats(value, condition)
        else:
            return None
        count = self._count([value], condition)
        buffers = [id_of(each) for each in items(function.aggBufferAttributes())]
        found = dict(zip(buffers, (total, count), strict=True))

        def of_buffer(expression: Any) -> Any | None:
            is_buffer = kind(expression) == "AttributeReference"
            return found.get(id_of(expression)) if is_buffer else None

        return self._if_any(count, replaced(function.evaluateExpression(), of_buffer, self._make))

    def _sum_of_floats(self, value: Any, condition: Any) -> Any:
        """Return a sum as a double. NaN and infinities are counted: they cannot be subtracted."""
        make, expressions = self._make, self._expressions
        value = self._cast(value, "double")
        constants = [make.literal(float(each), "double") for each in ("nan", "inf", "-inf")]
        not_finite = [expressions.EqualTo(value, each) for each in constants]
        nan, above, below = (
            self._is_positive(self._count_if(each, condition)) for each in not_finite
        )
        is_finite = expressions.Not(expressions.Or(expressions.Or(*not_finite[:2]), not_finite[2]))
        nothing = make.literal(None, "double")
        finite = expressions.If(is_finite, self._signed(value), nothing)
        zero = make.zero("double")
        total = expressions.Coalesce(make.seq([self._total(finite, condition), zero]))
        is_nan = expressions.Or(nan, expressions.And(above, below))
        cases = ((below, constants[2]), (above, constants[1]), (is_nan, constants[0]))
        for is_case, constant in cases:
            total = expressions.If(is_case, constant, total)
        return total

    def _array(self, value: Any) -> Any:
        array = self._expressions.CreateArray(self._make.seq([value]))
        return self._expressions.KnownNotContainsNull(array)

    def _collection(self, array: Any, name: str) -> Any:
        """Return a function whose buffer the caller fills with the values of a group."""
        values = self._make.aggregates.First(array, False).toAggregateExpression()
        return bounded(values, f"{name}(…)", self._groups, self._max_collected, self._make)

    def _truths(self, value: Any, condition: Any) -> tuple[Any, Any]:
        """Return how many values are true, and how many there are."""
        return self._count_if(value, condition), self._count([value], condition)

    def _signed(self, value: Any) -> Any:
        is_lost = self._expressions.LessThan(self._change, self._zero)
        return self._expressions.If(is_lost, self._expressions.UnaryMinus(value, True), value)

    def _total(self, value: Any, condition: Any) -> Any:
        return self._make.aggregates.Sum(value).toAggregateExpression(False, condition)

    def _if_any(self, count: Any, value: Any) -> Any:
        return self._make.only_if(self._is_positive(count), value)

    def _is_positive(self, count: Any) -> Any:
        return self._expressions.GreaterThan(count, self._zero)

    def _cast(self, value: Any, type_: str) -> Any:
        return self._make.cast(value, self._make.type(type_))


def _require_sorted(name: str, type_: str) -> None:
    if type_ not in _SORTED and not type_.startswith("decimal("):
        raise QueryError(
            f"{name}(…) over updates: values of the type {type_} cannot be kept in their order: "
            "use a column of numbers, text or times"
        )


def _not_invertible(name: str) -> QueryError:
    return QueryError(
        f"{name} over updates: a former row cannot be taken out of it, as the rows of a group are "
        f"not kept: {_ADVICE}"
    )
