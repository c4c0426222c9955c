"""Aggregations of column expressions, for `.agg(…)`.

    from kafka_pipeline import agg, col

    flights.group_by_key().agg(
        "Delays", n=agg.count(), delay=agg.avg(col("delay")), worst=agg.max(col("delay"))
    )

Nulls are left out: `count(x)` counts what is not null, and the others are null as long as there is
nothing else. The groups of a table take `count`, `sum` and `avg`. The results do not depend on how
records are grouped into batches, and come back from the state topic exactly.
"""

from __future__ import annotations

from kafka_pipeline.streams.dsl import aggregations as kinds
from kafka_pipeline.streams.dsl.aggregations import Aggregation
from kafka_pipeline.streams.dsl.expressions import Expression, expression_of

__all__ = ["approx_distinct", "avg", "count", "first", "last", "max", "min", "sum"]


def count(expression: Expression | None = None) -> Aggregation:
    """Return the number of records, or of those for which an expression is not null."""
    if expression is None:
        return Aggregation("count", None, kinds.Count())
    return Aggregation("count", expression_of(expression), kinds.Count())


def sum(expression: Expression) -> Aggregation:
    """Return the sum of numbers; of integers, it is exact."""
    return Aggregation("sum", expression_of(expression), kinds.Sum())


def avg(expression: Expression) -> Aggregation:
    """Return the mean of numbers, a float: the sum divided by the number of them."""
    return Aggregation("avg", expression_of(expression), kinds.Average())


def min(expression: Expression) -> Aggregation:
    """Return the smallest of numbers, strings or bytes. NaN counts only if nothing else came."""
    return Aggregation("min", expression_of(expression), kinds.Extreme(is_max=False))


def max(expression: Expression) -> Aggregation:
    """Return the largest of numbers, strings or bytes. NaN counts only if nothing else came."""
    return Aggregation("max", expression_of(expression), kinds.Extreme(is_max=True))


def first(expression: Expression) -> Aggregation:
    """Return the value that came first, in the order of offsets; of merged sessions, the older's.

    The values are those that JSON can hold.
    """
    return Aggregation("first", expression_of(expression), kinds.First())


def last(expression: Expression) -> Aggregation:
    """Return the value that came last, in the order of offsets; of merged sessions, the younger's.

    The values are those that JSON can hold.
    """
    return Aggregation("last", expression_of(expression), kinds.Last())


def approx_distinct(expression: Expression) -> Aggregation:
    """Return about how many different values there are, as a HyperLogLog estimates it.

    Up to 256 values are counted exactly. For more, the standard error is 1.6 %, and the state of a
    key takes 4 KB. 1 and 1.0 are one value, as are 0.0 and -0.0; 1, True and "1" are three.
    """
    return Aggregation("approx_distinct", expression_of(expression), kinds.Distinct())
