"""What a JobManager does with the file that it is started with."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import structlog

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.deploy import Proposal, deploy
from kafka_pipeline.deployment.desired_state import Deployment, is_same
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.deployment.prepare import prepared
from kafka_pipeline.streams.pipeline.load import load_pipeline

logger = structlog.get_logger()


class RefusedFile(NamedTuple):
    """Why a file was not taken, and the version that ran instead."""

    version: int
    text: str


class StartFile:
    """The pipeline.yaml of a JobManager.

    If the job runs something already, what is wrong with the file is logged, and the job goes on
    with what it runs: a job without a JobManager would not survive the loss of a TaskManager.
    """

    def __init__(self, file: Path, config: Config, agreed: Collection[str] | None) -> None:
        """Read the file; `agreed` is that of `deploy`."""
        self._file = file
        self._config = config
        self._agreed = agreed
        self._pipeline: Pipeline | ConfigError
        try:
            self._pipeline = load_pipeline(file, config)
        except ConfigError as error:
            self._pipeline = error

    def deploy(self, admin: Admin) -> RefusedFile | None:
        """Have the job run what the file says; return why it does not, if it runs something else.

        Raises `ConfigError` if it cannot, and the job does not run anything yet, and
        `UnavailableError` if Kafka does not answer, also for a wrong file: the job may run
        something, so the JobManager is to be started again.
        """
        try:
            self._deploy(admin)
        except ConfigError as error:
            try:
                admin.check_broker()
                current = read_deployment(self._config, admin).current
            except UnavailableError as away:
                raise UnavailableError(f"{error}\n{away}") from away
            if current is None:
                raise
            logger.error(
                "the file is not used: the job keeps running its current version",
                file=str(self._file),
                version=current.number,
                reason=str(error),
            )
            return RefusedFile(current.number, f"{self._file} is not used: {error}")
        return None

    def _deploy(self, admin: Admin) -> None:
        if isinstance(self._pipeline, ConfigError):
            raise self._pipeline
        admin.check_broker()
        deployment = read_deployment(self._config, admin)
        former = deployment.current.pipeline if deployment.current else None
        complete = prepared(self._pipeline, self._config, admin, former)
        _require_not_taken_back(complete, deployment)
        proposal = Proposal(complete, self._file.read_text("utf-8"))
        deploy(proposal, self._config, admin, agreed=self._agreed)


def _require_not_taken_back(pipeline: Pipeline, deployment: Deployment) -> None:
    """Raise `ConfigError` for a pipeline that the job has just gone back from by itself."""
    newest = deployment.newest
    back = newest and newest.takes_back
    if back and is_same(deployment.version(back.version).pipeline, pipeline):
        raise ConfigError(f"{back.text}. `pipeline apply` tries it again")
