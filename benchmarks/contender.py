"""The contenders that the benchmarks measure: each runs a job in processes that can be watched."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Protocol

from kafka_pipeline.admin.daemons import Daemon
from kafka_pipeline.admin.signals import Signals
from kafka_pipeline.common.errors import PipelineError

END_TIMEOUT_S = 60.0
_LOG_END = 4000


@dataclass(frozen=True, slots=True)
class Job:
    """A job for an engine: its kind, its topics and its folder."""

    kind: str
    """The kind of job: `forward`, `count`, …"""
    name: str
    """Unique on the broker: the application id, consumer group or job name."""
    servers: str
    source: str
    sink: str
    folder: Path
    """The folder for logs, settings and state; the first start of the job creates it."""
    instances: int = 1
    threads: int = 2
    """The number of threads of each instance."""

    def state_dir(self, instance: int) -> Path:
        """Return the state directory of an instance."""
        return self.folder / f"state-{instance}"

    def wipe_state(self) -> None:
        """Delete all instances' state on disk; none of them may be running."""
        for path in self.folder.glob("state-*"):
            shutil.rmtree(path)


@dataclass(slots=True)
class Running:
    """The processes of a job: instances that can be killed, and processes that must stay."""

    instances: Sequence[Sequence[Daemon]]
    others: Sequence[Daemon] = ()
    _: KW_ONLY
    group: str
    """The consumer group in which the job commits its positions in the source."""

    @property
    def daemons(self) -> list[Daemon]:
        return [*self.others, *(daemon for instance in self.instances for daemon in instance)]

    @property
    def sessions(self) -> list[int]:
        """The session id of each daemon, for `resources`."""
        return [daemon.pid for daemon in self.daemons if daemon.pid is not None]

    def require_alive(self) -> None:
        """Raise `PipelineError` if a daemon ended by itself."""
        for daemon in self.daemons:
            daemon.require_alive()

    def kill(self, instance: int) -> None:
        """End an instance at once, with SIGKILL to all processes that it started."""
        for daemon in self.instances[instance]:
            daemon.kill()
            daemon.end()

    def stop(self) -> None:
        """Ask all daemons to finish and wait for it; kill those that do not end."""
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
        """Return the last lines of all logs."""
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

        Raises `UnavailableError`, with the reason, if something cannot be fetched or built.
        """
        ...

    def start(self, job: Job) -> Running:
        """Start a job in the background. Its topics exist; state from an earlier run may too."""
        ...


def launch(
    job: Job, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Daemon:
    """Start a daemon of a job in its own session; its log is in the job's folder."""
    daemon = Daemon(name, command, job.folder / f"{name}.log", environment)
    daemon.start(Signals())
    return daemon
