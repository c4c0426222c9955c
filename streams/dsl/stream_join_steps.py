"""The joins of streams: with streams, with tables, with global tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from kafka_pipeline.streams.dsl.delayed_lookup import Delay, JoinTableLater
from kafka_pipeline.streams.dsl.global_table import GlobalTable, GlobalValues
from kafka_pipeline.streams.dsl.graph import Graph, Operation, call
from kafka_pipeline.streams.dsl.joining import JoinFunction, JoinKind, called, check_builder
from kafka_pipeline.streams.dsl.stream_joins import JoinStreams, JoinWithSelf, StreamJoin
from kafka_pipeline.streams.dsl.stream_steps import StreamSteps
from kafka_pipeline.streams.dsl.table_lookup import JoinTable, KeyFunction, Lookup
from kafka_pipeline.streams.dsl.table_steps import TableSteps
from kafka_pipeline.streams.dsl.tables import Materialized
from kafka_pipeline.streams.dsl.windows import JoinWindows
from kafka_pipeline.streams.durations import Milliseconds, whole_ms
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.type_variables import K2, V2, K, R, V

if TYPE_CHECKING:
    from kafka_pipeline.streams.dsl.streams_and_tables import Stream, Table

_JOINER = "a function of the left and the right value"


class StreamJoins(StreamSteps[K, V]):
    """The joins of a stream.

    `joiner(left, right)` makes the value of a result; the key is that of the stream's record.
    `value_serde` says how results are written; by default, as the builder says.

    With another stream, `windows` says which records meet: `windows.join(…)`. With a table, each
    record of the stream meets the value that the table has for its key; only records of the stream
    have results. In a versioned table, it is the value that was valid at the record's time. With
    `grace_ms`, records first wait until stream time has passed their time by so much, for versions
    that come late; the table is versioned then, with a history at least as long (KIP-923). With a
    global table, `key(key, value)` returns the key to look up.

    Keys that were changed upstream lead to a repartition topic. `name` is that of the step; stores
    and topics get their names from it. A join of two streams, one after a change of the key, and
    one with `grace_ms` need a name.

    Records without a value are dropped, and counted. So are records without a key, unless they have
    results without a partner (KIP-962).
    """

    @overload
    def join(
        self,
        other: Stream[K, V2],
        joiner: Callable[[V, V2], R | None],
        windows: JoinWindows,
        *,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def join(
        self,
        other: Table[K, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        grace_ms: Milliseconds | None = None,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def join(
        self,
        other: GlobalTable[K2, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        key: Callable[[K, V], K2 | None],
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Stream[K, R]: ...
    def join(
        self,
        other: Stream[K, Any] | Table[K, Any] | GlobalTable[Any, Any],
        joiner: JoinFunction,
        windows: JoinWindows | None = None,
        *,
        key: KeyFunction | None = None,
        grace_ms: Milliseconds | None = None,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Stream[K, Any]:
        """Return what the joiner makes of records that have a partner."""
        kind = JoinKind.INNER
        return self._join(kind, other, joiner, windows, key, grace_ms, name, value_serde)

    @overload
    def left_join(
        self,
        other: Stream[K, V2],
        joiner: Callable[[V, V2 | None], R | None],
        windows: JoinWindows,
        *,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def left_join(
        self,
        other: Table[K, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        grace_ms: Milliseconds | None = None,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Stream[K, R]: ...
    @overload
    def left_join(
        self,
        other: GlobalTable[K2, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        key: Callable[[K, V], K2 | None],
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Stream[K, R]: ...
    def left_join(
        self,
        other: Stream[K, Any] | Table[K, Any] | GlobalTable[Any, Any],
        joiner: JoinFunction,
        windows: JoinWindows | None = None,
        *,
        key: KeyFunction | None = None,
        grace_ms: Milliseconds | None = None,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Stream[K, Any]:
        """Return what `join` returns, and `joiner(left, None)` for left records without a partner.

        With another stream, that comes once no partner can come any more.
        """
        kind = JoinKind.LEFT
        return self._join(kind, other, joiner, windows, key, grace_ms, name, value_serde)

    def outer_join(
        self,
        other: Stream[K, V2],
        joiner: Callable[[V | None, V2 | None], R | None],
        windows: JoinWindows,
        *,
        name: str | None = None,
        value_serde: Serde[R] | None = None,
    ) -> Stream[K, R]:
        """Return what `left_join` returns, and `joiner(None, right)` likewise; of two streams."""
        if isinstance(other, TableSteps | GlobalTable):
            raise TopologyError(
                f"{called(JoinKind.OUTER, name)} takes a stream: a table's values have no results "
                "of their own in a join with a stream; use left_join"
            )
        kind = JoinKind.OUTER
        return self._join(kind, other, joiner, windows, None, None, name, value_serde)

    def _join(
        self,
        kind: JoinKind,
        other: object,
        joiner: JoinFunction,
        windows: JoinWindows | None,
        key: KeyFunction | None,
        grace_ms: Milliseconds | None,
        name: str | None,
        value_serde: Serde[Any] | None,
    ) -> Stream:
        call(joiner, kind.value, _JOINER, name)
        given = {"windows": windows, "key": key, "grace_ms": grace_ms}
        where = called(kind, name)
        if isinstance(other, GlobalTable):
            _require_only(where, "a global table", given, "key")
            check_builder(self.graph, other.graph, where)
            call(key, kind.value, "a key=, a function of key and value that returns the key", name)
            lookup = Lookup(kind, joiner, GlobalValues(other.step.name), key)
            return self.next(JoinTable(lookup), name, value_serde=self._result(value_serde))
        if isinstance(other, TableSteps):
            _require_only(where, "a table", given, "grace_ms")
            check_builder(self.graph, other.graph, where)
            return self._join_table(kind, other, joiner, grace_ms, name, value_serde)
        if not isinstance(other, StreamJoins):
            raise TopologyError(f"{where} takes a stream, a table or a global table, not {other!r}")
        _require_only(where, "a stream", given, "windows")
        check_builder(self.graph, other.graph, where)
        if not isinstance(windows, JoinWindows):
            raise TopologyError(
                f"{where} takes windows: give windows.join(before_ms=…, after_ms=…, grace_ms=…), "
                f"not {windows!r}"
            )
        return self._join_stream(kind, other, joiner, windows, name, value_serde)

    def _join_table(
        self,
        kind: JoinKind,
        table: TableSteps[Any, Any],
        joiner: JoinFunction,
        grace_ms: Milliseconds | None,
        name: str | None,
        value_serde: Serde[Any] | None,
    ) -> Stream:
        graph, verb = self.graph, kind.value
        if self.step.key_changed or grace_ms is not None:
            why = "its repartition topic" if self.step.key_changed else "its store"
            name = graph.required_name(verb, name, self.step, why)
            name = name or graph.generated_name(verb, self.step)
        lookup = Lookup(kind, joiner, table.values)
        operation: Operation = JoinTable(lookup)
        if grace_ms is not None:
            assert name is not None
            where = called(kind, name)
            grace = whole_ms(where, "grace_ms", grace_ms, 0)
            _require_history(graph, table, grace, where)
            delay = Delay(name, grace, self.step.key_serde, self.step.value_serde)
            operation = JoinTableLater(lookup, delay)
        parent = self.keyed(None if name is None else f"{name}-by-key")
        return self.next(
            operation,
            name,
            parents=[parent],
            value_serde=self._result(value_serde),
        )

    def _join_stream(
        self,
        kind: JoinKind,
        other: StreamJoins[Any, Any],
        joiner: JoinFunction,
        windows: JoinWindows,
        name: str | None,
        value_serde: Serde[Any] | None,
    ) -> Stream:
        graph = self.graph
        name = graph.required_name(kind.value, name, self.step, "its stores")
        name = name or graph.generated_name(kind.value, self.step)
        key_serde = self.step.key_serde
        left = self.keyed(f"{name}-left")
        right = other.keyed(f"{name}-right")
        serdes = (left.value_serde, right.value_serde)
        join = StreamJoin(name, kind, joiner, windows, key_serde, serdes)
        with_self = left is right and kind is JoinKind.INNER
        return self.next(
            JoinWithSelf(join) if with_self else JoinStreams(join),
            name,
            parents=[left] if with_self else [left, right],
            key_serde=key_serde,
            value_serde=self._result(value_serde),
        )

    def _result(self, value_serde: Serde[Any] | None) -> Serde[Any]:
        return value_serde or self.graph.value_serde


_FOR = {"windows": "a join of two streams", "key": "a global table", "grace_ms": "a table"}


def _require_only(where: str, other: str, given: dict[str, Any], allowed: str) -> None:
    for argument, value in given.items():
        if value is not None and argument != allowed:
            raise TopologyError(
                f"{where} with {other} has {argument}: that is for {_FOR[argument]}, leave it out"
            )


def _require_history(graph: Graph, table: TableSteps[Any, Any], grace_ms: int, where: str) -> None:
    if not table.is_versioned:
        raise TopologyError(
            f"{where} has grace_ms, but its table is not versioned: give the table "
            f"history_retention_ms={grace_ms} or more"
        )
    for step in graph.steps:
        operation = step.operation
        if isinstance(operation, Materialized) and operation.store in table.values.stores:
            history_ms = operation.history_retention_ms
            if history_ms is not None and history_ms < grace_ms:
                raise TopologyError(
                    f"{where} has a grace_ms of {grace_ms}, above the history_retention_ms of "
                    f'{history_ms} of the table "{step.name}": make the history at least as long'
                )
