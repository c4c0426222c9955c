"""Changes a job by a savepoint of it that is restored at once; what can stay is not touched."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.process.locks import exclusive
from kafka_pipeline.deployment.deploy import Proposal
from kafka_pipeline.deployment.desired_state import PipelineVersion
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.deployment.pipeline_topic import ChangedMeanwhileError
from kafka_pipeline.deployment.plan import NOTHING_LOST, Lost
from kafka_pipeline.operations.savepoints.create import Creation
from kafka_pipeline.operations.savepoints.job_stop import JobStop, Say
from kafka_pipeline.operations.savepoints.manifest import (
    Manifest,
    SavedStore,
    is_savepoint,
    read_manifest,
)
from kafka_pipeline.operations.savepoints.restore import Restore
from kafka_pipeline.operations.savepoints.saved_state import Spreads


class Rebuild:
    """A change that gives some of a job's topics other names, or other numbers of partitions.

    The savepoint is the job as it was before, and what an interrupted change goes on with.
    """

    def __init__(self, config: Config, admin: Admin, folder: Path, say: Say) -> None:
        """Take the savepoint in `folder` if the job is stopped for it, else make one there later.

        Raises `ConfigError` if the job has no pipeline, or if another command of this host is
        carrying the same change out.
        """
        self._config = config
        self._admin = admin
        self._folder = folder
        self._say = say
        with self._alone():
            self._found = self._look()
        current, manifest = self._found
        self.is_begun = manifest is not None
        """Whether an interrupted change is to be completed."""
        self.before: Pipeline = (manifest.pipeline_version() if manifest else current).pipeline
        """The pipeline that ran before the change."""
        self.text = current.text
        """Its file, as it runs now."""

    def _look(self) -> tuple[PipelineVersion, Manifest | None]:
        """Return the version that the job has, and the savepoint of a change that is begun."""
        deployment = read_deployment(self._config, self._admin)
        current, wish = deployment.current, deployment.wish
        if current is None or wish is None:
            raise ConfigError("this job has no pipeline yet")
        if wish.stop is not None and is_savepoint(self._folder):
            manifest = read_manifest(self._folder)
            if manifest.token == wish.stop.token:
                return current, manifest
        return current, None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other commands of this host away; raises `ConfigError` if one is at it."""
        lock = self._folder.with_name(f".{self._folder.name}.lock")
        with ExitStack() as stack:
            try:
                stack.enter_context(exclusive(lock, wait=False))
            except BlockingIOError as error:
                raise ConfigError(
                    "another command is carrying out the same change at this moment, with the "
                    f"savepoint {self._folder}: wait for it"
                ) from error
            except OSError as error:
                raise UnavailableError(f"{lock} cannot be written: {error}") from error
            yield

    def carry_out(
        self,
        target: Proposal,
        timeout_s: float,
        *,
        drains: bool,
        by_key: Collection[str] = (),
        lost: Lost = NOTHING_LOST,
    ) -> int:
        """Do it, or complete it; return the number of the version that runs then.

        What is `lost` begins empty; its processors go on in their inputs where they were.
        Raises as `Creation.carry_out` and `Restore.carry_out`, `ConfigError` as the constructor,
        and `ChangedMeanwhileError` if the job has changed since then.
        """
        with self._alone():
            if self._look() != self._found:
                raise ChangedMeanwhileError(
                    "the job has changed since this command was called: repeat it"
                )
            return self._carry_out(target, timeout_s, drains=drains, by_key=by_key, lost=lost)

    def _carry_out(
        self,
        target: Proposal,
        timeout_s: float,
        *,
        drains: bool,
        by_key: Collection[str],
        lost: Lost,
    ) -> int:
        if not self.is_begun:
            creation = Creation(self._config, self._admin, self._folder, self._say)

            def check(folder: Path, stores: Sequence[SavedStore]) -> None:
                spreads = Spreads(folder, self.before, target.pipeline, lost)
                spreads.check(stores, is_complete=False)

            creation.carry_out(drains=drains, timeout_s=timeout_s, goes_on=False, check=check)
        try:
            restore = Restore(
                self._config,
                self._admin,
                self._folder,
                target,
                by_key=by_key,
                in_place=True,
                lost=lost,
            )
            restore.check_files()
        except ConfigError:
            if not self.is_begun:
                # Nothing was changed, so the job goes on as it was.
                JobStop.found(self._config, self._admin).end()
                shutil.rmtree(self._folder)
            raise
        return restore.carry_out(timeout_s, self._say)
