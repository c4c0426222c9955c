"""Finds the topics that match a pattern: topics of users, never topics of jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import structlog

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipeline import Pipeline
from kafka_pipeline.common.topic_names import TopicNames, job_names
from kafka_pipeline.common.topics import ANY_SIZE_BYTES, control_topics
from kafka_pipeline.streams.pipeline.patterns import with_matching_topics

logger = structlog.get_logger()


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
    of_jobs |= _of_others([topic for topic in candidates if topic not in of_jobs], jobs, admin)
    return [topic for topic in candidates if topic not in of_jobs], of_jobs


def _own(pipeline: Pipeline, config: Config) -> set[str]:
    """Return the topics of this job, without the user's topics."""
    specs = (*control_topics(config), *pipeline.data_topics(config.replication_factor))
    return {spec.name for spec in specs}.difference(pipeline.user_topics)


def _of_others(candidates: Sequence[str], jobs: Sequence[TopicNames], admin: Admin) -> set[str]:
    """Return the topics that belong to other jobs, to Kafka, or to an older pipeline.yaml.

    A job's arcs can have any name. They are recognised by how the name ends, together with a
    record size limit that only the engine sets.
    """
    reserved = {topic for topic in candidates if any(job.reserved_for(topic) for job in jobs)}
    named = [t for t in candidates if t not in reserved and any(job.may_own(t) for job in jobs)]
    try:
        limits = admin.size_limits(named) if named else {}
    except EngineError as error:
        raise UnavailableError(f"cannot tell which topics belong to jobs: {error}") from error
    return reserved | {topic for topic, limit in limits.items() if limit == ANY_SIZE_BYTES}
