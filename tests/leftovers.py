"""Ends what a test process leaves behind, however it ended: brokers, Sparks, daemons.

Each process that runs tests has a guard, a process in a session of its own that waits until a pipe
from the test process is closed. The system closes it, whatever has ended that process. What was
started by it carries a mark in its environment, as that is inherited. The guard of the whole run
also ends that, once it has taken too long.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests import leftovers_guard
from tests.leftovers_guard import VARIABLE


class Guard:
    """The guard of this process, as the process has it."""

    def __init__(self, limit_s: float) -> None:
        """Start it. After `limit_s` it interrupts this process, and kills it after a minute more.

        0 means no limit.
        """
        mark = f"<{os.getpid()}-{uuid.uuid4().hex}>"
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        self.before = os.environ.get(VARIABLE)
        """The marks of the test processes above this one."""
        os.environ[VARIABLE] = (self.before or "") + mark
        self._process = subprocess.Popen(
            # Isolated: it needs nothing but the standard library.
            [sys.executable, "-I", leftovers_guard.__file__, mark, str(os.getpid()), str(limit_s)],
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )

    def release(self) -> None:
        """Let it end what is left, and end itself."""
        # Should this process be killed meanwhile, what it has found is not lost.
        sys.stdout.flush()
        self._process.communicate(b".")
        if self.before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = self.before


_GUARD = pytest.StashKey[Guard]()


def add_option(parser: pytest.Parser) -> None:
    """Add the option that limits a run."""
    parser.addoption(
        "--run-limit-s",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="end a run that takes longer, as failed; no limit by default",
    )


def start_guard(config: pytest.Config) -> None:
    """Guard this process. A worker of pytest-xdist may be lost while the run goes on."""
    limit_s = 0.0 if is_worker(config) else config.getoption("--run-limit-s")
    config.stash[_GUARD] = Guard(limit_s)


def release_guard(config: pytest.Config) -> None:
    """End what this process has left."""
    config.stash[_GUARD].release()


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


@contextmanager
def left_to_the_run(config: pytest.Config) -> Iterator[None]:
    """Start what outlives a worker: the guard of the whole run ends it, and not the worker's."""
    above = config.stash[_GUARD].before
    if not is_worker(config) or above is None:
        yield
        return
    marks, os.environ[VARIABLE] = os.environ[VARIABLE], above
    try:
        yield
    finally:
        os.environ[VARIABLE] = marks
