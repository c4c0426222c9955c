"""The job that an operation is about: its brokers, what it is to run, processors and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import COMMAND_TIMEOUT_S, Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.suggest import did_you_mean, one_of
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.desired_state import Deployment
from kafka_pipeline.deployment.pipeline_topic import DeploymentReader


def connected(config: Config) -> Admin:
    """Return a client that has reached the brokers.

    Raises `UnavailableError` if none answers within 8 s.
    """
    admin = Admin(config)
    admin.check_broker(COMMAND_TIMEOUT_S)
    return admin


def read_deployment(config: Config, admin: Admin) -> Deployment:
    """Return what the job is to run. Raises as `DeploymentReader`."""
    with closing(DeploymentReader(config, admin)) as reader:
        return reader.deployment


@dataclass(frozen=True, slots=True)
class Chosen:
    """Processors that are meant as a whole, and tasks of others."""

    pipeline: Pipeline
    processors: tuple[str, ...]
    tasks: tuple[TaskId, ...] = ()

    @property
    def ids(self) -> list[str]:
        """The ids of both, for the user."""
        return [*self.processors, *map(str, self.tasks)]

    @property
    def task_count(self) -> int:
        """How many tasks that are."""
        counts = map(self.pipeline.task_count, map(self.pipeline.processor, self.processors))
        return sum(counts) + len(self.tasks)


def choose(deployment: Deployment, ids: Sequence[str]) -> Chosen:
    """Return what is meant: all processors of the version that runs if no id is given.

    An id is that of a processor, or else that of a task, such as `Counter_0`. Raises `ConfigError`
    if the job has neither, or no pipeline.
    """
    current = deployment.current
    if current is None:
        raise ConfigError("this job has no pipeline yet")
    pipeline = current.pipeline
    known = [processor.id for processor in pipeline.processors]
    tasks = {str(task): task for task in pipeline.tasks}
    for unknown in sorted({*ids} - {*known, *tasks}):
        hint = did_you_mean(unknown, [*known, *tasks]) or f": it has {one_of(known)}"
        raise ConfigError(f'the job has no processor or task "{unknown}"{hint}')
    processors = tuple(dict.fromkeys(id_ for id_ in ids if id_ in known)) if ids else tuple(known)
    others = (tasks[id_] for id_ in dict.fromkeys(ids) if id_ not in known)
    return Chosen(
        pipeline, processors, tuple(task for task in others if task.processor not in processors)
    )
