"""How the end of a worker's process becomes known: signal, exit code, stack, and marks."""

from __future__ import annotations

import ctypes
import io
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kafka_pipeline.common.protocol.suspects import CallKind, Death, Suspect
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.deaths import Ended, death_of
from kafka_pipeline.taskmanager.marks import MarkedCall, Marks
from kafka_pipeline.taskmanager.supervision import WorkerEndedError, supervised

TASK = TaskId("Shop", 1)
TIMEOUT_S = 20
CALL = Suspect(CallKind.PROCESS, "orders", 1, 1200, 1200)


def ends(*hows: Callable[[], None]) -> list[tuple[Death, bool]]:
    """Return how worker processes end that are in a call and then do this, one after another."""
    deaths: list[tuple[Death, bool]] = []

    def work(marks: Marks) -> None:
        mark = marks.of(TASK)()
        mark.set(CallKind.INIT)
        mark.clear()
        mark.set(CallKind.PROCESS, "orders", 1, 1200, 1200)
        hows[len(deaths)]()

    supervised(work, str, lambda pid, death, goes_on: deaths.append((death, goes_on)))
    return deaths


def nothing() -> None:
    pass


def segfault() -> None:
    ctypes.string_at(0)


def test_segmentation_fault_is_named_with_the_line_that_called_native_code() -> None:
    ((death, goes_on),) = ends(segfault, nothing)
    assert death.how.startswith("SIGSEGV in native code of Python (ctypes/__init__.py:"), death.how
    assert "called from tests/unit/taskmanager/test_supervision.py" in death.how
    assert death.how.endswith(" in segfault")
    assert death.calls == ((TASK, CALL),)
    assert death.place == "Shop_1 in `process` of orders[1]@1200"
    assert goes_on


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (lambda: os._exit(3), "exit code 3"),
        (lambda: os._exit(0), "exit code 0"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL from outside; it had up to"),
        (os.abort, "SIGABRT in native code"),
    ],
)
def test_other_ends_are_told_apart(how: Callable[[], None], why: str) -> None:
    ((death, _),) = ends(how, nothing)
    assert death.how.startswith(why)
    assert death.calls == ((TASK, CALL),)


def test_process_that_ends_soon_again_is_not_replaced_a_second_time() -> None:
    deaths: list[bool] = []
    with pytest.raises(WorkerEndedError, match="exit code 3"):
        supervised(lambda _: os._exit(3), str, lambda pid, death, on: deaths.append(on))
    assert deaths == [True, False]


def test_exception_of_the_work_is_no_death() -> None:
    def work(_: Marks) -> None:
        raise ValueError("no broker")

    with pytest.raises(WorkerEndedError, match="no broker"):
        supervised(work, str, lambda *_: pytest.fail("it did not die"))


@pytest.mark.parametrize("stdout", [None, "closed"])
def test_end_of_the_work_is_known_whatever_user_code_did_to_standard_output(
    stdout: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the process would go on with the code of its parent."""

    def work(_: Marks) -> None:
        monkeypatch.setattr(sys, "stdout", io.StringIO() if stdout else None)
        if stdout:
            sys.stdout.close()

    supervised(work, str, lambda *_: pytest.fail("it did not die"))


@pytest.mark.parametrize("fails", [False, True])
def test_processes_that_user_code_has_started_end_with_the_work(fails: bool) -> None:
    reading, writing = os.pipe()

    def work(_: Marks) -> None:
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()
        if fails:
            raise ValueError("no broker")

    with suppress(WorkerEndedError):
        supervised(work, str, lambda *_: pytest.fail("it did not die"))
    os.close(writing)
    # All copies of the other end are closed.
    assert select.select([reading], [], [], TIMEOUT_S)[0]
    os.close(reading)


def test_only_calls_on_the_thread_that_got_the_signal_count() -> None:
    stack = (
        "Fatal Python error: Aborted\n\nThread 0x000000000000000a (most recent call first):\n"
        '  File "/x/other.py", line 1 in other\n\n'
        "Current thread 0x000000000000000b (most recent call first):\n"
        '  File "/x/shop.py", line 12 in price\n  File "/x/shop.py", line 30 in process\n\n'
        "Extension modules: numpy\n"
    )
    marks = [MarkedCall(TASK, CALL, 0xA), MarkedCall(TaskId("Shop", 2), CALL, 0xB)]
    death = death_of(Ended(signal.SIGABRT, 0, ran_out=False), stack, marks)
    assert death.how == "SIGABRT in native code, called from /x/shop.py:12 in price"
    assert [task for task, _ in death.calls] == [TaskId("Shop", 2)]


def test_end_for_want_of_memory_is_told_apart() -> None:
    death = death_of(Ended(signal.SIGKILL, 30_100_000_000, ran_out=True), "", [])
    assert death.how == "the kernel ended it, as memory ran out; it had up to 30.1 GB"
    assert death.calls == ()


def test_marks_of_a_new_start_replace_those_of_the_last() -> None:
    marks = Marks()
    marks.of(TASK)().set(CallKind.CLOSE)
    marks.of(TaskId("Other", 0))().set(CallKind.PROCESS, "in", 0, 1, 5, thread=7)
    new_mark = marks.of(TASK)
    new_mark()
    new_mark().set(CallKind.INIT)
    found = {(mark.task, mark.call) for mark in marks.read()}
    assert found == {
        (TaskId("Other", 0), Suspect(CallKind.PROCESS, "in", 0, 1, 5)),
        (TASK, Suspect(CallKind.INIT)),
    }


@pytest.mark.parametrize("raises", [False, True])
def test_fork_of_user_code_does_not_come_back_to_the_engine(raises: bool, tmp_path: Path) -> None:
    """It would process records a second time."""

    def work(marks: Marks) -> None:
        marks.watch_forks()
        mark = marks.of(TASK)()
        mark.set(CallKind.PROCESS, "orders", 1, 1200, 1200)
        try:
            child = os.fork()  # user code
            if child == 0 and raises:
                sys.exit("the work of the fork is done")
        finally:
            mark.clear()
        if child:
            (tmp_path / "status").write_text(str(os.waitpid(child, 0)[1]))
        (tmp_path / str(os.getpid())).touch()

    supervised(work, str, lambda *_: pytest.fail("it did not die"))
    assert len(list(tmp_path.iterdir())) == 2  # the status, and the name of one process
    assert os.waitstatus_to_exitcode(int((tmp_path / "status").read_text())) == 1


def test_what_code_prints_is_there_at_once() -> None:
    """A pipe is buffered by Python, which loses it if the process is ended."""
    code = (
        "import os\n"
        "from kafka_pipeline.taskmanager.supervision import supervised\n"
        "supervised(lambda _: (print('from a processor'), os._exit(3)), str, lambda *_: None)\n"
    )
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, env=buffered, check=False)
    assert "from a processor" in ended.stdout
