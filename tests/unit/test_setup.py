"""scripts/setup.sh, with a stand-in for Python that installs nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.waiting import wait_until

_ROOT = Path(__file__).parents[2]
_FILES = ("locks/build.lock", "pyproject.toml", "streams/spark/launch.sh")

_STAND_IN = f"""\
#!/bin/sh
case "$*" in
  --version) echo Python 3.12.0 ;;
  *fcntl*) exec {sys.executable} "$@" ;;
  "-m venv "*) mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$0" .venv/bin/pip ;;
  "-m pip "*) env >> environment ;;
esac
case "$*" in
  "-m pip wheel "*)
    echo $$ > building
    while [ ! -e go_on ]; do sleep 0.1; done ;;
  "-m pip install "*/install.txt)
    trap "exit 1" INT # as pip does, which prints a line
    echo $$ >> installing
    while [ ! -e go_on ]; do sleep 0.1; done ;;
esac
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with what setup.sh reads."""
    clone = tmp_path / "clone"
    for name in _FILES:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).touch()
    (clone / "requirements.lock").write_text("pyspark==4.3.0 \\\n    --hash=x\nrich==1.0\n")
    (clone / "scripts").mkdir()
    shutil.copy(_ROOT / "scripts/setup.sh", clone / "scripts")
    (clone / "python").write_text(_STAND_IN)
    (clone / "python").chmod(0o755)
    (clone / "tmp").mkdir()
    return clone


@pytest.fixture
def start(clone: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(**environment: str) -> subprocess.Popen[str]:
        own = {"PYTHON": str(clone / "python"), "TMPDIR": str(clone / "tmp"), **environment}
        process = subprocess.Popen(
            [clone / "scripts/setup.sh"],
            env={"PATH": "/usr/bin:/bin", **own},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell in the background passes on that it is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        return process

    yield run
    (clone / "go_on").touch()
    for process in started:
        process.communicate()


def installs(clone: Path) -> bool:
    return (clone / "building").exists() and (clone / "installing").exists()


def lives(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_ctrl_c_ends_all_that_was_started(clone: Path, start: Start) -> None:
    """The build of the wheel went on, and so did the script until that was done."""
    process = start()
    wait_until(lambda: installs(clone))
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(20) == 130
    builder = int((clone / "building").read_text())
    wait_until(lambda: not lives(builder))
    assert not [*(clone / "tmp").iterdir()]


def test_a_second_set_up_waits_for_the_first(clone: Path, start: Start) -> None:
    """It deleted the environment that the first one was filling."""
    first = start()
    wait_until(lambda: installs(clone))
    second = start()
    assert second.stderr is not None
    assert second.stderr.readline().startswith("another set-up is at work in this folder")
    (clone / "go_on").touch()
    assert (first.wait(20), second.wait(20)) == (0, 0)
    assert len((clone / "installing").read_text().splitlines()) == 1


def test_packages_in_other_folders_do_not_count_as_installed(clone: Path, start: Start) -> None:
    (clone / "go_on").touch()
    elsewhere = {"PYTHONPATH": "/opt/ros/site-packages", "PIP_USER": "1", "PIP_TARGET": "/opt"}
    assert start(**elsewhere).wait(20) == 0
    lines = (clone / "environment").read_text().splitlines()
    assert not {line for line in lines if line.partition("=")[0] in elsewhere}
