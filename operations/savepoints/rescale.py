"""Changes the parallelism of a job: a savepoint of it, drained, is restored to other tasks."""

from __future__ import annotations

from collections.abc import Collection

from rich.table import Table

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.deployment.deploy import Proposal
from kafka_pipeline.deployment.prepare import with_partitions
from kafka_pipeline.operations.savepoints.change_at_rest import ChangeAtRest
from kafka_pipeline.operations.savepoints.sharding import (
    check_spread,
    spread_processors,
    with_parallelism,
)


class Rescale:
    """A change of parallelism, not done yet, or begun by a command that was interrupted."""

    def __init__(
        self, admin: Admin, change: ChangeAtRest, parallelism: int, by_key: Collection[str]
    ) -> None:
        """Find out what is to be done. `by_key` are processors whose stores have records' keys.

        Raises `ConfigError` if that is not possible as far as can be told without the state.
        """
        self._change = change
        self._by_key = by_key
        self._before = change.before
        ids = {processor.id for processor in self._before.processors}
        for unknown in sorted({*by_key} - ids):
            raise ConfigError(f'--by-key: the job has no processor "{unknown}"')
        after = with_parallelism(self._before, parallelism)
        internal = dict.fromkeys(after.uncounted_topics, parallelism)
        self._after = with_partitions(after, admin, internal)
        self._spread = spread_processors(self._before, self._after)
        if not self._spread and self._before.parallelism == parallelism:
            raise ConfigError(f"the parallelism of this job is {parallelism} already")
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

        Raises as `ChangeAtRest.carry_out`.
        """
        target = Proposal(self._after, self._change.text)
        return self._change.carry_out(target, timeout_s, drains=True, by_key=self._by_key)
