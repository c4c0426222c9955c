"""The driver channel, with workers that are real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from kafka_pipeline.common.protocol.messages import MalformedMessageError
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.channel import DriverChannel, WorkerChannel
from kafka_pipeline.taskmanager.channel_messages import (
    Answer,
    Ask,
    Ending,
    Hello,
    Revoke,
    Status,
    Stop,
    Stopped,
    ToDriver,
    encode,
)
from kafka_pipeline.taskmanager.listening import connect

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 30

CONNECT = """
import faulthandler, os, signal, sys, time
from kafka_pipeline.taskmanager import channel
from kafka_pipeline.taskmanager.channel_messages import Status, Stopped
faulthandler.register(signal.SIGUSR1)
if len(sys.argv) > 3:
    channel.here = lambda: sys.argv[3]
worker = channel.WorkerChannel(("127.0.0.1", int(sys.argv[1])), bytes.fromhex(sys.argv[2]), 7)
"""
HANG = "time.sleep(600)"
RIDDLE = """
worker._connection.send_bytes(b'{"type":"riddle"}')
worker._connection.send_bytes(b'{"type":"stop"}')
worker.send(Status(()))
time.sleep(600)
"""
TALK = """
while not worker.is_lost:
    worker.send(Status(()))
    time.sleep(0.01)
os._exit(3)
"""
HOLD_GIL = """
import ctypes
ctypes.PyDLL(None).sleep(600)
"""
FREEZE = "os.kill(os.getpid(), signal.SIGSTOP)"
REPLY = """
from kafka_pipeline.taskmanager.channel_messages import Answer
worker.on_ask = lambda ask: worker.send(Answer(ask.number, 200, dict(ask.parameters)))
worker.send(Stopped())
time.sleep(600)
"""


ECHO = """
while not worker.is_lost:
    before = worker.last_heard_s
    while worker.last_heard_s == before and not worker.is_lost:
        time.sleep(0.001)
    worker.send(Stopped())
