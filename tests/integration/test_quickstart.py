"""The quickstart as a user runs it: real records, a real Kafka, a real kill."""

from __future__ import annotations

import io
import re
import signal
from pathlib import Path

import pandas
import pytest

from kafka_pipeline.admin.quickstart.flights import fetch_flights, read_flights
from kafka_pipeline.admin.quickstart.run import expect
from tests.command_run import CommandRun

pytestmark = [pytest.mark.integration, pytest.mark.long]


MODULE = "kafka_pipeline.admin.quickstart"


def test_every_record_is_right_although_a_task_manager_is_killed(
    tmp_path: Path, runs: list[CommandRun]
) -> None:
    run = CommandRun.of_module(tmp_path, MODULE)
    runs.append(run)
    assert run.process.wait(timeout=240) == 0, run.output
    assert "$ kill -9 " in run.output
    assert re.search(r"the console: http://127\.0\.0\.1:\d+/", run.output)
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
    tmp_path: Path, runs: list[CommandRun], moment: str, number: signal.Signals
) -> None:
    run = CommandRun.of_module(tmp_path, MODULE)
    runs.append(run)
    run.wait_for(moment)
    # To its own process only, as `kill` does; the daemons have sessions of their own anyway.
    run.process.send_signal(number)
    assert run.process.wait(timeout=60) == 128 + number, run.output
    assert run.processes() == []
    assert list(run.temp_dir.iterdir()) == []
