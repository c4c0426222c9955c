"""Finds the partition counts of the user's topics, and checks that they suit the processors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from common.config import Config
from common.errors import ConfigError
from common.kafka.admin import Admin
from common.nodes import BUILT_IN, ON_SPARK, Topology
from common.topics import TopicNames, user_topics


def with_partitions(topology: Topology, config: Config, admin: Admin) -> Topology:
    """Return the topology with the partition counts that the user's topics have in Kafka.

    A processor has as many tasks as its largest topic has partitions. Raises `ConfigError` if
    topics that must have equal partition counts do not (`check_co_partitioning`).
    """
    return with_counts(topology, config, admin.partition_counts(user_topics(config, topology)))


def with_counts(topology: Topology, config: Config, existing: Mapping[str, int]) -> Topology:
    """Do the same with the partition counts of `existing`; other topics have `parallelism`."""
    others = {topic: count for topic, count in existing.items() if count != config.parallelism}
    found = _with_internal(replace(topology, partitions={**topology.partitions, **others}), config)
    check_co_partitioning(found, config)
    return found


def _with_internal(topology: Topology, config: Config) -> Topology:
    """Return the topology with partition counts for the internal topics that have none yet.

    Such a topic has as many partitions as the largest topic that leads to it.
    """
    names = TopicNames.of(config)
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


def check_parallelism(topology: Topology, config: Config, admin: Admin) -> None:
    """Raise `ConfigError` if `parallelism` was another number when the job's topics were made.

    Arcs between processors and dead letter topics show that: they have `parallelism` partitions,
    whatever the inputs have. Before the first start of the job, somebody else has made them.
    """
    names = TopicNames.of(config)
    internal = {node.topics[topic] for node in topology.nodes for topic in node.internal_topics}
    dead = {names.dead_letter(node.id) for node in topology.nodes}
    wanted = {*names.arcs(topology), *dead} - internal
    existing = admin.partition_counts({*wanted, names.threads_jm})
    has_started = existing.pop(names.threads_jm, None) is not None
    counts = set(existing.values())
    if not has_started or len(counts) != 1 or counts == {config.parallelism}:
        return
    (count,) = counts
    raise ConfigError(
        f"parallelism is {config.parallelism} in config.yaml, but was {count} when the topics of "
        f"this job were made: {', '.join(sorted(existing))} {_have(count, len(existing))}. Set "
        f"parallelism back to {count}, or start a job with another job_name and other topics: "
        'docs/operations.md, "Changing a pipeline"'
    )


def _have(partitions: int, topics: int) -> str:
    unit = "partition" if partitions == 1 else "partitions"
    return f"{'has' if topics == 1 else 'have'} {partitions} {unit}"


def check_co_partitioning(topology: Topology, config: Config) -> None:
    """Raise `ConfigError` for user code that reads topics with different partition counts.

    Records of one key would go to different tasks, and those that belong together would not meet.
    The engine's own types look at one record at a time, or at all of one key from one topic.
    """
    names = TopicNames.of(config)
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


def check_state_topics(topology: Topology, config: Config, admin: Admin) -> None:
    """Raise `ConfigError` for stateful processors whose input's partition count has changed.

    A state topic has one partition for each partition of the input. If the input now has more or
    fewer, keys go to other tasks, which do not have their state.
    """
    names = TopicNames.of(config)
    existing = admin.partition_counts(
        topic for node in topology.nodes for topic in names.states(node).values()
    )
    inputs = user_topics(config, topology)
    for node in topology.nodes:
        needed = names.task_count(node, topology, config.parallelism)
        largest = [
            topic
            for topic in names.in_topics(node)
            if topic in inputs and topology.partitions.get(topic, config.parallelism) == needed
        ]
        for topic in names.states(node).values():
            has = existing.get(topic, needed)
            if has != needed and largest:
                raise ConfigError(
                    f'the input {" and ".join(largest)} of "{node.id}" has {needed} partitions, '
                    f"and had {has} when its state began: keys have moved to other partitions "
                    f"than their state. Keep the topic {topic}, it is the state; what to do: "
                    'docs/operations.md, "Changing a pipeline"'
                )
