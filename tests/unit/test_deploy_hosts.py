"""The units of deploy/systemd/: their commands exist, and they fit what the daemons do."""

from __future__ import annotations

import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from kafka_pipeline.admin.daemons import command_path
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError, SupersededError, UnavailableError
from tests.docs.commands import check_command

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
FILES = ["taskmanager@.service", "jobmanager.service"]
ENVIRONMENT = "/opt/pipeline/current/bin/"
SMALL_CONFIG = (
    "server_ip: a\nserver_port: 1\ntm_number: 1\nparallelism: 1\nreplication_factor: 1\n"
    "source_topic: a\nsink_topic: b\n"
)


def service(name: str) -> dict[str, str]:
    parser = RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNITS / name)
    return dict(parser["Service"])


def test_these_are_all_units() -> None:
    assert {path.name for path in UNITS.iterdir()} == {*FILES}


@pytest.mark.parametrize("name", FILES)
def test_command_of_a_unit_exists_with_its_arguments(name: str) -> None:
    command = service(name)["ExecStart"]
    assert command.startswith(ENVIRONMENT)
    words = command.removeprefix(ENVIRONMENT).replace("%i", "0").replace("${THREADS}", "4")
    check_command(words.split())


@pytest.mark.parametrize("name", FILES)
def test_unit_restarts_after_all_errors_but_those_that_forbid_it(name: str) -> None:
    found = service(name)
    assert found["Restart"] == "on-failure"
    never = {str(error.exit_code) for error in (ConfigError, SupersededError)}
    assert set(found["RestartPreventExitStatus"].split()) == never
    assert str(UnavailableError.exit_code) not in never


def test_task_manager_has_the_time_to_commit_and_workers_that_live_as_long(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(SMALL_CONFIG)
    config = load_config(tmp_path / "config.yaml")
    found = service(FILES[0])
    assert int(found["TimeoutStopSec"]) * 1000 > 11 * config.heartbeat_interval_ms
    assert found["KillMode"] == "mixed"
    assert found["OOMPolicy"] == "continue"


def test_task_manager_may_have_the_threads_of_many_tasks() -> None:
    tasks, brokers = 1000, 9
    assert int(service(FILES[0])["TasksMax"]) > 90 + tasks * (3 + brokers)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_knows_all_settings_of_the_units(tmp_path: Path) -> None:
    commands = f"{command_path('pipeline').parent}/"  # elsewhere on this machine
    copies = []
    for name in FILES:
        text = (UNITS / name).read_text().replace(ENVIRONMENT, commands)
        copies.append(tmp_path / name.replace("@", "@0"))
        copies[-1].write_text(text)
    run = subprocess.run(
        ["systemd-analyze", "verify", *copies], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout + run.stderr) == (0, "")
