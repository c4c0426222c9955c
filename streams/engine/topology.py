"""A checked topology, and the node groups that its tasks run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams.engine.describe import describe, mermaid
from kafka_pipeline.streams.engine.node_group import GlobalStore, NodeGroup, unique
from kafka_pipeline.streams.engine.nodes import Node, ProcessorNode
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
