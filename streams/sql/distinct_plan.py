"""Rewrites aggregate functions that keep values, on Spark's analyzed plans.

Spark computes DISTINCT with one more shuffle, which would need all records at once. Here, the
distinct values are a buffer, as those of `collect_set` are, and the function is computed from them.
Every collection is bounded, since each change of a group reads and writes all of its values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafka_pipeline.streams.sql.plan import (
    expressions,
    field_of,
    items,
    kind,
    literal,
    seq,
    struct_of,
)
from kafka_pipeline.streams.sql.spec import QueryError

_SAME_WITH_DUPLICATES = (
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
_FOLDED = (
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
_Change = Callable[[Any], Any | None]


def collecting(aggregate: Any, max_collected: int, jvm: Any) -> Any:
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
    rewriting = _Rewriting(items(aggregate.groupingExpressions()), max_collected, jvm)
    made = [_replaced(column, rewriting.function, jvm) for column in columns]
    logical = jvm.org.apache.spark.sql.catalyst.plans.logical
    return logical.Aggregate(
        aggregate.groupingExpressions(), seq(jvm, made), aggregate.child(), aggregate.hint()
    )


class _Rewriting:
    """Rewrites the functions of one Aggregate."""

    def __init__(self, grouping: Sequence[Any], max_collected: int, jvm: Any) -> None:
        self._grouping = grouping
        self._max = max_collected
        self._jvm = jvm
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions

    def function(self, expression: Any) -> Any | None:
        """Return what replaces an expression; `None` if nothing does."""
        if kind(expression) != "AggregateExpression":
            return None
        function = expression.aggregateFunction()
        name = str(function.prettyName())
        if not expression.isDistinct():
            is_collecting = kind(function) in _COLLECTING
            return self._bounded(expression, f"{name}(…)") if is_collecting else None
        if kind(function) in _SAME_WITH_DUPLICATES:
            return function.toAggregateExpression(False, expression.filter())
        if kind(function) == "CollectSet":
            plain = function.toAggregateExpression(False, expression.filter())
            return self._bounded(plain, f"{name}(…)")
        if kind(function) not in _FOLDED:
            raise QueryError(
                f"{name}(DISTINCT …) cannot be computed from the distinct values of a group: use "
                "another function, or collect_set(…)"
            )
        return self._of_set(function, expression.filter(), f"{name}(DISTINCT …)")

    def _of_set(self, function: Any, condition: Any, name: str) -> Any:
        """Return a function of the distinct values of its arguments."""
        aggregates = self._expressions.aggregate
        arguments = items(function.children())
        if any("collat" in str(each.dataType().json()) for each in arguments):
            raise QueryError(
                f"{name}: different bytes are equal under the collation of its argument, and the "
                "values are told apart by their bytes: use lower(…) or another function"
            )
        # NaN and -0.0 have several forms that are equal.
        rules = self._jvm.org.apache.spark.sql.catalyst.optimizer
        rule = getattr(getattr(rules, "NormalizeFloatingNumbers$"), "MODULE$")
        values = struct_of([rule.normalize(each) for each in arguments], self._jvm)
        found = aggregates.CollectSet(values).toAggregateExpression(False, condition)
        return self._folded(function, self._bounded(found, name), values.dataType())

    def _folded(self, function: Any, values: Any, type_: Any) -> Any:
        """Return what a function gives for an array of structs of its arguments."""
        value = self._variable("value", type_)
        places = range(function.children().size())
        fields = [field_of(value, place, self._jvm) for place in places]
        function = function.withNewChildren(seq(self._jvm, fields))
        zero = struct_of(items(function.initialValues()), self._jvm)
        buffers = self._variable("buffers", zero.dataType().asNullable())
        numbers = {
            each.exprId().id(): index
            for index, each in enumerate(items(function.aggBufferAttributes()))
        }

        def in_buffers(expression: Any) -> Any | None:
            if kind(expression) != "AttributeReference":
                return None
            return field_of(buffers, numbers[expression.exprId().id()], self._jvm)

        updated = [
            _replaced(each, in_buffers, self._jvm) for each in items(function.updateExpressions())
        ]
        result = _replaced(function.evaluateExpression(), in_buffers, self._jvm)
        return self._expressions.ArrayAggregate(
            values,
            zero,
            self._lambda(struct_of(updated, self._jvm), buffers, value),
            self._lambda(result, buffers),
        )

    def _bounded(self, collection: Any, name: str) -> Any:
        """Return a collection that is an error if it has too many values."""
        make, types = self._expressions, self._jvm.org.apache.spark.sql.types
        text = types.DataType.fromDDL("string")
        parts = [
            self._text(f"{name} has more than {self._max} values in the group "),
            self._cast(struct_of(self._grouping, self._jvm), text),
            self._text(": see max_collected"),
        ]
        error = make.RaiseError(make.Concat(seq(self._jvm, parts)))
        limit = literal(self._max, "int", self._jvm)
        return make.If(
            make.GreaterThan(make.Size(collection, False), limit),
            self._cast(error, collection.dataType()),
            collection,
        )

    def _text(self, text: str) -> Any:
        return literal(text, "string", self._jvm)

    def _cast(self, value: Any, type_: Any) -> Any:
        return self._expressions.Cast(value, type_, self._jvm.scala.Option.empty())

    def _variable(self, name: str, type_: Any) -> Any:
        return self._expressions.NamedLambdaVariable(
            name,
            type_,
            True,
            self._expressions.NamedExpression.newExprId(),
            self._jvm.java.util.concurrent.atomic.AtomicReference(),
        )

    def _lambda(self, body: Any, *variables: Any) -> Any:
        return self._expressions.LambdaFunction(body, seq(self._jvm, [*variables]), False)


def _replaced(expression: Any, change: _Change, jvm: Any) -> Any:
    """Return an expression in which `change` has replaced what it gives something for."""
    changed = change(expression)
    if changed is not None:
        return changed
    children = items(expression.children())
    made = [_replaced(each, change, jvm) for each in children]
    if all(new is old for new, old in zip(made, children, strict=True)):
        return expression
    return expression.withNewChildren(seq(jvm, made))
