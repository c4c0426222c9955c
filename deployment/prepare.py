"""Completes a pipeline with what only Kafka knows, and checks that it suits what is there."""

from __future__ import annotations

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipeline import Pipeline
from kafka_pipeline.deployment.partitions import check_parallelism, with_partitions
from kafka_pipeline.deployment.patterns import with_topics_of_patterns
from kafka_pipeline.deployment.state_topics import (
    check_kept_groups,
    check_kept_tables,
    check_moved_state,
    check_state_topics,
)


def prepared(pipeline: Pipeline, config: Config, admin: Admin) -> Pipeline:
    """Return the pipeline with the topics of its patterns, and all partition counts.

    Raises `ConfigError` if existing topics do not suit it, and `UnavailableError` if Kafka does not
    answer.
    """
    pipeline = with_topics_of_patterns(pipeline, config, admin)
    check_parallelism(pipeline, admin)
    pipeline = with_partitions(pipeline, admin)
    check_state_topics(pipeline, admin)
    check_moved_state(pipeline, admin)
    check_kept_groups(pipeline, admin)
    check_kept_tables(pipeline, admin)
    return pipeline
