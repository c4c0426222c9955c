"""Completes a pipeline with what only Kafka knows, and checks that it suits what is there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import structlog

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.errors import ConfigError, EngineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.codec import MOST_ASSIGNMENT_BYTES, assignment_bytes
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.common.topic_names import TopicNames, job_names
from kafka_pipeline.common.topics import ANY_SIZE_BYTES
from kafka_pipeline.deployment.renames import renames
from kafka_pipeline.deployment.state_topics import check_moved_state, check_state_topics
from kafka_pipeline.streams.pipeline.partitions import with_counts
from kafka_pipeline.streams.pipeline.patterns import with_matching_topics

logger = structlog.get_logger()


def prepared(
    pipeline: Pipeline, config: Config, admin: Admin, former: Pipeline | None = None
) -> Pipeline:
    """Return the pipeline with the topics of its patterns, and all partition counts.

    It goes on from the `former` one, if that is given. Raises `ConfigError` if existing topics do
    not suit it, and `UnavailableError` if Kafka does not answer.
    """
    pipeline = with_topics_of_patterns(pipeline, config, admin)
    check_parallelism(pipeline, admin)
    pipeline = with_partitions(pipeline, admin, former=former)
    check_state_topics(pipeline, admin)
    check_moved_state(pipeline, admin, former)
    check_assignments(pipeline)
    return pipeline


def check_assignments(pipeline: Pipeline) -> None:
    """Raise `ConfigError` for a processor that no command to a TaskManager has room for."""
    for replica in replicas(pipeline):
        # The first task of a processor reads all of its topics.
        size = 0 if replica.task.partition else assignment_bytes(replica)
        if size > MOST_ASSIGNMENT_BYTES:
            raise ConfigError(
                f'processor "{replica.task.processor}" is too long: its tasks are assigned by '
                f"records of {size:,} bytes, and these may have {MOST_ASSIGNMENT_BYTES:,}. "
                "Shorten its query, its schemas or its list of topics"
            )


def with_partitions(
    pipeline: Pipeline,
    admin: Admin,
    internal: Mapping[str, int] | None = None,
    former: Pipeline | None = None,
) -> Pipeline:
    """Return the pipeline with the partition counts that topics have in Kafka.

    These are the user's topics, those of dead letters, for which any count will do, and the
    `uncounted_topics`, unless `internal` says how many those get. Those that Kafka lacks get as
    many as in the `former` pipeline. A processor has as many tasks as its largest topic has
    partitions. Raises `ConfigError` if topics that must have equal partition counts do not
    (`check_co_partitioning`).
    """
    dead = {topic for each in pipeline.processors if (topic := pipeline.dead_letter_topic(each))}
    own = pipeline.uncounted_topics
    found = admin.partition_counts({*pipeline.user_topics, *dead, *own})
    kept = {} if former is None else _former_counts(pipeline, former)
    kept |= {topic: found.pop(topic) for topic in own & found.keys()}
    return with_counts(pipeline, found, kept if internal is None else internal)


def _former_counts(pipeline: Pipeline, former: Pipeline) -> dict[str, int]:
    """Return the partition counts that internal topics had, perhaps under other names.

    They may have been changed by a rescale, and state is in as many parts. With another
    parallelism, nothing is said.
    """
    if former.parallelism != pipeline.parallelism:
        return {}
    former_ids = renames(former, pipeline)
    had = {each.id: each for each in former.processors}
    return {
        processor.topics[name]: former.partitions_of(before.topics[name])
        for processor in pipeline.processors
        if (before := had.get(former_ids.get(processor.id, processor.id)))
        for name, count in processor.internal_topics.items()
        if count is None and name in before.internal_topics
    }


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


def with_topics_of_patterns(pipeline: Pipeline, config: Config, admin: Admin) -> Pipeline:
    """Return the pipeline with the topics that the patterns of sources match in Kafka now.

    The next JobManager finds topics that are created later. Raises `ConfigError` if nothing
    matches, and `UnavailableError` if Kafka does not answer.
    """
    if not any(processor.patterns for processor in pipeline.processors):
        return pipeline
    existing, of_jobs = matching_topics(pipeline, config, admin)
    logger.info("topics found by patterns", read=sorted(existing), left_out=sorted(of_jobs))
    return with_matching_topics(pipeline, existing)


def without_gone_topics(pipeline: Pipeline, admin: Admin) -> Pipeline:
    """Return a pipeline that has run without the topics of its patterns that are gone.

    Raises `ConfigError` if a pattern has none any more, and `UnavailableError` if Kafka does not
    answer.
    """
    if not any(processor.patterns for processor in pipeline.processors):
        return pipeline
    existing = admin.topics()
    return with_matching_topics(pipeline, [t for t in pipeline.user_topics if t in existing])


def matching_topics(
    pipeline: Pipeline, config: Config, admin: Admin
) -> tuple[Sequence[str], Collection[str]]:
    """Return the topics that match patterns: those of users, and those to leave out.

    Raises `UnavailableError` if Kafka does not answer.
    """
    patterns = [pattern for processor in pipeline.processors for pattern in processor.patterns]
    topics = admin.topics()
    candidates = [topic for topic in topics if any(each.fullmatch(topic) for each in patterns)]
    jobs = [TopicNames(name, "", "") for name in {config.job_name, *job_names(topics)}]
    of_jobs = _own(pipeline, config).intersection(candidates)
    foreign = [topic for topic in candidates if topic not in of_jobs]
    of_jobs |= _of_others(foreign, jobs, config.max_message_bytes, admin)
    return [topic for topic in candidates if topic not in of_jobs], of_jobs


def _own(pipeline: Pipeline, config: Config) -> set[str]:
    """Return the topics of this job, without the user's topics."""
    specs = (*control_topics(config), *pipeline.data_topics(config.replication_factor))
    return {spec.name for spec in specs}.difference(pipeline.user_topics)


def _of_others(
    candidates: Sequence[str], jobs: Sequence[TopicNames], most_bytes: int, admin: Admin
) -> set[str]:
    """Return the topics that belong to other jobs, to Kafka, or to an older pipeline.yaml.

    A job's arcs can have any name. They are recognised by how the name ends, together with a
    record size limit that only the engine sets: its own one, or `most_bytes`.
    """
    reserved = {topic for topic in candidates if any(job.reserved_for(topic) for job in jobs)}
    named = [t for t in candidates if t not in reserved and any(job.may_own(t) for job in jobs)]
    try:
        limits = admin.size_limits(named) if named else {}
    except EngineError as error:
        raise UnavailableError(f"cannot tell which topics belong to jobs: {error}") from error
    of_engine = (ANY_SIZE_BYTES, most_bytes)
    return reserved | {topic for topic, limit in limits.items() if limit in of_engine}
