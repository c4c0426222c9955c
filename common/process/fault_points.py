"""Points at which a test can stop a process; without the environment variable, they do nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

DIRECTORY_VARIABLE = "PIPELINE_FAULT_DIR"


def reach(point: str) -> None:
    """Suffer the fault that a test has put at this point, if any.

    A fault is a file in the directory `PIPELINE_FAULT_DIR`, named like the point. The first process
    that reaches the point renames the file to `<point>.taken`, so each fault happens once. The test
    also creates the file by renaming one that is already written. The file contains one of these:

    - `stop`: the whole process freezes here until it is killed or continued;
    - `stop-after <ms>`: this call returns at once, and the process freezes after the delay;
    - `sleep <seconds>`: this thread sleeps.

    Raises `ValueError` for any other content.
    """
    _reach(point)


def _nothing(_point: str) -> None:
    pass


def _suffer(directory: Path) -> Callable[[str], None]:
    """Return the function that `reach` calls to suffer the faults in this directory."""

    def suffer(point: str) -> None:
        taken = directory / f"{point}.taken"
        try:
            # Renaming is atomic: only one of several processes gets the file.
            (directory / point).rename(taken)
        except FileNotFoundError:
            return
        _carry_out(taken.read_text(encoding="utf-8").strip())

    return suffer


def _carry_out(fault: str) -> None:
    match fault.split():
        case ["stop"]:
            _freeze()
        case ["stop-after", delay_ms]:
            timer = threading.Timer(float(delay_ms) / 1000, _freeze)
            timer.daemon = True
            timer.start()
        case ["sleep", seconds]:
            time.sleep(float(seconds))
        case _:
            raise ValueError(f"not a fault: {fault!r}")


def _freeze() -> None:
    # Sent to this thread, though it stops all threads: a signal to the process may stop this one
    # late.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


_directory = os.environ.get(DIRECTORY_VARIABLE)
_reach = _suffer(Path(_directory)) if _directory else _nothing
