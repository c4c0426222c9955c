"""Finds the partition counts of the user's topics, and checks that they suit the processors."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipeline import Pipeline
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.streams.pipeline.partitions import with_counts


def with_partitions(
    pipeline: Pipeline, admin: Admin, internal: Mapping[str, int] | None = None
) -> Pipeline:
    """Return the pipeline with the partition counts that topics have in Kafka.

    These are the user's topics, those of dead letters, for which any count will do, and the
    `uncounted_topics`, unless `internal` says how many those get. A processor has as many tasks as
    its largest topic has partitions. Raises `ConfigError` if topics that must have equal partition
    counts do not (`check_co_partitioning`).
    """
    dead = {topic for each in pipeline.processors if (topic := pipeline.dead_letter_topic(each))}
    own = pipeline.uncounted_topics
    found = admin.partition_counts({*pipeline.user_topics, *dead, *own})
    kept = {topic: found.pop(topic) for topic in own & found.keys()}
    return with_counts(pipeline, found, kept if internal is None else internal)


def check_parallelism(pipeline: Pipeline, admin: Admin) -> None:
    """Raise `ConfigError` if `parallelism` was another number when the job's topics were made.

    Arcs between processors show that: they have `parallelism` partitions, whatever the inputs
    have. Before the first start of the job, somebody else has made them.
    """
    names, parallelism = pipeline.names, pipeline.parallelism
    internal = {
        processor.topics[topic]
        for processor in pipeline.processors
        for topic in processor.internal_topics
    }
    wanted = {*pipeline.arcs} - internal
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
        f"{count}, and use `pipeline rescale`: "
        'docs/how-to/troubleshoot.md, "A topic has the wrong number of partitions"'
    )
