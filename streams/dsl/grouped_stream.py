"""Streams grouped by key, and the aggregates of one or of several of them (KIP-150)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.aggregate_functions import AggregateFunctions, counting, reducing
from kafka_pipeline.streams.dsl.aggregates import AggregateStream, StreamAggregator
from kafka_pipeline.streams.dsl.aggregations import Aggregation, DerivedAggregate, FieldAggregates
from kafka_pipeline.streams.dsl.expressions import Expression
from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step, call
from kafka_pipeline.streams.dsl.stateless import PassPart, Stateless, unused
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.streams.dsl.table_steps import history_ms
from kafka_pipeline.streams.dsl.table_values import StoredValues, TableSerdes, table_store
from kafka_pipeline.streams.dsl.top_n import TopN
from kafka_pipeline.streams.dsl.window_aggregates import (
    AggregateWindows,
    WindowedAggregate,
    Windows,
)
from kafka_pipeline.streams.dsl.windowed_stream import (
    WindowedStream,
    WindowKind,
    check_merger,
    check_windows,
)
from kafka_pipeline.streams.durations import Milliseconds
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.event_time.step_time import times_store
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import StoreBuilder
from kafka_pipeline.streams.type_variables import V2, K, R, V
from kafka_pipeline.streams.windowed import Windowed

if TYPE_CHECKING:
    from kafka_pipeline.streams.dsl.stream import Stream

Adder = Callable[[Any, Any, Any], Any]


class GroupedStream(Generic[K, V]):
    """A stream by key, ready to be aggregated; `group_by_key` and `group_by` make it.

    Records without a key or a value are dropped, and counted.

    `name` is that of the step, of its store and of its state topic. `value_serde` writes the
    aggregates; by default, that is the builder's.
    """

    def __init__(
        self,
        stream: Stream[K, V],
        name: str | None,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
    ) -> None:
        """For the DSL itself; `name` is that of the repartition, if there is one."""
        self.graph = stream.graph
        self.key_serde = key_serde or stream.step.key_serde
        self.value_serde = value_serde or stream.step.value_serde
        self._stream = stream
        self._name = name

    def count(
        self,
        *,
        name: str | None = None,
        value_serde: Serde[int] | None = None,
        history_retention_ms: Milliseconds | None = None,
    ) -> Table[K, int]:
        """Return the table of the number of records per key; written as `serdes.int64`."""
        serde = value_serde or serdes.int64
        return self._aggregate("count", counting(), name, serde, history_retention_ms)

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        *,
        name: str | None = None,
        value_serde: Serde[V] | None = None,
        history_retention_ms: Milliseconds | None = None,
    ) -> Table[K, V]:
        """Return the table of `reducer(aggregate, value)` per key.

        The first value of a key is its first aggregate.
        """
        call(reducer, "reduce", "a function of aggregate and value", name)
        serde = value_serde or self.value_serde
        return self._aggregate("reduce", reducing(reducer), name, serde, history_retention_ms)

    def aggregate(
        self,
        initializer: Callable[[], R],
        adder: Callable[[K, V, R], R | None],
        *,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
        history_retention_ms: Milliseconds | None = None,
    ) -> Table[K, R]:
        """Return the table of `adder(key, value, aggregate)` per key.

        The first aggregate of a key is what `initializer()` returns. The adder may change the
        aggregate and return it. If it returns `None`, the key has no aggregate any more. With
        `history_retention_ms`, the table is versioned (KIP-914).
        """
        call(initializer, "aggregate", "a function without arguments to begin with", name)
        call(adder, "aggregate", "a function of key, value and aggregate", name)
        serde = value_serde or self.graph.value_serde
        functions = AggregateFunctions(initializer, adder)
        return self._aggregate("aggregate", functions, name, serde, history_retention_ms)

    def agg(
        self,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
        history_retention_ms: int | None = None,
        /,
        **fields: Aggregation,
    ) -> Table[K, dict[str, Any]]:
        """Return the table of dicts with these fields per key; `kafka_pipeline.agg` makes them.

            flights.group_by_key().agg("Delays", n=agg.count(), total=agg.sum(col("delay")))

        A field may have any name, so the step's own arguments come first, by position.
        `value_serde` writes the dicts where they are written; the store has what the aggregations
        need. Raises `TopologyError`.
        """
        found = FieldAggregates(fields, name)
        return self._derived("agg", found, name, value_serde, history_retention_ms)

    def top_n(
        self,
        n: int,
        *,
        by: Callable[[K, V], float | str | None] | Expression,
        name: str | None = None,
        ascending: bool = False,
        value_serde: Serde[list[V]] | None = None,
    ) -> Table[K, list[V]]:
        """Return the table of the `n` values per key for which `by` is largest, as lists.

        `by` is a function of key and value, or a column expression; its results are numbers or
        strings. The largest comes first, or the smallest with `ascending`. Of values with the same
        rank, the one that came first wins. Values for which `by` is `None` or NaN do not take part.
        Each record is a candidate of its own, as in a Top-N query of Flink over a stream of
        inserts. `value_serde` writes the lists; by default, that is the builder's. Raises
        `TopologyError`.
        """
        top = TopN(n, by, ascending, self.value_serde, name)
        return self._derived("top_n", top, name, value_serde, None)

    def windowed_by(
        self,
        windows: Windows,
        *,
        emit: EmitTime = "on_update",
        late_to: str | None = None,
    ) -> WindowedStream[K, V]:
        """Group the records by window as well; `kafka_pipeline.windows` makes windows.

        `emit` says when results come: with each record, or once when a window closes. Records for
        windows that have closed go to the topic `late_to`, once per window; their headers
        `__streams.late.…` have the reason, the step, the window and stream time. Without `late_to`,
        they are dropped and counted.
        """
        check_windows(windows, emit, late_to)
        return WindowedStream(self, windows, emit, late_to)

    def cogroup(self, adder: Callable[[K, V, R], R | None]) -> CogroupedStream[K, R]:
        """Begin to aggregate several grouped streams into one table (KIP-150).

        `adder(key, value, aggregate)` adds the records of this stream.
        """
        return CogroupedStream([(self, adder)])

    def keyed(self) -> Step:
        """Return the step whose records are in the partitions of their keys."""
        return self._stream.keyed(
            self._name, key_serde=self.key_serde, value_serde=self.value_serde
        )

    def _derived(
        self,
        verb: str,
        aggregate: DerivedAggregate,
        name: str | None,
        value_serde: Serde[Any] | None,
        history_retention_ms: Milliseconds | None,
    ) -> Table:
        """Return the table of what an aggregate gives, which is not what is in its store."""
        table = self._aggregate(
            verb, aggregate.functions, name, aggregate.serde, history_retention_ms
        )
        return table.map_values(aggregate.result, value_serde=value_serde)

    def _aggregate(
        self,
        verb: str,
        functions: AggregateFunctions,
        name: str | None,
        value_serde: Serde[Any],
        history_retention_ms: Milliseconds | None,
    ) -> Table:
        graph = self.graph
        step = graph.add_stateful(
            verb,
            name,
            self.keyed(),
            lambda store: AggregateStream(
                verb, store, history_ms(verb, store, history_retention_ms), functions
            ),
            key_serde=self.key_serde,
            value_serde=value_serde,
        )
        values = StoredValues(step.name, verb)
        return Table(graph, step, values, history_retention_ms is not None)


class CogroupedStream(Generic[K, V]):
    """Grouped streams, each with a function that adds its records to a common aggregate.

    `GroupedStream.cogroup` makes the first one. Records without a key or a value are dropped, and
    counted. All streams need keys that are written alike, in topics with as many partitions.
    """

    def __init__(self, groups: Sequence[tuple[GroupedStream[Any, Any], Adder]]) -> None:
        """For the DSL itself."""
        self._groups = groups
        call(groups[-1][1], "cogroup", "a function of key, value and aggregate")

    def cogroup(
        self, grouped: GroupedStream[K, V2], adder: Callable[[K, V2, V], V | None]
    ) -> CogroupedStream[K, V]:
        """Add a grouped stream; `adder(key, value, aggregate)` adds its records."""
        if not isinstance(grouped, GroupedStream):
            raise TopologyError(f"cogroup takes a grouped stream, not {grouped!r}")
        return CogroupedStream([*self._groups, (grouped, adder)])

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
        return Table(first.graph, step, StoredValues(name, "aggregate"))

    def windowed_by(
        self, windows: Windows, *, late_to: str | None = None
    ) -> WindowedCogroupedStream[K, V]:
        """Group the records by window as well; see `GroupedStream.windowed_by`.

        All streams have one stream time, by which their records are late. Results come with each
        record.
        """
        check_windows(windows, "on_update", late_to)
        return WindowedCogroupedStream(self._groups, windows, late_to)


class WindowedCogroupedStream(Generic[K, V]):
    """Grouped streams that are aggregated into one table by key and window."""

    def __init__(
        self,
        groups: Sequence[tuple[GroupedStream[Any, Any], Adder]],
        windows: Windows,
        late_to: str | None,
    ) -> None:
        """For the DSL itself."""
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
        return Table(first.graph, table_step, kind.values(name))


def _parents(
    groups: Sequence[tuple[GroupedStream[Any, Any], Adder]], name: str | None
) -> tuple[list[tuple[Step, Adder]], str]:
    """Return the steps to aggregate, with their functions, and the name of the store."""
    graph = groups[0][0].graph
    steps = [(grouped.keyed(), adder) for grouped, adder in groups]
    first = steps[0][0]
    if len({step for step, _ in steps}) < len(steps):
        raise TopologyError(
            f"cogroup has a stream twice, after {first!r}: each of its records would be added twice"
        )
    return steps, graph.state_name("aggregate", name, first, "its store")


@dataclass(frozen=True, slots=True)
class AddToTable(Operation):
    """Adds the records of one of several streams to a table that they share."""

    verb = "cogroup"
    needs_time = False

    functions: AggregateFunctions
    store: StoreBuilder[Any, Any]

    def stores(self) -> tuple[str, ...]:
        return (self.store.name,)

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the processor, and the store if it is the first one."""
        compiler.add_store(self.store)
        compiler.runs(
            step,
            partial(
                StreamAggregator,
                self.store.name,
                "aggregate",
                self.functions,
                TableSerdes(step.key_serde, step.value_serde),
                compiler.sends_old_values(step),
            ),
        )


class OneTable(Stateless):
    """Makes one table of the changes that several steps make in one store."""

    __slots__ = ()

    def needs_old_values(self, sends_old_values: bool) -> bool:
        """Return whether old values are asked for: they come from the parents."""
        return sends_old_values


def one_table() -> OneTable:
    """Return the step that makes one table of several steps."""
    return OneTable("aggregate", PassPart, unused)
