"""The policies of topics, and the control topics; nothing here talks to a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.config import Config

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
RECORDS: Mapping[str, str] = (
    {"cleanup.policy": "delete", "retention.ms": "-1"} | _ANY_SIZE | _ANY_TIME
)
"""The policy of arcs and of dead letters."""

TOMBSTONES_KEPT_MS = 7 * 86_400_000
"""How long a state topic keeps deletions at least, for stores that were away."""

# Kafka never compacts the active segment, so smaller segments make for shorter restores. Time is
# by the brokers' clock: retention must not delete new state because its records have old times.
STATE: Mapping[str, str] = {
    "segment.bytes": "67108864",
    "delete.retention.ms": str(TOMBSTONES_KEPT_MS),
    "message.timestamp.type": "LogAppendTime",
} | _ANY_SIZE
"""The policy of state topics, to which each store adds its own."""

# Few records, and the last `sos` must still be there for a TaskManager that joins months later.
_KEEP = {"cleanup.policy": "delete", "retention.ms": "-1"}
# Each version of the pipeline has a key of its own; it has the text of a file of any size.
_LAST = {"cleanup.policy": "compact"} | _ANY_SIZE
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
    names = config.topic_names
    policy = {names.heartbeat: _ONE_HOUR, names.pipeline: _LAST}.get(name, _KEEP)
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
            names.pipeline,
        )
    )
