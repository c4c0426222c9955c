"""Streams and tables, and the ways from one to the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from kafka_pipeline.streams.dsl.expression_calls import OF_BOTH
from kafka_pipeline.streams.dsl.expression_parts import SelectKeyByExpression
from kafka_pipeline.streams.dsl.expressions import Expression
from kafka_pipeline.streams.dsl.graph import Graph, call
from kafka_pipeline.streams.dsl.grouped import add_stateful
from kafka_pipeline.streams.dsl.grouped_stream import GroupedStream
from kafka_pipeline.streams.dsl.grouped_table import GroupedTable
from kafka_pipeline.streams.dsl.ready_steps import ReadySteps
from kafka_pipeline.streams.dsl.stateless import SelectKeyPart, Stateless
from kafka_pipeline.streams.dsl.stream_join_steps import StreamJoins
from kafka_pipeline.streams.dsl.suppress import Suppress, close_delay_ms, window_ms
from kafka_pipeline.streams.dsl.suppressor import SuppressedValues, SuppressTable
from kafka_pipeline.streams.dsl.table_join_steps import TableJoins
from kafka_pipeline.streams.dsl.table_values import StoredValues
from kafka_pipeline.streams.dsl.tables import FillTable, history_ms, to_stream
from kafka_pipeline.streams.durations import Milliseconds
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.type_variables import K2, V2, K, V


class Stream(StreamJoins[K, V], ReadySteps[K, V]):
    """An unbounded sequence of records; `StreamsBuilder.stream` makes the first one.

    Every method adds a step and returns what comes of it; the stream itself stays as it is, and may
    go on in several ways. Functions of a key and a value take both, functions named `…_values` the
    value.

    `Stream[str, int]` says which keys and values there are; that they may be `None` as well is not
    in their types.
    """

    def group_by_key(
        self,
        *,
        name: str | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
    ) -> GroupedStream[K, V]:
        """Group records by their key.

        `name` is that of the repartition topic, which is needed only if the key was changed. The
        serdes are those of the records in that topic.
        """
        if self.step.key_changed:
            name = self.graph.required_name(
                "group_by_key", name, self.step, "its repartition topic, as the key was changed"
            )
        return GroupedStream(self, Table, name, key_serde, value_serde)

    @overload
    def group_by(
        self,
        selector: Expression,
        *,
        name: str | None = None,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[V] | None = None,
    ) -> GroupedStream[Any, V]: ...
    @overload
    def group_by(
        self,
        selector: Callable[[K, V], K2 | None],
        *,
        name: str | None = None,
        key_serde: Serde[K2] | None = None,
        value_serde: Serde[V] | None = None,
    ) -> GroupedStream[K2, V]: ...
    def group_by(
        self,
        selector: Callable[[K, V], Any] | Expression,
        *,
        name: str | None = None,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[V] | None = None,
    ) -> GroupedStream[Any, V]:
        """Group records by what `selector(key, value)` returns, or by a column expression.

        Records for which that is `None` are dropped.

        `name` is that of the repartition topic, and the serdes are those of the records in it.
        """
        name = self.graph.required_name("group_by", name, self.step, "its repartition topic")
        if isinstance(selector, Expression):
            operation = Stateless("group_by", SelectKeyByExpression, selector, name)
        else:
            call(selector, "group_by", OF_BOTH, name)
            operation = Stateless("group_by", SelectKeyPart, selector, name)
        serde = key_serde or self.graph.key_serde
        keyed = self.next(operation, None, key_serde=serde, key_changed=True)
        return GroupedStream(keyed, Table, name, None, value_serde)

    def to_table(
        self,
        *,
        name: str | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        history_retention_ms: Milliseconds | None = None,
    ) -> Table[K, V]:
        """Return the table of the last value of each key; a value of `None` deletes.

        `name` is also that of the store. If the key was changed upstream, a repartition topic
        `<name>-by-key-repartition` comes first. With `history_retention_ms`, the table is versioned
        (KIP-914).
        """
        graph = self.graph
        name = graph.required_name("to_table", name, self.step, "its store")
        topic = None if name is None else f"{name}-by-key"
        parent = self.keyed(topic, key_serde=key_serde, value_serde=value_serde)
        return fill_table(
            graph, "to_table", name, parent, history_retention_ms, key_serde, value_serde
        )


class Table(TableJoins[K, V]):
    """The last value of each key, as it changes; `StreamsBuilder.table` makes the first one.

    Every method adds a step and returns what comes of it; the table itself stays as it is, and may
    go on in several ways. A view with a `name` keeps its values in a store of that name; one
    without computes them when they are looked up.
    """

    def to_stream(self, *, name: str | None = None) -> Stream[K, V]:
        """Return the stream of the table's new values; `None` where a value was deleted."""
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
        return GroupedTable(self, Table, function, name, key_serde, value_serde)

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
            wait_ms = close_delay_ms(self.step, f'suppress "{name}"' if name else "suppress")
        step = add_stateful(
            self.graph,
            "suppress",
            name,
            self.step,
            lambda store: SuppressTable(suppress, wait_ms, wait_ms + held_ms + 1, store),
        )
        key_serde, value_serde = step.key_serde, step.value_serde
        values = SuppressedValues(step.name, key_serde, value_serde, self.values)
        return Table(self.graph, step, values)


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
    step = add_stateful(
        graph,
        verb,
        name,
        parent,
        lambda store: FillTable(verb, store, history_ms(verb, store, history_retention_ms)),
        key_serde=key_serde,
        value_serde=value_serde,
    )
    values = StoredValues(step.name, verb)
    return Table(graph, step, values, history_retention_ms is not None)
