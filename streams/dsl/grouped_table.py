"""Tables whose values are grouped by another key, and their aggregates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.aggregate_functions import AggregateFunctions, counting, reducing
from kafka_pipeline.streams.dsl.aggregates import AggregateTable
from kafka_pipeline.streams.dsl.aggregations import Aggregation, FieldAggregates
from kafka_pipeline.streams.dsl.change import change_serde
from kafka_pipeline.streams.dsl.graph import Step, call
from kafka_pipeline.streams.dsl.grouped import TableMaker, add_stateful
from kafka_pipeline.streams.dsl.table_steps import TableSteps
from kafka_pipeline.streams.dsl.table_values import StoredValues
from kafka_pipeline.streams.dsl.tables import MapToGroups
from kafka_pipeline.streams.dsl.topics import Repartition
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.type_variables import K, R, V

if TYPE_CHECKING:
    from kafka_pipeline.streams.dsl.streams_and_tables import Table


class GroupedTable(Generic[K, V]):
    """A table by another key, ready to be aggregated; `Table.group_by` makes it.

    When a value of the table changes, the old one is taken out of the aggregate of its group, and
    the new one is added. `name` is that of the step, of its store and of its state topic.
    """

    def __init__(
        self,
        source: TableSteps[Any, Any],
        table: TableMaker,
        function: Callable[[Any, Any], Any],
        name: str | None,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
    ) -> None:
        """For the DSL itself; `name` is that of the repartition topic."""
        self._source = source
        self._table = table
        self._function = function
        self._name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._repartition: Step | None = None

    def count(
        self, *, name: str | None = None, value_serde: Serde[int] | None = None
    ) -> Table[K, int]:
        """Return the table of the number of values per group; written as `serdes.int64`."""
        return self._aggregate("count", counting(), name, value_serde or serdes.int64)

    def reduce(
        self,
        adder: Callable[[V, V], V | None],
        subtractor: Callable[[V, V], V | None],
        *,
        name: str | None = None,
    ) -> Table[K, V]:
        """Return the table of `adder(aggregate, new)` and `subtractor(aggregate, old)` per group.

        The first value of a group is its first aggregate.
        """
        call(adder, "reduce", "a function of aggregate and new value", name)
        call(subtractor, "reduce", "a function of aggregate and old value", name)
        return self._aggregate("reduce", reducing(adder, subtractor), name, None)

    def aggregate(
        self,
        initializer: Callable[[], R],
        adder: Callable[[K, V, R], R | None],
        subtractor: Callable[[K, V, R], R | None],
        *,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]:
        """Return the table of `adder` and `subtractor` of (key, value, aggregate) per group.

        The first aggregate of a group is what `initializer()` returns. Both functions may change
        the aggregate and return it.
        """
        call(initializer, "aggregate", "a function without arguments to begin with", name)
        call(adder, "aggregate", "a function of key, new value and aggregate", name)
        call(subtractor, "aggregate", "a function of key, old value and aggregate", name)
        functions = AggregateFunctions(initializer, adder, subtractor)
        serde = value_serde or self._source.graph.value_serde
        return self._aggregate("aggregate", functions, name, serde)

    def agg(
        self,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
        /,
        **fields: Aggregation,
    ) -> Table[K, dict[str, Any]]:
        """Return the table of dicts with these fields per group; `kafka_pipeline.agg` makes them.

            balances.group_by(by_region, name="ByRegion").agg("Regions", total=agg.sum(value()))

        The fields are `agg.count`, `agg.sum` and `agg.avg`, from which a value can be taken out
        again; others raise `TopologyError`. Sums are exact, and rounded once if there are floats.
        See `GroupedStream.agg`.
        """
        found = FieldAggregates(fields, name, of_table=True)
        table = self._aggregate("agg", found.functions, name, found.serde)
        return table.map_values(found.result, value_serde=value_serde)

    def _grouped(self) -> Step:
        """Return the repartition, which all aggregates of this object share."""
        if self._repartition is None:
            graph = self._source.graph
            operation = MapToGroups(self._function, self._source.is_versioned, self._name)
            mapped = graph.add(
                operation,
                [self._source.step],
                key_serde=self._key_serde or graph.key_serde,
                value_serde=self._value_serde or graph.value_serde,
            )
            self._repartition = graph.add(
                Repartition(wire=change_serde), [mapped], self._name, key_changed=False
            )
        return self._repartition

    def _aggregate(
        self,
        verb: str,
        functions: AggregateFunctions,
        name: str | None,
        value_serde: Serde[Any] | None,
    ) -> Table:
        graph = self._source.graph
        step = add_stateful(
            graph,
            verb,
            name,
            self._grouped(),
            lambda store: AggregateTable(verb, store, None, functions),
            value_serde=value_serde,
        )
        return self._table(graph, step, StoredValues(step.name, verb))
