"""Processes that can be told apart and outlive the one that started them."""

from __future__ import annotations

import os
import platform
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pipeline.admin.broker.processes import BrokerProcess


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    command = [sys.executable, "-c", "import signal; print('hello', flush=True); signal.pause()"]
    process = BrokerProcess.spawn(command, log_file=tmp_path / "log")
    yield process
    process.send(signal.SIGKILL)
    assert process.wait(timeout_s=10.0)


def test_a_process_has_a_session_of_its_own(process: BrokerProcess) -> None:
    assert process.is_running()
    assert os.getsid(process.pid) == process.pid


def test_output_is_appended_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for text in ("one", "two"):
        command = [sys.executable, "-c", f"import sys; print({text!r}, file=sys.stderr)"]
        assert BrokerProcess.spawn(command, log_file=log).wait(timeout_s=10.0)

    assert log.read_text() == "one\ntwo\n"


def test_a_killed_child_is_gone_and_no_zombie_stays(process: BrokerProcess) -> None:
    process.send(signal.SIGKILL)

    assert process.wait(timeout_s=10.0)
    assert not process.is_running()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_wait_gives_up_in_time(process: BrokerProcess) -> None:
    assert not process.wait(timeout_s=0.0)


def test_another_process_with_the_same_pid_is_not_the_same(process: BrokerProcess) -> None:
    earlier = BrokerProcess(process.pid, "another time")

    earlier.send(signal.SIGKILL)

    assert not earlier.is_running()
    assert process.is_running()


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="makes a Linux system call"
)
def test_a_process_that_ends_with_several_threads_runs_until_the_last_is_gone(
    tmp_path: Path,
) -> None:
    # The first thread ends, and is a zombie, while the second goes on.
    program = (
        "import ctypes, threading\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "print('ready', flush=True)\n"
        "ctypes.CDLL(None).syscall(60, 0)  # exit, of this thread only\n"
    )
    process = BrokerProcess.spawn([sys.executable, "-c", program], log_file=tmp_path / "log")
    stat = Path(f"/proc/{process.pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "Z":
        pass

    assert process.is_running()

    process.send(signal.SIGKILL)
    assert process.wait(timeout_s=10.0)
