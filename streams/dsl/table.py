"""Tables: the classes `Table` and `GroupedTable`, whose methods add the steps of a topology."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, overload

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.aggregate_functions import AggregateFunctions, counting, reducing
from kafka_pipeline.streams.dsl.aggregates import AggregateTable
from kafka_pipeline.streams.dsl.aggregations import Aggregation, FieldAggregates
from kafka_pipeline.streams.dsl.change import change_serde
from kafka_pipeline.streams.dsl.common_origins import common_origins
from kafka_pipeline.streams.dsl.expression_calls import condition_of_both, mapper_of_value
from kafka_pipeline.streams.dsl.expressions import Expression
from kafka_pipeline.streams.dsl.foreign_key_join import RightTable, add_foreign_key_join
from kafka_pipeline.streams.dsl.foreign_key_left import ForeignKeyJoin
from kafka_pipeline.streams.dsl.graph import Graph, Step, call
from kafka_pipeline.streams.dsl.joining import (
    Joiner,
    JoinFunction,
    JoinKind,
    called,
    check_builder,
    check_windows,
)
from kafka_pipeline.streams.dsl.suppress import (
    Suppress,
    SuppressedValues,
    SuppressTable,
    close_delay_ms,
    window_ms,
)
from kafka_pipeline.streams.dsl.table_joins import JoinedValues, JoinTables, TableSide
from kafka_pipeline.streams.dsl.table_steps import (
    FillTable,
    MapToGroups,
    ViewTable,
    history_ms,
    to_stream,
)
from kafka_pipeline.streams.dsl.table_values import (
    ComputedValues,
    StoredValues,
    TableSerdes,
    TableValues,
)
from kafka_pipeline.streams.dsl.topics import Repartition
from kafka_pipeline.streams.durations import Milliseconds
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.serdes import Serde, is_built_in
from kafka_pipeline.streams.type_variables import K2, V2, K, R, V

if TYPE_CHECKING:
    from kafka_pipeline.streams.dsl.stream import Stream

_JOINER = "a function of the left and the right value"


class Table(Generic[K, V]):
    """The last value of each key, as it changes; `StreamsBuilder.table` makes the first one.

    Every method adds a step and returns its result; the table itself stays as it is, and may have
    several steps after it. Functions of a key and a value take both, functions named `…_values`
    the value. They must not change their arguments, and must always return the same for the same
    arguments: the result for a former value is computed again when it is replaced or looked up.

    A view with a `name` keeps its values in a store of that name, which makes lookups cheaper; a
    view without a name computes its values at each lookup.
    """

    def __init__(
        self, graph: Graph, step: Step, values: TableValues, is_versioned: bool = False
    ) -> None:
        """For the DSL itself; `values` says how joins look this table up."""
        graph.tables.add(step)
        self.graph = graph
        self.step = step
        self.values = values
        self.is_versioned = is_versioned

    def filter(
        self, predicate: Callable[[K, V], object] | Expression, *, name: str | None = None
    ) -> Table[K, V]:
        """Keep the values for which `predicate(key, value)` is true; others become `None`."""
        holds = condition_of_both(predicate, "filter", name)

        def compute(key: Any, value: Any) -> Any:
            return value if holds(key, value) else None

        return self._view("filter", compute, name, None, is_filter=True)

    def filter_not(
        self, predicate: Callable[[K, V], object] | Expression, *, name: str | None = None
    ) -> Table[K, V]:
        """Keep the values for which `predicate(key, value)` is false; others become `None`.

        Where a column expression is null, the value becomes `None`.
        """
        holds = condition_of_both(predicate, "filter_not", name, is_negated=True)

        def compute(key: Any, value: Any) -> Any:
            return None if holds(key, value) else value

        return self._view("filter_not", compute, name, None, is_filter=True)

    @overload
    def map_values(
        self,
        mapper: Expression,
        *,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Table[K, Any]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[V], V2 | None],
        *,
        name: str | None = None,
        value_serde: Serde[V2] | None = None,
    ) -> Table[K, V2]: ...
    def map_values(
        self,
        mapper: Callable[[V], Any] | Expression,
        *,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Table[K, Any]:
        """Replace each value by what `mapper(value)` returns. `None` stays `None`."""
        compute = mapper_of_value(mapper, "map_values", name)
        serde = value_serde or self.graph.value_serde
        return self._view("map_values", compute, name, serde, is_filter=False)

    def to_stream(self, *, name: str | None = None) -> Stream[K, V]:
        """Return the stream of the table's new values; `None` where a value was deleted."""
        # `stream` imports this module.
        from kafka_pipeline.streams.dsl.stream import Stream

        return Stream(self.graph, self.graph.add(to_stream(), [self.step], name))

    def group_by(
        self,
        function: Callable[[K, V], tuple[K2 | None, V2 | None] | None],
        *,
        name: str | None = None,
        key_serde: Serde[K2] | None = None,
        value_serde: Serde[V2] | None = None,
    ) -> GroupedTable[K2, V2]:
        """Group the values by the key of the pair that `function(key, value)` returns.

        The pair is the key of the group, and what the value is within the group; `None`, or a pair
        with `None` in it, means that the value belongs to no group. `name` is that of the
        repartition topic.
        """
        call(function, "group_by", "a function of key and value", name)
        name = self.graph.required_name("group_by", name, self.step, "its repartition topic")
        return GroupedTable(self, function, name, key_serde, value_serde)

    def suppress(self, suppress: Suppress, *, name: str | None = None) -> Table[K, V]:
        """Hold updates back, and forward only the last one of each key (KIP-328).

        `name` is that of the step, of its store and of its state topic. Joins look up what was
        forwarded last.
        """
        if not isinstance(suppress, Suppress):
            raise TopologyError(
                "suppress takes what Suppress.until_window_closes or Suppress.until_time_limit "
                f"return, not {suppress!r}"
            )
        wait_ms, held_ms = suppress.limit_ms, 0
        if wait_ms is None:
            held_ms = window_ms(self.step)
            where = f'suppress "{name}"' if name else "suppress"
            wait_ms = close_delay_ms(self.step, where)
            if is_built_in(self.step.key_serde):
                raise TopologyError(
                    f"{where} has Suppress.until_window_closes, but keys by the serde "
                    f"{self.step.key_serde.name}, which are not in windows: put suppress ahead of "
                    "the step that changes the keys, or use Suppress.until_time_limit"
                )
        step = self.graph.add_stateful(
            "suppress",
            name,
            self.step,
            lambda store: SuppressTable(suppress, wait_ms, wait_ms + held_ms + 1, store),
        )
        key_serde, value_serde = step.key_serde, step.value_serde
        values = SuppressedValues(step.name, key_serde, value_serde, self.values)
        return Table(self.graph, step, values)

    @overload
    def join(
        self,
        other: Table[K, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def join(
        self,
        other: Table[K2, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        foreign_key: Callable[[V], K2 | None],
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def join(
        self,
        other: Table[K2, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        foreign_key: Callable[[K, V], K2 | None],
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]: ...
    def join(
        self,
        other: Table[Any, Any],
        joiner: JoinFunction,
        *,
        foreign_key: Callable[..., Any] | None = None,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Table[K, Any]:
        """Return the table of the keys that both tables have.

        `joiner(left, right)` returns the value of a result. A change of either table changes the
        result; its time is the larger one of the two. `value_serde` writes results; by default,
        that is the builder's. A join with a `name` keeps its results in a store of that name; one
        without computes them at each lookup.

        With `foreign_key`, a function of a left value, or of a left key and its value, the right
        value is that of the key which the function returns. Such a join needs a `name`: its
        results, its subscriptions and its two topics are named after it. The time of a result is
        that of the change that led to it, or that of the right value if the left one changed and
        it is larger. The join may forward `None` for keys that had no result (KIP-213).
        """
        kind = JoinKind.INNER
        if foreign_key is not None:
            return self._join_foreign(kind, other, joiner, foreign_key, name, value_serde)
        return self._join(kind, other, joiner, name, value_serde)

    @overload
    def left_join(
        self,
        other: Table[K, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def left_join(
        self,
        other: Table[K2, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        foreign_key: Callable[[V], K2 | None],
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]: ...
    @overload
    def left_join(
        self,
        other: Table[K2, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        foreign_key: Callable[[K, V], K2 | None],
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]: ...
    def left_join(
        self,
        other: Table[Any, Any],
        joiner: JoinFunction,
        *,
        foreign_key: Callable[..., Any] | None = None,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Table[K, Any]:
        """Return the table of the keys of this table; a missing right value is `None`.

        See `join`. The right value is `None` for a foreign key of `None` too.
        """
        kind = JoinKind.LEFT
        if foreign_key is not None:
            return self._join_foreign(kind, other, joiner, foreign_key, name, value_serde)
        return self._join(kind, other, joiner, name, value_serde)

    def outer_join(
        self,
        other: Table[K, V2],
        joiner: Callable[[V | None, V2 | None], R | None],
        *,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Table[K, R]:
        """Return the table of the keys of either table; the missing value is `None`."""
        return self._join(JoinKind.OUTER, other, joiner, name, value_serde)

    def _view(
        self,
        verb: str,
        compute: Callable[[Any, Any], Any],
        name: str | None,
        value_serde: Serde[Any] | None,
        is_filter: bool,
    ) -> Table:
        is_versioned = self.is_versioned and name is None
        operation = ViewTable(verb, compute, name, is_filter, self.is_versioned)
        step = self.graph.add(operation, [self.step], name, value_serde=value_serde)
        values: TableValues = (
            ComputedValues(self.values, compute) if name is None else StoredValues(name, verb)
        )
        return Table(self.graph, step, values, is_versioned)

    def _join(
        self,
        kind: JoinKind,
        other: Table[Any, Any],
        joiner: JoinFunction,
        name: str | None,
        value_serde: Serde[Any] | None,
    ) -> Table:
        graph, verb = self.graph, kind.value
        self._check(kind, other, joiner, name)
        check_windows(self.step, other.step, called(kind, name))
        sides = (
            TableSide(self.values, self.is_versioned),
            TableSide(other.values, other.is_versioned),
        )
        origins = common_origins(self.step, other.step, graph.tables)
        step = graph.add(
            JoinTables(kind, joiner, sides, name, origins),
            [self.step, other.step],
            name,
            value_serde=value_serde or graph.value_serde,
            key_changed=False,
        )
        values: TableValues = (
            JoinedValues(kind, Joiner(step.name, joiner), self.values, other.values)
            if name is None
            else StoredValues(name, verb)
        )
        return Table(graph, step, values)

    def _join_foreign(
        self,
        kind: JoinKind,
        other: Table[Any, Any],
        joiner: JoinFunction,
        foreign_key: Callable[..., Any],
        name: str | None,
        value_serde: Serde[Any] | None,
    ) -> Table:
        graph, verb = self.graph, kind.value
        self._check(kind, other, joiner, name)
        call(foreign_key, verb, "a foreign_key, a function of the left value", name)
        name = graph.state_name(verb, name, self.step, "its stores and topics")
        join = ForeignKeyJoin(
            name,
            kind,
            joiner,
            _of_both(foreign_key),
            self.values,
            self.is_versioned,
            TableSerdes(self.step.key_serde, self.step.value_serde),
            TableSerdes(other.step.key_serde, other.step.value_serde),
        )
        right = RightTable(other.step, other.values, other.is_versioned)
        step = add_foreign_key_join(graph, self.step, right, join, value_serde)
        return Table(graph, step, StoredValues(name, verb))

    def _check(
        self, kind: JoinKind, other: Table[Any, Any], joiner: JoinFunction, name: str | None
    ) -> None:
        where = called(kind, name)
        call(joiner, kind.value, _JOINER, name)
        if not isinstance(other, Table):
            raise TopologyError(f"{where} takes a table, not {other!r}")
        check_builder(self.graph, other.graph, where)


class GroupedTable(Generic[K, V]):
    """A table by another key, ready to be aggregated; `Table.group_by` makes it.

    When a value of the table changes, the old one is taken out of the aggregate of its group, and
    the new one is added. `name` is that of the step, of its store and of its state topic.
    """

    def __init__(
        self,
        source: Table[Any, Any],
        function: Callable[[Any, Any], Any],
        name: str | None,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
    ) -> None:
        """For the DSL itself; `name` is that of the repartition topic."""
        self._source = source
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
        step = graph.add_stateful(
            verb,
            name,
            self._grouped(),
            lambda store: AggregateTable(verb, store, None, functions),
            value_serde=value_serde,
        )
        return Table(graph, step, StoredValues(step.name, verb))


def fill_table(
    graph: Graph,
    verb: str,
    name: str | None,
    parent: Any,
    history_retention_ms: Milliseconds | None,
    key_serde: Serde[Any] | None = None,
    value_serde: Serde[Any] | None = None,
) -> Table:
    """Return the table that keeps the last value of each key that `parent` forwards."""
    step = graph.add_stateful(
        verb,
        name,
        parent,
        lambda store: FillTable(verb, store, history_ms(verb, store, history_retention_ms)),
        key_serde=key_serde,
        value_serde=value_serde,
    )
    values = StoredValues(step.name, verb)
    return Table(graph, step, values, history_retention_ms is not None)


def _of_both(foreign_key: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a function of key and value: the given one, or one that leaves the key out."""
    try:
        parameters = inspect.signature(foreign_key).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    required = [
        each
        for each in parameters
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    return foreign_key if len(required) > 1 else lambda key, value: foreign_key(value)
