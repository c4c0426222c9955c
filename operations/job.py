"""The job that an operation is about: its brokers, what it is to run, and its processors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from common.config import Config
from common.deployment import Deployment
from common.errors import ConfigError
from common.kafka.admin import Admin
from common.kafka.deployments import DeploymentReader
from common.suggest import did_you_mean, one_of


def connected(config: Config) -> Admin:
    """Return a client that has reached the brokers; raises `UnavailableError` if none answers."""
    admin = Admin(config)
    admin.check_broker()
    return admin


def read_deployment(config: Config, admin: Admin) -> Deployment:
    """Return what the job is to run. Raises as `DeploymentReader`."""
    with closing(DeploymentReader(config, admin)) as reader:
        return reader.deployment


def chosen_processors(deployment: Deployment, processors: Sequence[str] | None) -> Sequence[str]:
    """Return the ids that are meant: all of the version that runs if none is given.

    Raises `ConfigError` if the job has no such processor, or no pipeline.
    """
    current = deployment.current
    if current is None:
        raise ConfigError("this job has no pipeline yet")
    ids = [processor.id for processor in current.pipeline.processors]
    for unknown in sorted({*(processors or ())}.difference(ids)):
        known = did_you_mean(unknown, ids) or f": it has {one_of(ids)}"
        raise ConfigError(f'the job has no processor "{unknown}"{known}')
    return processors or ids
