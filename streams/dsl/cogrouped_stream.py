"""Several grouped streams that are aggregated into one table (KIP-150)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from kafka_pipeline.streams.dsl.aggregate_functions import AggregateFunctions
from kafka_pipeline.streams.dsl.aggregates import StreamAggregator
from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step, call
from kafka_pipeline.streams.dsl.grouped import Grouped, TableMaker
from kafka_pipeline.streams.dsl.stateless import PassPart, Stateless, unused
from kafka_pipeline.streams.dsl.table_values import Serdes, StoredValues, table_store
from kafka_pipeline.streams.dsl.window_aggregates import (
    AggregateWindows,
    WindowedAggregate,
    Windows,
)
from kafka_pipeline.streams.dsl.windowed_stream import WindowKind, check_merger, check_windows
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.event_time.step_time import times_store
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import StoreBuilder
from kafka_pipeline.streams.type_variables import V2, K, V
from kafka_pipeline.streams.windowed import Windowed

if TYPE_CHECKING:
    from kafka_pipeline.streams.dsl.streams_and_tables import Table

Adder = Callable[[Any, Any, Any], Any]


class CogroupedStream(Generic[K, V]):
    """Grouped streams, each with a function that adds its records to a common aggregate.

    `GroupedStream.cogroup` makes the first one. Records without a key or a value are dropped, and
    counted. All streams need keys that are written alike, in topics with as many partitions.
    """

    def __init__(
        self, table: TableMaker, groups: Sequence[tuple[Grouped[Any, Any], Adder]]
    ) -> None:
        """For the DSL itself."""
        self._table = table
        self._groups = groups
        call(groups[-1][1], "cogroup", "a function of key, value and aggregate")

    def cogroup(
        self, grouped: Grouped[K, V2], adder: Callable[[K, V2, V], V | None]
    ) -> CogroupedStream[K, V]:
        """Add a grouped stream; `adder(key, value, aggregate)` adds its records."""
        if not isinstance(grouped, Grouped):
            raise TopologyError(f"cogroup takes a grouped stream, not {grouped!r}")
        return CogroupedStream(self._table, [*self._groups, (grouped, adder)])

    def aggregate(
        self,
        initializer: Callable[[], V],
        *,
        name: str | None = None,
        value_serde: Serde[V] | None = None,
    ) -> Table[K, V]:
        """Return the table of the common aggregate of each key.

        The first aggregate is what `initializer()` returns.
        """
        call(initializer, "aggregate", "a function without arguments to begin with", name)
        first = self._groups[0][0]
        serde = value_serde or first.graph.value_serde
        steps, name = _parents(self._groups, name)
        after_key = steps[0][0].after_key
        store = table_store(name, first.key_serde, serde, after_key=after_key)
        parts = [
            first.graph.add(
                AddToTable(AggregateFunctions(initializer, adder), store),
                [step],
                f"{name}-{number}",
                key_serde=first.key_serde,
                value_serde=serde,
            )
            for number, (step, adder) in enumerate(steps)
        ]
        step = first.graph.add(one_table(), parts, name)
        return self._table(first.graph, step, StoredValues(name, "aggregate"))

    def windowed_by(
        self, windows: Windows, *, late_to: str | None = None
    ) -> WindowedCogroupedStream[K, V]:
        """Group the records by window as well; see `GroupedStream.windowed_by`.

        All streams have one stream time, by which their records are late. Results come with each
        record.
        """
        check_windows(windows, "on_update", late_to)
        return WindowedCogroupedStream(self._table, self._groups, windows, late_to)


class WindowedCogroupedStream(Generic[K, V]):
    """Grouped streams that are aggregated into one table by key and window."""

    def __init__(
        self,
        table: TableMaker,
        groups: Sequence[tuple[Grouped[Any, Any], Adder]],
        windows: Windows,
        late_to: str | None,
    ) -> None:
        """For the DSL itself."""
        self._table = table
        self._groups = groups
        self._windows = windows
        self._late_to = late_to

    def aggregate(
        self,
        initializer: Callable[[], V],
        *,
        merger: Callable[[K, V, V], V | None] | None = None,
        name: str | None = None,
        value_serde: Serde[V] | None = None,
    ) -> Table[Windowed[K], V]:
        """Return the table of the common aggregate of each key and window.

        The first aggregate is what `initializer()` returns. Sessions need `merger(key, a, b)`.
        """
        call(initializer, "aggregate", "a function without arguments to begin with", name)
        check_merger(self._windows, merger, name)
        first = self._groups[0][0]
        serde = value_serde or first.graph.value_serde
        steps, name = _parents(self._groups, name)
        kind = WindowKind(self._windows, closes=False)
        store = kind.store(name, first.key_serde, serde, steps[0][0].after_key)
        times = times_store(name)
        parts = []
        for number, (step, adder) in enumerate(steps):
            functions = AggregateFunctions(initializer, adder, None, merger)
            aggregate = WindowedAggregate(
                name, "aggregate", functions, self._windows, is_shared=True
            )
            parts.append(
                first.graph.add(
                    AggregateWindows(aggregate, store, times, kind.make(), self._late_to),
                    [step],
                    f"{name}-{number}",
                    key_serde=kind.key_serde(first.key_serde),
                    value_serde=serde,
                )
            )
        table_step = first.graph.add(one_table(), parts, name)
        return self._table(first.graph, table_step, kind.values(name))


def _parents(
    groups: Sequence[tuple[Grouped[Any, Any], Adder]], name: str | None
) -> tuple[list[tuple[Step, Adder]], str]:
    """Return the steps to aggregate, with their functions, and the name of the store."""
    graph = groups[0][0].graph
    steps = [(grouped.keyed(), adder) for grouped, adder in groups]
    first = steps[0][0]
    if len({step for step, _ in steps}) < len(steps):
        raise TopologyError(
            f"cogroup has a stream twice, after {first!r}: each of its records would be added twice"
        )
    name = graph.required_name("aggregate", name, first, "its store")
    return steps, name or graph.generated_name("aggregate", first)


@dataclass(frozen=True, slots=True)
class AddToTable(Operation):
    """Adds the records of one of several streams to a table that they share."""

    verb = "cogroup"

    functions: AggregateFunctions
    store: StoreBuilder[Any, Any]

    def stores(self) -> tuple[str, ...]:
        """Return the name of the store."""
        return (self.store.name,)

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the processor, and the store if it is the first one."""
        compiler.add_store(self.store)
        compiler.builder.add_processor(
            step.name,
            partial(
                StreamAggregator,
                self.store.name,
                "aggregate",
                self.functions,
                Serdes(step.key_serde, step.value_serde),
                compiler.sends_old_values(step),
            ),
            compiler.parents(step),
            stores=self.stores(),
        )
        compiler.produces(step, step.name)


class OneTable(Stateless):
    """Makes one table of the changes that several steps make in one store."""

    __slots__ = ()

    def needs_old_values(self, sends_old_values: bool) -> bool:
        """Return whether old values are asked for: they come from the parents."""
        return sends_old_values


def one_table() -> OneTable:
    """Return the step that makes one table of several steps."""
    return OneTable("aggregate", PassPart, unused)
