"""Processes that outlive the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A process, told apart from a later one that happens to get the same pid."""

    pid: int
    started: str
    """When it started, in the operating system's format; only for comparison."""

    @classmethod
    def spawn(cls, command: list[str], *, log_file: Path) -> BrokerProcess:
        """Start a command in its own session, and append its output to a file.

        In its own session, neither Ctrl-C nor closing the terminal ends it.

        Raises:
            OSError: the command or the log file cannot be opened.
        """
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        # Not subprocess.Popen, whose objects warn if they are dropped while their process runs.
        pid = os.posix_spawn(
            command[0],
            command,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log_file, append, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        return cls(pid, _start_time(pid) or "")

    def is_running(self) -> bool:
        """Tell whether this very process still runs."""
        # Reaps the process if it is an ended child of ours, which would otherwise stay a zombie.
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return _start_time(self.pid) == self.started

    def send(self, signal_number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process is gone.

        Raises:
            PermissionError: the process belongs to another user.
        """
        if self.is_running():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal_number)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process has ended; False if it still runs after `timeout_s` seconds."""
        deadline_s = time.monotonic() + timeout_s
        while self.is_running():
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        return True


def _start_time(pid: int) -> str | None:
    """Return when a process started, or None if it does not exist or has ended."""
    return _start_time_linux(pid) if sys.platform == "linux" else _start_time_ps(pid)


def _start_time_linux(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # The second field is the name in parentheses, which may itself contain spaces and parentheses.
    state, *fields = stat.rpartition(")")[2].split()
    threads, ticks_since_boot = int(fields[16]), fields[18]
    # The first thread of a killed process may be a zombie while others still hold its ports.
    has_ended = state in "ZX" and threads <= 1
    return None if has_ended else f"{boot}/{ticks_since_boot}"


def _start_time_ps(pid: int) -> str | None:
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()
