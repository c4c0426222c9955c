"""A checked topology, and the node groups that its tasks run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from streams.describe import describe, mermaid
from streams.nodes import Node, ProcessorNode, Sink, Source
from streams.stores import StoreBuilder

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
class InternalTopic:
    """A topic of the topology itself, between two node groups.

    If `partitions` is `None`, the number is derived."""

    name: str
    partitions: int | None = None


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
        """The name that the group's tasks are called after."""
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
        return _unique(topic for source in self.sources for topic in source.topics)

    @property
    def out_topics(self) -> tuple[str, ...]:
        """The topics that are written, except those that a function chooses."""
        return _unique(topic for sink in self.sinks for topic in sink.topics)

    def begins_at_end(self, topic: str) -> bool:
        """Whether a topic is read from its end if nothing is committed yet."""
        return any(
            source.auto_offset_reset == "latest"
            for source in self.sources
            if topic in source.topics or (source.pattern and source.pattern.fullmatch(topic))
        )

    def children(self, name: str) -> tuple[Node, ...]:
        """Return the nodes that get what a node forwards."""
        return tuple(node for node in self.nodes if name in node.parents)


@dataclass(frozen=True, slots=True)
class Topology:
    """The result of `TopologyBuilder.build`: nodes and stores that fit together."""

    nodes: tuple[Node, ...]
    stores: tuple[StoreBuilder[Any, Any], ...]
    internal_topics: tuple[InternalTopic, ...] = ()
    global_stores: tuple[GlobalStore, ...] = ()

    @property
    def groups(self) -> tuple[NodeGroup, ...]:
        """The node groups, in the order of their first nodes; each task runs one group."""
        stores = {store.name: store for store in self.stores}
        return tuple(
            NodeGroup(
                tuple(_parents_first(group)),
                tuple(
                    stores[name]
                    for name in _unique(
                        name for n in group if isinstance(n, ProcessorNode) for name in n.stores
                    )
                ),
                self.global_stores,
            )
            for group in _grouped(self.nodes)
        )

    def describe(self) -> str:
        """Return the sub-topologies and their nodes in the layout of Kafka Streams."""
        return describe(self)

    def mermaid(self) -> str:
        """Return a Mermaid flowchart: topics, the groups with their nodes, and stores."""
        return mermaid(self)


def _grouped(nodes: Sequence[Node]) -> list[list[Node]]:
    """Split nodes into groups that share neither arcs nor stores (union-find)."""
    leaders: dict[tuple[str, str], tuple[str, str]] = {}

    def find(item: tuple[str, str]) -> tuple[str, str]:
        while leaders.setdefault(item, item) != item:
            leaders[item] = item = leaders[leaders[item]]
        return item

    for node in nodes:
        stores = node.stores if isinstance(node, ProcessorNode) else ()
        others = (*(("node", name) for name in node.parents), *(("store", name) for name in stores))
        for other in others:
            leaders[find(other)] = find(("node", node.name))
    groups: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        groups.setdefault(find(("node", node.name)), []).append(node)
    return list(groups.values())


def _parents_first(nodes: Sequence[Node]) -> Iterator[Node]:
    waiting, done = list(nodes), set[str]()
    while waiting:
        node = next(node for node in waiting if done.issuperset(node.parents))
        waiting.remove(node)
        done.add(node.name)
        yield node


def _unique(items: Iterable[N]) -> tuple[N, ...]:
    return tuple(dict.fromkeys(items))
