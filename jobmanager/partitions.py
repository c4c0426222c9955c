"""Finds the partition counts of the user's topics, and checks that they suit the processors."""

from __future__ import annotations

from common.config import Config
from common.errors import ConfigError
from common.kafka.admin import Admin
from common.nodes import Topology
from common.suggest import counted
from common.topics import user_topics
from streams.pipeline.partitions import with_counts


def with_partitions(topology: Topology, config: Config, admin: Admin) -> Topology:
    """Return the topology with the partition counts that the user's topics have in Kafka.

    A processor has as many tasks as its largest topic has partitions. Raises `ConfigError` if
    topics that must have equal partition counts do not (`check_co_partitioning`).
    """
    return with_counts(topology, config, admin.partition_counts(user_topics(config, topology)))


def check_parallelism(topology: Topology, config: Config, admin: Admin) -> None:
    """Raise `ConfigError` if `parallelism` was another number when the job's topics were made.

    Arcs between processors and dead letter topics show that: they have `parallelism` partitions,
    whatever the inputs have. Before the first start of the job, somebody else has made them.
    """
    names = config.topic_names
    internal = {node.topics[topic] for node in topology.nodes for topic in node.internal_topics}
    dead = {names.dead_letter(node.id) for node in topology.nodes}
    wanted = {*names.arcs(topology), *dead} - internal
    existing = admin.partition_counts({*wanted, names.threads_jm})
    has_started = existing.pop(names.threads_jm, None) is not None
    counts = set(existing.values())
    if not has_started or len(counts) != 1 or counts == {config.parallelism}:
        return
    (count,) = counts
    have = f"{'has' if len(existing) == 1 else 'have'} {counted(count, 'partition')}"
    raise ConfigError(
        f"parallelism is {config.parallelism} in config.yaml, but was {count} when the topics of "
        f"this job were made: {', '.join(sorted(existing))} {have}. Set parallelism back to "
        f"{count}, or start a job with another job_name and other topics: "
        'docs/how-to/troubleshoot.md, "A topic has the wrong number of partitions"'
    )


def check_state_topics(topology: Topology, config: Config, admin: Admin) -> None:
    """Raise `ConfigError` for stateful processors whose input's partition count has changed.

    A state topic has one partition for each partition of the input. If the input now has more or
    fewer, keys go to other tasks, which do not have their state.
    """
    names = config.topic_names
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
                    f'the input {" and ".join(largest)} of "{node.id}" has '
                    f"{counted(needed, 'partition')}, and had {has} when its state began: keys "
                    "have moved to other partitions than their state. Keep the topic "
                    f"{topic}, it is the state; what to do: "
                    'docs/how-to/change_a_pipeline.md, "When a source gets more partitions"'
                )
