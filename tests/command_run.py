"""A command that starts a Kafka and daemons of its own, for integration tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).parents[1]


class CommandRun:
    """A command with a mark in its environment, which everything that it starts inherits."""

    def __init__(self, folder: Path, *command: str, cwd: Path = ROOT) -> None:
        self._mark = f"COMMAND_RUN={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        self.output_file = folder / "output.txt"
        self.temp_dir = folder / "temp"
        self.temp_dir.mkdir()
        with self.output_file.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, "TMPDIR": str(self.temp_dir), name: value},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @classmethod
    def of_module(cls, folder: Path, module: str, *options: str) -> CommandRun:
        """Run a `python -m`."""
        return cls(folder, sys.executable, "-m", module, *options)

    @property
    def output(self) -> str:
        return self.output_file.read_text()

    def wait_for(self, text: str, timeout_s: float = 120, times: int = 1) -> None:
        deadline_s = time.monotonic() + timeout_s
        while self.output.count(text) < times:
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline_s, self.output
            time.sleep(0.05)

    def processes(self) -> list[int]:
        """Return everything of this run that has not ended."""
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                # A process that ended but was not collected has no environment any more.
                if self._mark.encode() in environ.read_bytes().split(b"\0"):
                    found.append(int(environ.parent.name))
            except OSError:
                continue
        return found

    def kill(self) -> None:
        """End everything of this run at once."""
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
