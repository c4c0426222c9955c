"""What a query keeps, in words, for `pipeline validate` and `pipeline describe`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from common.specs import GroupingSpec, JoinSpec, SqlSpec, TopicTableSpec
from streams.sql.query_text import read_groups

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))


def kept_groups(spec: SqlSpec, grouping: GroupingSpec) -> str:
    """Return which rows a query with GROUP BY keeps, and for how long."""
    groups = read_groups(spec.query, [*spec.tables, *spec.topic_tables])
    assert groups is not None, "there is a grouping"
    rows = f"a row for each {', '.join(groups.columns)}"
    if grouping.window is None:
        return rows
    return f"{rows}, until {_spoken(grouping.grace_ms)} after the window"


def kept_sides(join: JoinSpec) -> str:
    """Return which records a join of two inputs keeps, and for how long."""
    span_ms = max(join.before_ms + join.after_ms, 0) + join.grace_ms
    return f"the records of {join.left} and {join.right}, for {_spoken(span_ms)}"


def kept_tables(tables: Mapping[str, TopicTableSpec]) -> Iterator[str]:
    """Yield what is kept of tables that follow topics, of each task's partitions."""
    for name, table in tables.items():
        yield f"the last record of each key of {table.topic}, as table {name}"


def _spoken(duration_ms: int) -> str:
    """Return a time in the largest unit in which it is whole, such as `90 min`."""
    for unit, length_ms in _UNITS:
        if duration_ms >= length_ms and duration_ms % length_ms == 0:
            return f"{duration_ms // length_ms:,} {unit}"
    return "0 s"
