"""Aggregates of a stream and of a table, without windows.

The functions of the user may change an aggregate and return it, instead of making a new one: each
one that they get was read for this call. Where the old aggregate is sent on as well, it is read
once more before they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from streams.dsl.change import Change
from streams.dsl.graph import Compiling, Step
from streams.dsl.table_values import TableReader, open_table_store
from streams.dsl.tables import Materialized
from streams.processor import Processor, ProcessorContext
from streams.record import Record

Initializer = Callable[[], Any]
Adder = Callable[[Any, Any, Any], Any]
Reducer = Callable[[Any, Any], Any]

NULL_KEY_OR_VALUE = "null key or value"


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


@dataclass(frozen=True, slots=True)
class AggregateStream(Materialized):
    """Aggregates the values of each key of a stream."""

    functions: AggregateFunctions = field(default_factory=counting)

    def supplier(self, step: Step, compiler: Compiling) -> Callable[[], Processor]:
        """Return the function that makes the processor."""
        return partial(
            StreamAggregator,
            self.store,
            self.method,
            self.functions,
            compiler.sends_old_values(step),
        )


class StreamAggregator(Processor):
    """Adds each record to the aggregate of its key. Null keys and values are dropped."""

    def __init__(
        self, store: str, verb: str, functions: AggregateFunctions, sends_old: bool
    ) -> None:
        self._name = store
        self._verb = verb
        self._functions = functions
        self._sends_old = sends_old

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store = open_table_store(context, self._name, self._verb)

    def process(self, record: Record) -> None:
        key, value, timestamp = record.key, record.value, record.timestamp
        if key is None or value is None:
            self.context.drop(NULL_KEY_OR_VALUE)
            return
        store, functions = self._store, self._functions
        found = store.get(key)
        old = None
        if found is None:
            new = functions.first(key, value)
        else:
            old = kept(store, key) if self._sends_old else None
            new = functions.adder(key, value, found.value)
            timestamp = max(timestamp, found.timestamp)
        is_latest = store.put(key, new, timestamp)
        if is_latest is not None:
            change = Change(new, old, is_latest)
            self.context.forward(Record(key, change, timestamp, record.headers))


def kept(store: TableReader, key: Any) -> Any:
    """Return a copy of the aggregate of `key` that no function of the user has in hand."""
    found = store.get(key)
    return None if found is None else found.value


@dataclass(frozen=True, slots=True)
class AggregateTable(Materialized):
    """Aggregates the values of each group of a table; `functions` has a subtractor."""

    functions: AggregateFunctions = field(default_factory=counting)

    def supplier(self, step: Step, compiler: Compiling) -> Callable[[], Processor]:
        """Return the function that makes the processor."""
        return partial(
            TableAggregator,
            self.store,
            self.method,
            self.functions,
            compiler.sends_old_values(step),
        )


class TableAggregator(Processor):
    """Takes the old value of each change out of its group's aggregate, and adds the new one."""

    def __init__(
        self, store: str, verb: str, functions: AggregateFunctions, sends_old: bool
    ) -> None:
        assert functions.subtractor is not None
        self._name = store
        self._verb = verb
        self._functions = functions
        self._subtract = functions.subtractor
        self._sends_old = sends_old

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store = open_table_store(context, self._name, self._verb)

    def process(self, record: Record) -> None:
        key, change, timestamp = record.key, record.value, record.timestamp
        store, functions = self._store, self._functions
        found = store.get(key)
        old = kept(store, key) if self._sends_old else None
        aggregate = None if found is None else found.value
        if change.old is not None and aggregate is not None:
            aggregate = self._subtract(key, change.old, aggregate)
        if change.new is not None:
            if aggregate is None:
                aggregate = functions.first(key, change.new)
            else:
                aggregate = functions.adder(key, change.new, aggregate)
        if found is not None:
            timestamp = max(timestamp, found.timestamp)
        is_latest = store.put(key, aggregate, timestamp)
        if is_latest is not None:
            result = Change(aggregate, old, is_latest)
            self.context.forward(Record(key, result, timestamp, record.headers))
