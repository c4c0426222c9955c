"""What the aggregations of `agg` keep for each key, and how that becomes a result."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from kafka_pipeline.common.json_text import coerced_names, read_fast
from kafka_pipeline.common.suggest import a_type
from kafka_pipeline.streams.dsl.aggregate_functions import AggregateFunctions
from kafka_pipeline.streams.dsl.distinct_count import DistinctCount
from kafka_pipeline.streams.dsl.expression_rows import row_function
from kafka_pipeline.streams.dsl.expressions import Expression, reads_timestamp
from kafka_pipeline.streams.errors import StreamsError, TopologyError
from kafka_pipeline.streams.serdes import Serde

_NUMBERS = frozenset((int, float))
_ORDERED = _NUMBERS | {str, bytes}
_TOO_LARGE = "an int that is too large for a float"


class AggregationKind(ABC):
    """How one kind of aggregation works. Its state is `None` as long as no value has come.

    A state consists of numbers, strings, bytes and lists.
    """

    @abstractmethod
    def add(self, state: Any, value: Any) -> Any:
        """Return the state with a value, which is not null. Raises `StreamsError`."""

    def add_to_each(self, states: Sequence[Any], value: Any) -> list[Any]:
        """Return each of several states with a value; see `add`."""
        return [self.add(state, value) for state in states]

    @property
    def of_table(self) -> Retractable | None:
        """The same for a table, or `None` if a value cannot be taken out of the state again."""
        return None

    @abstractmethod
    def merge(self, a: Any, b: Any) -> Any:
        """Return the state of both, `a` before `b` in the order of records; neither is `None`."""

    def result(self, state: Any) -> Any:
        """Return what the aggregation gives."""
        return state


class Retractable(AggregationKind):
    """A kind of aggregation whose values can be taken out again."""

    @property
    def of_table(self) -> Retractable:
        return self

    @abstractmethod
    def subtract(self, state: Any, value: Any) -> Any:
        """Return the state without a value that was added before. Raises `StreamsError`."""


class Count(Retractable):
    """Counts values."""

    def add(self, state: Any, value: Any) -> Any:
        return (state or 0) + 1

    def add_to_each(self, states: Sequence[Any], value: Any) -> list[Any]:
        return [(state or 0) + 1 for state in states]

    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def subtract(self, state: Any, value: Any) -> Any:
        return (state or 0) - 1

    def result(self, state: Any) -> Any:
        return state or 0


class Sum(AggregationKind):
    """Adds numbers."""

    @property
    def of_table(self) -> Retractable:
        return ExactSum()

    def add(self, state: Any, value: Any) -> Any:
        return _number(value) if state is None else self.merge(state, _number(value))

    def add_to_each(self, states: Sequence[Any], value: Any) -> list[Any]:
        number = _number(value)
        try:
            return [number if state is None else state + number for state in states]
        except OverflowError:
            raise StreamsError(_TOO_LARGE) from None

    def merge(self, a: Any, b: Any) -> Any:
        try:
            return a + b
        except OverflowError:
            raise StreamsError(_TOO_LARGE) from None


class Average(AggregationKind):
    """Keeps the sum of numbers and their count."""

    _sum = Sum()

    @property
    def of_table(self) -> Retractable:
        return ExactAverage()

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


class ExactSum(Retractable):
    """Adds numbers and takes them out again.

    Keeps the exact sum as an integer and how often to halve it, which every float has, the count of
    numbers and that of the floats among them: what is taken out leaves no rounding error.
    """

    def add(self, state: Any, value: Any) -> Any:
        return self._changed(state, value, 1)

    def subtract(self, state: Any, value: Any) -> Any:
        return self._changed(state, value, -1)

    def merge(self, a: Any, b: Any) -> Any:
        halvings = max(a[1], b[1])
        total = (a[0] << halvings - a[1]) + (b[0] << halvings - b[1])
        # An even number need not be halved: the state stays small. Zero has no last bit.
        even = min(halvings, (total & -total).bit_length() - 1) if total else halvings
        return [total >> even, halvings - even, a[2] + b[2], a[3] + b[3]]

    def result(self, state: Any) -> Any:
        if state is None or not state[2]:
            return None
        total, halvings, _, floats = state
        return _quotient(total, 1 << halvings, "a sum") if halvings or floats else total

    def _changed(self, state: Any, value: Any, sign: int) -> Any:
        number = _number(value)
        is_float = number.__class__ is float
        if is_float and not math.isfinite(number):
            raise StreamsError(f"a sum of a table takes finite numbers, not {number}")
        numerator, denominator = number.as_integer_ratio()
        change = [sign * numerator, denominator.bit_length() - 1, sign, sign * is_float]
        return change if state is None else self.merge(state, change)


class ExactAverage(ExactSum):
    """Divides an exact sum by the count of numbers."""

    def result(self, state: Any) -> Any:
        if state is None or not state[2]:
            return None
        total, halvings, count, _ = state
        return _quotient(total, count << halvings, "an average")


class Extreme(AggregationKind):
    """Keeps the smallest or the largest value."""

    def __init__(self, is_max: bool) -> None:
        self._is_max = is_max

    def add(self, state: Any, value: Any) -> Any:
        if type(value) not in _ORDERED:
            raise StreamsError(f"numbers, strings or bytes have an order, not {a_type(value)}")
        return value if state is None else self.merge(state, value)

    def add_to_each(self, states: Sequence[Any], value: Any) -> list[Any]:
        if type(value) not in _ORDERED or not {type(value)}.issuperset(map(type, states)):
            return super().add_to_each(states, value)
        if self._is_max:
            return [value if state != state or value > state else state for state in states]
        return [value if state != state or value < state else state for state in states]

    def merge(self, a: Any, b: Any) -> Any:
        if type(a) is not type(b) and not {type(a), type(b)} <= _NUMBERS:
            raise StreamsError(f"there is no order between {a_type(a)} and {a_type(b)}")
        if a != a:
            return b
        return b if (b > a if self._is_max else b < a) else a


class First(AggregationKind):
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


class Distinct(AggregationKind):
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
    kind: AggregationKind

    def of_table(self) -> Aggregation | None:
        """Return the aggregation for the groups of a table, or `None` if there is none."""
        kind = self.kind.of_table
        return None if kind is None else replace(self, kind=kind)

    def __repr__(self) -> str:
        return f"agg.{self.name}({'' if self.expression is None else repr(self.expression)})"


# The states in a store: JSON, with NaN and infinities, and with bytes as {"bytes": base64}


def _encode(item: bytes) -> object:
    return {"bytes": b64encode(item).decode()}


def _decode(item: dict[str, str]) -> bytes:
    return b64decode(item["bytes"])


_encoder = json.JSONEncoder(separators=(",", ":"), default=_encode)
_decoder = json.JSONDecoder(object_hook=_decode)

_write_fast = msgspec.json.Encoder().encode


def _write(states: Any) -> bytes:
    try:
        data = _write_fast(states)
        # It writes NaN and infinities as null, and bytes as strings.
        if (b"null" not in data and b'"' not in data) or read_fast(data) == states:
            return data
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        pass  # the slow way says what is wrong, if anything is
    return _encoder.encode(states).encode()


def _read(data: bytes) -> Any:
    if b"{" not in data:
        try:
            return read_fast(data)
        except (msgspec.MsgspecError, ValueError):
            pass
    return _decoder.decode(data.decode())


STATES: Serde[Any] = Serde("states", _write, _read)
"""Writes the states of aggregations."""


Field = tuple[str, Aggregation, Callable[[Any, Any, Any], Any], Callable[[Any, Any], Any]]
"""The name of a field, its aggregation, the function that computes the expression, and the one that
adds what it gives to a state."""


class DerivedAggregate(Protocol):
    """An aggregate whose result is made of what is in the store."""

    serde: Serde[Any]
    """Writes what is in the store."""

    @property
    def functions(self) -> AggregateFunctions:
        """The functions of what is in the store."""

    def result(self, states: list[Any]) -> Any:
        """Return the result."""


class FieldAggregates:
    """Several aggregations as the fields of one aggregate, which is a list of their states."""

    serde = STATES

    def __init__(
        self, fields: Mapping[str, object], step: object, *, of_table: bool = False
    ) -> None:
        """Check the fields of the step that is called `step`, if it has a name.

        With `of_table`, values can be taken out again. Raises `TopologyError`.
        """
        self._step = _called(step)
        if not fields:
            raise TopologyError(f"{self._step} has no fields: give some, such as n=agg.count()")
        self._fields = [_field(self._step, *each, of_table) for each in fields.items()]
        self._names = [name for name, *_ in self._fields]
        self._derived = [
            (name, aggregation)
            for name, aggregation, *_ in self._fields
            if type(aggregation.kind).result is not AggregationKind.result
        ]
        """The fields whose results are not their states."""
        self._of_table = of_table

    @property
    def functions(self) -> AggregateFunctions:
        """The functions of the aggregate."""
        subtractor = self._subtract if self._of_table else None
        end = " of a table" if self._of_table else ""
        parts = tuple(f"{aggregation!r}{end}" for _, aggregation, *_ in self._fields)
        return AggregateFunctions(
            self._begin, self._add, subtractor, self._merge, parts, self._add_to_each
        )

    def result(self, states: list[Any]) -> dict[str, Any]:
        """Return the fields with their results."""
        results = dict(zip(self._names, states, strict=True))
        for name, aggregation in self._derived:
            try:
                results[name] = aggregation.kind.result(results[name])
            except StreamsError as error:
                raise self._error(name, aggregation, error) from error
        return results

    def _begin(self) -> list[Any]:
        return [None] * len(self._fields)

    def _add(self, key: Any, value: Any, states: list[Any]) -> list[Any]:
        for index, (name, aggregation, row, add) in enumerate(self._fields):
            try:
                found = row(key, value, None)
                if found is not None:
                    states[index] = add(states[index], found)
            except StreamsError as error:
                raise self._error(name, aggregation, error) from error
        return states

    def _add_to_each(self, key: Any, value: Any, aggregates: list[Any]) -> list[Any]:
        """See `AggregateFunctions`. A field of all aggregates is a column."""
        columns: list[Sequence[Any]] = list(zip(*aggregates, strict=True))
        for index, (name, aggregation, row, _) in enumerate(self._fields):
            try:
                found = row(key, value, None)
                if found is not None:
                    columns[index] = aggregation.kind.add_to_each(columns[index], found)
            except StreamsError as error:
                raise self._error(name, aggregation, error) from error
        return list(map(list, zip(*columns, strict=True)))

    def _subtract(self, key: Any, value: Any, states: list[Any]) -> list[Any]:
        for index, (name, aggregation, row, _) in enumerate(self._fields):
            try:
                found = row(key, value, None)
                if found is not None:
                    kind = aggregation.kind
                    assert isinstance(kind, Retractable)
                    states[index] = kind.subtract(states[index], found)
            except StreamsError as error:
                raise self._error(name, aggregation, error) from error
        return states

    def _merge(self, key: Any, a: list[Any], b: list[Any]) -> list[Any]:
        merged = []
        for (name, aggregation, *_), one, other in zip(self._fields, a, b, strict=True):
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


def _called(step: object) -> str:
    if step is None:
        return "agg"
    if not isinstance(step, str):
        raise TopologyError(
            f"agg has {step!r} before its fields: that place is for the name of the step, and each "
            "field has a name too, such as n=agg.count()"
        )
    return f'agg "{step}"'


def _field(step: str, name: str, given: object, of_table: bool) -> Field:
    if not isinstance(given, Aggregation):
        raise TopologyError(
            f"{step} has {name}={given!r}: give an aggregation of agg, such as agg.count() or "
            f"agg.sum(col(…)){_OPTIONS if name in _OWN else ''}"
        )
    expression = given.expression
    if expression is not None and reads_timestamp(expression):
        raise TopologyError(
            f"{step} has {name}={given!r}: there is no timestamp here; put it into the value with "
            "map_values first"
        )
    found = given.of_table() if of_table else given
    if found is None:
        raise TopologyError(
            f"{step} has {name}={given!r}: the groups of a table take out the old values again, "
            f"which agg.{given.name} cannot do; give agg.count, agg.sum or agg.avg, or use "
            "aggregate(initializer, adder, subtractor)"
        )
    row = _one if expression is None else row_function(expression)
    return name, found, row, found.kind.add


_OWN = ("name", "value_serde", "history_retention_ms")
_OPTIONS = "; the step's own arguments come first, by position: agg(name, value_serde, …)"


def _one(key: Any, value: Any, timestamp: Any) -> int:
    return 1


def _quotient(numerator: int, denominator: int, what: str) -> float:
    try:
        return numerator / denominator
    except OverflowError:
        raise StreamsError(f"{what} that is too large for a float") from None


def _number(value: Any) -> Any:
    if type(value) not in _NUMBERS:
        raise StreamsError(f"this takes numbers, not {a_type(value)}")
    return value


def _json(value: Any) -> str:
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    except (TypeError, ValueError, RecursionError):
        raise StreamsError(f"this keeps what JSON can hold, not {a_type(value)}") from None
    for name in coerced_names(value, text):
        raise StreamsError(f"this keeps what JSON can hold: names are strings, not {a_type(name)}")
    return text
