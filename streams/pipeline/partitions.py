"""The partition counts of a pipeline's topics, and the rules that they must follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from common.config import Config
from common.errors import ConfigError
from common.nodes import BUILT_IN, ON_SPARK, Topology


def with_counts(topology: Topology, config: Config, existing: Mapping[str, int]) -> Topology:
    """Return the topology with these partition counts; other topics have `parallelism`.

    Raises `ConfigError` if topics that must have equal counts do not (`check_co_partitioning`).
    """
    others = {topic: count for topic, count in existing.items() if count != config.parallelism}
    found = _with_internal(replace(topology, partitions={**topology.partitions, **others}), config)
    check_co_partitioning(found, config)
    return found


def _with_internal(topology: Topology, config: Config) -> Topology:
    """Return the topology with partition counts for the internal topics that have none yet.

    Such a topic has as many partitions as the largest topic that leads to it.
    """
    names = config.topic_names
    internal = {node.topics[topic] for node in topology.nodes for topic in node.internal_topics}
    unknown = internal - topology.partitions.keys()
    counts = {**topology.partitions, **dict.fromkeys(unknown, 0)}
    # Each round settles at least the next topic of a chain.
    for _ in unknown:
        for node in topology.nodes:
            largest = max(counts.get(topic, config.parallelism) for topic in names.in_topics(node))
            for topic in unknown.intersection(names.out_topics(node)):
                counts[topic] = max(counts[topic], largest)
    return replace(
        topology,
        partitions={topic: count for topic, count in counts.items() if count},
    )


def check_co_partitioning(topology: Topology, config: Config) -> None:
    """Raise `ConfigError` for user code that reads topics with different partition counts.

    Records of one key would go to different tasks, and those that belong together would not meet.
    The engine's own types look at one record at a time, or at all of one key from one topic.
    """
    names = config.topic_names
    for node in topology.nodes:
        topics = names.in_topics(node)
        counts = {topic: topology.partitions.get(topic, config.parallelism) for topic in topics}
        takes_any = node.type in (*BUILT_IN, *ON_SPARK) and not node.is_stateful
        if len(set(counts.values())) > 1 and not takes_any:
            listed = ", ".join(f"{topic} has {count}" for topic, count in counts.items())
            raise ConfigError(
                f'"{node.id}" reads topics with different numbers of partitions: {listed}. Records '
                "of one key would be spread over different tasks: give all of them as many, or "
                "let a processor in between spread them anew"
            )
