"""The settings of local brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.admin.broker.properties import BrokerNode, format_properties, server_properties


def _settings(num_brokers: int, data_dir: Path = Path("/data")) -> list[dict[str, str]]:
    nodes = [BrokerNode(i, 9000 + i, 9100 + i) for i in range(1, num_brokers + 1)]
    texts = [server_properties(node, nodes, data_dir) for node in nodes]
    return [dict(line.split("=", 1) for line in text.splitlines()) for text in texts]


def test_every_broker_is_a_controller_of_the_same_quorum() -> None:
    settings = _settings(3)

    assert {s["controller.quorum.voters"] for s in settings} == {
        "1@127.0.0.1:9101,2@127.0.0.1:9102,3@127.0.0.1:9103"
    }
    assert [s["node.id"] for s in settings] == ["1", "2", "3"]
    assert settings[1]["listeners"] == "PLAINTEXT://127.0.0.1:9002,CONTROLLER://127.0.0.1:9102"
    assert settings[1]["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9002"


@pytest.mark.parametrize(
    ("num_brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2")]
)
def test_replicas_follow_the_number_of_brokers(
    num_brokers: int, replicas: str, in_sync: str
) -> None:
    settings = _settings(num_brokers)[0]

    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        assert settings[f"{topic}.replication.factor"] == replicas
    assert settings["transaction.state.log.min.isr"] == in_sync
    assert settings["min.insync.replicas"] == in_sync


def test_topics_are_never_made_by_mistake() -> None:
    assert _settings(1)[0]["auto.create.topics.enable"] == "false"


def test_settings_of_the_caller_go_over_the_built_in_ones() -> None:
    node = BrokerNode(1, 9001, 9101)
    extra = {"min.insync.replicas": 2, "message.max.bytes": 3_000_000}

    lines = server_properties(node, [node], Path("/data"), extra).splitlines()

    assert "min.insync.replicas=2" in lines
    assert "message.max.bytes=3000000" in lines
    assert len({line.partition("=")[0] for line in lines}) == len(lines)


def test_values_are_escaped_as_java_reads_them() -> None:
    # The last one lies beyond 16 bits: Java wants its two surrogates.
    text = format_properties({"log.dirs": "C:\\dâta\n…🐘"})

    assert text == "log.dirs=C:\\\\d\\u00e2ta\\u000a\\u2026\\ud83d\\udc18\n"
