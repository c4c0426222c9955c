"""How many TaskManagers may take part in a job that runs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from kafka_pipeline.common.cluster.cluster_status import TaskManagerInfo
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.topics import control_topic
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.deployment.desired_state import task_managers_of
from kafka_pipeline.deployment.job import connected, read_deployment
from kafka_pipeline.deployment.pipeline_topic import DeploymentEditor
from kafka_pipeline.operations.cluster_watcher import read_status


@dataclass(frozen=True, slots=True)
class Growth:
    """From how many TaskManagers to how many; `carry_out` makes the change."""

    config: Config
    before: int
    number: int

    def carry_out(self) -> None:
        """Make the topics for new TaskManagers, and write the number to the pipeline topic.

        The JobManager follows at once. Raises as `DeploymentEditor`.
        """
        config, names = self.config, self.config.topic_names
        admin = connected(config)
        more = range(config.tm_number, self.number)
        admin.ensure_topics([control_topic(config, names.processors(str(id_))) for id_ in more])
        with closing(DeploymentEditor(config, admin)) as editor:
            wish = editor.deployment.wish
            assert wish is not None
            editor.write(wish.with_task_managers(self.number if more else None))


def planned(config: Config, number: int) -> Growth:
    """Return the change to so many TaskManagers.

    Raises `ConfigError` if config.yaml asks for more, if the job has no pipeline, or if one that
    would be too many is up, and `UnavailableError` if Kafka does not answer.
    """
    if number < config.tm_number:
        raise ConfigError(
            f"config.yaml sets tm_number to {config.tm_number}, and the larger number counts: "
            "lower it there, and restart the JobManager"
        )
    wish = read_deployment(config, connected(config)).wish
    if wish is None:
        raise ConfigError("this job has no pipeline yet: set tm_number in config.yaml")
    before = task_managers_of(wish, config.tm_number)
    if number < before:
        require_none_up(read_status(config).task_managers, number)
    return Growth(config, before, number)


def require_none_up(managers: Iterable[TaskManagerInfo], number: int) -> None:
    """Raise `ConfigError` if a TaskManager is up whose id would be `number` or more."""
    up = [info.id for info in managers if info.id >= number and info.is_up]
    if up:
        raise ConfigError(
            f"{'TaskManager' if len(up) == 1 else 'TaskManagers'} {', '.join(map(str, up))} "
            f"{'is' if len(up) == 1 else 'are'} up, and ids would end at {number - 1}: stop "
            f"{'it' if len(up) == 1 else 'them'} first"
        )
