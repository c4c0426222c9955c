"""Topics and offsets that former versions of a job's pipeline have left behind."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kafka_pipeline.common.errors import EngineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.desired_state import Deployment


@dataclass(frozen=True, slots=True)
class Orphans:
    """Topics that nobody reads or writes any more, and the groups of processors that are gone."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]


def orphans(deployment: Deployment, existing: Collection[str]) -> Orphans:
    """Return what the versions before the one that runs have left, of the topics that exist.

    Sources and sinks belong to the user, so they are never among them. Raises as `version`.
    """
    pipelines = [deployment.version(number).pipeline for number in deployment.numbers]
    kept = [each.pipeline for each in (deployment.current, deployment.coming) if each]
    used = {topic for pipeline in kept for topic in _all_topics(pipeline)}
    users = {topic for pipeline in pipelines for topic in pipeline.user_topics}
    own = {topic for pipeline in pipelines for topic in _all_topics(pipeline)}
    groups = {group for pipeline in pipelines for group in _groups(pipeline)}
    running = {group for pipeline in kept for group in _groups(pipeline)}
    return Orphans(
        tuple(sorted((own - used - users).intersection(existing))),
        tuple(sorted(groups - running)),
    )


def _all_topics(pipeline: Pipeline) -> list[str]:
    return [spec.name for spec in pipeline.data_topics(1)]


def _groups(pipeline: Pipeline) -> list[str]:
    return [pipeline.names.consumer_group(processor.id) for processor in pipeline.processors]


def delete_orphans(admin: Admin, found: Orphans) -> None:
    """Delete what former versions have left. Raises `UnavailableError` if Kafka does not do it."""
    try:
        admin.delete_topics(found.topics)
        admin.delete_groups(found.groups)
    except EngineError as error:
        raise UnavailableError(f"not everything could be deleted: {error}") from error
