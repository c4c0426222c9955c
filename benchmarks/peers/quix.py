"""Quix Streams as a contender, in a separate environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from admin.locks import exclusive
from admin.paths import cache_home
from benchmarks.contender import Job, Running, launch
from common.errors import UnavailableError

VERSION = "3.28.1"
"""After a change, `./scripts/lock.sh` renews its lock."""

_LOCK = Path(__file__).parents[2] / "locks" / "quix.lock"
_APPLICATION = Path(__file__).with_name("quix_application.py")
_COMPLETE = "complete"
_USEFUL_LINES = 12


class QuixStreams:
    """One process per thread, since an application of Quix Streams has one thread."""

    title = f"Quix Streams {VERSION}"

    def prepare(self, folder: Path) -> None:
        """Install Quix Streams once, into an environment in the cache folder."""
        self._python = quix_environment(cache_home()) / "bin" / "python"

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


def quix_environment(cache_dir: Path) -> Path:
    """Return a virtual environment with Quix Streams; create it if it does not exist.

    The first call takes half a minute, needs a network, and says so in one line on stderr. An
    incomplete environment, for example after an interrupted download, is created again, and so is
    one of a former lock.

    Raises `UnavailableError` if the environment cannot be created.
    """
    folder = cache_dir / f"quix-{VERSION}"
    complete = folder / _COMPLETE
    lock = _LOCK.read_text("utf-8")
    with exclusive(cache_dir / f"quix-{VERSION}.lock"):
        if not complete.is_file() or complete.read_text("utf-8") != lock:
            print(f"installing Quix Streams {VERSION}, once…", file=sys.stderr, flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(folder)])
            _run([str(folder / "bin" / "python"), *_PIP, str(_LOCK)])
            complete.write_text(lock, "utf-8")
    return folder


_PIP = (
    *("-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
    *("--no-deps", "--require-hashes", "--requirement"),
)


def _run(command: list[str]) -> None:
    run = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if run.returncode != 0:
        words = "\n".join(f"  {line}" for line in run.stdout.splitlines()[-_USEFUL_LINES:])
        raise UnavailableError(
            f"Quix Streams {VERSION} could not be installed:\n{words}\n"
            "Is the network there? Or leave this peer out (--peer kafka-streams)."
        )
