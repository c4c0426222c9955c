"""A checked topology, the node groups of its tasks, and both as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams.engine.node_group import GlobalStore, NodeGroup, unique
from kafka_pipeline.streams.engine.nodes import Node, ProcessorNode, Sink, Source
from kafka_pipeline.streams.stores import StoreBuilder


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic of the topology itself, between two node groups.

    If `partitions` is `None`, the number is derived."""

    name: str
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """The result of `TopologyBuilder.build`: nodes and stores that fit together.

    If `meets_in_stores`, records of different topics meet nowhere else than in stores, so topics
    that share none may have different numbers of partitions. A user's processor may remember
    records itself.
    """

    nodes: tuple[Node, ...]
    stores: tuple[StoreBuilder[Any, Any], ...]
    internal_topics: tuple[InternalTopic, ...] = ()
    global_stores: tuple[GlobalStore, ...] = ()
    meets_in_stores: bool = False

    @property
    def groups(self) -> tuple[NodeGroup, ...]:
        """The node groups, in the order of their first nodes; each task runs one group."""
        stores = {store.name: store for store in self.stores}
        return tuple(
            NodeGroup(
                tuple(_parents_first(group)),
                tuple(
                    stores[name]
                    for name in unique(
                        name for n in group if isinstance(n, ProcessorNode) for name in n.stores
                    )
                ),
                self.global_stores,
            )
            for group in _grouped(self.nodes)
        )

    def describe(self) -> str:
        """Return the sub-topologies and their nodes in the layout of Kafka Streams."""
        return describe(self.groups, self.global_stores)

    def mermaid(self) -> str:
        """Return a Mermaid flowchart: topics, the groups with their nodes, and stores."""
        return mermaid(self.groups, self.global_stores)


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


# Mermaid writes labels as HTML. A "#" begins one of its own entities.
_ENTITIES = {"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;"}


def describe(groups: Sequence[NodeGroup], global_stores: Sequence[GlobalStore]) -> str:
    """Return the sub-topologies and their nodes in the layout of Kafka Streams.

    Global stores come last.
    """
    parts = []
    for number, group in enumerate(groups):
        order = _by_size(group)
        lines = [f"  Sub-topology: {number}"]
        for node in order:
            lines += _described(node, order)
        parts.append("\n".join([*lines, "", ""]))
    for number, store in enumerate(global_stores, len(parts)):
        parts.append(_described_global(number, store))
    # Kafka Streams, too, indents the first sub-topology by one more space than the others.
    return f"Topologies:\n {''.join(parts)}"


def mermaid(groups: Sequence[NodeGroup], global_stores: Sequence[GlobalStore]) -> str:
    """Return a Mermaid flowchart: topics, the groups with their nodes, and stores."""
    topics: dict[str, str] = {}
    inside, arcs = [], []
    groups = [*groups, *(store.group for store in global_stores)]
    all_nodes = (node for group in groups for node in group.nodes)
    places = {node.name: f"n{number}" for number, node in enumerate(all_nodes)}
    all_stores = (store for group in groups for store in group.stores)
    stores = {store.name: f"s{number}" for number, store in enumerate(all_stores)}
    for number, group in enumerate(groups):
        inside.append(f'    subgraph g{number} ["{_quoted(group.name)}"]')
        for node in group.nodes:
            inside.append(f'        {places[node.name]}["{_quoted(node.name)}"]')
            arcs += [f"    {places[parent]} --> {places[node.name]}" for parent in node.parents]
            for topic in _topics(node):
                place = topics.setdefault(topic, f"t{len(topics)}")
                here = places[node.name]
                arc = (place, here) if isinstance(node, Source) else (here, place)
                arcs.append(f"    {' --> '.join(arc)}")
            if isinstance(node, ProcessorNode):
                arcs += [f"    {places[node.name]} -.- {stores[store]}" for store in node.stores]
        inside += [
            f'        {stores[store.name]}[("{_quoted(store.name)}")]' for store in group.stores
        ]
        inside.append("    end")
    outside = [f'    {place}[/"{_quoted(topic)}"/]' for topic, place in topics.items()]
    return "\n".join(["flowchart LR", *outside, *inside, *arcs])


def _by_size(group: NodeGroup) -> list[Node]:
    """Return the nodes by number of descendants, largest first, then by name.

    As in Kafka Streams, a node that is reached in two ways counts twice.
    """
    sizes: dict[str, int] = {}
    for node in reversed(group.nodes):
        sizes[node.name] = 1 + sum(sizes[child.name] for child in group.children(node.name))
    return sorted(group.nodes, key=lambda node: (-sizes[node.name], node.name))


def _described(node: Node, order: list[Node]) -> list[str]:
    children = ", ".join(other.name for other in order if node.name in other.parents) or "none"
    parents = ", ".join(other.name for other in order if other.name in node.parents)
    match node:
        case Source():
            what = f"Source: {node.name} ({_source_topics(node)})"
        case Sink():
            kind = "topic" if node.chooser is None else "extractor class"
            what = f"Sink: {node.name} ({kind}: {', '.join(_topics(node))})"
        case ProcessorNode():
            what = f"Processor: {node.name} (stores: [{', '.join(node.stores)}])"
    lines = [f"    {what}"]
    if not isinstance(node, Sink):
        lines.append(f"      --> {children}")
    if not isinstance(node, Source):
        lines.append(f"      <-- {parents}")
    return lines


def _described_global(number: int, store: GlobalStore) -> str:
    nodes = store.group.nodes
    lines = [f"  Sub-topology: {number} for global store (will not generate tasks)"]
    for node in nodes:
        lines += _described(node, list(nodes))
    return "\n".join([*lines, ""])


def _source_topics(node: Source) -> str:
    if node.pattern is not None:
        return f"topics: {node.pattern.pattern}"
    return f"topics: [{', '.join(node.topics)}]"


def _topics(node: Node) -> list[str]:
    match node:
        case Source(topics=topics, pattern=pattern):
            return [pattern.pattern] if pattern is not None else list(topics)
        case Sink(topics=topics, chooser=chooser):
            if chooser is None:
                return list(topics)
            return [getattr(chooser, "__qualname__", type(chooser).__name__)]
        case ProcessorNode():
            return []


def _quoted(text: str) -> str:
    for character, entity in _ENTITIES.items():
        text = text.replace(character, entity)
    return text
