"""Places where a test can stop a process; without its environment variable they do nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

DIRECTORY_VARIABLE = "PIPELINE_FAULT_DIR"


def reach(point: str) -> None:
    """Suffer the fault that waits at this point, if a test put one there.

    A test puts it there as a file of the directory `PIPELINE_FAULT_DIR`, named like the point.
    The first process that comes by renames it to `<point>.taken`, so each fault happens once;
    the test renames too, from a file that is already written. It is one of these texts:

    - `stop`: the whole process freezes here until it is killed or continued;
    - `stop-after <ms>`: this returns at once, the process freezes that much later;
    - `sleep <seconds>`: this thread sleeps.

    Raises `ValueError` for any other text.
    """
    _reach(point)


def _nothing(_point: str) -> None:
    pass


def _suffer(directory: Path) -> Callable[[str], None]:
    """Return what `reach` does if faults of this directory are wanted."""

    def suffer(point: str) -> None:
        taken = directory / f"{point}.taken"
        try:
            # Renaming is atomic: of several processes, one gets it.
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
    # Aimed at this thread, though it stops all: one aimed at the process may stop this one late.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


_directory = os.environ.get(DIRECTORY_VARIABLE)
_reach = _suffer(Path(_directory)) if _directory else _nothing
