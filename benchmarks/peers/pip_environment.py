"""Environments for peers that are Python packages: one for each, with the versions of a lock."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline.admin.paths import cache_home
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.process.locks import exclusive

_COMPLETE = "complete"
_USEFUL_LINES = 12
_PIP = (
    *("-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
    *("--no-deps", "--require-hashes", "--requirement"),
)


@dataclass(frozen=True, slots=True)
class PipEnvironment:
    """A virtual environment in the cache folder, which is created on first use."""

    title: str
    """Its name for the user: `Quix Streams 3.28.1`."""
    folder: str
    """Its folder in the cache folder: `quix-3.28.1`."""
    lock: Path
    """The packages, with their digests."""
    otherwise: str
    """What the user can do if it cannot be created."""

    def python(self) -> Path:
        """Return the interpreter of the environment; create it if it does not exist.

        The first call takes half a minute, needs a network, and says so in one line on stderr. An
        incomplete environment, for example after an interrupted download, is created again, and so
        is one of a former lock.

        Raises `UnavailableError` if the environment cannot be created.
        """
        cache_dir = cache_home()
        folder = cache_dir / self.folder
        python = folder / "bin" / "python"
        complete = folder / _COMPLETE
        lock = self.lock.read_text("utf-8")
        with exclusive(cache_dir / f"{self.folder}.lock"):
            if not complete.is_file() or complete.read_text("utf-8") != lock:
                print(f"installing {self.title}, once…", file=sys.stderr, flush=True)
                shutil.rmtree(folder, ignore_errors=True)
                self._run([sys.executable, "-m", "venv", str(folder)])
                self._run([str(python), *_PIP, str(self.lock)])
                complete.write_text(lock, "utf-8")
        return python

    def _run(self, command: list[str]) -> None:
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
                f"{self.title} could not be installed from {self.lock}:\n{words}\n"
                f"Is the network there? Or {self.otherwise}."
            )
