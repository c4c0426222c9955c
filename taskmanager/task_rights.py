"""Names the right in Kafka that a task lacks, since Kafka's errors do not."""

from __future__ import annotations

from kafka_pipeline.common.kafka.admin import DESCRIBE_CONFIGS, READ, WRITE
from kafka_pipeline.common.kafka.clients import MissingRightError
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.taskmanager.clients import Brokers


def topic_rights(replica: ProcessorReplica) -> dict[str, set[str]]:
    """Return the operations on topics that the task must be allowed to do, by topic."""
    needed: dict[str, set[str]] = {}
    state = [*replica.state_topics.values()]
    for topic in (*replica.in_topics, *replica.spec.global_stores.values(), *state):
        needed.setdefault(topic, set()).add(READ)
    for topic in written_topics(replica):
        needed.setdefault(topic, set()).update((WRITE, DESCRIBE_CONFIGS))
    return needed


def written_topics(replica: ProcessorReplica) -> list[str]:
    """Return the topics that the task may write to."""
    dead_letters = replica.dead_letter_topic if replica.on_error.writes_dead_letters else None
    extra = [dead_letters] if dead_letters else []
    return [*replica.out_topics, *replica.state_topics.values(), *extra]


def named(
    error: MissingRightError, replica: ProcessorReplica, names: TopicNames, brokers: Brokers
) -> MissingRightError:
    """Return the error with the right that the task lacks. Asks a broker; blocks 6 s at most.

    Returns the error unchanged if no right is missing by now.
    """
    if error.is_on_a_group:
        return error.naming(f"{READ} of group {names.consumer_group(replica.task.processor)}")
    if error.is_on_a_transactional_id:
        return error.naming(f"{WRITE} of transactional id {names.transactional_id(replica.task)}")
    if error.is_on_a_topic:
        missing = brokers.missing_rights(topic_rights(replica))
        return error.naming(", ".join(missing)) if missing else error
    return error
