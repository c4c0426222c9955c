"""Finds the partition counts of the user's topics, and checks that they suit the processors."""

from __future__ import annotations

from common.errors import ConfigError
from common.kafka.admin import Admin
from common.pipeline import Pipeline
from common.suggest import counted
from streams.pipeline.partitions import with_counts


def with_partitions(pipeline: Pipeline, admin: Admin) -> Pipeline:
    """Return the pipeline with the partition counts that the user's topics have in Kafka.

    A processor has as many tasks as its largest topic has partitions. Raises `ConfigError` if
    topics that must have equal partition counts do not (`check_co_partitioning`).
    """
    return with_counts(pipeline, admin.partition_counts(pipeline.user_topics))


def check_parallelism(pipeline: Pipeline, admin: Admin) -> None:
    """Raise `ConfigError` if `parallelism` was another number when the job's topics were made.

    Arcs between processors and dead letter topics show that: they have `parallelism` partitions,
    whatever the inputs have. Before the first start of the job, somebody else has made them.
    """
    names, parallelism = pipeline.names, pipeline.parallelism
    internal = {
        processor.topics[topic]
        for processor in pipeline.processors
        for topic in processor.internal_topics
    }
    dead = {names.dead_letter(processor.id) for processor in pipeline.processors}
    wanted = {*pipeline.arcs, *dead} - internal
    existing = admin.partition_counts({*wanted, names.threads_jm})
    has_started = existing.pop(names.threads_jm, None) is not None
    counts = set(existing.values())
    if not has_started or len(counts) != 1 or counts == {parallelism}:
        return
    (count,) = counts
    have = f"{'has' if len(existing) == 1 else 'have'} {counted(count, 'partition')}"
    raise ConfigError(
        f"parallelism is {parallelism} in config.yaml, but was {count} when the topics of "
        f"this job were made: {', '.join(sorted(existing))} {have}. Set parallelism back to "
        f"{count}, or start a job with another job_name and other topics: "
        'docs/how-to/troubleshoot.md, "A topic has the wrong number of partitions"'
    )


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
                    f'the input {" and ".join(largest)} of "{processor.id}" has '
                    f"{counted(needed, 'partition')}, and had {has} when its state began: keys "
                    "have moved to other partitions than their state. Keep the topic "
                    f"{topic}, it is the state; what to do: "
                    'docs/how-to/change_a_pipeline.md, "When a source gets more partitions"'
                )
