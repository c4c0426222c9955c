"""Waits until a job is in a state, by its heartbeats."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.cluster.conditions import Condition, failures, missing
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import PipelineError, UnavailableError
from kafka_pipeline.deployment.desired_state import task_managers_of
from kafka_pipeline.deployment.job import connected, read_deployment
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher

_LOOK_S = 0.2
_SETTLED_BEATS = 2
"""The JobManager moves tasks to a TaskManager that has come within this many heartbeats."""
_QUIET_BEATS = 5
_QUIET_S = 5.0
"""Each lag is asked for anew within this many heartbeats and seconds."""


def wait_for(
    config: Config, condition: Condition, timeout_s: float | None, say: Callable[[str], None]
) -> None:
    """Wait until a condition holds, and has held for a moment; say what is missing meanwhile.

    The moment is two heartbeats; for DRAINED, five, and 5 s at least, in which no task takes in or
    sends a record. So a record that one processor has sent to the next is not overlooked.

    Raises `UnavailableError` if something is missing after `timeout_s`, with what that is. If the
    condition holds then, the moment is waited for. Raises `PipelineError` if a task that should run
    is FAILED.
    """
    wish = read_deployment(config, connected(config)).wish
    tm_number = task_managers_of(wish, config.tm_number)
    deadline_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    said: list[str] = []
    with closing(ClusterWatcher(replace(config, tm_number=tm_number))) as watcher:
        watcher.read_until_fresh()
        moment = _Moment(condition, config.heartbeat_interval_ms / 1000)
        while True:
            status = watcher.status()
            found = missing(status, condition, tm_number)
            if condition in (Condition.RUNNING, Condition.DRAINED) and (why := failures(status)):
                raise PipelineError("\n".join(why))
            if moment.is_over(status, is_held=not found):
                return
            if found and time.monotonic() >= deadline_s:
                lines = "\n".join(f"  {line}" for line in found)
                raise UnavailableError(f"time is up: the job is not {condition}:\n{lines}")
            for line in found:
                if line not in said:
                    say(line)
            said = found
            watcher.read(_LOOK_S)


class _Moment:
    """Watches for how long a condition has held without interruption."""

    def __init__(self, condition: Condition, heartbeat_s: float) -> None:
        self._is_quiet = condition is Condition.DRAINED
        quiet_s = max(_QUIET_BEATS * heartbeat_s, _QUIET_S)
        self._length_s = quiet_s if self._is_quiet else _SETTLED_BEATS * heartbeat_s
        self._since_s: float | None = None
        self._moved = 0

    def is_over(self, status: ClusterStatus, *, is_held: bool) -> bool:
        """Take in a status in which the condition holds or not, and whether it did long enough."""
        moved = _moved(status) if self._is_quiet else 0
        if not is_held or moved != self._moved:
            self._since_s, self._moved = None, moved
        if not is_held:
            return False
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= self._length_s


def _moved(status: ClusterStatus) -> int:
    """Return how many records all tasks together have taken in and sent."""
    statuses = [info.status for info in status.tasks if info.status is not None]
    return sum(each.count("records_in") + each.count("records_out") for each in statuses)
