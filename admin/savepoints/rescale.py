"""Changes the parallelism of a job: a savepoint of it, drained, is restored to other tasks."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from rich.table import Table

from admin.savepoints.create import Creation
from admin.savepoints.job_stop import JobStop, Say
from admin.savepoints.manifest import is_savepoint, read_manifest
from admin.savepoints.restore import Restore, saved_pipeline
from admin.savepoints.sharding import check_spread, spread_processors, with_parallelism
from common.config import Config
from common.errors import ConfigError
from common.kafka.admin import Admin
from common.pipeline import Pipeline
from jobmanager.partitions import with_partitions
from operations.job import read_deployment


class Rescale:
    """A change of parallelism, not done yet, or begun by a command that was interrupted."""

    def __init__(
        self,
        config: Config,
        admin: Admin,
        folder: Path,
        parallelism: int,
        by_key: Collection[str],
        say: Say,
    ) -> None:
        """Find out what is to be done. `by_key` are processors whose stores have records' keys.

        Raises `ConfigError` if that is not possible as far as can be told without the state.
        """
        self._config = config
        self._admin = admin
        self._folder = folder
        self._parallelism = parallelism
        self._by_key = by_key
        self._say = say
        deployment = read_deployment(config, admin)
        current, wish = deployment.current, deployment.wish
        if current is None or wish is None:
            raise ConfigError("this job has no pipeline yet")
        self._is_saved = is_savepoint(folder)
        if self._is_saved:
            token = read_manifest(folder).token
            if wish.stop is None or wish.stop.token != token:
                raise ConfigError(
                    f"{folder} is a savepoint of another time: give this one another place by "
                    "--savepoint, or delete it"
                )
            self._before: Pipeline = read_manifest(folder).pipeline_version().pipeline
        else:
            self._before = current.pipeline
        if self._before.parallelism == parallelism:
            raise ConfigError(f"the parallelism of this job is {parallelism} already")
        self._after = with_partitions(with_parallelism(self._before, parallelism), admin)
        self._spread = spread_processors(self._before, self._after)
        if not self._spread:
            raise ConfigError(
                "all processors of this job read sources, which have the partitions that you gave "
                "them: its parallelism changes nothing"
            )
        stateful = [each.id for each in self._spread if each.is_stateful]
        check_spread(self._before, self._after, stateful, by_key)

    def table(self) -> Table:
        """Return how many tasks there are before and after, for the user."""
        table = Table("processor", "tasks", "become", "state")
        for processor in self._after.processors:
            before = self._before.task_count(self._before.processor(processor.id))
            is_spread = processor.is_stateful and processor in self._spread
            state = "spread by key" if is_spread else ""
            after = self._after.task_count(processor)
            table.add_row(processor.id, str(before), str(after), state)
        return table

    def carry_out(self, timeout_s: float) -> int:
        """Do it, or go on with it; return the number of the version that runs then.

        Raises as `Creation.carry_out` and `Restore.carry_out`.
        """
        if not self._is_saved:
            creation = Creation(self._config, self._admin, self._folder, self._say)
            creation.carry_out(drains=True, timeout_s=timeout_s, goes_on=False)
        manifest = read_manifest(self._folder)
        proposal = saved_pipeline(self._admin, self._folder, manifest, self._parallelism)
        try:
            restore = Restore(
                self._config, self._admin, self._folder, proposal, by_key=self._by_key
            )
            restore.check_files()
        except ConfigError:
            # Nothing was changed, so the job goes on as it was.
            JobStop.found(self._config, self._admin).end()
            shutil.rmtree(self._folder)
            raise
        return restore.carry_out(timeout_s, self._say)
