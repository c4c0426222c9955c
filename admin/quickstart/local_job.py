"""A job with all its commands on this machine: one JobManager and several TaskManagers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kafka_pipeline.admin.daemons import Daemon, command_path
from kafka_pipeline.admin.dev.guard import Guard
from kafka_pipeline.admin.quickstart.display import Display
from kafka_pipeline.admin.signals import Signals
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher
from kafka_pipeline.streams.pipeline.load import load_pipeline

T = TypeVar("T")

_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class LocalJob:
    """The files and processes of a job; `prepare` makes one."""

    config: Config
    pipeline: Pipeline
    job_manager: Daemon
    task_managers: Sequence[Daemon]

    @property
    def daemons(self) -> Sequence[Daemon]:
        """All processes, in the order in which they start."""
        return (*self.task_managers, self.job_manager)

    def run(
        self, display: Display, signals: Signals, guard: Guard, work: Callable[[], T]
    ) -> tuple[T, Sequence[str]]:
        """Start all daemons, call `work`, and stop them.

        Returns what `work` returns, and which daemons failed when they were stopped. Whatever is
        raised, no daemon is left. If this process is killed, the `guard` ends them.
        """
        try:
            for daemon in self.daemons:
                display.event(f"$ {daemon}")
                daemon.start(signals)
                assert daemon.pid is not None
                guard.add(daemon.pid)
            found = work()
            display.finish()
            display.event("stopping the JobManager and the TaskManagers")
            return found, self._stop()
        except BaseException:
            signals.ignore()
            self._end()
            raise

    def wait_until_all_run(self, watcher: ClusterWatcher) -> None:
        """Wait until all tasks run.

        Raises `UnavailableError` after 90 s, and `PipelineError` if a daemon ends.
        """
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not watcher.status().all_run:
            self.require_alive()
            if time.monotonic() >= deadline_s:
                raise UnavailableError(f"not all tasks run after {_START_TIMEOUT_S:.0f} s")
            watcher.read(_POLL_S)

    def require_alive(self) -> None:
        """Raise `PipelineError` if a daemon ended on its own."""
        for daemon in self.daemons:
            daemon.require_alive()

    def kill_owner_of_state(self, status: ClusterStatus, display: Display) -> float:
        """End a TaskManager as `kill -9` does; return when, by `time.monotonic`.

        It is one with a store, which the next owner of its task must restore.
        """
        processors = self.pipeline.processors
        stateful = {TaskId(each.id, 0) for each in processors if each.is_stateful}
        owners = (info.owner for info in status.tasks if info.task in stateful)
        victim = self.task_managers[next((owner for owner in owners if owner is not None), 0)]
        victim.kill()
        killed_at_s = time.monotonic()
        display.event(f"$ kill -9 {victim.pid}    # {victim.name}", "bold red")
        return killed_at_s

    def _stop(self) -> list[str]:
        """Stop all daemons gracefully; return what went wrong."""
        running = [daemon for daemon in self.daemons if daemon.exit_code is None]
        self._end()
        return [
            f"{daemon.name} ended with exit code {daemon.exit_code} when it was stopped"
            for daemon in running
            if daemon.exit_code != 0
        ]

    def _end(self) -> None:
        """Stop all daemons, and kill those that still run after a while."""
        for daemon in self.daemons:
            daemon.terminate()
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        for daemon in self.daemons:
            daemon.wait(deadline_s - time.monotonic())
            daemon.end()


def prepare(folder: Path, config_file: Path, pipeline_file: Path, threads: int) -> LocalJob:
    """Return the job of two files; its logs go to `folder`, and nothing starts yet."""
    config = load_config(config_file)

    def daemon(command: str, name: str, *arguments: object) -> Daemon:
        line = [str(command_path(command)), *map(str, arguments)]
        return Daemon(name, line, folder / f"{name.replace(' ', '_')}.log")

    return LocalJob(
        config,
        load_pipeline(pipeline_file, config),
        daemon("jobmanager", "jobmanager", config_file, pipeline_file),
        [
            daemon("taskmanager", f"taskmanager {tm_id}", tm_id, threads, config_file)
            for tm_id in range(config.tm_number)
        ],
    )
