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
    run.wait_for("dev           | applied: runs after")

    change(code, "with_value(balance)", "with_value(-balance)")
    change(file, "limit: 500", "limitt: 500")
    run.wait_for("dev           | not applied: what ran before goes on")
    assert "limitt" in run.output.partition("| saved: ")[2]
    # Both come with the next save that is right.
    change(file, "limitt: 500", "limit: 600")
    run.wait_for("PipelineThreads start with it")
    # What is saved while they start again is not what was checked.
    change(code, "with_value(-balance)", "with_value(-balance")
    run.wait_for("dev           | applied: runs after", times=2)
    run.wait_for("SyntaxError")

    deposits = '{"key": "ann", "value": 550}\n{"key": "ann", "value": 5}'
    topic = ("--value", "integer")
    pipeline("topic", "write", str(config), "source_topic", *topic, given=deposits)
    read = ("topic", "read", str(config), "sink_topic", *topic, "--follow", "--limit", "2")
    assert [line.split()[-1] for line in pipeline(*read).splitlines()] == ["-550", "-555"]

    assert "555" in pipeline("state", "get", str(config), "Balance", "ann")

    # One Spark all the time: the worker alone starts again, with the state that it has.
    change(code, "with_value(-balance", "with_value(2 * balance)")
    run.wait_for("dev           | applied: runs after", times=3)
    pipeline("topic", "write", str(config), "source_topic", *topic, given=deposits)
    read = (*read[:-1], "4")
    assert [line.split()[-1] for line in pipeline(*read).splitlines()][-1] == "2220"
    assert run.output.count("TaskManager runs") == 1

    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(timeout=60) == 130, run.output
    assert run.processes() == []
