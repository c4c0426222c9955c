"""kafka-docker.sh, against a stand-in `docker` that records how it is called."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_pipeline.admin.broker.properties import BrokerNode, server_properties

_ROOT = Path(__file__).parents[2]
_COMPOSE = "compose --project-name kafka-pipeline --file docker-compose.yaml --profile cluster"

_STAND_IN = """\
#!/bin/sh
case "$*" in
  "compose version") exit ${NO_COMPOSE:-0} ;;
  info) exit ${NO_ENGINE:-0} ;;
esac
printf '%s\\n' "$*" >> "$CALLS"
case "$*" in
  *" up "*) env | grep '^KAFKA_' | sort >> "$CALLS" ;;
  *" ps --all --quiet "*) echo "$SURPLUS" ;;
  *" ps --status running --quiet") echo "$RUNNING" ;;
esac
"""


class Script:
    """Runs kafka-docker.sh with the stand-in on the PATH."""

    def __init__(self, folder: Path) -> None:
        self._calls = folder / "calls"
        docker = folder / "docker"
        docker.write_text(_STAND_IN)
        docker.chmod(0o755)
        self.environ = {"PATH": f"{folder}:/usr/bin:/bin", "CALLS": str(self._calls)}

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [_ROOT / "kafka-docker.sh", *arguments],
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def test_the_third_line_sets_the_number_of_brokers() -> None:
    assert (_ROOT / "kafka-docker.sh").read_text().splitlines()[2] == "NUM_BROKER=1"
    assert os.access(_ROOT / "kafka-docker.sh", os.X_OK)


def test_start_brings_up_one_broker_and_says_where(script: Script) -> None:
    run = script.run("start")

    assert run.returncode == 0, run.stderr
    assert run.stdout == "Kafka runs at 127.0.0.1:9092\n"
    assert f"{_COMPOSE} up --detach --wait broker-1" in script.calls
    assert "KAFKA_REPLICAS=1" in script.calls
    assert "KAFKA_ADVERTISED_HOST=127.0.0.1" in script.calls


@pytest.mark.parametrize("option", ["-bn=7", "--broker_number=7"])
def test_start_takes_the_number_of_brokers(script: Script, option: str) -> None:
    run = script.run("start", option)

    assert run.returncode == 0, run.stderr
    names = " ".join(f"broker-{number}" for number in range(1, 8))
    assert f"{_COMPOSE} up --detach --wait {names}" in script.calls
    assert run.stdout.rstrip().endswith("127.0.0.1:9098")


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2)])
def test_replicas_follow_the_number_of_brokers(
    script: Script, brokers: int, replicas: int, in_sync: int
) -> None:
    script.run("start", f"-bn={brokers}")

    assert f"KAFKA_REPLICAS={replicas}" in script.calls
    assert f"KAFKA_IN_SYNC_REPLICAS={in_sync}" in script.calls


def test_fewer_brokers_than_before_removes_the_others(script: Script) -> None:
    run = script.run("start", "-bn=5", SURPLUS="0123abcd")

    assert run.returncode == 0, run.stderr
    assert f"{_COMPOSE} rm --stop --force broker-6 broker-7" in script.calls


@pytest.mark.parametrize("number", ["0", "8", "10", "-1", "two", "", "1.5", "1 2"])
def test_a_wrong_number_is_refused(script: Script, number: str) -> None:
    run = script.run("start", f"-bn={number}")

    assert run.returncode == 2
    assert f"must be 1 to 7, not '{number}'" in run.stderr
    assert script.calls == []


@pytest.mark.parametrize(
    "arguments", [(), ("restart",), ("start", "stop"), ("start", "--delete-data"), ("-f",)]
)
def test_wrong_arguments_are_refused(script: Script, arguments: tuple[str, ...]) -> None:
    run = script.run(*arguments)

    assert run.returncode == 2
    assert run.stderr
    assert script.calls == []


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_needs_no_docker(tmp_path: Path, option: str) -> None:
    run = Script(tmp_path).run(option, NO_ENGINE="1", NO_COMPOSE="1")

    assert run.returncode == 0
    assert run.stdout.startswith("Usage:")


def test_stop_keeps_the_volumes_unless_told(script: Script) -> None:
    assert script.run("stop").returncode == 0
    assert script.run("stop", "--delete-data").returncode == 0

    assert script.calls == [f"{_COMPOSE} down", f"{_COMPOSE} down --volumes"]


def test_status_tells_by_its_exit_code(script: Script) -> None:
    assert script.run("status", RUNNING="0123abcd").returncode == 0
    assert script.run("status").returncode == 3


def test_an_address_of_this_host_is_advertised(script: Script) -> None:
    run = script.run("start", KAFKA_ADVERTISED_HOST="192.168.1.20")

    assert run.stdout == "Kafka runs at 192.168.1.20:9092\n"
    assert "KAFKA_ADVERTISED_HOST=192.168.1.20" in script.calls


def test_localhost_is_an_address_too(script: Script) -> None:
    run = script.run("start", KAFKA_ADVERTISED_HOST="localhost")

    assert run.stdout == "Kafka runs at 127.0.0.1:9092\n"


def test_a_name_cannot_be_advertised(script: Script) -> None:
    run = script.run("start", KAFKA_ADVERTISED_HOST="kafka.example.org")

    assert run.returncode == 2
    assert "'kafka.example.org'" in run.stderr


@pytest.mark.parametrize(
    ("missing", "message"),
    [("NO_ENGINE", "engine does not answer"), ("NO_COMPOSE", "no compose")],
)
def test_what_is_missing_of_docker_is_named(script: Script, missing: str, message: str) -> None:
    run = script.run("start", **{missing: "1"})

    assert run.returncode == 3
    assert message in run.stderr
    assert script.calls == []


def test_a_missing_docker_is_named(script: Script, tmp_path: Path) -> None:
    # What the script itself needs, and no docker.
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "dirname", "env"):
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)

    run = script.run("start", PATH=str(tools))

    assert run.returncode == 3
    assert "no docker command" in run.stderr


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((_ROOT / "docker-compose.yaml").read_text())
    return loaded


def test_the_compose_project_has_a_name_of_its_own(compose: dict[str, Any]) -> None:
    assert compose["name"] == "kafka-pipeline"
    assert not any("container_name" in service for service in compose["services"].values())


def test_seven_brokers_share_one_quorum_and_nothing_else(compose: dict[str, Any]) -> None:
    services = compose["services"]
    settings = [service["environment"] for service in services.values()]
    host = "${KAFKA_ADVERTISED_HOST:-127.0.0.1}"

    assert list(services) == [f"broker-{number}" for number in range(1, 8)]
    assert [s["KAFKA_NODE_ID"] for s in settings] == list(range(1, 8))
    assert {s["KAFKA_CONTROLLER_QUORUM_VOTERS"] for s in settings} == {"1@broker-1:9093"}
    assert [s["KAFKA_PROCESS_ROLES"] for s in settings] == ["broker,controller"] + ["broker"] * 6
    assert ["CONTROLLER://" in s["KAFKA_LISTENERS"] for s in settings] == [True] + [False] * 6
    (cluster_id,) = {s["CLUSTER_ID"] for s in settings}
    assert len(base64.urlsafe_b64decode(cluster_id + "==")) == 16
    for number, (name, service) in enumerate(services.items(), start=1):
        port = 9091 + number
        assert service["image"] == "${KAFKA_IMAGE:-apache/kafka:4.2.1}"
        assert service["ports"] == [f"{host}:{port}:9092"]
        assert service["volumes"] == [f"data-{number}:/var/lib/kafka/data"]
        assert service["environment"]["KAFKA_ADVERTISED_LISTENERS"] == (
            f"INTERNAL://{name}:19092,EXTERNAL://{host}:{port}"
        )
        assert service.get("profiles") == (None if number == 1 else ["cluster"])
        assert "healthcheck" in service
    assert set(compose["volumes"]) == {f"data-{number}" for number in range(1, 8)}


def test_containers_have_the_settings_of_the_local_kafka(compose: dict[str, Any]) -> None:
    """Records older than a week were deleted, read or not, and so were offsets."""
    node = BrokerNode(1, 9092, 9093)
    lines = server_properties(node, [node], Path("/var/lib/kafka/data")).splitlines()
    local = dict(line.split("=", 1) for line in lines)
    of_the_network = ("process.", "node.", "controller.", "listener", "advertised.")
    # kafka-docker.sh sets these two by the number of brokers.
    by_number = ("replication.factor", "min.isr", "min.insync.replicas")
    expected = {
        f"KAFKA_{name.upper().replace('.', '_')}": value
        for name, value in local.items()
        if not name.startswith(of_the_network) and not name.endswith(by_number)
    }
    assert len(expected) > 8
    for service in compose["services"].values():
        settings = {name: str(value) for name, value in service["environment"].items()}
        assert {name: settings.get(name) for name in expected} == expected
