"""What the benchmarks measure: an engine that runs a job, in processes that can be watched."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from admin.quickstart.daemons import Daemon
from admin.quickstart.signals import Signals
from common.errors import PipelineError

END_TIMEOUT_S = 60.0
_LOG_END = 4000


@dataclass(frozen=True, slots=True)
class Job:
    """What an engine is to run, and where."""

    kind: str
    """Which of the engine's jobs: `forward`, `count`, …"""
    name: str
    """Unique on the broker: the application id, consumer group or job name."""
    servers: str
    source: str
    sink: str
    folder: Path
    """Logs, settings and state; made by whoever starts the job first."""
    instances: int = 1
    threads: int = 2
    """Of each instance."""

    def state_dir(self, instance: int) -> Path:
        """Return where an instance keeps its state."""
        return self.folder / f"state-{instance}"

    def wipe_state(self) -> None:
        """Delete what all instances have on disk; none may run."""
        for path in self.folder.glob("state-*"):
            shutil.rmtree(path)


@dataclass(slots=True)
class Running:
    """The processes of a job: instances that can be lost, and what stays."""

    instances: Sequence[Sequence[Daemon]]
    others: Sequence[Daemon] = ()

    @property
    def daemons(self) -> list[Daemon]:
        return [*self.others, *(daemon for instance in self.instances for daemon in instance)]

    @property
    def sessions(self) -> list[int]:
        """The session of each daemon, for `resources`."""
        return [daemon.pid for daemon in self.daemons if daemon.pid is not None]

    def require_alive(self) -> None:
        """Raise `PipelineError` if a daemon ended by itself."""
        for daemon in self.daemons:
            daemon.require_alive()

    def kill(self, instance: int) -> None:
        """End an instance at once: SIGKILL to all that it started."""
        for daemon in self.instances[instance]:
            daemon.kill()
            daemon.end()

    def stop(self) -> None:
        """Let all daemons finish and wait for it; those that do not end are killed."""
        for daemon in self.daemons:
            daemon.terminate()
        stuck = [daemon.name for daemon in self.daemons if not daemon.wait(END_TIMEOUT_S)]
        self.close()
        if stuck:
            raise PipelineError(f"not ended {END_TIMEOUT_S:.0f} s after SIGTERM: {stuck}")

    def close(self) -> None:
        """End everything at once."""
        for daemon in self.daemons:
            daemon.terminate()
            daemon.end()

    def logs(self) -> str:
        """Return the ends of all logs."""
        return "\n".join(
            f"--- {daemon.name}\n{daemon.log_file.read_text(errors='replace')[-_LOG_END:]}"
            for daemon in self.daemons
        )


class Contender(Protocol):
    """An engine, or a bare loop, that the benchmarks can start."""

    @property
    def title(self) -> str:
        """Its name and version, for tables."""
        ...

    def prepare(self, folder: Path) -> None:
        """Fetch and build what it needs; `folder` is kept as long as the benchmark runs.

        Raises `UnavailableError` when something cannot be had; the message says what.
        """
        ...

    def start(self, job: Job) -> Running:
        """Start a job in the background; the topics are there, the state may be."""
        ...


def launch(
    job: Job, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Daemon:
    """Start a daemon of a job in a session of its own; its log is in the job's folder."""
    daemon = Daemon(name, command, job.folder / f"{name}.log", environment)
    daemon.start(Signals())
    return daemon
