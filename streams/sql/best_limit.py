"""Finds out how many rows of a group the conditions above `row_number()` keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kafka_pipeline.streams.sql.origins import id_of, origin
from kafka_pipeline.streams.sql.plan import Step, items, kind
from kafka_pipeline.streams.sql.spec import QueryError

_LESS = {"LessThanOrEqual": 0, "LessThan": 1, "EqualTo": 0, "EqualNullSafe": 0}
"""Comparisons that limit their left side, with what to subtract from the right one."""

_GREATER = {"GreaterThanOrEqual": 0, "GreaterThan": 1, "EqualTo": 0, "EqualNullSafe": 0}
"""Comparisons that limit their right side, with what to subtract from the left one."""


def most_rows(above: Sequence[Step], place: Any, max_collected: int, rdd_id: int) -> int:
    """Return how many rows of a group the operators above keep; `place` is their number.

    Raises `QueryError` if there is no limit, or if it is below 1 or above `max_collected`.
    """
    name = place.name()
    limits = [
        limit
        for step in above
        if kind(step.node) == "Filter"
        for condition in _conjuncts(step.node.condition())
        for value, limit in _limits(condition)
        if _is_column(value, place, step.children[step.index], rdd_id)
    ]
    if not limits:
        raise QueryError(
            "row_number() without a limit would keep all rows of a group: write SELECT … FROM "
            f"(SELECT …, row_number() OVER (…) AS {name} FROM …) WHERE {name} <= 3"
        )
    size = min(limits)
    if size < 1:
        raise QueryError(f"row_number() begins with 1, so no row has {name} <= {size}")
    if size > max_collected:
        raise QueryError(
            f"{name} <= {size} keeps more rows of a group than max_collected allows, which is "
            f"{max_collected}"
        )
    return size


def _is_column(value: Any, wanted: Any, below: Any, rdd_id: int) -> bool:
    """Whether an expression over an operator is a column from further below."""
    while kind(value) == "Cast":
        value = value.child()
    if kind(value) != "AttributeReference":
        return False
    found = origin(value, below, rdd_id)
    return kind(found) == "AttributeReference" and id_of(found) == id_of(wanted)


def _conjuncts(condition: Any) -> Iterator[Any]:
    if kind(condition) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _limits(condition: Any) -> Iterator[tuple[Any, int]]:
    """Yield expressions that a condition limits, with the largest integer that each may be."""
    name = kind(condition)
    if name == "In":
        values = [_integer(each) for each in items(condition.list())]
        found = [value for value in values if value is not None]
        if len(found) == len(values):
            yield condition.value(), max(found)
    elif name == "Between":
        limit = _integer(condition.upper())
        if limit is not None:
            yield condition.input(), limit
    elif name in _LESS or name in _GREATER:
        left, right = condition.left(), condition.right()
        for value, constant, less in ((left, right, _LESS), (right, left, _GREATER)):
            limit = _integer(constant)
            if limit is not None and name in less:
                yield value, limit - less[name]


def _integer(value: Any) -> int | None:
    """Return the value of a constant expression; `None` if it is not an integer."""
    if not value.foldable():
        return None
    found = value.eval(None)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