"""


TELL = """
from kafka_pipeline.taskmanager.channel_messages import Ending
worker.on_ping = lambda is_sure: worker.send(Ending(str(is_sure)))
worker.send(Stopped())
time.sleep(600)
"""


class Driver:
    """A driver channel that records who comes and goes."""

    def __init__(self) -> None:
        self.came: SimpleQueue[int] = SimpleQueue()
        self.heard: SimpleQueue[ToDriver] = SimpleQueue()
        self.channel = DriverChannel("127.0.0.1", self._on_message)

    def _on_message(self, _: int, message: ToDriver) -> None:
        if isinstance(message, Hello):
            self.came.put(message.pid)
        else:
            self.heard.put(message)

    def wait_until_left(self) -> None:
        """Wait until no worker is connected any more."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while self.channel.threads:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)

    @contextmanager
    def worker(self, what: str, *place: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the worker of thread 7, which sends `hello` and then does something."""
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
        driver.wait_until_left()


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


def test_message_that_cannot_be_read_does_not_end_the_conversation(
    driver: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    with driver.worker(RIDDLE) as process:
        assert driver.heard.get(timeout=TIMEOUT_S) == Status(())
        assert driver.channel.threads == [7]
        log = capsys.readouterr().out
        assert "Invalid value 'riddle'" in log
        assert "Stop is a message to workers" in log
        process.kill()
        driver.wait_until_left()


def test_worker_that_does_not_introduce_itself_is_hung_up_on(
    driver: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    address = ("127.0.0.1", driver.channel.port)
    with closing(connect(address, driver.channel.authkey)) as connection:
        connection.send_bytes(b'{"type":"hello","thread":7,"pid":0,"place":"here"}')
        with pytest.raises(EOFError):
            connection.recv_bytes()
    assert driver.channel.threads == []
    assert "hello: the JSON: Expected `int` >= 1 - at `$.pid`" in capsys.readouterr().out


@pytest.mark.parametrize("data", [b'{"type":"riddle"}', encode(Stopped())])
def test_worker_raises_where_a_command_cannot_be_read(driver: Driver, data: bytes) -> None:
    """It ends, and its successor is assigned all tasks again."""
    address = ("127.0.0.1", driver.channel.port)
    with closing(WorkerChannel(address, driver.channel.authkey, 7)) as worker:
        driver.came.get(timeout=TIMEOUT_S)
        driver.channel._workers[7].connection.send_bytes(data)
        driver.channel.send(7, Stop())
        with pytest.raises(MalformedMessageError):
            worker.receive(TIMEOUT_S)
        assert worker.receive(TIMEOUT_S) == Stop()


def test_ping_reaches_the_worker(driver: Driver) -> None:
    with driver.worker(ECHO):
        deadline_s = time.monotonic() + TIMEOUT_S
        while driver.heard.empty():
            assert time.monotonic() < deadline_s
            driver.channel.ping(True)
            time.sleep(0.01)
        assert driver.heard.get() == Stopped()


@pytest.mark.parametrize("is_sure", [True, False])
def test_ping_tells_whether_the_driver_is_sure_of_its_tasks(driver: Driver, is_sure: bool) -> None:
    with driver.worker(TELL):
        assert driver.heard.get(timeout=TIMEOUT_S) == Stopped()
        driver.channel.ping(is_sure)
        assert driver.heard.get(timeout=TIMEOUT_S) == Ending(str(is_sure))


def test_ping_leaves_out_a_worker_that_is_being_sent_something(driver: Driver) -> None:
    with driver.worker(ECHO):
        with driver.channel._workers[7].sending:
            driver.channel.ping(True)  # would wait forever for the lock
        driver.channel.send(7, Stop())
        assert driver.heard.get(timeout=TIMEOUT_S) == Stopped()


def test_ping_does_not_wait_for_a_worker_that_does_not_read(driver: Driver) -> None:
    with driver.worker(FREEZE) as process:
        os.waitpid(process.pid, os.WUNTRACED)
        worker = driver.channel._workers[7]
        long = Revoke(TaskId("x" * 100_000_000, 0))
        sender = threading.Thread(target=driver.channel.send, args=(7, long), daemon=True)
        sender.start()
        while worker.takes_more:
            time.sleep(0.001)
        driver.channel.ping(True)
        process.kill()
        sender.join(TIMEOUT_S)
        assert not sender.is_alive()


def test_a_query_is_answered_while_the_worker_does_something_else(driver: Driver) -> None:
    with driver.worker(REPLY):
        assert driver.heard.get(timeout=TIMEOUT_S) == Stopped()
        assert driver.channel.ask(7, Ask(3, "get", TaskId("P", 0), "counts", {"key": "k"}))
        assert driver.heard.get(timeout=TIMEOUT_S) == Answer(3, 200, {"key": "k"})


def test_queries_do_not_wait_for_a_worker_that_does_not_read(driver: Driver) -> None:
    question = Ask(0, "get", TaskId("P", 0), "counts", {"key": "k" * 4096})
    with driver.worker(FREEZE) as process:
        os.waitpid(process.pid, os.WUNTRACED)
        while driver.channel.ask(7, question):
            pass
        process.kill()
        driver.wait_until_left()
    assert not driver.channel.ask(7, question)


def test_killing_a_worker_does_not_wait_for_what_it_is_being_sent(driver: Driver) -> None:
    with driver.worker(FREEZE) as process:
        os.waitpid(process.pid, os.WUNTRACED)
        with driver.channel._workers[7].sending:
            driver.channel.kill(7)
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL


def test_stopped_worker_is_killed(driver: Driver) -> None:
    with driver.worker(FREEZE) as process:
        os.waitpid(process.pid, os.WUNTRACED)
        driver.channel.kill(7)
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL
        driver.wait_until_left()


def test_worker_that_is_gone_already_is_not_killed_again(driver: Driver) -> None:
    """Its process id may belong to somebody else by then."""
    with driver.worker(HANG) as process:
        process.kill()
        driver.wait_until_left()
        driver.channel.kill(7)


def test_worker_whose_thread_has_another_one_is_hung_up_on(driver: Driver) -> None:
    """Spark took its executor for lost; its messages must not count as its successor's."""
    with driver.worker(TALK) as former, driver.worker(HANG) as successor:
        assert former.wait(TIMEOUT_S) == 3
        driver.channel.kill(7)
        assert successor.wait(TIMEOUT_S) in (1, -signal.SIGKILL)
        driver.wait_until_left()
