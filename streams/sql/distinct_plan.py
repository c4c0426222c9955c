"""Rewrites aggregate functions that keep values, on Spark's analyzed plans.

Spark computes DISTINCT with one more shuffle, which would need all records at once. If a store
keeps the distinct values, a function with DISTINCT becomes a plain one of columns that only such
functions have; `kept_distinct_plan.py` feeds it. Otherwise, as in sessions, the distinct values are
a buffer, as those of `collect_set` are, and the function is computed from them. Every collection is
bounded, since each change of a group reads and writes all of its values.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from kafka_pipeline.streams.sql.catalyst import Catalyst, replaced, scala_object
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.plan import expressions, id_of, kind, type_of
from kafka_pipeline.streams.sql.spec import QueryError

SAME_WITH_DUPLICATES = (
    "AnyValue",
    "BitAndAgg",
    "BitOrAgg",
    "BoolAnd",
    "BoolOr",
    "First",
    "Last",
    "Max",
    "MaxBy",
    "Min",
    "MinBy",
)
"""The classes of functions that are the same of values and of the distinct ones."""

FOLDED = (
    "Average",
    "BitXorAgg",
    "Corr",
    "Count",
    "CovPopulation",
    "CovSample",
    "Kurtosis",
    "Skewness",
    "StddevPop",
    "StddevSamp",
    "Sum",
    "VariancePop",
    "VarianceSamp",
)
"""The classes of functions whose buffers are updated by expressions, value by value."""

_COLLECTING = ("CollectList", "CollectSet")


def collecting(aggregate: Any, max_collected: int, make: Catalyst, *, keeps_distinct: bool) -> Any:
    """Return an Aggregate without DISTINCT in its functions, and with bounded collections.

    With `keeps_distinct`, functions that are `FOLDED` keep their DISTINCT, for `with_arguments`. A
    group with more than `max_collected` values in a collection is an error that names the group.
    Raises `QueryError` for a function that cannot be computed from a set of values.
    """
    columns = items(aggregate.aggregateExpressions())
    functions = [each for each in expressions(columns) if kind(each) == "AggregateExpression"]
    if not any(
        each.isDistinct() or kind(each.aggregateFunction()) in _COLLECTING for each in functions
    ):
        return aggregate
    groups = items(aggregate.groupingExpressions())
    rewriting = _Rewriting(groups, max_collected, make, keeps_distinct=keeps_distinct)
    made = [replaced(column, rewriting.function, make) for column in columns]
    return make.aggregate(groups, made, aggregate.child(), aggregate.hint())


def with_arguments(aggregate: Any, make: Catalyst) -> tuple[Any, Collection[int]]:
    """Return an Aggregate in which plain functions replace those with DISTINCT.

    Their arguments and conditions are columns of their own, which an Expand below computes: Spark's
    optimizer does not look through it, so such a function stays one, even of a constant. The second
    value has the ids of the columns that are arguments.
    """
    columns = items(aggregate.aggregateExpressions())
    rewriting = _ArgumentColumns(make)
    made = [replaced(column, rewriting.function, make) for column in columns]
    if not rewriting.columns:
        return aggregate, ()
    child = aggregate.child()
    output = [*items(child.output()), *rewriting.columns]
    row = make.seq([*items(child.output()), *rewriting.values])
    expanded = make.logical.Expand(make.seq([row]), make.seq(output), child)
    groups = items(aggregate.groupingExpressions())
    return make.aggregate(groups, made, expanded, aggregate.hint()), rewriting.arguments


class _ArgumentColumns:
    """The columns for the arguments and conditions of functions with DISTINCT."""

    def __init__(self, make: Catalyst) -> None:
        self.values = list[Any]()
        self.columns = list[Any]()
        self.arguments = set[int]()
        self._make = make

    def function(self, expression: Any) -> Any | None:
        """Return what replaces an expression; `None` if nothing does."""
        if kind(expression) != "AggregateExpression" or not expression.isDistinct():
            return None
        function, condition = expression.aggregateFunction(), expression.filter()
        children = items(function.children())
        values = map(self._make.normalized, children)
        found = [self._column(*pair) for pair in zip(values, children, strict=True)]
        self.arguments.update(map(id_of, found))
        if condition.isDefined():
            condition = self._make.some(self._column(condition.get(), condition.get()))
        return self._make.with_children(function, found).toAggregateExpression(False, condition)

    def _column(self, value: Any, shown: Any) -> Any:
        """Return the column of a value, called as it is `shown` in SQL."""
        for known, column in zip(self.values, self.columns, strict=True):
            if known.semanticEquals(value):
                return column
        pretty = scala_object(self._make.catalyst.util, "package").toPrettySQL
        made = self._make.alias(value, str(pretty(shown, True))).toAttribute()
        # Spark would replace count(x) by count(1) if x were never null.
        column = made.withNullability(True)
        self.values.append(value)
        self.columns.append(column)
        return column


class _Rewriting:
    """Rewrites the functions of one Aggregate."""

    def __init__(
        self,
        grouping: Sequence[Any],
        max_collected: int,
        make: Catalyst,
        *,
        keeps_distinct: bool,
    ) -> None:
        self._grouping = grouping
        self._keeps_distinct = keeps_distinct
        self._max = max_collected
        self._make = make
        self._expressions = make.expressions

    def function(self, expression: Any) -> Any | None:
        """Return what replaces an expression; `None` if nothing does."""
        if kind(expression) != "AggregateExpression":
            return None
        function = expression.aggregateFunction()
        name = str(function.prettyName())
        if not expression.isDistinct():
            is_collecting = kind(function) in _COLLECTING
            return self._bounded(expression, f"{name}(…)") if is_collecting else None
        if kind(function) in SAME_WITH_DUPLICATES:
            return function.toAggregateExpression(False, expression.filter())
        if kind(function) == "CollectSet":
            plain = function.toAggregateExpression(False, expression.filter())
            return self._bounded(plain, f"{name}(…)")
        if kind(function) not in FOLDED:
            raise QueryError(
                f"{name}(DISTINCT …) cannot be computed from the distinct values of a group: use "
                "another function, or collect_set(…)"
            )
        require_told_apart(function)
        if self._keeps_distinct:
            return expression
        return self._of_set(function, expression.filter(), f"{name}(DISTINCT …)")

    def _of_set(self, function: Any, condition: Any, name: str) -> Any:
        """Return a function of the distinct values of its arguments."""
        values = self._make.struct([*map(self._make.normalized, items(function.children()))])
        found = self._make.aggregates.CollectSet(values).toAggregateExpression(False, condition)
        return self._folded(function, self._bounded(found, name), values.dataType())

    def _folded(self, function: Any, values: Any, type_: Any) -> Any:
        """Return what a function gives for an array of structs of its arguments."""
        value = variable("value", type_, self._make)
        places = range(function.children().size())
        fields = [self._make.field(value, place) for place in places]
        function = self._make.with_children(function, fields)
        zero = self._make.struct(items(function.initialValues()))
        # Spark's code generator refuses a variable that both lambdas have.
        kept, last = (
            variable("buffers", zero.dataType().asNullable(), self._make) for _ in range(2)
        )
        numbers = {
            id_of(each): index for index, each in enumerate(items(function.aggBufferAttributes()))
        }

        def in_buffers(buffers: Any, expression: Any) -> Any | None:
            if kind(expression) != "AttributeReference":
                return None
            return self._make.field(buffers, numbers[id_of(expression)])

        updated = [
            replaced(each, partial(in_buffers, kept), self._make)
            for each in items(function.updateExpressions())
        ]
        result = replaced(function.evaluateExpression(), partial(in_buffers, last), self._make)
        return self._expressions.ArrayAggregate(
            values,
            zero,
            lambda_of(self._make.struct(updated), self._make, kept, value),
            lambda_of(result, self._make, last),
        )

    def _bounded(self, collection: Any, name: str) -> Any:
        return bounded(collection, name, self._grouping, self._max, self._make)


def bounded(collection: Any, name: str, grouping: Sequence[Any], most: int, make: Catalyst) -> Any:
    """Return a collection that is an error, which names the group, if it has too many values."""
    expressions = make.expressions
    parts = [
        make.literal(f"{name} has more than {most} values in the group ", "string"),
        make.as_text(make.struct(grouping)),
        make.literal(": see max_collected", "string"),
    ]
    error = expressions.RaiseError(expressions.Concat(make.seq(parts)))
    size = expressions.Size(collection, False)
    return expressions.If(
        expressions.GreaterThan(size, make.literal(most, "int")),
        make.cast(error, collection.dataType()),
        collection,
    )


def require_told_apart(function: Any) -> None:
    """Raise `QueryError` for a function with DISTINCT whose values bytes do not tell apart."""
    name, arguments = f"{function.prettyName()}(DISTINCT …)", items(function.children())
    if any("map<" in type_of(each) for each in arguments):
        raise QueryError(
            f"{name}: its argument can't be a MAP, whose values cannot be compared: use "
            "map_entries(…)"
        )
    if any("collat" in str(each.dataType().json()) for each in arguments):
        raise QueryError(
            f"{name}: different bytes are equal under the collation of its argument, and the "
            "values are told apart by their bytes: use lower(…) or another function"
        )


def variable(name: str, type_: Any, make: Catalyst) -> Any:
    """Return a variable for a `lambda_of`."""
    id_ = make.expressions.NamedExpression.newExprId()
    holder = make.jvm.java.util.concurrent.atomic.AtomicReference()
    return make.expressions.NamedLambdaVariable(name, type_, True, id_, holder)


def lambda_of(body: Any, make: Catalyst, *variables: Any) -> Any:
    """Return a function of variables for an expression such as `aggregate(…)`."""
    return make.expressions.LambdaFunction(body, make.seq([*variables]), False)
