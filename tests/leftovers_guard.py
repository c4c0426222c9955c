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


def _kill(pids: Iterator[int]) -> int:
    """Kill processes; return how many there were."""
    count = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


def _is_open(pipe: int, timeout_s: float | None) -> bool:
    """Whether the pipe is still open after a time; `None` waits until it is closed."""
    readable, _, _ = select.select([pipe], [], [], timeout_s)
    return not readable


def _guard(mark: str, pid: int, limit_s: float) -> None:
    if _is_open(0, limit_s or None):
        say = f"the tests have not ended within {limit_s:.0f} s (--run-limit-s): they are ended\n"
        sys.stderr.write(say)
        sys.stderr.flush()
        os.kill(pid, signal.SIGINT)
        if _is_open(0, _INTERRUPT_S):
            os.kill(pid, signal.SIGKILL)
            _is_open(0, None)
    while _kill(marked(mark)):
        time.sleep(_POLL_S)


if __name__ == "__main__":
    _guard(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
