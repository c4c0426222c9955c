"""What a query keeps, in words, for `pipeline validate` and `pipeline describe`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafka_pipeline.common.config.durations import spoken
from kafka_pipeline.common.pipelines.specs import GroupingSpec, JoinSpec, TopicTableSpec


def kept_groups(rows: str, grouping: GroupingSpec) -> str:
    """Return which rows a query with groups keeps, and for how long."""
    if grouping.window is None:
        return rows
    return f"{rows}, until {spoken(grouping.grace_ms)} after the window"


def kept_sides(join: JoinSpec) -> str:
    """Return which records a join of two inputs keeps, and for how long."""
    span_ms = max(join.before_ms + join.after_ms, 0) + join.grace_ms
    return f"the records of {join.left} and {join.right}, for {spoken(span_ms)}"


def kept_tables(tables: Mapping[str, TopicTableSpec]) -> Iterator[str]:
    """Yield what is kept of tables that follow topics, of each task's partitions."""
    for name, table in tables.items():
        past = "" if table.history_ms is None else f", with a history of {spoken(table.history_ms)}"
        yield f"the last record of each key of {table.topic}{past}, as table {name}"
