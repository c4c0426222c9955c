"""The topics in which the daemons of a job talk to each other."""

from __future__ import annotations

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.topics import ANY_SIZE_BYTES, RECORDS_NEED, TopicSpec

# Few records, and the last `sos` must still be there for a TaskManager that joins months later.
_KEEP = {"cleanup.policy": "delete", "retention.ms": "-1"}
# A version has the text of a file of any size. Not compacted: a record that does not count, since
# it is not signed, would remove the wish by its key.
_KEEP_ANY_SIZE = _KEEP | {"max.message.bytes": str(ANY_SIZE_BYTES)}
# One record per TaskManager and second, of no use a minute later. Time is by the brokers' clock:
# a heartbeat's age shows which TaskManagers are up, and the clock of its sender may be wrong.
_ONE_HOUR = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",
    "segment.ms": "3600000",
    "message.timestamp.type": "LogAppendTime",
}


def control_topic(config: Config, name: str) -> TopicSpec:
    """Return a control topic: one partition, so that its messages have one order."""
    names = config.topic_names
    policy = {names.heartbeat: _ONE_HOUR, names.pipeline: _KEEP_ANY_SIZE}.get(name, _KEEP)
    needs = {names.pipeline: RECORDS_NEED}.get(name, frozenset())
    return TopicSpec(name, 1, config.replication_factor, policy, needs)


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
