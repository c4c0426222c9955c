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
class Times:
    """A sum of times and intervals: how often it has the time of each side, and some µs."""

    left: int = 0
    right: int = 0
    us: int = 0

    def __add__(self, other: Times) -> Times:
        """Add another sum."""
        return Times(self.left + other.left, self.right + other.right, self.us + other.us)

    def __neg__(self) -> Times:
        """Subtract it from zero."""
        return Times(-self.left, -self.right, -self.us)

    def __sub__(self, other: Times) -> Times:
        """Subtract another sum."""
        return self + -other


@dataclass(frozen=True, slots=True)
class TimeComparison:
    """A condition on the time of the right record minus that of the left one, in µs."""

    operator: Comparing
    difference_us: int

    @classmethod
    def of(cls, first: Times, operator: Comparing, second: Times) -> TimeComparison | None:
        """Return what two sums say that are compared; `None` unless that is about both sides."""
        difference = first - second
        match difference.left, difference.right:
            case -1, 1:
                return cls(operator, -difference.us)
            case 1, -1:
                return cls(_MIRRORED[operator], difference.us)
        return None


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
