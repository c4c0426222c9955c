"""Changes a job by a savepoint of it that is restored at once; what can stay is not touched."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.process.locks import exclusive
from kafka_pipeline.deployment.deploy import Proposal
from kafka_pipeline.deployment.desired_state import PipelineVersion, is_restoring, is_same
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.deployment.pipeline_topic import ChangedMeanwhileError
from kafka_pipeline.deployment.plan import NOTHING_LOST, Lost
from kafka_pipeline.operations.savepoints.create import Creation
from kafka_pipeline.operations.savepoints.job_stop import JobStop, Say, require_may_stop
from kafka_pipeline.operations.savepoints.manifest import (
    Manifest,
    SavedStore,
    is_savepoint,
    read_manifest,
)
from kafka_pipeline.operations.savepoints.restore import Restore
from kafka_pipeline.operations.savepoints.saved_state import Spreads


class NewState(Protocol):
    """State that takes the place of what some processors have."""

    @property
    def processors(self) -> Collection[str]:
        """The processors that get it."""

    def make(self, savepoint: Manifest) -> Path:
        """Return the folder of a savepoint with the state, and the offsets that it is as of.

        Nothing of the job runs since `savepoint`, which has the offsets where it goes on. The new
        one has the same token. It may be made already. Raises `PipelineError` or `EngineError`.
        """


class ChangeAtRest:
    """A change that gives some of a job's topics other names, or other numbers of partitions.

    The savepoint is the job as it was before, and what an interrupted change goes on with.
    """

    def __init__(self, config: Config, admin: Admin, folder: Path, say: Say) -> None:
        """Take the savepoint in `folder` if the job is stopped for it, else make one there later.

        Raises `ConfigError` if the job has no pipeline, if it cannot be changed now, or if another
        command of this host is carrying the same change out.
        """
        self._config = config
        self._admin = admin
        self._folder = folder
        self._say = say
        with self._alone():
            self._found = self._look()
        current, manifest, self._is_restoring = self._found
        self.is_begun = manifest is not None
        """Whether an interrupted change is to be completed."""
        self.before: Pipeline = (manifest.pipeline_version() if manifest else current).pipeline
        """The pipeline that ran before the change."""
        self.text = current.text
        """Its file, as it runs now."""

    def _look(self) -> tuple[PipelineVersion, Manifest | None, bool]:
        """Return the version that the job has, and the savepoint of a change that is begun.

        The last one says whether its topics are being made anew already.
        """
        deployment = read_deployment(self._config, self._admin)
        current, wish = deployment.current, deployment.wish
        if current is None or wish is None:
            raise ConfigError("this job has no pipeline yet")
        if wish.stop is not None and is_savepoint(self._folder):
            manifest = read_manifest(self._folder)
            if manifest.token == wish.stop.token:
                return current, manifest, is_restoring(wish)
        require_may_stop(wish)
        return current, None, False

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

    def _require_same(self, target: Pipeline) -> None:
        """Raise `ConfigError` if an interrupted change has begun to make topics for another target.

        What it has deleted, such as offsets, would not be made again for this one.
        """
        current, _, is_restoring = self._found
        if self.is_begun and is_restoring and not is_same(current.pipeline, target):
            raise ConfigError(
                f"the interrupted command was bringing version {current.number}, and this is "
                "another pipeline: repeat the command with that file, which `pipeline versions "
                f"--text {current.number}` prints, or go back with `pipeline savepoint restore` "
                f"and {self._folder}. Make the other change afterwards"
            )

    def carry_out(
        self,
        target: Proposal,
        timeout_s: float,
        *,
        drains: bool,
        by_key: Collection[str] = (),
        lost: Lost = NOTHING_LOST,
        state: NewState | None = None,
    ) -> int:
        """Do it, or complete it; return the number of the version that runs then.

        What is `lost` begins empty; its processors go on in their inputs where they were. `state`
        takes the place of what its processors have.
        Raises as `Creation.carry_out`, `NewState.make` and `Restore.carry_out`, `ConfigError` as
        the constructor, and `ChangedMeanwhileError` if the job has changed since then.
        """
        with self._alone():
            if self._look() != self._found:
                raise ChangedMeanwhileError(
                    "the job has changed since this command was called: repeat it"
                )
            return self._carry_out(target, timeout_s, drains, by_key, lost, state)

    def _carry_out(
        self,
        target: Proposal,
        timeout_s: float,
        drains: bool,
        by_key: Collection[str],
        lost: Lost,
        state: NewState | None,
    ) -> int:
        self._require_same(target.pipeline)
        if not self.is_begun:
            creation = Creation(self._config, self._admin, self._folder, self._say)

            def check(folder: Path, stores: Sequence[SavedStore]) -> None:
                if state is None:
                    spreads = Spreads(folder, self.before, target.pipeline, lost)
                    spreads.check(stores, is_complete=False)

            creation.carry_out(drains=drains, timeout_s=timeout_s, goes_on=False, check=check)
        try:
            folder = state.make(read_manifest(self._folder)) if state else self._folder
            restore = Restore(
                self._config,
                self._admin,
                folder,
                target,
                by_key=by_key,
                in_place=True,
                lost=lost,
                renewed=state.processors if state else (),
            )
            restore.check_files()
        except BaseException:
            if not self._is_restoring:
                # Nothing was changed, so the job continues as it was.
                JobStop.found(self._config, self._admin).end()
                shutil.rmtree(self._folder)
            raise
        return restore.carry_out(timeout_s, self._say)
