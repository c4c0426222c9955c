"""Finds the topics that sources with a pattern read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from common.errors import ConfigError
from common.nodes import SINK, SOURCE, ProcessorNode, Topology
from common.topic_names import TopicNames


def with_matching_topics(
    topology: Topology, existing: Collection[str], names: TopicNames
) -> Topology:
    """Return the topology with the `existing` topics that its patterns match as further inputs.

    A topic that a processor reads anyway is not added again. Raises `ConfigError` for a pattern
    that matches no topic, or a topic that its own topology writes, which would be an endless loop.
    """
    return replace(
        topology,
        nodes=tuple(
            _with_matching(node, topology, sorted(existing), names) if node.patterns else node
            for node in topology.nodes
        ),
    )


def _with_matching(
    node: ProcessorNode, topology: Topology, existing: Collection[str], names: TopicNames
) -> ProcessorNode:
    read = {*names.in_topics(node), *node.global_stores.values()}
    written = {
        topic
        for other in topology.nodes
        if (other.code, other.config) == (node.code, node.config)
        for topic in names.out_topics(other)
    }
    found: dict[str, str] = {}
    for pattern in node.patterns:
        matching = [topic for topic in existing if pattern.fullmatch(topic)]
        if not matching:
            raise ConfigError(
                f'"{node.id}": no topic matches the pattern "{pattern.pattern}" of a source. '
                "Create one first, or correct the pattern"
            )
        for topic in matching:
            if topic in written or topic in (SOURCE, SINK):
                why = "its topology writes" if topic in written else "has a reserved name"
                raise ConfigError(
                    f'"{node.id}": the pattern "{pattern.pattern}" of a source matches the topic '
                    f'"{topic}", which {why}: narrow the pattern'
                )
            found[topic] = topic
    new = [topic for topic in found if topic not in read]
    return replace(node, from_=(*node.from_, *new), topics={**node.topics, **found})
