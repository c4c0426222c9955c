"""The quickstart as a user runs it: real records, a real Kafka, a real kill."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pandas
import pytest

from admin.quickstart.flights import fetch_flights, read_flights
from admin.quickstart.verdict import expect

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.integration, pytest.mark.slow]


class QuickstartRun:
    """A quickstart with a mark in its environment, which everything that it starts inherits."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._mark = f"QUICKSTART_TEST={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        self.output_file = folder / "output.txt"
        self.temp_dir = folder / "temp"
        self.temp_dir.mkdir()
        with self.output_file.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "admin.quickstart", *options],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(self.temp_dir), name: value},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self.output_file.read_text()

    def wait_for(self, text: str, timeout_s: float = 120) -> None:
        deadline_s = time.monotonic() + timeout_s
        while text not in self.output:
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline_s, self.output
            time.sleep(0.05)

    def processes(self) -> list[int]:
        """Return everything of this run that has not ended."""
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                # A process that ended but was not collected has no environment any more.
                if self._mark.encode() in environ.read_bytes().split(b"\0"):
                    found.append(int(environ.parent.name))
            except OSError:
                continue
        return found


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[list[QuickstartRun]]:
    started: list[QuickstartRun] = []
    yield started
    for run in started:
        for pid in run.processes():
            os.kill(pid, signal.SIGKILL)
        run.process.wait()


def test_every_record_is_right_although_a_task_manager_is_killed(
    tmp_path: Path, runs: list[QuickstartRun]
) -> None:
    run = QuickstartRun(tmp_path)
    runs.append(run)
    assert run.process.wait(timeout=240) == 0, run.output
    assert "$ kill -9 " in run.output
    assert "RIGHT: exactly once and in order." in run.output
    figures = " ".join(run.output.split())
    assert "flights in 336,776 results 327,346" in figures
    assert "dead letters 1,175" in figures
    assert "left out 8,255" in figures
    assert re.search(r"kill -9 [0-9.]+ s until all partitions had results again", figures)
    assert run.processes() == []
    assert list(run.temp_dir.iterdir()) == []


def test_the_answer_that_is_worked_out_is_that_of_pandas() -> None:
    flights = read_flights(fetch_flights())
    airports = pandas.read_csv(io.BytesIO(flights.airports)).set_index("faa")["name"]
    lines = b"\n".join(line for _, line in flights.records)
    table = pandas.read_csv(io.BytesIO(lines), header=None, dtype=str)
    flown = table[table[3].notna()]
    names = flown[13].map(airports).fillna(flown[13])
    expected = expect(flights.outcomes)
    for found, chosen in (
        (expected.counts, flown[8].notna()),
        (expected.dead_letters, flown[8].isna()),
    ):
        assert found == {name.encode(): n for name, n in names[chosen].value_counts().items()}


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("starting Kafka", signal.SIGINT),
        ("$ jobmanager", signal.SIGTERM),
        ("$ kill -9", signal.SIGINT),
    ],
)
def test_an_interrupted_run_leaves_nothing(
    tmp_path: Path, runs: list[QuickstartRun], moment: str, number: signal.Signals
) -> None:
    run = QuickstartRun(tmp_path)
    runs.append(run)
    run.wait_for(moment)
    # To its own process only, as `kill` does; the daemons have sessions of their own anyway.
    run.process.send_signal(number)
    assert run.process.wait(timeout=60) == 128 + number, run.output
    assert run.processes() == []
    assert list(run.temp_dir.iterdir()) == []
