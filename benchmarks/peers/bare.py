"""The bare loops as contenders: one process per partition."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contender import Job, Running, launch

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class BareLoop:
    """`bare_loop.py` in one of its modes; its only job is `forward`."""

    mode: str

    @property
    def title(self) -> str:
        return f"bare loop, {self.mode}"

    def prepare(self, folder: Path) -> None:
        """Do nothing: the current environment has all that is needed."""

    def start(self, job: Job) -> Running:
        """Start a process for each partition."""
        command = [sys.executable, "-m", "benchmarks.peers.bare_loop", self.mode]
        command += [job.servers, job.name, job.source, job.sink]
        processes = [
            launch(job, f"{number}_bare", [*command, str(number)], {"PYTHONPATH": str(_ROOT)})
            for number in range(job.threads)
        ]
        return Running([processes], group=job.name)
