"""What the aggregations of `agg` keep for each key, and how that becomes a result."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kafka_pipeline.common.json_text import coerced_names
from kafka_pipeline.streams.dsl.aggregate_functions import AggregateFunctions
from kafka_pipeline.streams.dsl.distinct_count import DistinctCount
from kafka_pipeline.streams.dsl.expression_rows import row_function
from kafka_pipeline.streams.dsl.expressions import Expression, reads_timestamp
from kafka_pipeline.streams.errors import StreamsError, TopologyError
from kafka_pipeline.streams.serdes import Serde

_NUMBERS = frozenset((int, float))


class Kind(ABC):
    """How one kind of aggregation works. Its state is `None` as long as no value has come.

    A state consists of numbers, strings, bytes and lists.
    """

    @abstractmethod
    def add(self, state: Any, value: Any) -> Any:
        """Return the state with a value, which is not null. Raises `StreamsError`."""

    @abstractmethod
    def merge(self, a: Any, b: Any) -> Any:
        """Return the state of two states, of which the first comes first; neither is `None`."""

    def result(self, state: Any) -> Any:
        """Return what the aggregation gives."""
        return state


class Count(Kind):
    """Counts values."""

    def add(self, state: Any, value: Any) -> Any:
        return (state or 0) + 1

    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def result(self, state: Any) -> Any:
        return state or 0


class Sum(Kind):
    """Adds numbers."""

    def add(self, state: Any, value: Any) -> Any:
        return _number(value) if state is None else self.merge(state, _number(value))

    def merge(self, a: Any, b: Any) -> Any:
        try:
            return a + b
        except OverflowError:
            raise StreamsError("an int that is too large for a float") from None


class Average(Kind):
    """Keeps the sum of numbers and their count."""

    _sum = Sum()

    def add(self, state: Any, value: Any) -> Any:
        total, count = state or (None, 0)
        return [self._sum.add(total, value), count + 1]

    def merge(self, a: Any, b: Any) -> Any:
        return [self._sum.merge(a[0], b[0]), a[1] + b[1]]

    def result(self, state: Any) -> Any:
        if state is None:
            return None
        try:
            return state[0] / state[1]
        except OverflowError:
            raise StreamsError("an average that is too large for a float") from None


class Extreme(Kind):
    """Keeps the smallest or the largest value."""

    def __init__(self, is_max: bool) -> None:
        self._is_max = is_max

    def add(self, state: Any, value: Any) -> Any:
        if type(value) not in (int, float, str, bytes):
            raise StreamsError(f"numbers, strings or bytes have an order, not {_type(value)}")
        return value if state is None else self.merge(state, value)

    def merge(self, a: Any, b: Any) -> Any:
        if type(a) is not type(b) and not {type(a), type(b)} <= _NUMBERS:
            raise StreamsError(f"there is no order between {_type(a)} and {_type(b)}")
        if a != a:
            return b
        return b if (b > a if self._is_max else b < a) else a


class First(Kind):
    """Keeps the first value, as JSON."""

    def add(self, state: Any, value: Any) -> Any:
        return _json(value) if state is None else state

    def merge(self, a: Any, b: Any) -> Any:
        return a

    def result(self, state: Any) -> Any:
        return None if state is None else json.loads(state)


class Last(First):
    """Keeps the last value, as JSON."""

    def add(self, state: Any, value: Any) -> Any:
        return _json(value)

    def merge(self, a: Any, b: Any) -> Any:
        return b


class Distinct(Kind):
    """Keeps a sketch of the values."""

    def add(self, state: Any, value: Any) -> Any:
        sketch = DistinctCount(state)
        sketch.add(value)
        return sketch.state

    def merge(self, a: Any, b: Any) -> Any:
        sketch = DistinctCount(a)
        sketch.merge(DistinctCount(b))
        return sketch.state

    def result(self, state: Any) -> Any:
        return DistinctCount(state).estimate()


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregation of an expression; `agg` makes it."""

    name: str
    expression: Expression | None
    kind: Kind

    def __repr__(self) -> str:
        return f"agg.{self.name}({'' if self.expression is None else repr(self.expression)})"


# The states in a store: JSON, with NaN and infinities, and with bytes as {"bytes": base64}


def _encode(item: bytes) -> object:
    return {"bytes": b64encode(item).decode()}


