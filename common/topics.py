"""The name, partition count and policy of every topic; nothing here talks to a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.config import Config
from common.nodes import OnError, ProcessorNode, Topology
from common.topic_names import TopicNames

ANY_SIZE_BYTES = 100_000_000
"""The `max.message.bytes` of all topics of a job except the user's and the control topics.

The user's topics set the limit, not the engine's, and a dead letter is larger than its record.
Brokers take requests of up to 100 MiB (socket.request.max.bytes).
"""

_ANY_SIZE = {"max.message.bytes": str(ANY_SIZE_BYTES)}
_ANY_TIME = {
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "9223372036854775807",
}
# Records keep the timestamps of the source, so retention by time would drop records of the past
# before any task has read them. The JobManager deletes processed records from arcs, as Kafka
# Streams does; dead letters stay until somebody deletes them.
_KEEP_RECORDS = {"cleanup.policy": "delete", "retention.ms": "-1"} | _ANY_SIZE | _ANY_TIME
TOMBSTONES_KEPT_MS = 7 * 86_400_000
"""How long a state topic keeps deletions at least, for stores that were away."""

# Kafka never compacts the active segment, so smaller segments make for shorter restores. Time is
# by the brokers' clock: retention must not delete new state because its records have old times.
_STATE = {
    "segment.bytes": "67108864",
    "delete.retention.ms": str(TOMBSTONES_KEPT_MS),
    "message.timestamp.type": "LogAppendTime",
} | _ANY_SIZE
# Few records, and the last `sos` must still be there for a TaskManager that joins months later.
_KEEP = {"cleanup.policy": "delete", "retention.ms": "-1"}
# One record per TaskManager and second, of no use a minute later. Time is by the brokers' clock:
# a heartbeat's age shows which TaskManagers are up, and the clock of its sender may be wrong.
_ONE_HOUR = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",
    "segment.ms": "3600000",
    "message.timestamp.type": "LogAppendTime",
}


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it should exist; `config` overrides the broker's defaults by Kafka's names."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict, hash=False)


def control_topic(config: Config, name: str) -> TopicSpec:
    """Return a control topic: one partition, so that its messages have one order."""
    policy = _ONE_HOUR if name == config.topic_names.heartbeat else _KEEP
    return TopicSpec(name, 1, config.replication_factor, policy)


def control_topics(config: Config) -> tuple[TopicSpec, ...]:
    """Return all control topics, with the command topics of TaskManagers 0 to `tm_number` - 1."""
    names = config.topic_names
    return tuple(
        control_topic(config, name)
        for name in (
            names.threads_jm,
            names.threads_tm,
            *(names.processors(str(tm_id)) for tm_id in range(config.tm_number)),
            names.heartbeat,
            names.heartbeat_events,
        )
    )


def data_topics(config: Config, topology: Topology) -> tuple[TopicSpec, ...]:
    """Return the topics that hold records and state.

    In order: sources, arcs, state topics (compacted), dead letters, sinks. They have `parallelism`
    partitions, unless the topology has another count; state topics have one for each task. Sources
    and sinks belong to the user: missing ones are created with the broker's defaults, but compacted
    if only global stores follow them.
    """
    names = config.topic_names

    def spec(name: str, policy: Mapping[str, str], count: int | None = None) -> TopicSpec:
        partitions = count or topology.partitions.get(name, config.parallelism)
        return TopicSpec(name, partitions, config.replication_factor, policy)

    nodes = topology.nodes
    arcs = names.arcs(topology)
    read = {topic for node in nodes for topic in names.in_topics(node)}
    followed = {topic for node in nodes for topic in node.global_stores.values()} - read
    sources = dict.fromkeys(topic for node in nodes for topic in _read(node, names))
    sinks = dict.fromkeys(topic for node in nodes for topic in names.out_topics(node))
    states = [
        spec(
            names.states(node)[store.name],
            {**_STATE, **store.topic_config},
            names.task_count(node, topology, config.parallelism),
        )
        for node in nodes
        for store in node.stores
    ]
    dead = [names.dead_letter(node.id) for node in nodes if node.on_error is OnError.DEAD_LETTER]
    return (
        *(
            spec(name, {"cleanup.policy": "compact"} if name in followed else {})
            for name in sources
            if name not in arcs
        ),
        *(spec(name, _KEEP_RECORDS) for name in arcs),
        *states,
        *(spec(name, _KEEP_RECORDS) for name in dead),
        *(spec(name, {}) for name in sinks if name not in arcs and name not in sources),
    )


def user_topics(config: Config, topology: Topology) -> tuple[str, ...]:
    """Return the sources and sinks, which belong to the user."""
    names = config.topic_names
    arcs = names.arcs(topology)
    used = (
        topic for node in topology.nodes for topic in (*_read(node, names), *names.out_topics(node))
    )
    return tuple(dict.fromkeys(topic for topic in used if topic not in arcs))


def _read(node: ProcessorNode, names: TopicNames) -> tuple[str, ...]:
    """Return all topics that the tasks of a processor read, those of global stores included."""
    return (*names.in_topics(node), *node.global_stores.values())
