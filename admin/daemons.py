"""Daemons, started as a user would start them, each in its own session that ends as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kafka_pipeline.admin.signals import Signals
from kafka_pipeline.common.errors import PipelineError, UnavailableError

_POLL_S = 0.05
_KILL_TIMEOUT_S = 10.0
_LOG_LINES = 15


def command_path(name: str) -> Path:
    """Return a console script of this environment. Raises `UnavailableError` if it is missing."""
    path = Path(sys.executable).with_name(name)
    if not path.is_file():
        raise UnavailableError(
            f"{path} is missing: the project is not installed in this environment. "
            "./quickstart.sh does that."
        )
    return path


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of the project.

    Without the current folder on the path: it is the user's, and may have an `admin`.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


class Daemon:
    """A process, everything that it starts, and the log that they write.

    Spark's JVM and its Python workers form process groups of their own, but stay in the session
    of the TaskManager that started them.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_file: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare a daemon without starting it; `environment` is added to this process's own."""
        self.name = name
        self.command = tuple(command)
        self.log_file = log_file
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._was_stopped = False

    def __str__(self) -> str:
        """Return the command as a user would type it."""
        return " ".join([Path(self.command[0]).name, *self.command[1:]])

    @property
    def pid(self) -> int | None:
        """The daemon's own process id, which is also its session's; `None` before the start."""
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the daemon's own process, negative for a signal; `None` until it ends."""
        return self._process.poll() if self._process else None

    def start(self, signals: Signals, inherited: Collection[int] = ()) -> None:
        """Start the daemon in the background; it has the `inherited` descriptors, too."""
        with self.log_file.open("ab") as log, signals.held():
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=tuple(inherited),
                env=os.environ | self._environment,
            )

    def require_alive(self) -> None:
        """Raise `PipelineError` with the end of the log if the daemon ended on its own."""
        if self.exit_code is None or self._was_stopped:
            return
        raise PipelineError(
            f"{self.name} ended with exit code {self.exit_code}. "
            f"The end of {self.log_file}:\n{self.last_lines()}"
        )

    def last_lines(self) -> str:
        """Return the end of the log, indented."""
        lines = self.log_file.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join(f"  {line}" for line in lines)

    def kill(self) -> None:
        """End the daemon's own process at once, as `kill -9` does; its children get no signal."""
        assert self._process is not None, "only a daemon that was started can be killed"
        self._was_stopped = True
        self._process.kill()
        self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the daemon's own process; nothing happens if that has ended."""
        if self._process is not None:
            self._process.send_signal(number)

    def terminate(self) -> None:
        """Ask the daemon to stop; does not wait."""
        self._was_stopped = True
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def wait(self, timeout_s: float) -> bool:
        """Wait until the whole session is gone; False if it is not after `timeout_s` seconds."""
        deadline_s = time.monotonic() + timeout_s
        while self._has_remains():
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        return True

    def end(self) -> None:
        """Kill what is left of the session."""
        deadline_s = time.monotonic() + _KILL_TIMEOUT_S
        while self._has_remains() and time.monotonic() < deadline_s:
            assert self._process is not None
            kill_session(self._process.pid)
            time.sleep(_POLL_S)

    def _has_remains(self) -> bool:
        if self._process is None:
            return False
        # Reaps the process if it has ended; otherwise it would stay a zombie.
        return self._process.poll() is None or any(session_members(self._process.pid))


def kill_session(session: int) -> None:
    """Kill the processes of a session that have not ended."""
    for pid in session_members(session):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def session_members(session: int) -> Iterator[int]:
    """Yield the processes of a session that have not ended."""
    for pid, state in _processes():
        if not state.startswith(("Z", "X")):
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) == session:
                    yield pid


def _processes() -> Iterator[tuple[int, str]]:
    """Yield the id and state of every process on this machine."""
    if sys.platform == "linux":
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                # The second field is the name in parentheses, and may hold any character.
                yield int(stat.parent.name), stat.read_text(errors="replace").rpartition(")")[2][1:]
        return
    answer = subprocess.run(
        ["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True
    )
    for line in answer.stdout.splitlines():
        pid, _, state = line.strip().partition(" ")
        yield int(pid), state.strip()
