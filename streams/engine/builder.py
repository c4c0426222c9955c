"""Puts a topology together, node by node."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Self, get_args

from kafka_pipeline.common.names import name_problem
from kafka_pipeline.common.pipelines.specs import OffsetReset
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.engine.checks import check
from kafka_pipeline.streams.engine.node_group import GlobalStore
from kafka_pipeline.streams.engine.nodes import (
    Node,
    ProcessorNode,
    Sink,
    Source,
    Supplier,
    TopicChooser,
)
from kafka_pipeline.streams.engine.topology import InternalTopic, Topology
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.partitioning import PartitionFunction, StreamPartitioner, as_partitioner
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import StoreBuilder
from kafka_pipeline.streams.timestamps import (
    ExtractorFunction,
    TimestampExtractor,
    as_extractor,
    record_timestamp,
)

Names = str | Sequence[str]
_RESETS = get_args(OffsetReset)


class TopologyBuilder:
    """Builds a `Topology` out of sources, processors, sinks and stores.

    Each node has a name and names its parents, which may be added later. The order of the calls
    decides the order of a node's children and of the sub-topologies. Each call returns the
    builder, so calls can be chained.

        builder = TopologyBuilder()
        builder.add_source("Source", "lines", value_serde=serdes.string)
        builder.add_processor("Count", WordCount, parents=["Source"])
        builder.add_sink("Sink", "words", parents=["Count"])
        topology = builder.build()
    """

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._stores: list[StoreBuilder[Any, Any]] = []
        self._connections: list[tuple[str, str]] = []
        self._internal: list[InternalTopic] = []
        self._globals: list[GlobalStore] = []

    def add_source(
        self,
        name: str,
        topics: Names | re.Pattern[str],
        *,
        key_serde: Serde[Any] = serdes.bytes,
        value_serde: Serde[Any] = serdes.bytes,
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
        auto_offset_reset: OffsetReset = "earliest",
        feedback: bool = False,
        looked_up: bool = False,
    ) -> Self:
        """Read topics: one name, several names, or a pattern that must match a whole topic name.

        A topic has only one source. If nothing is committed yet, `auto_offset_reset` says whether
        to begin with the oldest record or only with new ones. With `feedback`, sinks may write the
        topics too, so that records come back; event time does not wait for them. With `looked_up`,
        the records only change stores in which records of other sources look something up, so event
        time does not follow them; `StreamsBuilder` finds such sources by itself.
        """
        if auto_offset_reset not in _RESETS:
            raise TopologyError(
                f'source "{name}": auto_offset_reset is "earliest" or "latest", '
                f"not {auto_offset_reset!r}"
            )
        _require_name("source", name)
        _require_serdes(f'source "{name}"', key_serde, value_serde)
        if isinstance(topics, re.Pattern) and not isinstance(topics.pattern, str):
            raise TopologyError(f'source "{name}": its pattern is of bytes: make it one of text')
        pattern = topics if isinstance(topics, re.Pattern) else None
        if feedback and pattern is not None:
            raise TopologyError(f'source "{name}": feedback needs names of topics, not a pattern')
        names = () if isinstance(topics, re.Pattern) else _names(topics, f'topics of "{name}"')
        for topic in names:
            _require_topic(f'source "{name}"', topic)
        self._nodes.append(
            Source(
                name,
                names,
                pattern,
                key_serde,
                value_serde,
                _made(as_extractor, timestamp_extractor, f'source "{name}"'),
                auto_offset_reset,
                feedback=feedback,
                looked_up=looked_up,
            )
        )
        return self

    def add_processor(
        self,
        name: str,
        supplier: Supplier,
        parents: Names,
        *,
        stores: Names = (),
        holds_ms: int = 0,
        looks_up: bool = False,
    ) -> Self:
        """Process what the parents forward, with a processor that `supplier` makes for each task.

        `supplier` is a subclass of `Processor` or `BatchProcessor`, or a function without
        arguments that returns a new instance each time. `stores` names the stores that the
        processor uses; `add_state_store` and `connect_processor_and_state_stores` can connect
        stores as well. If the processor delays records, `holds_ms` is the
        largest delay in event time (0 or more): downstream windows, also those after topics, stay
        open that much longer. With `looks_up`, records of several inputs come
        in the order of time, even if other tasks of the job have yet to send some of them: each
        record looks up the state at its own time.
        """
        _require_name("processor", name)
        _require_supplier(name, supplier)
        if type(holds_ms) is not int or holds_ms < 0:
            raise TopologyError(
                f'processor "{name}": holds_ms must be a whole number, 0 or more, not {holds_ms!r}'
            )
        self._nodes.append(
            ProcessorNode(
                name, supplier, _parents(parents, name), holds_ms=holds_ms, looks_up=looks_up
            )
        )
        for store in _names(stores, f'the stores of processor "{name}"'):
            self._connections.append((name, store))
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicChooser,
        parents: Names,
        *,
        topics: Names = (),
        key_serde: Serde[Any] = serdes.bytes,
        value_serde: Serde[Any] = serdes.bytes,
        partitioner: StreamPartitioner[Any, Any] | PartitionFunction | None = None,
    ) -> Self:
        """Write what the parents forward to a topic, or to the one that `topic(record)` returns.

        Such a function returns one of the `topics`; any other name rejects the record. Without
        them, it returns any topic that exists. Without a partitioner, the key decides the partition
        as in the Java clients; a record without a key goes to the partition with the task's number.
        """
        _require_name("sink", name)
        if isinstance(topic, str):
            _require_topic(f'sink "{name}"', topic)
        elif not callable(topic):
            raise TopologyError(
                f'sink "{name}": the topic is a name or a function of the record, '
                f"not a {type(topic).__name__}"
            )
        _require_serdes(f'sink "{name}"', key_serde, value_serde)
        names = _names(topics, f'the topics of sink "{name}"')
        if names and isinstance(topic, str):
            raise TopologyError(
                f'sink "{name}": `topics` are for a function, and the topic is "{topic}"'
            )
        for each in names:
            _require_topic(f'sink "{name}"', each)
        self._nodes.append(
            Sink(
                name,
                (topic,) if isinstance(topic, str) else names,
                None if isinstance(topic, str) else topic,
                _parents(parents, name),
                key_serde,
                value_serde,
                None
                if partitioner is None
                else _made(as_partitioner, partitioner, f'sink "{name}"'),
                names,
            )
        )
        return self

    def add_state_store(self, store: StoreBuilder[Any, Any], processors: Names = ()) -> Self:
        """Add a store and connect it to processors. Processors that share it run in one task."""
        _require_store(store)
        self._stores.append(store)
        for processor in _names(processors, f'the processors of store "{store.name}"'):
            self._connections.append((processor, store.name))
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: Names) -> Self:
        """Let a processor use stores: one name or several, or a list of names."""
        _require_name("processor", processor)
        for names in stores:
            for store in _names(names, f'the stores of processor "{processor}"'):
                self._connections.append((processor, store))
        return self

    def add_global_store(
        self,
        store: StoreBuilder[Any, Any],
        source: str,
        topic: str,
        processor: str,
        supplier: Supplier,
        *,
        key_serde: Serde[Any] = serdes.bytes,
        value_serde: Serde[Any] = serdes.bytes,
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
    ) -> Self:
        """Add a store that every processor can read, and a processor that fills it from a topic.

        `source` and `processor` are the names of the two nodes. All processors of the topology can
        read the store through `context.get_state_store` without being connected to it; only the
        processor that `supplier` makes can write it. In each process that runs tasks, that
        processor gets the records of all partitions, except records without a key. It can neither
        schedule nor use another store, and it has no children. The topic is the store's log, so
        it should be compacted, and the store itself is never logged. A task begins once the store
        has everything that the topic held by then (KIP-28, KIP-820).
        """
        _require_store(store)
        if store.format.version > 1:
            raise TopologyError(
                f'global store "{store.name}" has the format {store.format.version}, but a global '
                "store is filled from its topic at each start: have its processor put values of "
                "today, and leave the format out"
            )
        _require_name("source", source)
        _require_name("processor", processor)
        _require_supplier(processor, supplier)
        where = f'source "{source}" of global store "{store.name}"'
        _require_serdes(where, key_serde, value_serde)
        if not isinstance(topic, str):
            raise TopologyError(f"{where}: the topic is one name, not a {type(topic).__name__}")
        _require_topic(where, topic)
        extractor = _made(as_extractor, timestamp_extractor, where)
        self._globals.append(
            GlobalStore(
                Source(source, (topic,), None, key_serde, value_serde, extractor, "earliest"),
                ProcessorNode(processor, supplier, (source,), (store.name,)),
                replace(store, logged=False),
            )
        )
        return self

    def add_internal_topic(self, name: str, partitions: int | None = None) -> Self:
        """Make a topic internal: only a sink and a source of this topology write and read it.

        Use it to repartition records by key between two sub-topologies. The engine creates the
        topic and deletes records once they are processed. The topic has `partitions` partitions
        or, by default, as many as the largest topic that leads to it.
        """
        _require_name("internal topic", name)
        _require_topic("internal topic", name)
        if partitions is not None and (type(partitions) is not int or partitions < 1):
            raise TopologyError(
                f'internal topic "{name}": partitions must be 1 or more, not {partitions!r}'
            )
        self._internal.append(InternalTopic(name, partitions))
        return self

    def build(self) -> Topology:
        """Return the topology.

        Raises `TopologyError`, which lists every problem: duplicate or unknown names, cycles,
        nodes that no source leads to, sources that lead nowhere, stores that no processor uses,
        topics with two sources, global stores that are connected.
        """
        check(self._nodes, self._stores, self._connections, self._internal, self._globals)
        used: dict[str, list[str]] = {}
        for processor, store in self._connections:
            stores = used.setdefault(processor, [])
            if store not in stores:
                stores.append(store)
        return Topology(
            tuple(
                replace(node, stores=tuple(used.get(node.name, ())))
                if isinstance(node, ProcessorNode)
                else node
                for node in self._nodes
            ),
            tuple(self._stores),
            tuple(self._internal),
            tuple(self._globals),
        )

    def describe(self) -> str:
        """Return the node groups as Kafka Streams prints them; raises as `build`."""
        return self.build().describe()

    def mermaid(self) -> str:
        """Return the topology as a Mermaid flowchart; raises as `build`."""
        return self.build().mermaid()


def _names(names: Names, what: str) -> tuple[str, ...]:
    if not isinstance(names, Iterable):
        raise TopologyError(f"{what} must be texts, not a {type(names).__name__}")
    found = (names,) if isinstance(names, str) else tuple(names)
    for name in found:
        if not isinstance(name, str):
            raise TopologyError(f"{what} must be texts, not a {type(name).__name__}")
    return found


def _parents(parents: Names, name: str) -> tuple[str, ...]:
    return _names(parents, f'the parents of "{name}"')


def _require_name(what: str, name: object) -> None:
    if not isinstance(name, str):
        raise TopologyError(f"the name of a {what} must be a string, not {name!r}")


def _require_topic(where: str, topic: str) -> None:
    problem = name_problem(topic)
    if problem:
        raise TopologyError(f'{where}: the topic "{topic}" {problem}')


def _require_supplier(name: str, supplier: object) -> None:
    if not callable(supplier):
        raise TopologyError(
            f'processor "{name}": give a class or a function that makes the processor, '
            f"not a {type(supplier).__name__}"
        )


def _require_store(store: object) -> None:
    if not isinstance(store, StoreBuilder):
        raise TopologyError(
            "a state store comes from a function of kafka_pipeline.stores, such as "
            f"stores.key_value(…), not as a {type(store).__name__}"
        )


def _require_serdes(where: str, key_serde: object, value_serde: object) -> None:
    for what, serde in (("key_serde", key_serde), ("value_serde", value_serde)):
        if not isinstance(serde, Serde):
            raise TopologyError(
                f"{where}: the {what} is a {type(serde).__name__}: use one of "
                "kafka_pipeline.serdes, or make a kafka_pipeline.serdes.Serde"
            )


def _made(make: Callable[[Any], Any], given: object, where: str) -> Any:
    try:
        return make(given)
    except TypeError as error:
        raise TopologyError(f"{where}: {error}") from error
