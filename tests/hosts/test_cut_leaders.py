"""Readers whose leader is cut off from the other brokers, but not from them.

The brokers may get little CPU time here, so each question is asked until it is answered, and a
record whose commit got no answer may be in the topic twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import EngineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.control import CommandWriter, ControlReader
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.every_broker import EveryBroker
from kafka_pipeline.common.kafka.moving import RecordMover
from kafka_pipeline.common.protocol.messages import ControlRecord
from kafka_pipeline.common.topics import TopicSpec
from tests.hosts.brokers import HostBrokers
from tests.hosts.network import Network, NoHostsError
from tests.small_config import SMALL_CONFIG

pytestmark = pytest.mark.long
ORDERS = "orders"
TIMEOUT_S = 120.0

T = TypeVar("T")


def answer(ask: Callable[[], T]) -> T:
    """Return what Kafka answers, which may take several tries."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask()
        except (EngineError, UnavailableError, KafkaException):
            assert time.monotonic() < deadline_s


class Brokers:
    """Three brokers, each on a host of its own."""

    def __init__(self, network: Network, folder: Path) -> None:
        hosts = [host for host in network.hosts.values() if host is not network.observer]
        self._network = network
        self.cluster = HostBrokers(folder / "kafka", hosts, {})

    def _leader(self, asked: int) -> int:
        """Return who leads the topic, as this broker says."""
        server = self.cluster.bootstrap_servers.split(",")[asked - 1]
        client = AdminClient({"bootstrap.servers": server})
        found = answer(lambda: client.list_topics(ORDERS, timeout=10))
        return int(found.topics[ORDERS].partitions[0].leader)

    @property
    def leader(self) -> int:
        """Who leads the topic, as soon as all brokers say the same."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(found := {*map(self._leader, self.cluster.hosts)}) > 1 or -1 in found:
            assert time.monotonic() < deadline_s, found
            time.sleep(0.5)
        return found.pop()

    def cut(self, broker: int, stack: ExitStack) -> None:
        """Cut a broker off from the others until the stack ends; wait for another leader."""
        hosts = self.cluster.hosts
        ways = [(hosts[one], hosts[other]) for one in hosts for other in hosts if one != other]
        stack.enter_context(self._network.blocked(*(w for w in ways if hosts[broker] in w)))
        asked = next(number for number in hosts if number != broker)
        deadline_s = time.monotonic() + TIMEOUT_S
        while self._leader(asked) in (broker, -1):
            assert time.monotonic() < deadline_s
            time.sleep(0.5)
        assert self._leader(broker) == broker, "it still takes itself for the leader"


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    try:
        with Network(tmp_path / "network", ["one", "two", "three"]).open() as network:
            made = Brokers(network, tmp_path)
            made.cluster.start(timeout_s=TIMEOUT_S)
            yield made
            made.cluster.stop()
    except NoHostsError as error:
        pytest.skip(str(error))


@pytest.fixture
def config(brokers: Brokers, tmp_path: Path) -> Config:
    file = tmp_path / "config.yaml"
    servers = brokers.cluster.bootstrap_servers
    file.write_text(f"{SMALL_CONFIG}kafka: {{bootstrap.servers: '{servers}'}}\n")
    return load_config(file)


def as_seen_by(config: Config, broker: int) -> Config:
    """Return a configuration that has this broker only."""
    server = config.bootstrap_servers.split(",")[broker - 1]
    return replace(config, kafka={"bootstrap.servers": server})


def write(config: Config, value: bytes) -> None:
    record = ControlRecord(ORDERS, b"k", value, ())
    answer(lambda: CommandWriter(config, "leader").write([record]))


def test_readers_find_the_new_leader_while_the_old_one_still_answers(
    brokers: Brokers, config: Config
) -> None:
    """Each of them has no connection but the one to the leader that is cut off."""
    admin = Admin(config)
    admin.ensure_topics([TopicSpec(ORDERS, 1, 3)])
    admin.topic_ids([ORDERS])
    with ExitStack() as stack:
        control = stack.enter_context(closing(ControlReader(config, [ORDERS])))
        data = stack.enter_context(closing(PartitionReader(config, "group", admin)))
        data.assign({(ORDERS, 0): 0})
        commands: list[bytes] = []
        records: list[bytes | None] = []

        def read_until(value: bytes) -> None:
            deadline_s = time.monotonic() + TIMEOUT_S
            while not commands or not records or {commands[-1], records[-1]} != {value}:
                assert time.monotonic() < deadline_s, (commands, records)
                commands.extend(record.value for record in control.read(0.1))
                for batch in data.fetch(100, 0.1).batches:
                    records.extend(batch.values)

        write(config, b"before")
        read_until(b"before")
        brokers.cut(brokers.leader, stack)
        write(config, b"meanwhile")
        read_until(b"meanwhile")
        assert [*dict.fromkeys(commands)] == [*dict.fromkeys(records)] == [b"before", b"meanwhile"]


def test_ends_are_sure_while_the_old_leader_still_answers(brokers: Brokers, config: Config) -> None:
    """The clients that ask are given the address of the broker that is cut off, and no other."""
    admin = Admin(config)
    admin.ensure_topics([TopicSpec(ORDERS, 1, 3)])
    admin.topic_ids([ORDERS])
    write(config, b"before")
    place = (ORDERS, 0)
    with ExitStack() as stack:
        cut = brokers.leader
        brokers.cut(cut, stack)
        write(config, b"meanwhile")
        behind = as_seen_by(config, cut)
        known = answer(lambda: Admin(behind).stable_ends([place]))[place]
        end = answer(lambda: EveryBroker(behind, Admin(behind)).stable_ends([place]))[place]
        assert known < end
        assert end >= 4, "each record has a marker of its transaction"
        # A mover knows once brokers acknowledge its record. What it gave up stays in the topic.
        assert answer(lambda: RecordMover(behind, "mover").find_ends([place]))[place] >= end
