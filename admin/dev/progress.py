"""When the daemons of `pipeline dev` run what was saved, by their heartbeats."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_pipeline.common.cluster.conditions import Condition, failures, missing
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the TaskManagers are to run: user code, by its fingerprints, in these processes.

    It was saved, or asked for, at `since_s` of the monotonic clock.
    """

    code: Mapping[str, str]
    processes: Mapping[int, int | None]
    since_s: float


class Progress:
    """Follows the heartbeats of a job on this machine."""

    def __init__(self, config: Config) -> None:
        """Connect. Raises as `ClusterWatcher`."""
        self._watcher = ClusterWatcher(config)

    def look(self, wanted: Wanted) -> tuple[bool, str] | None:
        """Return whether all tasks run what is wanted, and a line; `None` while that is open.

        It is settled when all run, or when a task has FAILED. Raises as `ClusterWatcher.read`.
        """
        self._watcher.read(0)
        status = self._watcher.status()
        known = {info.id: info for info in status.task_managers}
        for number, pid in wanted.processes.items():
            info = known[number]
            is_it = info.is_up and info.pid == pid
            if not is_it or info.code != wanted.code:
                return None
        if why := failures(status):
            return False, "; ".join(why)
        if missing(status, Condition.RUNNING, len(wanted.processes)):
            return None
        return True, f"runs after {time.monotonic() - wanted.since_s:.1f} s"

    def runs(self, number: int, pid: int | None) -> bool:
        """Whether a process is up as a TaskManager, by its last heartbeats."""
        self._watcher.read(0)
        infos = self._watcher.status().managers_up
        return any(info.id == number and info.pid == pid for info in infos)

    def close(self) -> None:
        """Disconnect."""
        self._watcher.close()
