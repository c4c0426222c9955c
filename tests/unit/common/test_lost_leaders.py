"""Offsets and positions that are asked for while one broker of three is away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka import clients, group_positions, offsets
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.group_positions import GroupPositions
from kafka_pipeline.common.kafka.offsets import Offsets
from tests.tiers import long_but_the_first
from tests.unit.common.config_texts import BASE, load
from tests.unit.common.mock_broker import MockBroker
from tests.waiting import wait_until

TOPIC = "in"
PLACES = [(TOPIC, number) for number in range(3)]
OTHERS = PLACES[:2]
GROUPS = ("first", "second", "third")
RECORDS = 5
TIMEOUT_S = 60


@pytest.fixture
def brokers() -> MockBroker:
    """Each leads a partition and coordinates a group, by the number, which has committed 3."""
    started = MockBroker(3)
    started.create(TOPIC, len(PLACES))
    for broker, (group, (_, number)) in enumerate(zip(GROUPS, PLACES, strict=True), start=1):
        started.lead(TOPIC, number, broker)
        started.coordinate(group, broker)
        started.write(TOPIC, RECORDS, number)
        settings = {"bootstrap.servers": started.bootstrap_servers, "group.id": group}
        consumer = Consumer(settings)
        at = [TopicPartition(*place, 3) for place in PLACES]
        consumer.commit(offsets=at, asynchronous=False)
        consumer.close()
    return started


@pytest.fixture
def config(brokers: MockBroker, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Clients that are less patient, so that nobody waits for the tests."""
    monkeypatch.setattr(clients, "_LEADERS_AGE_MS", 500)
    monkeypatch.setattr(group_positions, "_ANSWER_S", 0.5)
    monkeypatch.setattr(group_positions, "_LEAST_ANSWER_S", 0.1)
    monkeypatch.setattr(offsets, "ANSWER_S", 0.5)
    servers = brokers.bootstrap_servers
    return load(f"{BASE}kafka: {{bootstrap.servers: '{servers}', socket.timeout.ms: 2000}}\n")


@pytest.fixture
def positions(config: Config) -> Iterator[GroupPositions]:
    positions = GroupPositions(config, Admin(config))
    wait_until(lambda: set(answering(positions)) == set(GROUPS))
    yield positions
    positions.committed({})


def answering(positions: GroupPositions, *groups: str) -> list[str]:
    found = positions.committed(dict.fromkeys(groups or GROUPS, PLACES))
    assert all({at.offset for at in of.values()} == {3} for of in found.values())
    return list(found)


class SilentAdmin:
    """Gives no answers, so that only the consumers do."""

    def request_watermarks(self, *_: object, is_high: bool) -> dict[Partition, Future[Any]]:
        return {}


@pytest.mark.parametrize("asked", long_but_the_first(["ends", "starts", "stable_ends"]))
def test_a_new_leader_is_found(
    brokers: MockBroker, config: Config, positions: GroupPositions, asked: str
) -> None:
    """librdkafka would ask the dead one for 15 minutes."""
    positions._admin = cast(Any, SilentAdmin())
    asker = Offsets(config, Admin(config)) if asked == "stable_ends" else positions
    ask = getattr(asker, asked)
    end = 0 if asked == "starts" else RECORDS
    wait_until(lambda: ask(PLACES) == dict.fromkeys(PLACES, end))
    brokers.stop(3)
    wait_until(lambda: ask(PLACES) == dict.fromkeys(OTHERS, end))
    brokers.lead(TOPIC, 2, 1)
    wait_until(lambda: ask(PLACES) == dict.fromkeys(PLACES, end))


def test_a_leader_that_hangs_holds_up_no_other(
    brokers: MockBroker, positions: GroupPositions
) -> None:
    wait_until(lambda: set(positions.ends(PLACES)) == set(PLACES))
    brokers.delay(3, 120_000)
    wait_until(lambda: positions.ends(PLACES) == dict.fromkeys(OTHERS, RECORDS))
    wait_until(lambda: positions.starts(PLACES) == dict.fromkeys(OTHERS, 0))
    brokers.lead(TOPIC, 2, 2)
    wait_until(lambda: set(positions.ends(PLACES)) == set(PLACES))


@pytest.mark.long
def test_an_answer_that_comes_late_is_left_out(
    brokers: MockBroker, positions: GroupPositions
) -> None:
    wait_until(lambda: set(positions.ends(PLACES)) == set(PLACES))
    brokers.delay(3, 1500)
    wait_until(lambda: set(positions.ends(PLACES)) == set(OTHERS))
    wait_until(lambda: set(answering(positions)) == set(GROUPS[:2]))
    brokers.delay(3, 0)
    wait_until(lambda: positions.ends(PLACES) == dict.fromkeys(PLACES, RECORDS))
    wait_until(lambda: set(answering(positions)) == set(GROUPS))


def test_a_lost_coordinator_holds_up_no_other_group(
    brokers: MockBroker, positions: GroupPositions
) -> None:
    brokers.stop(3)
    wait_until(lambda: answering(positions, *reversed(GROUPS)) == ["second", "first"])
    brokers.coordinate("third", 1)
    wait_until(lambda: set(answering(positions)) == set(GROUPS))


@pytest.mark.long
def test_groups_without_an_answer_do_not_add_up(
    brokers: MockBroker, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_positions, "_ANSWER_S", 2.0)
    lost = [f"lost_{number}" for number in range(8)]
    for group in lost:
        brokers.coordinate(group, 3)
    positions = GroupPositions(config, Admin(config))
    wait_until(lambda: len(positions.committed(dict.fromkeys(lost, PLACES))) == len(lost))
    brokers.stop(3)
    began_s = time.monotonic()
    assert positions.committed(dict.fromkeys(lost, PLACES)) == {}
    assert time.monotonic() - began_s < 8
    positions.committed({})


def test_addresses_that_brokers_give_are_named_if_one_of_them_does_not_answer() -> None:
    """As in a container, whose name nobody else resolves; here, there is no controller."""
    brokers = MockBroker(2)
    first, second = brokers.bootstrap_servers.split(",")
    config = replace(load(BASE), kafka={"bootstrap.servers": first})
    with pytest.raises(UnavailableError) as raised:
        Admin(config).check_broker(1)
    assert str(raised.value).startswith(f"Kafka answers at {first}, but one of its brokers does ")
    assert f"by advertised.listeners, are {first}, {second}: can this host" in str(raised.value)
