"""What both daemons refuse about a config.yaml, before they look for Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kafka_pipeline.jobmanager.command import app as jobmanager
from kafka_pipeline.taskmanager.command import app as taskmanager
from tests.small_config import SMALL_CONFIG

COMMANDS = {"jobmanager": (jobmanager, ()), "taskmanager": (taskmanager, ("0", "1"))}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        # Other processes would not see it.
        (
            'schema_registry: {url: "mock://orders"}',
            "mock://orders is in the memory of one process",
        ),
        # librdkafka would have taken 1.
        ("kafka: {queued.min.messages: 1_000_000}", "must be a whole number, got 1_000_000"),
    ],
)
def test_daemon_refuses_a_wrong_setting(name: str, line: str, problem: str, tmp_path: Path) -> None:
    app, arguments = COMMANDS[name]
    config = tmp_path / "config.yaml"
    config.write_text(SMALL_CONFIG + line)
    result = CliRunner().invoke(app, [*arguments, str(config)])
    assert result.exit_code == 2
    assert problem in result.output
