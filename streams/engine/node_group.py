"""Node groups, which tasks run, and global stores, which all tasks read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka_pipeline.common.pipelines.specs import RecordSerdes
from kafka_pipeline.streams.engine.nodes import Node, ProcessorNode, Sink, Source
from kafka_pipeline.streams.stores import StoreBuilder

N = TypeVar("N")


@dataclass(frozen=True, slots=True)
class GlobalStore:
    """A store that every task may read, and the only two nodes that update it (KIP-28).

    No task runs these nodes: wherever tasks run, a copy of the store follows all partitions of the
    topic.
    """

    source: Source
    processor: ProcessorNode
    store: StoreBuilder[Any, Any]

    @property
    def topic(self) -> str:
        """The topic that the store follows, which is also its log."""
        return self.source.topics[0]

    @property
    def group(self) -> NodeGroup:
        """The two nodes as a group."""
        return NodeGroup((self.source, self.processor), (self.store,), is_global=True)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that run in one task because they are connected or share stores: a sub-topology.

    The group has the name of its first source. In `nodes`, parents come before children. The
    group's processors may read the `global_stores`; the group `is_global` if it writes one.
    """

    nodes: tuple[Node, ...]
    stores: tuple[StoreBuilder[Any, Any], ...]
    global_stores: tuple[GlobalStore, ...] = ()
    is_global: bool = False

    @property
    def name(self) -> str:
        """The name of the group, from which its tasks get theirs."""
        return self.sources[0].name

    @property
    def sources(self) -> tuple[Source, ...]:
        """The nodes that read topics."""
        return tuple(node for node in self.nodes if isinstance(node, Source))

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The nodes that write topics."""
        return tuple(node for node in self.nodes if isinstance(node, Sink))

    @property
    def in_topics(self) -> tuple[str, ...]:
        """The topics that are read, except those that a pattern finds."""
        return unique(topic for source in self.sources for topic in source.topics)

    @property
    def feedback_topics(self) -> tuple[str, ...]:
        """The topics that are read by which the group's own records may come back."""
        return unique(topic for each in self.sources if each.feedback for topic in each.topics)

    @property
    def looked_up_topics(self) -> tuple[str, ...]:
        """The topics that are read whose records only change what others look up."""
        return unique(topic for each in self.sources if each.looked_up for topic in each.topics)

    def leading_to(self, topic: str) -> tuple[str, ...]:
        """Return the topics from which records lead to a topic that is written, node by node."""
        reached = {sink.name for sink in self.sinks if topic in sink.topics}
        for node in reversed(self.nodes):
            if not isinstance(node, Source) and node.name in reached:
                reached.update(node.parents)
        return unique(each for s in self.sources if s.name in reached for each in s.topics)

    @property
    def chooses_topics(self) -> bool:
        """Whether a function chooses topics that nobody else knows."""
        return any(sink.chooser is not None and not sink.names for sink in self.sinks)

    @property
    def out_topics(self) -> tuple[str, ...]:
        """The topics that are written, except unknown ones that a function chooses."""
        return unique(topic for sink in self.sinks for topic in sink.topics)

    def serdes_of(self, topic: str) -> RecordSerdes:
        """Return the serdes by which the group writes a topic, or else those by which it reads."""
        sinks = [sink for sink in self.sinks if topic in sink.topics]
        nodes: Sequence[Source | Sink] = sinks or [s for s in self.sources if s.reads(topic)]
        return RecordSerdes(
            key=" or ".join(sorted({node.key_serde.name for node in nodes})),
            value=" or ".join(sorted({node.value_serde.name for node in nodes})),
        )

    def meetings(self) -> Iterator[tuple[str, tuple[Source, ...]]]:
        """Yield the sources whose records meet in a store, with the last node that uses it."""
        sources = self._sources_by_node()
        by_store: dict[str, list[ProcessorNode]] = {}
        for node in self.nodes:
            if isinstance(node, ProcessorNode):
                for store in node.stores:
                    by_store.setdefault(store, []).append(node)
        for users in by_store.values():
            met = unique(source for node in users for source in sources[node.name])
            if len(met) > 1 or len(met[0].topics) > 1 or met[0].pattern is not None:
                yield users[-1].name, met

    def _sources_by_node(self) -> dict[str, tuple[Source, ...]]:
        sources: dict[str, tuple[Source, ...]] = {}
        for node in self.nodes:
            if isinstance(node, Source):
                sources[node.name] = (node,)
            else:
                sources[node.name] = unique(s for name in node.parents for s in sources[name])
        return sources

    def held_from(self, name: str) -> tuple[str, ...]:
        """Return the topics of the records that a node may hold back; none if it does not."""
        (node,) = (each for each in self.nodes if each.name == name)
        if not isinstance(node, ProcessorNode) or not node.holds_ms:
            return ()
        return unique(topic for each in self._sources_by_node()[name] for topic in each.topics)

    def hold_ms(self, name: str) -> int:
        """Return for how long, in event time, the nodes ahead of a node may hold records back."""
        until_ms: dict[str, int] = {}
        for node in self.nodes:
            ahead_ms = max((until_ms[parent] for parent in node.parents), default=0)
            if node.name == name:
                return ahead_ms
            own_ms = node.holds_ms if isinstance(node, ProcessorNode) else 0
            until_ms[node.name] = ahead_ms + own_ms
        raise KeyError(name)

    def store_hold_ms(self, name: str) -> int:
        """Return the longest `hold_ms` of the nodes that share a store with a node, or its own."""
        stores = {
            node.name: {*node.stores} for node in self.nodes if isinstance(node, ProcessorNode)
        }
        sharing = (each for each, used in stores.items() if used & stores[name])
        return max(map(self.hold_ms, (name, *sharing)))

    @property
    def looks_up(self) -> bool:
        """Whether records are to find what other inputs have brought up to their time."""
        return any(isinstance(node, ProcessorNode) and node.looks_up for node in self.nodes)

    def hold_ms_to(self, topic: str) -> int:
        """Return for how long, in event time, records for a topic may be held back."""
        sinks = (sink for sink in self.sinks if topic in sink.topics)
        return max((self.hold_ms(sink.name) for sink in sinks), default=0)

    def begins_at_end(self, topic: str) -> bool:
        """Whether a topic is read from its end if nothing is committed yet."""
        return any(
            source.auto_offset_reset == "latest" for source in self.sources if source.reads(topic)
        )

    def children(self, name: str) -> tuple[Node, ...]:
        """Return the nodes that get what a node forwards."""
        return tuple(node for node in self.nodes if name in node.parents)


def unique(items: Iterable[N]) -> tuple[N, ...]:
    """Return the items without repetitions, in order."""
    return tuple(dict.fromkeys(items))
