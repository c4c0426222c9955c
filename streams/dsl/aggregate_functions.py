"""The functions of aggregates, and a fold that applies them to a batch.

User functions may change an aggregate in place and return it: each call gets a copy that was read
for it. If the old aggregate is forwarded too, it is read a second time before the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores.bytes_store import Changes
from kafka_pipeline.streams.stores.layout import TIME_BYTES, pack_signed_time, signed_time

Initializer = Callable[[], Any]
Adder = Callable[[Any, Any, Any], Any]
Reducer = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class AggregateFunctions:
    """The functions of an aggregate: `initializer()` and `adder(key, value, aggregate)`.

    `subtractor`, for tables, takes a value out of an aggregate. `merger(key, a, b)`, for sessions,
    makes one aggregate of two; the first of them may be what `initializer` returned. `parts` says
    what an aggregate of the engine itself consists of, in words. `adder_to_each(key, value,
    aggregates)`, if there is one, adds the value to each of several aggregates at less cost. It
    returns others, and leaves those given as they are, which read the same as they were written.
    """

    initializer: Initializer
    adder: Adder
    subtractor: Adder | None = None
    merger: Adder | None = None
    parts: tuple[str, ...] = ()
    adder_to_each: Callable[[Any, Any, list[Any]], list[Any]] | None = None

    def add_to_each(self, key: Any, value: Any, aggregates: list[Any]) -> list[Any]:
        """Add a value to each of several aggregates."""
        if self.adder_to_each is not None:
            return self.adder_to_each(key, value, aggregates)
        adder = self.adder
        return [adder(key, value, each) for each in aggregates]

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

    return AggregateFunctions(nothing, add, None if subtractor is None else subtract, merge)


def nothing() -> None:
    """Begin an aggregate without a value."""


def _zero() -> int:
    return 0


def _plus_one(key: Any, value: Any, count: int) -> int:
    return count + 1


def _minus_one(key: Any, value: Any, count: int) -> int:
    return count - 1


def _sum(key: Any, a: int, b: int) -> int:
    return a + b


_SAME_WHEN_READ: tuple[tuple[Serde[Any], type], ...] = (
    (serdes.integer, int),
    (serdes.int32, int),
    (serdes.int64, int),
    (serdes.json, int),
    (serdes.json, str),
    (serdes.string, str),
    (serdes.bytes, bytes),
)
"""Serdes and types whose values survive a round trip unchanged and are immutable.

Equal values of such a type have equal bytes, which does not hold for floats.
"""


def same_when_read(serde: Serde[Any]) -> frozenset[type]:
    """Return the types of values that need not be read anew once they were written."""
    return frozenset(kind for each, kind in _SAME_WHEN_READ if each is serde)


@dataclass(slots=True)
class Updates:
    """The results of a batch: the new and the old aggregate for each update.

    The old ones are all `None` unless a child needs them. `times` are the aggregates' timestamps.
    """

    new: list[Any]
    old: Sequence[Any]
    times: list[int]


@dataclass(slots=True)
class Folded(Updates):
    """The results of a batch, an update for each record, with the writes to the store."""

    changes: Changes


class Fold:
    """Adds values to aggregates; each call of a function gets an aggregate of its own."""

    def __init__(
        self, functions: AggregateFunctions, value_serde: Serde[Any], sends_old: bool
    ) -> None:
        self._functions = functions
        self._write, self._read = value_serde.serialize, value_serde.deserialize
        self._sends_old = sends_old
        self._reused = same_when_read(value_serde)

    def add(
        self,
        places: Sequence[bytes],
        records: Iterable[tuple[Any, Any, int]],
        found: Iterable[bytes | None],
    ) -> Folded:
        """Add records, each given as key, value and time, to the aggregates at their places.

        A place is the key of an aggregate in the store. `found` has the aggregates as they are
        stored, in the order of `dict.fromkeys(places)`: as bytes that begin with their times.
        Raises `SerializationError`, and whatever user functions raise.
        """
        first, adder = self._functions.first, self._functions.adder
        write, read, reused, sends_old = self._write, self._read, self._reused, self._sends_old
        content: Changes = dict(zip(dict.fromkeys(places), found, strict=True))
        known: dict[bytes, Any] = {}
        """Deserialized aggregates that are safe to reuse."""
        news, times = list[Any](), list[int]()
        olds: list[Any] = []
        for place, (key, value, time) in zip(places, records, strict=True):
            stored = content[place]
            if stored is None:
                new = first(key, value)
                if sends_old:
                    olds.append(None)
            else:
                aggregate = known.get(place)
                if aggregate is None:
                    aggregate = read(stored[TIME_BYTES:])
                if sends_old:
                    is_reused = aggregate.__class__ in reused
                    olds.append(aggregate if is_reused else read(stored[TIME_BYTES:]))
                new = adder(key, value, aggregate)
                former_time = signed_time(stored)
                if former_time > time:
                    time = former_time
            if new is None:
                content[place] = None
                known.pop(place, None)
            else:
                content[place] = pack_signed_time(time) + write(new)
                if new.__class__ in reused:
                    known[place] = new
                elif place in known:
                    del known[place]
            news.append(new)
            times.append(time)
        return Folded(news, olds if sends_old else [None] * len(news), times, content)
