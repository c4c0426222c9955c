"""Deletes topics and offsets: those that former versions have left, or all that a job has."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.errors import ConfigError, EngineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.desired_state import Deployment, task_managers_of
from kafka_pipeline.operations.cluster_watcher import read_status


@dataclass(frozen=True, slots=True)
class Orphans:
    """Topics that nobody reads or writes any more, and the groups of processors that are gone."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]


def orphans(deployment: Deployment, existing: Collection[str]) -> Orphans:
    """Return what the versions before the one that runs have left, of the topics that exist.

    Sources and sinks belong to the user, so they are never among them. Raises as `version`.
    """
    kept = [each.pipeline for each in (deployment.current, deployment.coming) if each]
    topics, groups = _of_engine(deployment.pipelines)
    used, running = _of_engine(kept)
    return Orphans(
        tuple(sorted((topics - used).intersection(existing))), tuple(sorted(groups - running))
    )


def _of_engine(pipelines: Collection[Pipeline]) -> tuple[set[str], set[str]]:
    """Return the topics of pipelines but for sources and sinks, and the groups of processors."""
    topics = {topic for pipeline in pipelines for topic in pipeline.all_topics}
    users = {topic for pipeline in pipelines for topic in pipeline.user_topics}
    groups = {pipe.names.consumer_group(each.id) for pipe in pipelines for each in pipe.processors}
    return topics - users, groups


def delete_orphans(admin: Admin, found: Orphans) -> None:
    """Delete what former versions have left. Raises `UnavailableError` if Kafka does not do it."""
    try:
        admin.delete_topics(found.topics)
        admin.delete_groups(found.groups)
    except EngineError as error:
        raise UnavailableError(f"not everything could be deleted: {error}") from error


def whole_job(config: Config, deployment: Deployment, existing: Collection[str]) -> Orphans:
    """Return all that a job has in Kafka, of the topics that exist: of all its versions.

    Sources and sinks belong to the user, so they are never among them. `pipeline_topic`, by which
    the others are known, is the last one. Raises as `version`.
    """
    own, groups = _of_engine(deployment.pipelines)
    names = config.topic_names
    number = task_managers_of(deployment.wish, config.tm_number)
    control = {spec.name for spec in control_topics(config)} | {names.rehearsal}
    control |= {names.processors(str(tm_id)) for tm_id in range(number)}
    found = (own | control).intersection(existing)
    return Orphans(
        tuple(sorted(found, key=lambda name: (name == names.pipeline, name in control, name))),
        tuple(sorted(groups)),
    )


def delete_job(config: Config, admin: Admin, found: Orphans) -> None:
    """Delete all that a job has. It can be repeated if it was interrupted.

    Raises `ConfigError` while a daemon of the job is up, and `UnavailableError` if Kafka does not
    do it.
    """
    status = read_status(config)
    up = [f"TaskManager {each.id}" for each in status.managers_up]
    if status.job_manager.is_up:
        up.insert(0, "the JobManager")
    if up:
        raise ConfigError(f"{up[0]} is up: stop all daemons of the job first")
    *others, last = found.topics
    delete_orphans(admin, Orphans(tuple(others), found.groups))
    delete_orphans(admin, Orphans((last,), ()))
