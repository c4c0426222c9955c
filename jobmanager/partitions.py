"""Finds the partition counts of the user's topics, and checks that they suit the processors."""

from __future__ import annotations

from common.errors import ConfigError
from common.kafka.admin import Admin
from common.pipeline import Pipeline
from streams.pipeline.partitions import with_counts


def with_partitions(pipeline: Pipeline, admin: Admin) -> Pipeline:
    """Return the pipeline with the partition counts that the user's topics have in Kafka.

    A processor has as many tasks as its largest topic has partitions. Raises `ConfigError` if
    topics that must have equal partition counts do not (`check_co_partitioning`).
    """
    return with_counts(pipeline, admin.partition_counts(pipeline.user_topics))


def check_state_topics(pipeline: Pipeline, admin: Admin) -> None:
    """Raise `ConfigError` for stateful processors whose input's partition count has changed.

    A state topic has one partition for each partition of the input. If the input now has more or
    fewer, keys go to other tasks, which do not have their state.
    """
    existing = admin.partition_counts(
        topic
        for processor in pipeline.processors
        for topic in pipeline.state_topics(processor).values()
    )
    inputs = pipeline.user_topics
    for processor in pipeline.processors:
        needed = pipeline.task_count(processor)
        largest = [
            topic
            for topic in pipeline.in_topics(processor)
            if topic in inputs and pipeline.partitions_of(topic) == needed
        ]
        for topic in pipeline.state_topics(processor).values():
            has = existing.get(topic, needed)
            if has != needed and largest:
                raise ConfigError(
                    f'the input {" and ".join(largest)} of "{processor.id}" has {needed} '
                    f"partitions, and had {has} when its state began: keys have moved to other "
                    f"partitions than their state. Keep the topic {topic}, it is the state; what "
                    'to do: docs/operations.md, "Changing a pipeline"'
                )
