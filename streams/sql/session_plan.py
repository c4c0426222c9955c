"""Recognises `session_window(…)` on Spark's analyzed plans, and turns it into a plain column.

Spark would merge the sessions of a batch itself. They are merged with those in a store here, and
which of those are open depends on the order of the records. So Spark gives a row for each group and
time instead, with the `ORDER` of its records.
"""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.specs import SessionSpec
from kafka_pipeline.streams.sql.plan import expressions, input_column, items, kind, seq, with_column
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.streams.sql.state_shape import ORDER

_MARK = "spark.sessionWindow"


def is_session(column: Any) -> bool:
    """Whether a grouping column is what `session_window(…)` gives."""
    return kind(column) == "AttributeReference" and _MARK in str(column.metadata().json())


def session_of(made: Any, jvm: Any) -> SessionSpec:
    """Return the sessions of `session_window(…)`, from the struct that it makes.

    Raises `QueryError` if the gap is not a constant number of milliseconds above 0.
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
    if gap_us <= 0:
        raise QueryError("the gap of session_window(…) must be above 0")
    return SessionSpec(gap_ms=whole_ms(gap_us))


def whole_ms(time_us: int) -> int:
    """Return a time of a window in ms. Raises `QueryError` unless it is whole milliseconds."""
    if time_us % 1000:
        raise QueryError("the times of windows must be whole milliseconds")
    return int(time_us) // 1000


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
