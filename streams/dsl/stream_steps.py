"""What streams do without tables: records one by one, topics, processors of the user's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, cast, overload

from kafka_pipeline.streams.dsl import stateless
from kafka_pipeline.streams.dsl.async_values import AsyncSettings, is_async, map_values_async
from kafka_pipeline.streams.dsl.branches import Split, branch
from kafka_pipeline.streams.dsl.chains import Part
from kafka_pipeline.streams.dsl.expression_calls import OF_BOTH, OF_VALUE, condition_of_both
from kafka_pipeline.streams.dsl.expression_parts import BY_EXPRESSION
from kafka_pipeline.streams.dsl.expressions import Expression
from kafka_pipeline.streams.dsl.graph import Graph, Operation, Step, call
from kafka_pipeline.streams.dsl.stateless import Stateless, drop_null_keys
from kafka_pipeline.streams.dsl.topics import Repartition, WriteTopic
from kafka_pipeline.streams.dsl.user_processors import Process, ProcessValues
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.partitioning import StreamPartitioner
from kafka_pipeline.streams.processor import AsyncProcessor, BatchProcessor, Processor
from kafka_pipeline.streams.record import Record
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import StoreBuilder
from kafka_pipeline.streams.type_variables import K2, V2, K, V

if TYPE_CHECKING:
    from kafka_pipeline.streams.dsl.streams_and_tables import Stream

_DEFAULT_SETTINGS = AsyncSettings()
_OF_BOTH = "a function of key and value"
_OF_VALUE = "a function of the value"


class StreamSteps(Generic[K, V]):
    """An unbounded sequence of records.

    Every method adds a step and returns what comes of it; the stream itself stays as it is, and may
    go on in several ways. Functions of a key and a value take both, functions named `…_values` the
    value. They must not change what they get.

    `name` is the step's name, which errors and `describe` show; a step without state need not have
    one. Where a step may change the type of keys or values, `key_serde` and `value_serde` say how
    the new ones are written; by default, they are written as the builder says.
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
            if not isinstance(other, StreamSteps):
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
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        partitioner: StreamPartitioner[K, V]
        | Callable[[str, K, V, int], set[int] | None]
        | None = None,
        name: str | None = None,
    ) -> None:
        """Write the stream to a topic, or to the one that `topic(record)` returns.

        Without a partitioner, the key decides the partition as in the Java clients.
        """
        operation = WriteTopic(topic, partitioner)
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

    # State

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
        return cast("Stream", type(self)(self.graph, step))


_SUPPLIER = "a class or a function that makes the processor"


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