def _decode(item: dict[str, str]) -> bytes:
    return b64decode(item["bytes"])


_encoder = json.JSONEncoder(separators=(",", ":"), default=_encode)
_decoder = json.JSONDecoder(object_hook=_decode)

STATES: Serde[Any] = Serde(
    "states",
    lambda states: _encoder.encode(states).encode(),
    lambda data: _decoder.decode(data.decode()),
)
"""Writes the states of aggregations."""


Field = tuple[str, Aggregation, Callable[[Any, Any, Any], Any]]
"""The name of a field, its aggregation, and the function that computes the expression."""


class DerivedAggregate(Protocol):
    """An aggregate whose result is made of what is in the store."""

    serde: Serde[Any]
    """Writes what is in the store."""

    @property
    def functions(self) -> AggregateFunctions:
        """The functions of what is in the store."""

    def result(self, states: list[Any]) -> Any:
        """Return the result."""


def field_aggregates(
    fields: Mapping[str, object], name: str | None, **functions: object
) -> FieldAggregates:
    """Return the aggregations of a call of `aggregate`. Raises `TopologyError`."""
    step = f'aggregate "{name}"' if name else "aggregate"
    for what, given in functions.items():
        if given is not None:
            raise TopologyError(
                f"{step} has {what} and {next(iter(fields))}=…: give either functions, or "
                "aggregations such as agg.count()"
            )
    return FieldAggregates(fields, step)


class FieldAggregates:
    """Several aggregations as the fields of one aggregate, which is a list of their states."""

    serde = STATES

    def __init__(self, fields: Mapping[str, object], step: str) -> None:
        """`step` is for messages. Raises `TopologyError`."""
        self._step = step
        self._fields: list[Field] = []
        for name, given in fields.items():
            if not isinstance(given, Aggregation):
                raise TopologyError(
                    f"{step} has {name}={given!r}: give an aggregation of agg, such as agg.count() "
                    "or agg.sum(col(…))"
                )
            expression = given.expression
            if expression is not None and reads_timestamp(expression):
                raise TopologyError(
                    f"{step} has {name}={given!r}: there is no timestamp here; put it into the "
                    "value with map_values first"
                )
            row = _one if expression is None else row_function(expression)
            self._fields.append((name, given, row))

    @property
    def functions(self) -> AggregateFunctions:
        """The functions of the aggregate."""
        return AggregateFunctions(self._begin, self._add, None, self._merge)

    def result(self, states: list[Any]) -> dict[str, Any]:
        """Return the fields with their results."""
        results = {}
        for (name, aggregation, _), state in zip(self._fields, states, strict=True):
            try:
                results[name] = aggregation.kind.result(state)
            except StreamsError as error:
                raise self._error(name, aggregation, error) from error
        return results

    def _begin(self) -> list[Any]:
        return [None] * len(self._fields)

    def _add(self, key: Any, value: Any, states: list[Any]) -> list[Any]:
        for index, (name, aggregation, row) in enumerate(self._fields):
            try:
                found = row(key, value, None)
                if found is not None:
                    states[index] = aggregation.kind.add(states[index], found)
            except StreamsError as error:
                raise self._error(name, aggregation, error) from error
        return states

    def _merge(self, key: Any, a: list[Any], b: list[Any]) -> list[Any]:
        merged = []
        for (name, aggregation, _), one, other in zip(self._fields, a, b, strict=True):
            try:
                if one is None or other is None:
                    merged.append(other if one is None else one)
                else:
                    merged.append(aggregation.kind.merge(one, other))
            except StreamsError as error:
                raise self._error(name, aggregation, error) from error
        return merged

    def _error(self, name: str, aggregation: Aggregation, error: StreamsError) -> StreamsError:
        return StreamsError(f"{self._step}, {name}={aggregation!r}: {error}")


def _one(key: Any, value: Any, timestamp: Any) -> int:
    return 1


def _number(value: Any) -> Any:
    if type(value) not in _NUMBERS:
        raise StreamsError(f"this takes numbers, not {_type(value)}")
    return value


def _type(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _json(value: Any) -> str:
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    except (TypeError, ValueError, RecursionError):
        raise StreamsError(f"this keeps what JSON can hold, not {_type(value)}") from None
    for name in coerced_names(value, text):
        raise StreamsError(f"this keeps what JSON can hold: names are strings, not {_type(name)}")
    return text
