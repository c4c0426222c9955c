"""The leftovers of a test run that loses a process, or takes too long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.leftovers import is_worker, left_to_the_run
from tests.leftovers_guard import VARIABLE, kill_all, marked
from tests.tiers import long_but_the_first

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240
CONFTEST = """
import os, pathlib
from tests.leftovers import add_option, release_guard, start_guard
from tests.leftovers import is_worker, left_to_the_run
from tests.leftovers_guard import VARIABLE

def pytest_addoption(parser):
    add_option(parser)

def pytest_configure(config):
    start_guard(config)
    if not hasattr(config, "workerinput"):
        pathlib.Path("mark").write_text(os.environ[VARIABLE])

def pytest_unconfigure(config):
    release_guard(config)
"""
OTHERS = """
def test_of_another_file():
    pass
"""
STARTS_A_BROKER = """
import os, pathlib, signal, time
from kafka_pipeline.admin.broker.processes import BrokerProcess

def test_that_starts_a_process_in_a_session_of_its_own():
    BrokerProcess.spawn(["/bin/sleep", "1000"], log_file=pathlib.Path("log"))
"""
FORKS = """
import os, signal, time
from tests.leftovers import Guard

guard = Guard(0.0)
forked = os.fork()
if forked == 0:
    time.sleep(1000)
guard.release()
os.kill(forked, signal.SIGKILL)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc shows the marks")


def run(folder: Path, last_line: str, *options: str) -> tuple[int, str]:
    """Run a test that starts a process and then does something; return exit code and output."""
    (folder / "pytest.ini").touch()
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_a.py").write_text(f"{STARTS_A_BROKER}    {last_line}\n")
    for letter in "bcd":
        (folder / f"test_{letter}.py").write_text(OTHERS)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout


def options_of_test_sh() -> list[str]:
    """Return how test.sh runs pytest."""
    (line,) = (each for each in (ROOT / "test.sh").read_text().splitlines() if " --dist " in each)
    return line.removeprefix(".venv/bin/pytest ").partition(' "$@"')[0].split()


def assert_nothing_is_left(folder: Path) -> None:
    assert list(marked((folder / "mark").read_text())) == []


@pytest.mark.parametrize("number", long_but_the_first(["SIGABRT", "SIGKILL"]))
def test_lost_process_ends_the_run_as_failed(tmp_path: Path, number: str) -> None:
    last_line = f"os.kill(os.getpid(), signal.{number})"
    exit_code, output = run(tmp_path, last_line, *options_of_test_sh())
    assert exit_code != 0, output
    assert "crashed while running" in output
    assert_nothing_is_left(tmp_path)


def test_nothing_is_left_of_a_run_without_workers_either(tmp_path: Path) -> None:
    exit_code, output = run(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)", "-n", "0")
    assert exit_code == -9, output
    assert_nothing_is_left(tmp_path)


@pytest.mark.parametrize("workers", long_but_the_first(["2", "0"]))
def test_run_that_takes_too_long_ends_as_failed(tmp_path: Path, workers: str) -> None:
    exit_code, output = run(tmp_path, "time.sleep(1000)", "-n", workers, "--run-limit-s", "10")
    assert exit_code == pytest.ExitCode.INTERRUPTED, output
    assert "have not ended within 10 s" in output
    assert_nothing_is_left(tmp_path)


def test_what_a_test_forgets_ends_with_the_run(tmp_path: Path) -> None:
    exit_code, output = run(tmp_path, "pass", "-n", "0")
    assert exit_code == 0, output
    assert_nothing_is_left(tmp_path)


def test_what_is_left_to_the_run_has_the_marks_above_its_worker(
    pytestconfig: pytest.Config,
) -> None:
    marks = os.environ[VARIABLE]
    with left_to_the_run(pytestconfig):
        left = os.environ[VARIABLE]
    assert marks.startswith(left)
    assert marks.count("<") - left.count("<") == is_worker(pytestconfig)
    assert os.environ[VARIABLE] == marks


def test_process_that_was_forked_does_not_keep_the_guard() -> None:
    subprocess.run([sys.executable, "-c", FORKS], cwd=ROOT, timeout=TIMEOUT_S, check=True)


def test_guard_ends_though_a_process_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = "<that stays>"
    process = subprocess.Popen(["/bin/sleep", "1000"], env={VARIABLE: mark})
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda _pid, _number: None)
        kill_all(mark, 0.2)
    process.kill()
    process.wait()
    said = capsys.readouterr().err
    assert "still there 0 s after it was killed" in said
    assert f"process {process.pid}, /bin/sleep 1000" in said
