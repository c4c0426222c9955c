"""The driver channel, with workers that are real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from taskmanager.channel import DriverChannel, Message

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 30

CONNECT = """
import faulthandler, os, signal, sys, time
from taskmanager import channel
faulthandler.register(signal.SIGUSR1)
if len(sys.argv) > 3:
    channel.here = lambda: sys.argv[3]
worker = channel.WorkerChannel(("127.0.0.1", int(sys.argv[1])), bytes.fromhex(sys.argv[2]), 7)
"""
HANG = "time.sleep(600)"
TALK = """
while not worker.is_lost:
    worker.send({"type": "status"})
    time.sleep(0.01)
os._exit(3)
"""
HOLD_GIL = """
import ctypes
ctypes.PyDLL(None).sleep(600)
"""
FREEZE = "os.kill(os.getpid(), signal.SIGSTOP)"


class Driver:
    """A driver channel that takes note of who comes and goes."""

    def __init__(self) -> None:
        self.came: SimpleQueue[int] = SimpleQueue()
        self.left: SimpleQueue[int] = SimpleQueue()
        self.channel = DriverChannel(
            "127.0.0.1", self._on_message, lambda _, pid: self.left.put(pid)
        )

    def _on_message(self, _: int, pid: int, message: Message) -> None:
        if message["type"] == "hello":
            self.came.put(pid)

    @contextmanager
    def worker(self, what: str, *place: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the worker of thread 7, which says hello and then does something."""
        arguments = [str(self.channel.port), self.channel.authkey.hex(), *place]
        command = [sys.executable, "-c", CONNECT + what, *arguments]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as process:
            try:
                assert self.came.get(timeout=TIMEOUT_S) == process.pid
                yield process
            finally:
                process.kill()


def has_stacks(process: subprocess.Popen[bytes]) -> bool:
    """Wait until a worker writes its stacks; False if it ends without."""
    assert process.stderr is not None
    return any(b"most recent call first" in line for line in process.stderr)


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.channel.close()


def test_worker_that_hangs_elsewhere_ends_when_it_is_told_to(driver: Driver) -> None:
    """Its reader thread obeys while the rest of it does not. Here, its id is somebody else's."""
    with driver.worker(HANG, "another host") as process:
        driver.channel.kill(7)
        assert process.wait(TIMEOUT_S) == 1
        assert driver.left.get(timeout=TIMEOUT_S) == process.pid


@pytest.mark.parametrize("place", [[], ["another host"]])
def test_worker_writes_its_stacks(driver: Driver, place: list[str]) -> None:
    with driver.worker(HANG, *place) as process:
        driver.channel.dump(7)
        assert has_stacks(process)


def test_worker_writes_its_stacks_though_something_holds_its_gil(driver: Driver) -> None:
    with driver.worker(HOLD_GIL) as process:
        driver.channel.dump(7)
        assert has_stacks(process)
        driver.channel.kill(7)
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL


def test_stopped_worker_is_killed(driver: Driver) -> None:
    with driver.worker(FREEZE) as process:
        os.waitpid(process.pid, os.WUNTRACED)
        driver.channel.kill(7)
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL
        assert driver.left.get(timeout=TIMEOUT_S) == process.pid


def test_worker_that_is_gone_already_is_not_killed_again(driver: Driver) -> None:
    """Its process id may belong to somebody else by then."""
    with driver.worker(HANG) as process:
        process.kill()
        assert driver.left.get(timeout=TIMEOUT_S) == process.pid
        driver.channel.kill(7)


def test_worker_whose_thread_has_another_one_is_hung_up_on(driver: Driver) -> None:
    """Spark took its executor for lost; what it says must not pass for its successor's word."""
    with driver.worker(TALK) as former, driver.worker(HANG) as successor:
        assert former.wait(TIMEOUT_S) == 3
        driver.channel.kill(7)
        assert successor.wait(TIMEOUT_S) in (1, -signal.SIGKILL)
        assert driver.left.get(timeout=TIMEOUT_S) == successor.pid
