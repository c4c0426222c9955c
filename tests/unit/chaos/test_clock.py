"""The wall clock that jumps, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLOCK = Path(__file__).parents[2] / "chaos" / "clock"
DAY_S = 86_400

LOOK = """
import sys, time
before = time.clock_gettime(time.CLOCK_REALTIME)
looks = [
    time.time(),
    time.time_ns() / 1e9,
]
"""


def run(script: str, clock_file: Path | None, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(CLOCK)}
    environment.pop("CHAOS_CLOCK_FILE", None)
    if clock_file is not None:
        environment["CHAOS_CLOCK_FILE"] = str(clock_file)
    command = [sys.executable, "-W", "error", "-c"]
    done = subprocess.run(
        [*command, script, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def clock_file(tmp_path: Path) -> Path:
    return tmp_path / "clock"


def shifts(clock_file: Path | None) -> set[int]:
    """Return by how many days each clock is wrong."""
    script = LOOK + f"print(*{{round((look - before) / {DAY_S}) for look in looks}})"
    return {int(shift) for shift in run(script, clock_file).split()}


@pytest.mark.parametrize("days", [3, -3])
def test_wall_clock_is_shifted(clock_file: Path, days: int) -> None:
    clock_file.write_text(str(days * DAY_S))
    assert shifts(clock_file) == {days}


def test_nothing_is_shifted_without_the_variable() -> None:
    assert shifts(None) == {0}


@pytest.mark.parametrize("content", [None, "", "soon", "nan", "inf"])
def test_file_without_a_number_shifts_nothing(clock_file: Path, content: str | None) -> None:
    if content is not None:
        clock_file.write_text(content)
    assert shifts(clock_file) == {0}


def test_monotonic_clock_is_left_alone(clock_file: Path) -> None:
    clock_file.write_text(str(DAY_S))
    script = (
        "import time; time.time(); "
        "print(time.monotonic() - time.clock_gettime(time.CLOCK_MONOTONIC) < 3600)"
    )
    assert run(script, clock_file) == "True"


CHANGE = f"""
import sys, time
from pathlib import Path
def days():
    return round((time.time() - time.clock_gettime(time.CLOCK_REALTIME)) / {DAY_S})
before = days()
Path(sys.argv[1]).write_text("{5 * DAY_S}")
while days() == before:
    pass
print(before, days())
"""


def test_running_process_takes_a_change_over(clock_file: Path) -> None:
    clock_file.write_text("0")
    assert run(CHANGE, clock_file, str(clock_file)) == "0 5"


FORK = f"""
import os, sys, time
from pathlib import Path
time.monotonic = None
time.time()
Path(sys.argv[1]).write_text("{5 * DAY_S}")
if os.fork() == 0:
    print(round((time.time() - time.clock_gettime(time.CLOCK_REALTIME)) / {DAY_S}))
else:
    os.wait()
"""


def test_forked_child_reads_the_file_at_once(clock_file: Path) -> None:
    clock_file.write_text("0")
    assert run(FORK, clock_file, str(clock_file)) == "5"
