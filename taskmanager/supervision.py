"""Runs a worker's work in a child process, and finds out how that process ends.

Spark's worker process is the parent, and only waits. So it learns of a signal, a lack of memory and
the call in progress, whatever host the worker runs on.
"""

from __future__ import annotations

import ctypes
import faulthandler
import io
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO, NoReturn

from kafka_pipeline.common.protocol.suspects import Death
from kafka_pipeline.taskmanager.deaths import Ended, death_of, kills_for_want_of_memory
from kafka_pipeline.taskmanager.marks import Marks

_FAILED = 1
_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
_MOST_BYTES = 100_000
_DONE = "done"
"""What the child says when its work is done: user code may end it with exit code 0, too."""
_LONG_LIFE_S = 60.0


class WorkerEndedError(Exception):
    """The child process has ended before its work was done."""


def supervised(
    work: Callable[[Marks], None],
    described: Callable[[Exception], str],
    on_death: Callable[[int, Death, bool], None],
) -> None:
    """Run `work` in a child process, and return when it is done.

    If `work` raises, raises `WorkerEndedError` with the words that `described` returns. If the
    process ends otherwise, another one repeats the work, which starts in a fraction of the time of
    a new Spark task. `on_death` is called first, with the process id and whether the work goes on.
    After two processes in a row that lived for less than a minute, it does not, and
    `WorkerEndedError` is raised.
    """
    short_lives = 0
    while True:
        began_s = time.monotonic()
        child, death = _supervise(work, described)
        if death is None:
            return
        short_lives = short_lives + 1 if time.monotonic() - began_s < _LONG_LIFE_S else 0
        goes_on = short_lives <= 1
        on_death(child, death, goes_on)
        if not goes_on:
            raise WorkerEndedError(f"the worker process has ended: {death.how}")


def _supervise(
    work: Callable[[Marks], None], described: Callable[[Exception], str]
) -> tuple[int, Death | None]:
    """Return the id of the process that did the work, and how it died; `None` if it finished."""
    marks = Marks()
    with tempfile.TemporaryFile() as stacks, tempfile.TemporaryFile() as words:
        kills = kills_for_want_of_memory()
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            _run(parent, lambda: work(marks), described, stacks, words)
        _, status, usage = os.wait4(child, 0)
        said = _read(words)
        if status == 0 and said == _DONE:
            return child, None
        if said:
            raise WorkerEndedError(said)
        # Linux counts in KiB, macOS in bytes.
        peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        ended = Ended(status, peak_bytes, kills_for_want_of_memory() > kills)
        stack = _read(stacks)
    sys.stderr.write(stack)
    sys.stderr.flush()
    return child, death_of(ended, stack, marks.read())


def _run(
    parent: int,
    work: Callable[[], None],
    described: Callable[[Exception], str],
    stacks: IO[bytes],
    words: IO[bytes],
) -> NoReturn:
    """Do the work in the child process. Never returns to Spark's code, which the parent runs."""
    status = _FAILED
    try:
        _end_with(parent)
        faulthandler.enable(stacks)
        # Spark passes it on to the log of the TaskManager: in lines, or prints show up late.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        work()
        words.write(_DONE.encode())
        words.flush()
        status = 0
    except Exception as error:
        words.write(described(error).encode(errors="backslashreplace")[:_MOST_BYTES] or b"failed")
        words.flush()
    finally:
        try:
            _end_children()
            # User code may have replaced or closed them.
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def _end_children() -> None:
    """End processes that user code started by `multiprocessing`, as Python does when it exits."""
    if (loaded := sys.modules.get("multiprocessing")) is not None:
        for child in loaded.active_children():
            child.kill()


def _end_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(_FAILED)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MOST_BYTES).decode(errors="replace")
