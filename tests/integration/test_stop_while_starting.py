"""SIGTERM, Ctrl-C and a closed terminal at any moment of the start of a daemon, on real servers.

    pytest tests/integration/test_stop_while_starting.py --moments 60

sweeps the start in finer steps.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kafka_pipeline.admin.daemons import Daemon, session_members
from tests.engine import Engine, engine

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which signals are handled"),
    pytest.mark.skipif(
        signal.getsignal(signal.SIGHUP) is signal.SIG_IGN,
        reason="daemons that nohup started ignore SIGHUP, as these tests do now",
    ),
]

PIPELINE = "- {id: P, type: count, to: [sink]}\n"
MOMENTS = 6
TIMEOUT_S = 120.0
SPARK = b"org.apache.spark.deploy.SparkSubmit"
COMPLAINTS = "Traceback", "\tat ", "Exception"
"""None of them is in the log of a process that ends in good order."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("stopped")
    with engine(folder, bootstrap_servers, f"stopped_{os.getpid()}", PIPELINE, tm_number=1) as made:
        yield made


def interrupt(daemon: Daemon) -> None:
    """Send what a terminal does at Ctrl-C: SIGINT to the whole process group."""
    assert daemon.pid is not None
    os.killpg(daemon.pid, signal.SIGINT)


def hang_up(daemon: Daemon) -> None:
    """Send what a closed terminal does: the shell and the kernel both send SIGHUP."""
    assert daemon.pid is not None
    for _ in range(2):
        os.killpg(daemon.pid, signal.SIGHUP)


def wait_for(condition: Callable[[], bool], daemon: Daemon) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert daemon.exit_code is None, daemon.log_file.read_text(errors="replace")
        assert time.monotonic() < deadline_s, "nothing happens"
        time.sleep(0.001)


def handles(daemon: Daemon, number: signal.Signals) -> bool:
    """Whether the process has a handler of its own for a signal; Python has one for SIGINT only."""
    return daemon.pid is not None and has_set(daemon.pid, "SigCgt", number)


def has_set(pid: int, kind: str, number: signal.Signals) -> bool:
    """Whether a process catches a signal (`SigCgt`), or ignores it (`SigIgn`)."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{kind}:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def wait_for_first_line(daemon: Daemon) -> None:
    """Wait until the command itself has begun. Before, it is Python that a signal meets."""
    wait_for(lambda: handles(daemon, signal.SIGTERM), daemon)


def jvms(daemon: Daemon) -> list[int]:
    """Return Spark's JVMs, or the scripts that are about to become one."""
    assert daemon.pid is not None
    found = []
    for pid in session_members(daemon.pid):
        with suppress(OSError):
            if SPARK in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def has_kafka_client(daemon: Daemon) -> bool:
    """Whether the process has a thread of librdkafka."""
    with suppress(OSError):
        for name in Path(f"/proc/{daemon.pid}/task").glob("*/comm"):
            if name.read_text().startswith("rdk:"):
                return True
    return False


def has_logged(daemon: Daemon, text: str) -> bool:
    return text in daemon.log_file.read_text(errors="replace")


def assert_ended(daemon: Daemon, exit_code: int = 0) -> None:
    """Wait until it has ended with this code and nothing of its session is left."""
    is_gone = daemon.wait(TIMEOUT_S)
    log = daemon.log_file.read_text(errors="replace")
    assert (daemon.exit_code, is_gone) == (exit_code, True), log
    assert not any(word in log for word in COMPLAINTS), log


def sweep(start: Callable[[], Daemon], is_up: Callable[[Daemon], bool], moments: int) -> None:
    """Start it, and once more for each of the moments up to when it is up, to be stopped there."""
    daemon = start()
    wait_for_first_line(daemon)
    began_s = time.monotonic()
    wait_for(lambda: is_up(daemon), daemon)
    duration_s = time.monotonic() - began_s
    hang_up(daemon)
    assert_ended(daemon)
    for number in range(moments):
        daemon = start()
        wait_for_first_line(daemon)
        time.sleep(duration_s * number / moments)
        (Daemon.terminate, interrupt, hang_up)[number % 3](daemon)
        assert_ended(daemon)


@pytest.fixture
def moments(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--moments", None) or MOMENTS)


@pytest.mark.timeout(3600)
def test_task_manager_that_is_stopped_while_it_starts(job: Engine, moments: int) -> None:
    """Once it ended with 130 and left a JVM forever, which had not found PySpark's folder."""
    sweep(lambda: job.start_task_manager(0), lambda it: has_logged(it, "TaskManager runs"), moments)


@pytest.mark.timeout(3600)
def test_job_manager_that_is_stopped_while_it_starts(job: Engine, moments: int) -> None:
    sweep(job.start_job_manager, lambda it: has_logged(it, "JobManager leads"), moments)


def test_jvm_does_not_end_with_the_terminal_before_its_task_manager(job: Engine) -> None:
    daemon = job.start_task_manager(0)
    wait_for(lambda: has_logged(daemon, "TaskManager runs"), daemon)
    (jvm,) = jvms(daemon)
    assert has_set(jvm, "SigIgn", signal.SIGHUP)
    hang_up(daemon)
    assert_ended(daemon)


def test_second_signal_while_spark_starts_ends_at_once_and_the_jvm_follows(job: Engine) -> None:
    daemon = job.start_task_manager(0)
    wait_for(lambda: bool(jvms(daemon)), daemon)
    daemon.terminate()
    # Noted: from now on, it has its default effect.
    wait_for(lambda: not handles(daemon, signal.SIGTERM), daemon)
    daemon.terminate()
    assert_ended(daemon, -signal.SIGTERM)


def test_stop_while_no_kafka_answers(job: Engine) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        config = job.write_config("elsewhere", server_port=nobody.getsockname()[1])
        daemon = job.start_task_manager(0, config_file=config)
        wait_for(lambda: has_kafka_client(daemon), daemon)
        daemon.terminate()
        assert_ended(daemon)
