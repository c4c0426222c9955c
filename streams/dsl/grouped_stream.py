"""Streams whose records are grouped by key, and their aggregates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from streams import serdes
from streams.dsl.aggregates import (
    AggregateFunctions,
    AggregateStream,
    counting,
    reducing,
)
from streams.dsl.graph import Graph, Operation, Step, call
from streams.dsl.stream_steps import StreamSteps
from streams.dsl.table_values import StoredValues, TableValues
from streams.serdes import Serde

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class TableMaker(Protocol[T_co]):
    """Makes the table of a step; the class `Table`."""

    def __call__(
        self, graph: Graph, step: Step, values: TableValues, is_versioned: bool = False
    ) -> T_co: ...


class GroupedStream(Generic[T]):
    """A stream by key, ready to be aggregated; `group_by_key` and `group_by` make it.

    Records without a key or a value are dropped, and counted.

    `name` is that of the step, of its store and of its state topic. `value_serde` writes the
    aggregates; by default, that is the builder's.
    """

    def __init__(
        self,
        stream: StreamSteps,
        table: TableMaker[T],
        name: str | None,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
    ) -> None:
        """For the DSL itself; `name` is that of the repartition, if there is one."""
        self.stream = stream
        self.table = table
        self._name = name
        self._key_serde = key_serde
        self._value_serde = value_serde

    def count(
        self,
        *,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
        history_retention_ms: int | None = None,
    ) -> T:
        """Return the table of the number of records per key; written as `serdes.int64`."""
        serde = value_serde or serdes.int64
        return self._aggregate("count", counting(), name, serde, history_retention_ms)

    def reduce(
        self,
        reducer: Callable[[Any, Any], Any],
        *,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
        history_retention_ms: int | None = None,
    ) -> T:
        """Return the table of `reducer(aggregate, value)` per key.

        The first value of a key is its first aggregate.
        """
        call(reducer, "reduce", "a function of aggregate and value", name)
        serde = value_serde or self._value_serde or self.step().value_serde
        return self._aggregate("reduce", reducing(reducer), name, serde, history_retention_ms)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        *,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
        history_retention_ms: int | None = None,
    ) -> T:
        """Return the table of `adder(key, value, aggregate)` per key.

        The first aggregate of a key is what `initializer()` returns. The adder may change the
        aggregate and return it. If it returns `None`, the key has no aggregate any more. With
        `history_retention_ms`, the table is versioned (KIP-914).
        """
        call(initializer, "aggregate", "a function without arguments to begin with", name)
        call(adder, "aggregate", "a function of key, value and aggregate", name)
        serde = value_serde or self.stream.graph.value_serde
        functions = AggregateFunctions(initializer, adder)
        return self._aggregate("aggregate", functions, name, serde, history_retention_ms)

    def step(self) -> Step:
        """Return the step whose records are in the partitions of their keys."""
        return self.stream.keyed(
            self._name, key_serde=self._key_serde, value_serde=self._value_serde
        )

    def _aggregate(
        self,
        verb: str,
        functions: AggregateFunctions,
        name: str | None,
        value_serde: Serde[Any],
        history_retention_ms: int | None,
    ) -> T:
        graph = self.stream.graph
        step = add_stateful(
            graph,
            verb,
            name,
            self.step(),
            lambda store: AggregateStream(verb, store, history_retention_ms, functions),
            key_serde=self._key_serde,
            value_serde=value_serde,
        )
        values = StoredValues(step.name, verb)
        return self.table(graph, step, values, history_retention_ms is not None)


def add_stateful(
    graph: Graph,
    verb: str,
    name: str | None,
    parent: Step,
    operation: Callable[[str], Operation],
    *,
    key_serde: Serde[Any] | None = None,
    value_serde: Serde[Any] | None = None,
) -> Step:
    """Add a step with a store; `operation` takes the store's name, which is the step's."""
    name = graph.required_name(verb, name, parent, "its store")
    store = name or graph.generated_name(verb, parent)
    return graph.add(
        operation(store), [parent], store, key_serde=key_serde, value_serde=value_serde
    )
