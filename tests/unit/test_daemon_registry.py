"""Both daemons refuse a schema registry that other processes would not see."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kafka_pipeline.jobmanager.command import app as jobmanager
from kafka_pipeline.taskmanager.command import app as taskmanager

CONFIG = """
server_ip: "127.0.0.1"
server_port: 9092
tm_number: 1
parallelism: 1
replication_factor: 1
source_topic: orders
sink_topic: totals
schema_registry: {url: "mock://orders"}
"""
COMMANDS = {"jobmanager": (jobmanager, ()), "taskmanager": (taskmanager, ("0", "1"))}


@pytest.mark.parametrize("name", COMMANDS)
def test_daemon_refuses_a_registry_in_memory(name: str, tmp_path: Path) -> None:
    app, arguments = COMMANDS[name]
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    result = CliRunner().invoke(app, [*arguments, str(config)])
    assert result.exit_code == 2
    assert "mock://orders is in the memory of one process" in result.output
