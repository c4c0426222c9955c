"""The functions that make aggregates.

The functions of the user may change an aggregate and return it, instead of making a new one: each
one that they get was read for this call. Where the old aggregate is sent on as well, it is read
once more before they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Initializer = Callable[[], Any]
Adder = Callable[[Any, Any, Any], Any]
Reducer = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class AggregateFunctions:
    """The functions of an aggregate: `initializer()` and `adder(key, value, aggregate)`.

    `subtractor`, for tables, takes a value out of an aggregate. `merger(key, a, b)`, for sessions,
    makes one aggregate of two; the first of them may be what `initializer` returned.
    """

    initializer: Initializer
    adder: Adder
    subtractor: Adder | None = None
    merger: Adder | None = None

    def first(self, key: Any, value: Any) -> Any:
        """Return the aggregate of one value."""
        return self.adder(key, value, self.initializer())


def counting() -> AggregateFunctions:
    """Return the functions that count."""
    return AggregateFunctions(_zero, _plus_one, _minus_one, _sum)


def reducing(reducer: Reducer, subtractor: Reducer | None = None) -> AggregateFunctions:
    """Return the functions that combine an aggregate with a value of the same type."""

    def add(key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else reducer(aggregate, value)

    def subtract(key: Any, value: Any, aggregate: Any) -> Any:
        assert subtractor is not None
        return subtractor(aggregate, value)

    def merge(key: Any, a: Any, b: Any) -> Any:
        return b if a is None else reducer(a, b)

    return AggregateFunctions(_nothing, add, None if subtractor is None else subtract, merge)


def _nothing() -> None:
    return None


def _zero() -> int:
    return 0


def _plus_one(key: Any, value: Any, count: int) -> int:
    return count + 1


def _minus_one(key: Any, value: Any, count: int) -> int:
    return count - 1


def _sum(key: Any, a: int, b: int) -> int:
    return a + b
