"""`pipeline broker`, with a stand-in for Java that listens where Kafka would."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kafka_pipeline.admin.broker import server
from kafka_pipeline.admin.broker.command import broker_app
from kafka_pipeline.admin.broker.jars import BROKER, KAFKA_VERSION, fetch_jars
from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.admin.broker.ports import LOOPBACK, accepts, find_free

_JAVA = '''\
#!{python}
"""Answers as Java, as Kafka's StorageTool and as the Kafka server."""

import os, re, signal, socket, sys

arguments = sys.argv[1:]
if "-version" in arguments:
    print("    java.home = /stand-in")
    print("    java.specification.version = 17")
elif "kafka.tools.StorageTool" in arguments:
    settings = open(arguments[arguments.index("--config") + 1]).read()
    data = re.search("^log.dirs=(.*)$", settings, re.MULTILINE)[1]
    with open(data + "/meta.properties", "w") as meta:
        meta.write("cluster.id=" + arguments[arguments.index("--cluster-id") + 1])
elif os.environ.get("KAFKA_DIES"):
    print("ERROR Exiting Kafka due to a stand-in's mood")
    sys.exit(1)
else:
    settings = open(arguments[-1]).read()
    port = int(re.search(r"^listeners=PLAINTEXT://[0-9.]+:(\\d+)", settings, re.MULTILINE)[1])
    server = socket.create_server(("{loopback}", port))
    print("Kafka Server started", flush=True)
    signal.pause()
