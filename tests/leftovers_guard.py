"""Kills what a test process has left behind, once that process has ended; see `tests/leftovers.py`.

A process of its own, which imports nothing but the standard library:

    python -I leftovers_guard.py MARK PID LIMIT_S
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "PIPELINE_TESTS"
"""Of the environment: the marks of the test processes above, the outermost one first."""

_INTERRUPT_S = 60.0
_KILL_S = 60.0
_POLL_S = 0.05


def marked(mark: str) -> Iterator[int]:
    """Yield the processes that have a mark in their environment; none where there is no /proc."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        # One that has ended and was not collected has no environment any more.
        with contextlib.suppress(OSError):
            if any(
                entry.startswith(f"{VARIABLE}=".encode()) and mark.encode() in entry
                for entry in environ.read_bytes().split(b"\0")
            ):
                yield int(environ.parent.name)


def kill_all(mark: str, limit_s: float) -> None:
    """Kill the processes with a mark until there are none; say which are left after `limit_s`."""
    deadline_s = time.monotonic() + limit_s
    while left := _kill(marked(mark)):
        if time.monotonic() >= deadline_s:
            for pid in left:
                _say(f"still there {limit_s:.0f} s after it was killed: {_description(pid)}")
            return
        time.sleep(_POLL_S)


def _kill(pids: Iterator[int]) -> list[int]:
    """Kill processes; return those that were there."""
    killed = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
    return killed


def _description(pid: int) -> str:
    found = [f"process {pid}"]
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        found.append(command.decode(errors="replace")[:200])
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        found += [line for line in status if line.startswith(("State", "PPid"))]
    return ", ".join(found)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _is_open(pipe: int, timeout_s: float | None) -> bool:
    """Whether the test process still runs after a time; `None` waits until it does not.

    When it ends, the system closes the pipe. When it is done, it writes to the pipe, as a process
    that it forked may have the pipe as well.
    """
    readable, _, _ = select.select([pipe], [], [], timeout_s)
    return not readable


def _guard(mark: str, pid: int, limit_s: float) -> None:
    if _is_open(0, limit_s or None):
        _say(f"the tests have not ended within {limit_s:.0f} s (--run-limit-s): they are ended")
        os.kill(pid, signal.SIGINT)
        if _is_open(0, _INTERRUPT_S):
            os.kill(pid, signal.SIGKILL)
            _is_open(0, None)
    kill_all(mark, _KILL_S)


if __name__ == "__main__":
    _guard(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
