"""Whether a TaskManager may take part with its id."""

from __future__ import annotations

from contextlib import closing

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.deployment.pipeline_topic import DeploymentReader


def require_allowed(config: Config, tm_id: int) -> None:
    """Raise `ConfigError` for an id that neither `tm_number` nor `pipeline grow` allows.

    Asks Kafka only if config.yaml does not allow the id. Raises `UnavailableError` if no broker
    answers.
    """
    if 0 <= tm_id < config.tm_number:
        return
    grown = _grown(config) if tm_id >= 0 else 0
    if not 0 <= tm_id < grown:
        last = max(config.tm_number, grown) - 1
        raise ConfigError(
            f"TaskManager id {tm_id} is outside 0..{last}: config.yaml sets tm_number to "
            f"{config.tm_number}, and `pipeline grow` allows more while the job runs"
        )


def _grown(config: Config) -> int:
    """Return how many TaskManagers the job was grown to; 0 if it was not."""
    admin = Admin(config)
    admin.check_broker()
    with closing(DeploymentReader(config, admin)) as reader:
        wish = reader.deployment.wish
    return (wish.task_managers if wish else None) or 0
