"""Rewrites aggregate functions that keep values, on Spark's analyzed plans.

Spark computes DISTINCT with one more shuffle, which would need all records at once. Here, the
distinct values are a buffer, as those of `collect_set` are, and the function is computed from them.
Every collection is bounded, since each change of a group reads and writes all of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_pipeline.streams.sql.catalyst import Catalyst, replaced
from kafka_pipeline.streams.sql.plan import expressions, id_of, items, kind
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


def collecting(aggregate: Any, max_collected: int, make: Catalyst) -> Any:
    """Return an Aggregate without DISTINCT in its functions, and with bounded collections.

    A group with more than `max_collected` values in a collection is an error that names the group.
    Raises `QueryError` for a function that cannot be computed from a set of values.
    """
    columns = items(aggregate.aggregateExpressions())
    functions = [each for each in expressions(columns) if kind(each) == "AggregateExpression"]
    if not any(
        each.isDistinct() or kind(each.aggregateFunction()) in _COLLECTING for each in functions
    ):
        return aggregate
    groups = items(aggregate.groupingExpressions())
    rewriting = _Rewriting(groups, max_collected, make)
    made = [replaced(column, rewriting.function, make) for column in columns]
    return make.aggregate(groups, made, aggregate.child(), aggregate.hint())


class _Rewriting:
    """Rewrites the functions of one Aggregate."""

    def __init__(self, grouping: Sequence[Any], max_collected: int, make: Catalyst) -> None:
        self._grouping = grouping
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
        return self._of_set(function, expression.filter(), f"{name}(DISTINCT …)")

    def _of_set(self, function: Any, condition: Any, name: str) -> Any:
        """Return a function of the distinct values of its arguments."""
        arguments = items(function.children())
        if any("collat" in str(each.dataType().json()) for each in arguments):
            raise QueryError(
                f"{name}: different bytes are equal under the collation of its argument, and the "
                "values are told apart by their bytes: use lower(…) or another function"
            )
        # NaN and -0.0 have several forms that are equal.
        rules = self._make.catalyst.optimizer
        rule = getattr(getattr(rules, "NormalizeFloatingNumbers$"), "MODULE$")
        values = self._make.struct([rule.normalize(each) for each in arguments])
        found = self._make.aggregates.CollectSet(values).toAggregateExpression(False, condition)
        return self._folded(function, self._bounded(found, name), values.dataType())

    def _folded(self, function: Any, values: Any, type_: Any) -> Any:
        """Return what a function gives for an array of structs of its arguments."""
        value = self._variable("value", type_)
        places = range(function.children().size())
        fields = [self._make.field(value, place) for place in places]
        function = self._make.with_children(function, fields)
        zero = self._make.struct(items(function.initialValues()))
        buffers = self._variable("buffers", zero.dataType().asNullable())
        numbers = {
            id_of(each): index for index, each in enumerate(items(function.aggBufferAttributes()))
        }

        def in_buffers(expression: Any) -> Any | None:
            if kind(expression) != "AttributeReference":
                return None
            return self._make.field(buffers, numbers[id_of(expression)])

        updated = [
            replaced(each, in_buffers, self._make) for each in items(function.updateExpressions())
        ]
        result = replaced(function.evaluateExpression(), in_buffers, self._make)
        return self._expressions.ArrayAggregate(
            values,
            zero,
            self._lambda(self._make.struct(updated), buffers, value),
            self._lambda(result, buffers),
        )

    def _bounded(self, collection: Any, name: str) -> Any:
        """Return a collection that is an error if it has too many values."""
        make, expressions = self._make, self._expressions
        parts = [
            make.literal(f"{name} has more than {self._max} values in the group ", "string"),
            self._cast(make.struct(self._grouping), make.type("string")),
            make.literal(": see max_collected", "string"),
        ]
        error = expressions.RaiseError(expressions.Concat(make.seq(parts)))
        size = expressions.Size(collection, False)
        return expressions.If(
            expressions.GreaterThan(size, make.literal(self._max, "int")),
            self._cast(error, collection.dataType()),
            collection,
        )

    def _cast(self, value: Any, type_: Any) -> Any:
        return self._expressions.Cast(value, type_, self._make.none)

    def _variable(self, name: str, type_: Any) -> Any:
        return self._expressions.NamedLambdaVariable(
            name,
            type_,
            True,
            self._expressions.NamedExpression.newExprId(),
            self._make.jvm.java.util.concurrent.atomic.AtomicReference(),
        )

    def _lambda(self, body: Any, *variables: Any) -> Any:
        return self._expressions.LambdaFunction(body, self._make.seq([*variables]), False)
