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
        self._before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = (self._before or "") + mark
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
        if self._before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = self._before


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
    is_worker = hasattr(config, "workerinput")
    config.stash[_GUARD] = Guard(0.0 if is_worker else config.getoption("--run-limit-s"))


def release_guard(config: pytest.Config) -> None:
    """End what this process has left."""
    config.stash[_GUARD].release()
