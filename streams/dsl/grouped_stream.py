"""Streams whose records are grouped by key, and their aggregates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.aggregate_functions import AggregateFunctions, counting, reducing
from kafka_pipeline.streams.dsl.aggregates import AggregateStream
from kafka_pipeline.streams.dsl.aggregations import Aggregation, DerivedAggregate, FieldAggregates
from kafka_pipeline.streams.dsl.cogrouped_stream import CogroupedStream
from kafka_pipeline.streams.dsl.expressions import Expression
from kafka_pipeline.streams.dsl.graph import call
from kafka_pipeline.streams.dsl.grouped import Grouped, TableMaker, add_stateful
from kafka_pipeline.streams.dsl.stream_steps import StreamSteps
from kafka_pipeline.streams.dsl.table_values import StoredValues
from kafka_pipeline.streams.dsl.tables import history_ms
from kafka_pipeline.streams.dsl.top_n import TopN
from kafka_pipeline.streams.dsl.window_aggregates import Windows
from kafka_pipeline.streams.dsl.windowed_stream import WindowedStream, check_windows
from kafka_pipeline.streams.durations import Milliseconds
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.type_variables import K, R, V

if TYPE_CHECKING:
    from kafka_pipeline.streams.dsl.streams_and_tables import Table


class GroupedStream(Grouped[K, V]):
    """A stream by key, ready to be aggregated; `group_by_key` and `group_by` make it.

    Records without a key or a value are dropped, and counted.

    `name` is that of the step, of its store and of its state topic. `value_serde` writes the
    aggregates; by default, that is the builder's.
    """

    def __init__(
        self,
        stream: StreamSteps[K, V],
        table: TableMaker,
        name: str | None,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
    ) -> None:
        """For the DSL itself; `name` is that of the repartition, if there is one."""
        super().__init__(stream, name, key_serde, value_serde)
        self.table = table

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
        return WindowedStream(self, self.table, windows, emit, late_to)

    def cogroup(self, adder: Callable[[K, V, R], R | None]) -> CogroupedStream[K, R]:
        """Begin to aggregate several grouped streams into one table (KIP-150).

        `adder(key, value, aggregate)` adds the records of this stream.
        """
        return CogroupedStream(self.table, [(self, adder)])

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
        step = add_stateful(
            graph,
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
        return self.table(graph, step, values, history_retention_ms is not None)
