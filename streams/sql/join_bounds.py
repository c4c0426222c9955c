"""The bounds of a join of two inputs: which times of records its condition accepts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kafka_pipeline.streams.sql.spec import QueryError

Comparing = Literal["<", "<=", "=", ">=", ">"]

EXAMPLE = (
    "FROM orders o JOIN payments p ON o.key = p.key AND p.timestamp BETWEEN o.timestamp - INTERVAL "
    "5 MINUTES AND o.timestamp + INTERVAL 10 MINUTES"
)
HOW_TO_JOIN = (
    "two inputs are joined by INNER, LEFT, RIGHT, FULL, LEFT SEMI or LEFT ANTI JOIN with ON or "
    f"USING, or by a comma and WHERE, as in {EXAMPLE}"
)
SEVERAL_JOINS = (
    "one SELECT joins inputs more than once: put the first one into a subquery of FROM, which "
    "gives the key and the timestamp for the next one"
)
_MIRRORED: dict[str, Comparing] = {"<": ">", "<=": ">=", "=": "=", ">=": "<=", ">": "<"}


@dataclass(frozen=True, slots=True)
class TimeComparison:
    """A condition on the time of the right record minus that of the left one, in µs."""

    operator: Comparing
    difference_us: int

    @classmethod
    def of_sides(
        cls, first: tuple[int, int], operator: Comparing, second: tuple[int, int]
    ) -> TimeComparison | None:
        """Return what two times say that are compared; `None` if they are of the same side.

        Each is a side, 0 for the left one, and how much is added to the time of its record.
        """
        if first[0] == second[0]:
            return None
        if first[0] == 1:
            return cls(operator, second[1] - first[1])
        return cls(_MIRRORED[operator], first[1] - second[1])


def bounds_of(comparisons: Iterable[TimeComparison]) -> tuple[int, int] | None:
    """Return how much older and younger the right record may be, in ms; either may be negative.

    Times of records are whole milliseconds. Returns `None` unless there are both bounds, and raises
    `QueryError` if they exclude each other.
    """
    low: list[int] = []
    high: list[int] = []
    for each in comparisons:
        if each.operator in (">", ">=", "="):
            low.append(-((-each.difference_us - (each.operator == ">")) // 1000))
        if each.operator in ("<", "<=", "="):
            high.append((each.difference_us - (each.operator == "<")) // 1000)
    if not low or not high:
        return None
    if max(low) > min(high):
        raise QueryError("no two records can meet: the bounds of the join exclude each other")
    return -max(low), min(high)
