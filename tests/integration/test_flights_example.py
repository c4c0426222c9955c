"""The example of the flights as a user runs it: a real Kafka, two TaskManagers, a real kill."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command_run import CommandRun

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.mark.parametrize("options", [(), ("--sql",)], ids=["topology", "sql"])
def test_three_days_equal_pandas_although_a_task_manager_is_killed(
    options: tuple[str, ...], tmp_path: Path, runs: list[CommandRun]
) -> None:
    run = CommandRun.of_module(tmp_path, "examples.flights", "--days", "3", *options)
    runs.append(run)
    assert run.process.wait(timeout=240) == 0, run.output
    assert "$ kill -9 " in run.output
    assert "RIGHT: every result is there once, and equals that of pandas." in run.output
    figures = " ".join(run.output.split())
    assert "delays 467 pandas says 467" in figures
    assert "enriched flights 2,556 pandas says 2,556" in figures
    assert "late flights 0 pandas says 0" in figures
    # Three days are so few that a partition may have had all its results before the kill.
    assert re.search(
        r"kill -9 ([0-9.]+ s until all partitions had results again"
        r"|no result came to one of the partitions after it)",
        figures,
    )
    assert run.processes() == []
    assert list(run.temp_dir.iterdir()) == []