'''


class Cli:
    """Runs `pipeline broker` in a folder of its own and on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = find_free(1)

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(broker_app, [*arguments, "--dir", str(self.folder)])

    def start(self, *arguments: str) -> Result:
        return self.run("start", "--port", str(self.port), *arguments)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.run("status", "--json").stdout)
        return status


def cli_without_folder(command: str) -> Result:
    return CliRunner().invoke(broker_app, [command])


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_JAVA.format(python=sys.executable, loopback=LOOPBACK))
    java.chmod(0o755)
    (tmp_path / "cache" / "kafka-pipeline" / BROKER.folder).mkdir(parents=True)
    # The program in place of Java needs no jars.
    (no_jars := tmp_path / "no_jars.sha256").touch()
    monkeypatch.setattr(
        server,
        "fetch_jars",
        lambda jar_set, java: fetch_jars(replace(jar_set, digests=no_jars), java),
    )
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{java.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cli = Cli(tmp_path / "broker")
    yield cli
    cli.run("stop")


def test_start_runs_a_broker_and_says_where(cli: Cli) -> None:
    result = cli.start()

    assert result.exit_code == 0, result.stderr
    assert f"Kafka {KAFKA_VERSION} runs at 127.0.0.1:{cli.port}" in result.stdout
    assert str(cli.folder) in result.stdout
    assert accepts(cli.port)


def test_start_again_changes_nothing(cli: Cli) -> None:
    cli.start()
    before = cli.status()

    for result in (cli.start(), cli.run("start")):
        assert result.exit_code == 0
        assert result.stdout == f"Kafka already runs at 127.0.0.1:{cli.port}\n"
    assert cli.status() == before


@pytest.mark.parametrize("arguments", [("--port", "9"), ("--brokers", "3")])
def test_start_with_something_else_than_what_runs_is_refused(
    cli: Cli, arguments: tuple[str, str]
) -> None:
    cli.start()

    result = cli.run("start", *arguments)

    assert result.exit_code == 3
    assert f"already runs in {cli.folder} with 1 broker from port {cli.port}" in result.stderr


def test_a_port_in_use_is_its_own_error(cli: Cli) -> None:
    with socket.create_server((LOOPBACK, cli.port)):
        result = cli.start()

    assert result.exit_code == 3
    assert f"port {cli.port} of 127.0.0.1 is in use" in result.stderr
    assert "--port" in result.stderr


def test_brokers_need_as_many_ports(cli: Cli) -> None:
    result = cli.run("start", "--port", "65535", "--brokers", "2")

    assert result.exit_code == 2
    assert "leaves no room for 2 brokers" in result.stderr


def test_a_broker_that_dies_shows_its_log(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_DIES", "yes")

    result = cli.start()

    assert result.exit_code == 3
    assert "ended while starting" in result.stderr
    assert "a stand-in's mood" in result.stderr
    assert cli.run("status").exit_code == 3


def test_status_tells_by_its_exit_code(cli: Cli) -> None:
    result = cli.run("status")
    assert (result.exit_code, result.stdout) == (3, f"no Kafka runs in {cli.folder}\n")

    cli.start()
    result = cli.run("status")
    assert result.exit_code == 0
    assert f"broker 1 at port {cli.port}: runs, process " in result.stdout


def test_status_for_programs(cli: Cli) -> None:
    assert cli.status() == {"running": False, "dir": str(cli.folder)}

    cli.start()
    status = cli.status()

    cluster = LocalCluster.find(cli.folder)
    assert cluster is not None
    process = cluster.process(1)
    assert process is not None
    assert status == {
        "running": True,
        "dir": str(cli.folder),
        "bootstrap_servers": f"127.0.0.1:{cli.port}",
        "secure": False,
        "brokers": [
            {
                "id": 1,
                "port": cli.port,
                "tls_port": None,
                "pid": process.pid,
                "log": str(cli.folder / "broker.log"),
            }
        ],
    }


def test_stop_ends_the_broker_and_keeps_its_data(cli: Cli) -> None:
    cli.start()

    result = cli.run("stop")

    assert (result.exit_code, result.stdout) == (0, "Kafka is stopped\n")
    assert not accepts(cli.port)
    assert (cli.folder / "data-1" / "meta.properties").exists()
    assert not (cli.folder / "broker.json").exists()


def test_stop_can_delete_the_data(cli: Cli) -> None:
    cli.start()

    result = cli.run("stop", "--delete-data")

    assert result.exit_code == 0
    assert entries(cli.folder) == [".lock"]


def test_deleting_the_data_leaves_the_lock_to_those_who_wait(cli: Cli) -> None:
    cli.start()
    lock = cli.folder / ".lock"
    before = lock.stat().st_ino

    assert cli.run("stop", "--delete-data").exit_code == 0

    assert lock.stat().st_ino == before


def test_deleting_the_data_leaves_what_is_not_the_brokers(cli: Cli, tmp_path: Path) -> None:
    cli.start()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    theirs = ("data-set.csv", "data-2.csv", "server-mine.properties", "broker-notes.log")
    for name in (*theirs, "server-7.properties", "server-8.properties"):
        (cli.folder / name).touch()
    (cli.folder / "data-archive").mkdir()
    (cli.folder / "data-3").mkdir()
    (cli.folder / "data-7").symlink_to(elsewhere)
    (cli.folder / "data-8").touch()
    (cli.folder / "broker.crash").mkdir()
    before = entries(cli.folder)

    result = cli.run("stop", "--delete-data")

    assert result.exit_code == 0, result.stderr
    ours = {"data-1", "server-1.properties", "broker.log", "broker.json"}
    assert entries(cli.folder) == sorted({*before} - ours)
    assert entries(elsewhere) == ["precious"]


def test_nothing_is_deleted_where_no_kafka_was(cli: Cli) -> None:
    cli.folder.mkdir()
    (cli.folder / "data-1").mkdir()
    theirs = ("broker.log", "broker-1.log", "server-2.properties", "broker.crash")
    for name in theirs:
        (cli.folder / name).touch()

    result = cli.run("stop", "--delete-data")

    assert (result.exit_code, result.stdout) == (0, f"no Kafka runs in {cli.folder}\n")
    assert entries(cli.folder) == sorted((".lock", "data-1", *theirs))


def test_data_that_cannot_be_deleted_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.start()

    def refuse(path: Path) -> None:
        # As shutil.rmtree does: without the folder of the file.
        raise PermissionError(errno.EACCES, "Permission denied", "meta.properties")

    monkeypatch.setattr("shutil.rmtree", refuse)
    result = cli.run("stop", "--delete-data")

    assert result.exit_code == 3
    assert f"{cli.folder / 'data-1'} cannot be deleted" in result.stderr


def test_files_called_like_data_are_not_taken_for_that_of_brokers(cli: Cli) -> None:
    cli.folder.mkdir()
    (cli.folder / "data-set.csv").touch()
    (cli.folder / "data-3").mkdir()

    assert cli.start().exit_code == 0


def test_another_number_of_brokers_than_the_data_is_for_is_refused(cli: Cli) -> None:
    cli.start("--brokers", "2")
    cli.run("stop")

    result = cli.start()

    assert result.exit_code == 3
    assert "holds the data of 2 brokers, not of 1" in result.stderr


def test_a_folder_of_somebody_elses_files_is_not_taken_for_data(cli: Cli) -> None:
    (cli.folder / "data-1").mkdir(parents=True)
    (cli.folder / "data-1" / "precious").touch()

    result = cli.start()

    assert result.exit_code == 3
    assert f"{cli.folder / 'data-1'} holds files" in result.stderr
    assert entries(cli.folder) == [".lock", "data-1"]


def test_stop_of_nothing_says_so(cli: Cli) -> None:
    result = cli.run("stop")

    assert (result.exit_code, result.stdout) == (0, f"no Kafka runs in {cli.folder}\n")
    assert not cli.folder.exists()


def test_start_replaces_the_broker_of_several_that_is_gone(cli: Cli) -> None:
    cli.start("--brokers", "3")
    cluster = LocalCluster.find(cli.folder)
    assert cluster is not None
    survivor = cluster.process(1)
    cluster.kill(2)
    assert cli.run("status").exit_code == 3
    assert "does not run" in cli.run("status").stdout

    result = cli.run("start")

    assert result.exit_code == 0, result.stderr
    assert cli.status()["running"]
    assert cluster.process(1) == survivor


def test_the_state_of_a_broker_that_crashed_is_stale(cli: Cli) -> None:
    cli.start()
    cluster = LocalCluster.find(cli.folder)
    assert cluster is not None
    process = cluster.process(1)
    assert process is not None
    process.send(signal.SIGKILL)
    assert process.wait(timeout_s=10.0)
    assert (cli.folder / "broker.json").exists()

    assert cli.run("status").exit_code == 3
    assert cli.start().exit_code == 0
    assert cli.status()["brokers"][0]["pid"] != process.pid


def test_a_recycled_pid_is_not_mistaken_for_the_broker(cli: Cli) -> None:
    cli.start()
    state_file = cli.folder / "broker.json"
    state = json.loads(state_file.read_text())
    cli.run("stop")
    # This process plays one that got the broker's pid later; it must survive the stop.
    state["brokers"][0]["process"]["pid"] = os.getpid()
    state_file.write_text(json.dumps(state))

    assert cli.run("status").exit_code == 3
    assert cli.run("stop").stdout == f"no Kafka runs in {cli.folder}\n"


def test_a_damaged_state_file_is_named(cli: Cli) -> None:
    cli.folder.mkdir()
    (cli.folder / "broker.json").write_text('{"brokers": [{"id": 1')

    result = cli.run("status")

    assert result.exit_code == 3
    assert f"{cli.folder / 'broker.json'} is damaged" in result.stderr


@pytest.mark.parametrize(
    ("of", "name", "value"),
    [
        ("process", "pid", 2**70),
        ("process", "pid", -1),
        ("node", "port", 65_536),
        ("node", "controller_port", 1e400),
    ],
)
def test_a_number_that_cannot_be_is_damage(cli: Cli, of: str, name: str, value: float) -> None:
    cli.start()
    state_file = cli.folder / "broker.json"
    text = state_file.read_text()
    state = json.loads(text)
    node = state["brokers"][0]
    (node if of == "node" else node["process"])[name] = value
    state_file.write_text(json.dumps(state))

    result = cli.run("status")
    state_file.write_text(text)

    assert result.exit_code == 3
    assert f"{state_file} is damaged" in result.stderr


def test_the_default_folder_is_the_users_state_folder(cli: Cli, tmp_path: Path) -> None:
    result = cli_without_folder("status")

    expected = tmp_path / "state" / "kafka-pipeline" / "broker"
    assert result.stdout == f"no Kafka runs in {expected}\n"


def test_a_folder_that_cannot_be_made_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    result = CliRunner().invoke(broker_app, ["start", "--dir", str(tmp_path / "file" / "x")])

    assert result.exit_code == 3
    assert "choose another folder (--dir)" in result.stderr


@pytest.mark.parametrize("command", ["start", "stop", "status"])
@pytest.mark.usefixtures("cli")
def test_a_folder_that_cannot_be_looked_at_is_named(tmp_path: Path, command: str) -> None:
    # A name that is too long is an example of what a system may refuse, even to root.
    folder = tmp_path / ("x" * 300)

    result = CliRunner().invoke(broker_app, [command, "--dir", str(folder)])

    assert result.exit_code == 3
    assert str(folder) in result.stderr


@pytest.mark.parametrize("command", ["start", "stop", "status"])
@pytest.mark.usefixtures("cli")
def test_the_home_of_nobody_is_a_wrong_argument(command: str) -> None:
    result = CliRunner().invoke(broker_app, [command, "--dir", "~no-such-user/x"])

    assert result.exit_code == 2
    assert "--dir ~no-such-user/x: " in result.stderr


@pytest.mark.usefixtures("cli")
def test_without_a_home_folder_the_variable_to_set_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", fail)
    result = cli_without_folder("status")

    assert result.exit_code == 3
    assert "XDG_STATE_HOME" in result.stderr


def test_a_file_of_the_folder_that_cannot_be_written_is_named(cli: Cli) -> None:
    (cli.folder / "server-1.properties").mkdir(parents=True)

    result = cli.start()

    assert result.exit_code == 3
    assert f"{cli.folder} cannot be used: " in result.stderr
    assert "server-1.properties" in result.stderr


def test_a_log_that_cannot_be_written_is_named(cli: Cli) -> None:
    (cli.folder / "broker.log").mkdir(parents=True)

    result = cli.start()

    assert result.exit_code == 3
    assert f"Is {cli.folder / 'broker.log'} a file" in result.stderr


def test_the_folder_is_not_blamed_for_want_of_ports(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_pipeline.admin.broker.ports.is_free", lambda _port: False)

    result = cli.start()

    assert result.exit_code == 3
    assert result.stderr.startswith("no 1 free TCP ports were found")


def test_the_folder_is_not_blamed_for_what_happens_elsewhere(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = FileNotFoundError(errno.ENOENT, "No such file or directory", "/elsewhere")

    def fail(_folder: Path) -> None:
        raise elsewhere

    monkeypatch.setattr(LocalCluster, "find", fail)

    assert cli.start().exception is elsewhere


def test_no_ports_are_looked_for_where_kafka_runs(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.start()
    monkeypatch.setattr("kafka_pipeline.admin.broker.ports.is_free", lambda _port: False)

    assert cli.status()["running"]


def test_a_kafka_that_was_not_secured_cannot_be_secured_later(cli: Cli) -> None:
    cli.start()
    running = cli.start("--secure")
    assert running.exit_code == 3
    assert "is not secured" in running.stderr
    cli.run("stop")
    stopped = cli.start("--secure")
    assert stopped.exit_code == 3
    assert "cannot be secured later" in stopped.stderr
    assert not (cli.folder / "secrets").exists()
