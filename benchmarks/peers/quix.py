"""Quix Streams as a contender, in a separate environment."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contender import Job, Running, launch
from benchmarks.peers.pip_environment import PipEnvironment

VERSION = "3.28.1"
"""After a change, `./scripts/lock.sh` renews its lock."""

_ENVIRONMENT = PipEnvironment(
    title=f"Quix Streams {VERSION}",
    folder=f"quix-{VERSION}",
    lock=Path(__file__).parents[2] / "locks" / "quix.lock",
    otherwise="leave this peer out (--peer kafka-streams)",
)
_APPLICATION = Path(__file__).with_name("quix_application.py")


class QuixStreams:
    """One process per thread, since an application of Quix Streams has one thread."""

    title = f"Quix Streams {VERSION}"

    def prepare(self, folder: Path) -> None:
        """Install Quix Streams once, into an environment in the cache folder."""
        self._python = _ENVIRONMENT.python()

    def start(self, job: Job) -> Running:
        """Start the processes; the processes of one instance share its state folder."""
        instances = [
            [
                launch(job, f"{instance}_{thread}_quix", self._command(job, instance))
                for thread in range(job.threads)
            ]
            for instance in range(job.instances)
        ]
        return Running(instances, group=job.name)

    def _command(self, job: Job, instance: int) -> list[str]:
        return [
            *(str(self._python), str(_APPLICATION)),
            *(job.kind, job.servers, job.name, job.source, job.sink),
            str(job.state_dir(instance)),
        ]
