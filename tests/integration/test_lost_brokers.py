"""Clients whose only broker goes and comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_pipeline.admin.broker.local_cluster import LocalCluster, delete_data
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import TransactionFailedError
from kafka_pipeline.common.kafka.control import CommandWriter, ControlReader, ReportWriter
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.lifeline import LOSS_TIMEOUT_S
from kafka_pipeline.common.protocol.messages import ControlRecord
from kafka_pipeline.common.topics import TopicSpec
from tests.small_config import SMALL_CONFIG

pytestmark = [pytest.mark.integration, pytest.mark.long]

TIMEOUT_S = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path / "kafka", is_short_lived=True)
    cluster.start()
    yield cluster
    cluster.stop()
    delete_data(tmp_path / "kafka")


@pytest.fixture
def config(cluster: LocalCluster, tmp_path: Path) -> Config:
    file = tmp_path / "config.yaml"
    servers = cluster.bootstrap_servers
    file.write_text(f"{SMALL_CONFIG}kafka: {{bootstrap.servers: '{servers}'}}\n")
    return load_config(file)


def work_until(work: Callable[[], None], condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        work()


def test_all_go_on_with_other_clients_where_they_were(
    cluster: LocalCluster, config: Config
) -> None:
    Admin(config).ensure_topics([TopicSpec("orders", 1, 1), TopicSpec("beats", 1, 1)])
    control, data = ControlReader(config, ["orders", "beats"]), PartitionReader(config, "group")
    data.assign({("orders", 0): 0})
    reports, commands = ReportWriter(config), CommandWriter(config, "leader")
    admin = Admin(config)
    came: list[tuple[str, bytes]] = []
    read: list[bytes | None] = []

    def take() -> None:
        came.extend((record.topic, record.value) for record in control.read(0.1))
        for batch in data.fetch(100, 0.1).batches:
            read.extend(batch.values)

    commands.write([ControlRecord("orders", b"k", b"before", ())])
    work_until(take, lambda: (len(came), len(read)) == (1, 1))
    clients = (control._consumer.client, data._consumer.client, reports._producer, admin._client)

    cluster.kill(1)
    away_until_s = time.monotonic() + LOSS_TIMEOUT_S + 2
    while time.monotonic() < away_until_s:
        take()
        reports.write([])
    began_s = time.monotonic()
    with pytest.raises(TransactionFailedError, match="all brokers were lost"):
        commands.write([ControlRecord("orders", b"k", b"lost", ())])
    assert time.monotonic() - began_s < config.transaction_timeout_ms / 1000 / 2
    cluster.start()

    CommandWriter(config, "leader").write([ControlRecord("orders", b"k", b"after", ())])

    def beat() -> None:
        reports.write([ControlRecord("beats", b"k", b"beat", ())])
        take()

    work_until(beat, lambda: {("orders", b"after"), ("beats", b"beat")} <= set(came))
    work_until(take, lambda: len(read) == 2)
    assert [value for topic, value in came if topic == "orders"] == [b"before", b"after"]
    assert read == [b"before", b"after"]
    assert admin.high_watermarks([("beats", 0)])[("beats", 0)] > 0
    now = (control._consumer.client, data._consumer.client, reports._producer, admin._client)
    assert not any(one is other for one, other in zip(clients, now, strict=True))
    control.close()
    data.close()
    reports.close(5)
