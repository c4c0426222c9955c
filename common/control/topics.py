"""The topics through which the daemons of a job talk to each other."""

from __future__ import annotations

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.topics import ANY_SIZE_BYTES, KEEP_ALL, RECORDS_NEED, TopicSpec

# Heartbeats apart, these topics have few records, and the last `sos` must still be there for a
# TaskManager that joins months later.
# A version holds files of any size. The topic is not compacted: an unsigned record, which does not
# count, would still replace the signed one with its key.
_KEEP_ANY_SIZE = {**KEEP_ALL, "max.message.bytes": str(ANY_SIZE_BYTES)}
# One record per TaskManager and second, which nobody needs a minute later. Timestamps are the
# brokers': the age of a heartbeat shows whether its sender is up, and the sender's clock may be
# wrong.
_ONE_HOUR = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",
    "segment.ms": "3600000",
    "message.timestamp.type": "LogAppendTime",
}


def control_topic(config: Config, name: str) -> TopicSpec:
    """Return a control topic; its one partition keeps its messages in order."""
    names = config.topic_names
    policy = {names.heartbeat: _ONE_HOUR, names.pipeline: _KEEP_ANY_SIZE}.get(name, KEEP_ALL)
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
