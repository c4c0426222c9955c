"""Recognises `session_window(…)` on Spark's analyzed plans, and turns it into a plain column.

Spark would merge the sessions of a batch itself. They are merged with those in a store here, and
which of those are open depends on the order of the records. So Spark gives a row for each group and
time instead, with the `ORDER` of its records.
"""

from __future__ import annotations

from typing import Any

from kafka_pipeline.streams.sql.plan import expressions, input_column, items, kind, seq, with_column
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.streams.sql.state_shape import ORDER, Sessions

_MARK = "spark.sessionWindow"


def is_session(column: Any) -> bool:
    """Whether a grouping column is what `session_window(…)` gives."""
    return kind(column) == "AttributeReference" and _MARK in str(column.metadata().json())


def session_of(column: Any, made: Any, jvm: Any) -> Sessions:
    """Return a grouping column that `session_window(…)` gives, from the struct that it makes.

    Raises `QueryError` if the gap is not a constant, or has months.
    """
    end = items(made.children())[3]
    gap = next(each.right() for each in expressions([end]) if kind(each) == "TimestampAddInterval")
    if not gap.foldable():
        raise QueryError("the gap of session_window(…) must be a constant, such as '5 minutes'")
    intervals = jvm.org.apache.spark.sql.catalyst.util.IntervalUtils
    microseconds = jvm.java.util.concurrent.TimeUnit.MICROSECONDS
    # With months of 31 days and of none.
    gap_us, without_months_us = (
        int(intervals.getDuration(gap.eval(None), microseconds, days)) for days in (31, 0)
    )
    if gap_us != without_months_us:
        raise QueryError("the gap of session_window(…) has months, whose lengths differ: use days")
    return Sessions(str(column.name()), ORDER, gap_us)


def with_order(aggregate: Any, rdd_id: int, jvm: Any) -> Any:
    """Return an aggregate by the `ORDER` of records too, which does not merge sessions."""
    child = with_column(items(aggregate.children())[0], ORDER, rdd_id, jvm)
    order = input_column(child, ORDER, rdd_id)
    # The mark is what makes Spark merge sessions.
    unmarked = jvm.org.apache.spark.sql.types.Metadata.empty()
    grouping = [
        column.withMetadata(unmarked) if is_session(column) else column
        for column in items(aggregate.groupingExpressions())
    ]
    logical = jvm.org.apache.spark.sql.catalyst.plans.logical
    return logical.Aggregate(
        seq(jvm, [*grouping, order]), aggregate.aggregateExpressions(), child, aggregate.hint()
    )
