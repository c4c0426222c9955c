"""The local broker, for real: a JVM with Kafka in it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pipeline.admin.broker.local_cluster import LocalCluster, delete_data
from kafka_pipeline.admin.broker.ports import LOOPBACK, accepts
from kafka_pipeline.admin.broker.properties import BrokerNode
from kafka_pipeline.common.errors import UnavailableError

pytestmark = pytest.mark.integration


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    # Properties files, log4j's addresses and Java's options each have characters of their own.
    return tmp_path / r"a folder = 100 % #1 \ ours"


@pytest.fixture
def cluster(directory: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(directory)
    yield cluster
    cluster.stop()


def _only(cluster: LocalCluster) -> BrokerNode:
    (node,) = cluster.nodes
    return node


def _cluster_id(directory: Path, broker: int = 1) -> str:
    lines = (directory / f"data-{broker}" / "meta.properties").read_text().splitlines()
    return next(line for line in lines if line.startswith("cluster.id="))


def test_a_started_broker_serves_is_found_again_and_leaves_nothing_when_stopped(
    cluster: LocalCluster, directory: Path
) -> None:
    assert LocalCluster.find(directory) is None

    cluster.start()
    found = LocalCluster.find(directory)
    process = cluster.process(1)

    assert accepts(_only(cluster).port)
    assert process is not None
    assert found is not None
    assert found.is_running()
    assert found.bootstrap_servers == cluster.bootstrap_servers
    assert found.process(1) == process

    found.stop()

    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    assert not accepts(_only(cluster).port)
    assert LocalCluster.find(directory) is None
    assert not (directory / "broker.json").exists()


@pytest.mark.long
def test_a_restart_keeps_the_data(cluster: LocalCluster, directory: Path) -> None:
    cluster.start()
    cluster_id = _cluster_id(directory)
    cluster.stop()

    again = LocalCluster(directory)
    again.start()
    try:
        assert _cluster_id(directory) == cluster_id
    finally:
        again.stop()


@pytest.mark.long
def test_a_killed_broker_is_noticed_and_comes_back_at_its_port(cluster: LocalCluster) -> None:
    cluster.start()
    port = _only(cluster).port

    cluster.kill(1)
    assert not cluster.is_running()
    assert not accepts(port)

    cluster.start(1)
    assert accepts(port)


@pytest.mark.long
def test_start_while_it_runs_changes_nothing(cluster: LocalCluster) -> None:
    cluster.start()
    process = cluster.process(1)

    cluster.start()

    assert cluster.process(1) == process


@pytest.mark.long
def test_a_second_cluster_in_the_same_folder_is_refused(
    cluster: LocalCluster, directory: Path
) -> None:
    cluster.start()

    with pytest.raises(UnavailableError, match="another Kafka runs in"):
        LocalCluster(directory).start()

    assert cluster.is_running()


def test_a_folder_with_a_comma_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="comma in its path"):
        LocalCluster(tmp_path / "a, b").start()


def test_a_port_in_use_is_named(directory: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]

        with pytest.raises(UnavailableError, match=rf"port {port} of 127.0.0.1 is in use"):
            LocalCluster(directory, port=port).start()


@pytest.mark.long
def test_a_broker_that_dies_while_starting_shows_the_end_of_its_log(
    cluster: LocalCluster, directory: Path
) -> None:
    cluster.start()
    cluster.stop()
    meta = directory / "data-1" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7"))

    with pytest.raises(UnavailableError, match=r"(?s)ended while starting.*Stored node id 7"):
        cluster.start()

    assert not (directory / "broker.json").exists()


@pytest.mark.long
def test_three_brokers_form_one_cluster_and_survive_the_loss_of_one(directory: Path) -> None:
    cluster = LocalCluster(directory, num_brokers=3, is_short_lived=True)
    try:
        cluster.start()
        assert len({_cluster_id(directory, node.id) for node in cluster.nodes}) == 1

        cluster.kill(2)
        assert [cluster.process(node.id) is not None for node in cluster.nodes] == [
            True,
            False,
            True,
        ]
        assert LocalCluster.find(directory) is not None

        cluster.start(2)
        assert cluster.is_running()
    finally:
        cluster.stop()


@pytest.mark.long
def test_another_number_of_brokers_than_the_data_is_for_is_refused(
    cluster: LocalCluster, directory: Path
) -> None:
    cluster.start()
    cluster.stop()

    with pytest.raises(UnavailableError, match="holds the data of 1 broker"):
        LocalCluster(directory, num_brokers=3).start()


@pytest.mark.long
def test_delete_data_leaves_what_is_not_the_brokers(cluster: LocalCluster, directory: Path) -> None:
    directory.mkdir()
    (directory / "notes.txt").touch()
    cluster.start()
    process = cluster.process(1)
    assert process is not None
    process.send(signal.SIGTERM)
    assert process.wait(timeout_s=10.0)

    delete_data(directory)

    assert [path.name for path in directory.iterdir()] == ["notes.txt"]


def test_the_brokers_of_the_other_tests_serve(bootstrap_servers: str) -> None:
    for server in bootstrap_servers.split(","):
        host, _, port = server.rpartition(":")
        socket.create_connection((host, int(port)), timeout=5.0).close()
