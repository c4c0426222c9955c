"""`pipeline dev` as a user runs it: files are broken and mended while it runs, then Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from kafka_pipeline.admin.daemons import command_path
from kafka_pipeline.admin.samples import Template, write_samples
from tests.command_run import CommandRun

pytestmark = [pytest.mark.integration, pytest.mark.long]


def pipeline(*arguments: str, given: str = "") -> str:
    return subprocess.run(
        [str(command_path("pipeline")), *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


def change(file: Path, former: str, instead: str) -> None:
    text = file.read_text()
    assert former in text
    file.write_text(text.replace(former, instead))


def test_what_is_saved_runs_unless_it_is_wrong(tmp_path: Path, runs: list[CommandRun]) -> None:
    folder = tmp_path / "bank"
    write_samples(folder, Template.CLASS)
    config, code, file = (
        folder / name for name in (".pipeline-dev.yaml", "balances.py", "pipeline.yaml")
    )
    run = CommandRun(tmp_path, str(command_path("pipeline")), "dev", str(file))
    runs.append(run)
    run.wait_for("task=Balance_1 task_manager=0")

    change(code, "with_value(balance)", "with_value(-balance)")
    change(file, "limit: 500", "limitt: 500")
    run.wait_for("dev           | not applied: what ran before goes on")
    assert "limitt" in run.output.partition("| saved: ")[2]
    # Both come with the next save that is right.
    change(file, "limitt: 500", "limit: 600")
    run.wait_for("the job runs version 1")
    # What is saved while the TaskManager starts again is not what was checked.
    change(code, "with_value(-balance)", "with_value(-balance")
    run.wait_for("dev           | applied")
    run.wait_for("TaskManager is up again")
    run.wait_for("SyntaxError")

    deposits = '{"key": "ann", "value": 550}\n{"key": "ann", "value": 5}'
    topic = ("--value", "integer")
    pipeline("topic", "write", str(config), "source_topic", *topic, given=deposits)
    read = ("topic", "read", str(config), "sink_topic", *topic, "--follow", "--limit", "2")
    assert [line.split()[-1] for line in pipeline(*read).splitlines()] == ["-550", "-555"]

    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(timeout=60) == 130, run.output
    assert run.processes() == []
