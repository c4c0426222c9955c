"""Streams: the class `Stream`, whose methods add the steps of a topology."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, overload

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl import stateless
from kafka_pipeline.streams.dsl.async_values import AsyncSettings, map_values_async
from kafka_pipeline.streams.dsl.expression_calls import (
    OF_BOTH,
    OF_VALUE,
    KeyValueFunction,
    condition_of_both,
    function_of_both,
)
from kafka_pipeline.streams.dsl.expression_parts import BY_EXPRESSION, SelectKeyByExpression
from kafka_pipeline.streams.dsl.expressions import Expression
from kafka_pipeline.streams.dsl.global_table import GlobalTable, GlobalValues
from kafka_pipeline.streams.dsl.graph import Graph, Operation, Step, call
from kafka_pipeline.streams.dsl.grouped_stream import GroupedStream
from kafka_pipeline.streams.dsl.joining import (
    JoinFunction,
    JoinKind,
    called,
    check_builder,
    check_windows,
)
from kafka_pipeline.streams.dsl.repeats import (
    Deduplicator,
    DistinctFilter,
    Lagger,
    StatefulStep,
    identities,
    lags,
)
from kafka_pipeline.streams.dsl.stateless import (
    Part,
    SelectKeyPart,
    Split,
    Stateless,
    branch,
    drop_null_keys,
)
from kafka_pipeline.streams.dsl.stream_joins import JoinStreams, JoinWithSelf, StreamJoin
from kafka_pipeline.streams.dsl.table import Table, fill_table
from kafka_pipeline.streams.dsl.table_lookup import (
    Delay,
    JoinTable,
    JoinTableLater,
    KeyFunction,
    Lookup,
)
from kafka_pipeline.streams.dsl.table_steps import Materialized
from kafka_pipeline.streams.dsl.topics import Repartition, WriteTopic
from kafka_pipeline.streams.dsl.user_processors import Process, ProcessValues
from kafka_pipeline.streams.dsl.windows import JoinWindows
from kafka_pipeline.streams.durations import Milliseconds, whole_ms
from kafka_pipeline.streams.engine.left_undone import is_async
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.event_time.step_time import times_store
from kafka_pipeline.streams.partitioning import StreamPartitioner
from kafka_pipeline.streams.processor import AsyncProcessor, BatchProcessor, Processor
from kafka_pipeline.streams.record import Record
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import StoreBuilder, key_value, window
from kafka_pipeline.streams.type_variables import K2, V2, K, R, V

_DEFAULT_SETTINGS = AsyncSettings()
_OF_BOTH = "a function of key and value"
_OF_VALUE = "a function of the value"
_JOINER = "a function of the left and the right value"
_SUPPLIER = "a class or a function that makes the processor"
_FOR = {"windows": "a join of two streams", "key": "a global table", "grace_ms": "a table"}

_GRACE_MS = 60_000
"""The least grace period by default: the store forgets a minute at a time, so it costs little."""


class Stream(Generic[K, V]):
    """An unbounded sequence of records; `StreamsBuilder.stream` makes the first one.

    Every method adds a step and returns its result; the stream itself stays as it is, and may have
    several steps after it. Functions of a key and a value take both, functions named `…_values`
    the value. They must not change their arguments.

    `Stream[str, int]` gives the types of keys and values; both may be `None` as well, which the
    types leave out.

    `name` is the step's name in errors and in `describe`. Steps with state need one: their stores,
    state topics and repartition topics are named after it. `key_serde` and `value_serde` write keys
    and values of a new type; by default, the builder's serdes do.
    """

    def __init__(self, graph: Graph, step: Step) -> None:
        """For the DSL itself."""
        self.graph = graph
        self.step = step

    # One record at a time

    def filter(
        self, predicate: Callable[[K, V], object] | Expression, *, name: str | None = None
    ) -> Stream[K, V]:
        """Keep the records for which `predicate(key, value)`, or an expression, is true."""
        return self.link("filter", stateless.FilterPart, predicate, OF_BOTH, name)

    def filter_not(
        self, predicate: Callable[[K, V], object] | Expression, *, name: str | None = None
    ) -> Stream[K, V]:
        """Keep the records for which `predicate(key, value)`, or an expression, is false.

        An expression that is null is not false, as in SQL.
        """
        return self.link("filter_not", stateless.FilterNotPart, predicate, OF_BOTH, name)

    def map(
        self,
        mapper: Callable[[K, V], tuple[K2 | None, V2 | None]],
        *,
        name: str | None = None,
        key_serde: Serde[K2] | None = None,
        value_serde: Serde[V2] | None = None,
    ) -> Stream[K2, V2]:
        """Replace key and value by the pair that `mapper(key, value)` returns.

        The key may change, so a step by key comes after a repartition topic. Use `map_values` if
        it stays.
        """
        serdes = (key_serde or self.graph.key_serde, value_serde or self.graph.value_serde)
        return self.link("map", stateless.MapPart, mapper, _OF_BOTH, name, *serdes, True)

    @overload
    def map_values(
        self,
        mapper: Expression,
        *,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Stream[K, Any]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[V], Awaitable[V2 | None]],
        *,
        name: str | None = None,
        value_serde: Serde[V2] | None = None,
        asynchronous: AsyncSettings = _DEFAULT_SETTINGS,
    ) -> Stream[K, V2]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[V], V2 | None],
        *,
        name: str | None = None,
        value_serde: Serde[V2] | None = None,
    ) -> Stream[K, V2]: ...
    def map_values(
        self,
        mapper: Callable[[V], Any] | Expression,
        *,
        name: str | None = None,
        value_serde: Serde[Any] | None = None,
        asynchronous: AsyncSettings = _DEFAULT_SETTINGS,
    ) -> Stream[K, Any]:
        """Replace the value by what `mapper(value)`, or an expression, gives.

        An expression for several fields is `struct(name=expression, …)`.

        The mapper may be an `async` function, for work that is mostly waiting. It then runs for
        many records at a time, as `asynchronous` says; results come in input order. See
        `AsyncProcessor`. Such a step comes directly after a stream of topics or a repartition that
        feeds nothing else; another place raises `TopologyError`.
        """
        serde = value_serde or self.graph.value_serde
        if is_async(mapper):
            operation = map_values_async(mapper, asynchronous, self.step, name)
            return self.next(operation, name, value_serde=serde)
        return self.link("map_values", stateless.MapValuesPart, mapper, OF_VALUE, name, None, serde)

    def flat_map(
        self,
        mapper: Callable[[K, V], Iterable[tuple[K2 | None, V2 | None]]],
        *,
        name: str | None = None,
        key_serde: Serde[K2] | None = None,
        value_serde: Serde[V2] | None = None,
    ) -> Stream[K2, V2]:
        """Replace a record by the pairs that `mapper(key, value)` returns; the key may change."""
        serdes = (key_serde or self.graph.key_serde, value_serde or self.graph.value_serde)
        return self.link("flat_map", stateless.FlatMapPart, mapper, _OF_BOTH, name, *serdes, True)

    def flat_map_values(
        self,
        mapper: Callable[[V], Iterable[V2 | None]],
        *,
        name: str | None = None,
        value_serde: Serde[V2] | None = None,
    ) -> Stream[K, V2]:
        """Replace a record by one for each of the values that `mapper(value)` returns."""
        serde = value_serde or self.graph.value_serde
        return self.link(
            "flat_map_values", stateless.FlatMapValuesPart, mapper, _OF_VALUE, name, None, serde
        )

    @overload
    def select_key(
        self,
        mapper: Expression,
        *,
        name: str | None = None,
        key_serde: Serde[Any] | None = None,
    ) -> Stream[Any, V]: ...
    @overload
    def select_key(
        self,
        mapper: Callable[[K, V], K2 | None],
        *,
        name: str | None = None,
        key_serde: Serde[K2] | None = None,
    ) -> Stream[K2, V]: ...
    def select_key(
        self,
        mapper: Callable[[K, V], Any] | Expression,
        *,
        name: str | None = None,
        key_serde: Serde[Any] | None = None,
    ) -> Stream[Any, V]:
        """Replace the key by what `mapper(key, value)`, or an expression, gives."""
        serde = key_serde or self.graph.key_serde
        return self.link(
            "select_key", stateless.SelectKeyPart, mapper, OF_BOTH, name, serde, None, True
        )

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> Stream[K, V]:
        """Call `action(key, value)` for each record, and pass the records on.

        The action is called again for records that are processed again after an error.
        """
        return self.link("peek", stateless.PeekPart, action, _OF_BOTH, name)

    def for_each(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Call `action(key, value)` for each record, as `peek` does, and end the stream."""
        self.link("for_each", stateless.ForEachPart, action, _OF_BOTH, name)

    # Several streams

    def merge(self, *others: Stream[K, V], name: str | None = None) -> Stream[K, V]:
        """Return one stream with the records of all; there is no order between them."""
        for other in others:
            if not isinstance(other, Stream):
                raise TopologyError(f"merge takes streams, not {other!r}")
        steps = [self.step, *(other.step for other in others)]
        if len(set(steps)) < len(steps):
            raise TopologyError(
                f"merge gets {self.step!r} twice: each record would come twice; give other streams"
            )
        same_key = all(s.key_serde is self.step.key_serde for s in steps)
        same_value = all(s.value_serde is self.step.value_serde for s in steps)
        return self.next(
            Stateless("merge", stateless.PassPart, stateless.unused),
            name,
            parents=steps,
            key_serde=None if same_key else self.graph.key_serde,
            value_serde=None if same_value else self.graph.value_serde,
        )

    def split(
        self,
        branches: Mapping[str, Callable[[K, V], object] | Expression],
        *,
        default: str | None = None,
        name: str | None = None,
    ) -> dict[str, Stream[K, V]]:
        """Divide the stream: each record goes to the first branch whose predicate is true.

        Returns a stream for each name in `branches`, and for the name `default`, which gets the
        records that no branch takes. Without a default, those are dropped (KIP-418).
        """
        if not isinstance(branches, Mapping) or not (branches or default):
            raise TopologyError(
                f"split takes branches, as {{name: predicate, …}}, not {branches!r}"
            )
        predicates = {
            each: condition_of_both(predicate, f'the branch "{each}" of split', None)
            for each, predicate in branches.items()
        }
        if default in branches:
            raise TopologyError(f'split has the branch "{default}", and the same name as default')
        split = self.next(Split(predicates, default), name)
        names = [*branches, *([] if default is None else [default])]
        return {each: split.next(branch(each), None) for each in names}

    # Topics

    def to(
        self,
        topic: str | Callable[[Record[K, V]], str],
        *,
        topics: Sequence[str] = (),
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        partitioner: StreamPartitioner[K, V]
        | Callable[[str, K, V, int], set[int] | None]
        | None = None,
        name: str | None = None,
    ) -> None:
        """Write the stream to a topic, or to the one that `topic(record)` returns.

        Such a function returns one of the `topics`; any other name rejects the record. Without
        them, it returns any topic that exists. Without a partitioner, the key decides the partition
        as in the Java clients.
        """
        operation = WriteTopic(topic, partitioner, topics)
        self.next(operation, name, key_serde=key_serde, value_serde=value_serde)

    def repartition(
        self,
        *,
        name: str | None = None,
        partitions: int | None = None,
        partitioner: StreamPartitioner[K, V]
        | Callable[[str, K, V, int], set[int] | None]
        | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
    ) -> Stream[K, V]:
        """Write the stream to a topic `<name>-repartition`, and go on from there (KIP-221).

        The topic has `partitions` partitions or, by default, as many as the largest topic that
        leads to it. Records without a key are dropped.
        """
        name = self.graph.required_name("repartition", name, self.step, "its topic")
        operation = Repartition(partitions, partitioner)
        ahead = self.next(drop_null_keys(), None)
        return ahead.next(
            operation, name, key_serde=key_serde, value_serde=value_serde, key_changed=False
        )

    # By key

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
        return GroupedStream(self, name, key_serde, value_serde)

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
        return GroupedStream(keyed, name, None, value_serde)

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

    # Joins

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
        """Join each record with its partners in a stream, a table or a global table.

        `joiner(left, right)` returns the value of a result; the key is that of this stream's
        record. Records without a partner have no result. `value_serde` writes the results.

        - With another stream, `windows` says how far apart the times of partners may be:
          `windows.join(…)`.
        - With a table, each record of this stream is joined with the table's current value for its
          key, or in a versioned table, with the value that was valid at the record's time. With
          `grace_ms`, records first wait until stream time is that much later than theirs, so that
          late versions count; the table must be versioned, with a history at least as long
          (KIP-923).
        - With a global table, `key(key, value)` returns the key to look up.

        If the key was changed upstream, a repartition topic comes first. A join of two streams, one
        after a change of the key, and one with `grace_ms` need a name.

        Records without a value are dropped and counted. So are records without a key, except on a
        side that has results without a partner: the left one of `left_join`, both of `outer_join`
        (KIP-962).
        """
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
        """Join as `join` does, with `joiner(left, None)` for records without a partner.

        With another stream, that result is forwarded once the window has closed.
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
        """Join streams as `left_join` does, and `joiner(None, right)` for lone right records."""
        if isinstance(other, Table | GlobalTable):
            raise TopologyError(
                f"{called(JoinKind.OUTER, name)} takes a stream: a table's values have no results "
                "of their own in a join with a stream; use left_join"
            )
        kind = JoinKind.OUTER
        return self._join(kind, other, joiner, windows, None, None, name, value_serde)

    # Steps with state

    def deduplicate(
        self,
        *,
        within_ms: Milliseconds,
        grace_ms: Milliseconds | None = None,
        name: str | None = None,
        by: Callable[[K, V], object] | Expression | None = None,
    ) -> Stream[K, V]:
        """Drop records that repeat one that was passed on less than `within_ms` before or after.

        A record repeats another if it has the same key and, with `by`, the same result of the
        function of key and value, or of the column expression; `None` is a result like others.
        Times are those of the records. The first record that comes is passed on, and begins the
        time; those that are dropped do not prolong it.

        A record that is more than `grace_ms` behind the largest time so far is dropped and counted
        as "expired", even if it repeats none: what it may repeat is forgotten by then. By default,
        that is `within_ms`, but at least a minute. The state keeps one entry per record that was
        passed on, for `within_ms` and `grace_ms`.

        Records without a key are dropped and counted. If the key was changed upstream, a
        repartition topic `<name>-by-key-repartition` comes first.
        """
        within = whole_ms("deduplicate", "within_ms", within_ms, 1)
        grace = max(within, _GRACE_MS)
        if grace_ms is not None:
            grace = whole_ms("deduplicate", "grace_ms", grace_ms, 0)

        def operation(store: str, parent: Step) -> Operation:
            seen = (
                window(
                    store,
                    identities(parent.key_serde),
                    serdes.bytes,
                    retention_ms=within + grace + 1,
                    window_size_ms=within,
                )
                .spread(has_length=True, after=parent.after_key)
                .of_windows("")
            )
            identity = self._identity(by, "deduplicate", name)
            make = partial(Deduplicator, store, within, grace, identity)
            return StatefulStep("deduplicate", (seen, times_store(store)), make)

        return self._stateful("deduplicate", name, operation)

    def distinct(
        self,
        *,
        name: str | None = None,
        by: Callable[[K, V], object] | Expression | None = None,
    ) -> Stream[K, V]:
        """Drop records that repeat any earlier one; see `deduplicate` for what that means.

        This is SELECT DISTINCT: the first record that comes counts, whatever its time. The state
        keeps one entry for each different record, forever; if repeats come within a known time,
        use `deduplicate`.
        """

        def operation(store: str, parent: Step) -> Operation:
            seen = key_value(store, identities(parent.key_serde), serdes.bytes).spread(
                has_length=True, after=parent.after_key
            )
            make = partial(DistinctFilter, store, self._identity(by, "distinct", name))
            return StatefulStep("distinct", (seen,), make)

        return self._stateful("distinct", name, operation)

    def lag(
        self, n: int = 1, *, name: str | None = None, value_serde: Serde[Any] | None = None
    ) -> Stream[K, dict[str, Any]]:
        """Replace each value by `{"current": value, "previous": …}`.

        The previous value is the one `n` records before with the same key, in the order in which
        the records come, or `None` for the first `n`. Values of `None` count. As in LAG of SQL,
        with the order of the stream. The state keeps the last `n` values of each key, forever;
        they are written as the stream's values are. `value_serde` writes the results; by default,
        that is the builder's.
        Records without a key are treated as by `deduplicate`.
        """
        if type(n) is not int or n < 1:
            raise TopologyError(f"lag goes back by 1 record or more, not {n!r}")
        values = lags(self.step.value_serde)

        def operation(store: str, parent: Step) -> Operation:
            last: StoreBuilder[Any, Any] = key_value(store, parent.key_serde, values)
            last = last.spread(after=parent.after_key)
            return StatefulStep("lag", (last,), partial(Lagger, store, n))

        return self._stateful("lag", name, operation, value_serde or self.graph.value_serde)

    @overload
    def process(
        self,
        supplier: Callable[[], BatchProcessor],
        *,
        stores: Sequence[StoreBuilder[Any, Any] | str] = (),
        name: str | None = None,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Stream: ...
    @overload
    def process(
        self,
        supplier: Callable[
            [],
            Processor[K, V, K2 | None, V2 | None] | AsyncProcessor[K, V, K2 | None, V2 | None],
        ],
        *,
        stores: Sequence[StoreBuilder[Any, Any] | str] = (),
        name: str | None = None,
        key_serde: Serde[K2] | None = None,
        value_serde: Serde[V2] | None = None,
    ) -> Stream[K2, V2]: ...
    def process(
        self,
        supplier: Callable[[], Processor | BatchProcessor | AsyncProcessor],
        *,
        stores: Sequence[StoreBuilder[Any, Any] | str] = (),
        name: str | None = None,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Stream:
        """Run a processor, and go on with what it forwards; the key may change.

        `stores` has the definitions of its stores, or the names of stores that
        `StreamsBuilder.add_state_store` added.
        """
        operation = Process(call(supplier, "process", _SUPPLIER, name), _stores(stores))
        return self.next(
            operation,
            name,
            key_serde=key_serde or self.graph.key_serde,
            value_serde=value_serde or self.graph.value_serde,
            key_changed=True,
        )

    def process_values(
        self,
        supplier: Callable[[], Processor[K, V, K | None, V2 | None]],
        *,
        stores: Sequence[StoreBuilder[Any, Any] | str] = (),
        name: str | None = None,
        value_serde: Serde[V2] | None = None,
    ) -> Stream[K, V2]:
        """Run a `Processor` that leaves keys alone; forwarding another key is an error.

        It forwards only from `process`, not from punctuations.
        """
        operation = ProcessValues(
            call(supplier, "process_values", _SUPPLIER, name), _stores(stores)
        )
        return self.next(operation, name, value_serde=value_serde or self.graph.value_serde)

    # For the other modules of the DSL

    def keyed(
        self,
        name: str | None,
        *,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Step:
        """Return the step whose records are in the partitions of their keys.

        That is this stream's own, unless the key was changed. Then it is a repartition called
        `name`, or the one that an earlier call has made of this stream with the same serdes.
        """
        if not self.step.key_changed:
            return self.step
        key_serde = key_serde or self.step.key_serde
        value_serde = value_serde or self.step.value_serde
        shared = self.graph.shared
        place = (self.step, key_serde, value_serde)
        if place not in shared:
            ahead = self.next(drop_null_keys(), None)
            shared[place] = ahead.next(
                Repartition(),
                name,
                key_serde=key_serde,
                value_serde=value_serde,
                key_changed=False,
            ).step
        return shared[place]

    def link(
        self,
        verb: str,
        part: type[Part],
        function: object,
        what: str,
        name: str | None,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        key_changed: bool | None = None,
    ) -> Stream:
        """Add a stateless step."""
        if isinstance(function, Expression) and part in BY_EXPRESSION:
            operation = Stateless(verb, BY_EXPRESSION[part], function)
        else:
            operation = Stateless(verb, part, call(function, verb, what, name))
        return self.next(
            operation, name, key_serde=key_serde, value_serde=value_serde, key_changed=key_changed
        )

    def next(
        self,
        operation: Operation,
        name: str | None,
        *,
        parents: Sequence[Step] | None = None,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        key_changed: bool | None = None,
    ) -> Stream:
        """Add a step after this one, or after `parents`; see `Graph.add`."""
        step = self.graph.add(
            operation,
            parents or [self.step],
            name,
            key_serde=key_serde,
            value_serde=value_serde,
            key_changed=key_changed,
        )
        return Stream(self.graph, step)

    # Parts of the steps above

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
        if isinstance(other, Table):
            _require_only(where, "a table", given, "grace_ms")
            check_builder(self.graph, other.graph, where)
            return self._join_table(kind, other, joiner, grace_ms, name, value_serde)
        if not isinstance(other, Stream):
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
        table: Table[Any, Any],
        joiner: JoinFunction,
        grace_ms: Milliseconds | None,
        name: str | None,
        value_serde: Serde[Any] | None,
    ) -> Stream:
        graph, verb = self.graph, kind.value
        check_windows(self.step, table.step, called(kind, name))
        if self.step.key_changed or grace_ms is not None:
            why = "its repartition topic" if self.step.key_changed else "its store"
            name = graph.state_name(verb, name, self.step, why)
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
        other: Stream[Any, Any],
        joiner: JoinFunction,
        windows: JoinWindows,
        name: str | None,
        value_serde: Serde[Any] | None,
    ) -> Stream:
        graph = self.graph
        name = graph.state_name(kind.value, name, self.step, "its stores")
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

    @staticmethod
    def _identity(by: object, verb: str, name: str | None) -> KeyValueFunction:
        return _nothing if by is None else function_of_both(by, verb, name)

    def _stateful(
        self,
        verb: str,
        name: str | None,
        operation: Callable[[str, Step], Operation],
        value_serde: Serde[Any] | None = None,
    ) -> Stream:
        graph = self.graph
        name = graph.required_name(verb, name, self.step, "its store")
        parent = self.keyed(None if name is None else f"{name}-by-key")
        store = graph.generated_name(verb, parent) if name is None else name
        return self.next(operation(store, parent), store, parents=[parent], value_serde=value_serde)


def _stores(stores: object) -> tuple[StoreBuilder[Any, Any] | str, ...]:
    if isinstance(stores, StoreBuilder | str) or not isinstance(stores, Sequence):
        raise TopologyError(f"stores is a list of definitions or names of stores, not {stores!r}")
    for store in stores:
        if not isinstance(store, StoreBuilder | str):
            raise TopologyError(
                "a store comes from a function of kafka_pipeline.stores, such as "
                f"stores.key_value(…), or is a name, not a {type(store).__name__}"
            )
    return tuple(stores)


def _require_only(where: str, other: str, given: dict[str, Any], allowed: str) -> None:
    for argument, value in given.items():
        if value is not None and argument != allowed:
            raise TopologyError(
                f"{where} with {other} has {argument}: that is for {_FOR[argument]}, leave it out"
            )


def _require_history(graph: Graph, table: Table[Any, Any], grace_ms: int, where: str) -> None:
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


def _nothing(key: Any, value: Any) -> None:
    return None
