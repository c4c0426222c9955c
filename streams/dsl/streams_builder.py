"""Where every topology of the DSL begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Generic, Self, overload

from kafka_pipeline.common.pipelines.specs import OffsetReset
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.compiler import Compiler
from kafka_pipeline.streams.dsl.global_table import GlobalTable, ReadGlobally
from kafka_pipeline.streams.dsl.graph import Graph, Step
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.dsl.table import Table, fill_table
from kafka_pipeline.streams.dsl.topics import ReadTopics
from kafka_pipeline.streams.durations import Milliseconds
from kafka_pipeline.streams.engine.topology import Topology
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import StoreBuilder
from kafka_pipeline.streams.timestamps import (
    ExtractorFunction,
    TimestampExtractor,
    record_timestamp,
)
from kafka_pipeline.streams.type_variables import K2, V2, K, V

Topics = str | Sequence[str] | re.Pattern[str]


class StreamsBuilder(Generic[K, V]):
    """Builds a `Topology` out of streams, tables and windows.

        builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
        lines = builder.stream("lines", name="Lines")
        words = lines.flat_map_values(str.split).group_by(lambda key, word: word, name="ByWord")
        words.count(name="Counts").to_stream().to("counts", value_serde=serdes.int64)
        topology = builder.build()

    Each step that keeps state or needs a topic of its own has a `name`, which is that of its store
    and topic in Kafka. The names of stores and topics come from nothing else: steps may be added,
    moved and removed, and all others keep their state. A step without such a name is an error,
    unless `allow_generated_names` is set; it is for tests, and for topologies that never change.
    """

    @overload
    def __init__(
        self: StreamsBuilder[bytes, bytes],
        *,
        allow_generated_names: bool = False,
        caching: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: StreamsBuilder[K2, bytes],
        *,
        key_serde: Serde[K2],
        allow_generated_names: bool = False,
        caching: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: StreamsBuilder[bytes, V2],
        *,
        value_serde: Serde[V2],
        allow_generated_names: bool = False,
        caching: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: StreamsBuilder[K2, V2],
        *,
        key_serde: Serde[K2],
        value_serde: Serde[V2],
        allow_generated_names: bool = False,
        caching: bool = False,
    ) -> None: ...
    def __init__(
        self,
        *,
        key_serde: Serde[Any] = serdes.bytes,
        value_serde: Serde[Any] = serdes.bytes,
        allow_generated_names: bool = False,
        caching: bool = False,
    ) -> None:
        """Begin; the serdes are those of all keys and values that no step says otherwise.

        With `caching`, a table forwards one update of each key in a batch, the newest, as with the
        record caches of Kafka Streams. How many are left out depends on how records are batched.
        """
        for what, serde in (("key_serde", key_serde), ("value_serde", value_serde)):
            if not isinstance(serde, Serde):
                raise TopologyError(
                    f"the {what} of the StreamsBuilder is a {type(serde).__name__}: use one of "
                    "kafka_pipeline.serdes, or make a kafka_pipeline.serdes.Serde"
                )
        self._graph = Graph(key_serde, value_serde, allow_generated_names, caching)
        self._sources: list[tuple[Step, tuple[Any, ...]]] = []
        self._stores: list[StoreBuilder[Any, Any]] = []

    @overload
    def stream(
        self,
        topics: Topics,
        *,
        name: str | None = None,
        key_serde: None = None,
        value_serde: None = None,
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
        auto_offset_reset: OffsetReset = "earliest",
        feedback: bool = False,
    ) -> Stream[K, V]: ...
    @overload
    def stream(
        self,
        topics: Topics,
        *,
        name: str | None = None,
        key_serde: Serde[K2],
        value_serde: None = None,
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
        auto_offset_reset: OffsetReset = "earliest",
        feedback: bool = False,
    ) -> Stream[K2, V]: ...
    @overload
    def stream(
        self,
        topics: Topics,
        *,
        name: str | None = None,
        key_serde: None = None,
        value_serde: Serde[V2],
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
        auto_offset_reset: OffsetReset = "earliest",
        feedback: bool = False,
    ) -> Stream[K, V2]: ...
    @overload
    def stream(
        self,
        topics: Topics,
        *,
        name: str | None = None,
        key_serde: Serde[K2],
        value_serde: Serde[V2],
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
        auto_offset_reset: OffsetReset = "earliest",
        feedback: bool = False,
    ) -> Stream[K2, V2]: ...
    def stream(
        self,
        topics: Topics,
        *,
        name: str | None = None,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
        auto_offset_reset: OffsetReset = "earliest",
        feedback: bool = False,
    ) -> Stream:
        """Read topics: one name, several names, or a pattern that must match a whole topic name.

        Without a `name`, the source is called after its first topic. If nothing is committed yet,
        `auto_offset_reset` says whether to begin with the oldest record ("earliest") or only with
        new ones ("latest"). A topic that is read twice, in the same way, is read once.

        With `feedback`, what is made of the records may come back by a `to` with the same topic.
        Event time does not wait for them; they are late by their own timestamps.
        """
        step = self._source(
            topics, name, key_serde, value_serde, timestamp_extractor, auto_offset_reset, feedback
        )
        return Stream(self._graph, step)

    @overload
    def table(
        self,
        topic: str,
        *,
        name: str | None = None,
        key_serde: None = None,
        value_serde: None = None,
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
        auto_offset_reset: OffsetReset = "earliest",
        history_retention_ms: int | None = None,
    ) -> Table[K, V]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        name: str | None = None,
        key_serde: Serde[K2],
        value_serde: None = None,
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
        auto_offset_reset: OffsetReset = "earliest",
        history_retention_ms: int | None = None,
    ) -> Table[K2, V]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        name: str | None = None,
        key_serde: None = None,
        value_serde: Serde[V2],
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
        auto_offset_reset: OffsetReset = "earliest",
        history_retention_ms: int | None = None,
    ) -> Table[K, V2]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        name: str | None = None,
        key_serde: Serde[K2],
        value_serde: Serde[V2],
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
        auto_offset_reset: OffsetReset = "earliest",
        history_retention_ms: int | None = None,
    ) -> Table[K2, V2]: ...
    def table(
        self,
        topic: str,
        *,
        name: str | None = None,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
        auto_offset_reset: OffsetReset = "earliest",
        history_retention_ms: Milliseconds | None = None,
    ) -> Table:
        """Read a topic as a table: the last value of each key counts, and `None` deletes.

        `name` is that of the store; the source that reads the topic is called `<name>-source`.
        Records without a key are dropped. With `history_retention_ms`, the table is versioned:
        joins look up the value that was valid at the time of their record (KIP-914).
        """
        if not isinstance(topic, str):
            raise TopologyError(f"table reads one topic by its name, not {topic!r}")
        if name is None and not self._graph.allow_generated_names:
            raise TopologyError(
                f'the table of topic "{topic}" needs a name for its store: give '
                'table(…, name="…"), or allow_generated_names=True to the StreamsBuilder'
            )
        source = self._source(
            topic,
            None if name is None else f"{name}-source",
            key_serde,
            value_serde,
            timestamp_extractor,
            auto_offset_reset,
        )
        return fill_table(self._graph, "table", name, source, history_retention_ms)

    @overload
    def global_table(
        self,
        topic: str,
        *,
        name: str,
        key_serde: None = None,
        value_serde: None = None,
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
    ) -> GlobalTable[K, V]: ...
    @overload
    def global_table(
        self,
        topic: str,
        *,
        name: str,
        key_serde: Serde[K2],
        value_serde: None = None,
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
    ) -> GlobalTable[K2, V]: ...
    @overload
    def global_table(
        self,
        topic: str,
        *,
        name: str,
        key_serde: None = None,
        value_serde: Serde[V2],
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
    ) -> GlobalTable[K, V2]: ...
    @overload
    def global_table(
        self,
        topic: str,
        *,
        name: str,
        key_serde: Serde[K2],
        value_serde: Serde[V2],
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
    ) -> GlobalTable[K2, V2]: ...
    def global_table(
        self,
        topic: str,
        *,
        name: str,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | ExtractorFunction = record_timestamp,
    ) -> GlobalTable:
        """Read a topic as a table of which every task has all keys, for joins by any key.

        `name` is that of the store, which every processor can read.
        """
        step = self._graph.add(
            ReadGlobally(topic, timestamp_extractor),
            [],
            name,
            key_serde=key_serde,
            value_serde=value_serde,
        )
        return GlobalTable(self._graph, step)

    def add_state_store(self, store: StoreBuilder[Any, Any]) -> Self:
        """Add a store that `process(…, stores=[name])` uses by its name."""
        if not isinstance(store, StoreBuilder):
            raise TopologyError(
                "a state store comes from a function of kafka_pipeline.stores, such as "
                f"stores.key_value(…), not as a {type(store).__name__}"
            )
        self._stores.append(store)
        return self

    def build(self) -> Topology:
        """Return the topology; afterwards, no step can be added.

        Raises `TopologyError`, which names the steps that are wrong.
        """
        self._graph.is_built = True
        return Compiler(self._graph, self._stores).compile()

    def describe(self) -> str:
        """Return the node groups as Kafka Streams prints them; raises as `build`."""
        return Compiler(self._graph, self._stores).compile().describe()

    def mermaid(self) -> str:
        """Return the topology as a Mermaid flowchart; raises as `build`."""
        return Compiler(self._graph, self._stores).compile().mermaid()

    def _source(
        self,
        topics: Topics,
        name: str | None,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
        timestamp_extractor: TimestampExtractor | ExtractorFunction,
        auto_offset_reset: OffsetReset,
        feedback: bool = False,
    ) -> Step:
        """Return the step that reads topics: the one that reads them already, or a new one."""
        names = _topics(topics)
        both = (key_serde, value_serde)
        settings = (names, both, timestamp_extractor, auto_offset_reset, feedback)
        for step, given in self._sources:
            if given == settings and not self._graph.is_built:
                return step
            if not isinstance(names, re.Pattern) and not isinstance(given[0], re.Pattern):
                for topic in set(names).intersection(given[0]):
                    raise TopologyError(
                        f'topic "{topic}" is read by {step!r} already, in another way: use that '
                        "stream again, or give both the same topics, serdes and options. Of lists "
                        "that overlap, read each topic by itself, and merge the streams"
                    )
        if name is None and isinstance(names, re.Pattern):
            raise TopologyError(f'the stream of {topics!r} needs a name: give stream(…, name="…")')
        operation = ReadTopics(names, timestamp_extractor, auto_offset_reset, feedback)
        step = self._graph.add(
            operation,
            [],
            f"{names[0]}-source" if name is None else name,  # type: ignore[index]
            key_serde=key_serde,
            value_serde=value_serde,
        )
        self._sources.append((step, settings))
        return step


def _topics(topics: object) -> tuple[str, ...] | re.Pattern[str]:
    if isinstance(topics, re.Pattern):
        return topics
    names = (topics,) if isinstance(topics, str) else topics
    if (
        isinstance(names, Sequence)
        and names
        and all(isinstance(topic, str) for topic in names)
        and not isinstance(names, bytes)
    ):
        return tuple(names)
    raise TopologyError(f"stream reads topics: a name, several names, or a pattern, not {topics!r}")
