"""A real cluster and one in memory with the same controls, for tests that compare them."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.taskmanager.clients import Clients, KafkaClients, TransactionalProducer
from tests.memory.broker import Broker
from tests.memory.clients import MemoryClients
from tests.memory.clock import Clock
from tests.memory.producer import MemoryProducer
from tests.unit.taskmanager.fakes import CONFIG

TRANSACTION_TIMEOUT_S = 5.0
_numbers = itertools.count()


class Cluster(Protocol):
    """The controls that a test of a cluster needs in addition to a PipelineThread's clients."""

    @property
    def clients(self) -> Clients:
        """The clients that tests compare."""

    @property
    def clock(self) -> Any:
        """A clock with `monotonic` and `sleep`."""

    def make_topic(self, partitions: int = 1, **settings: str) -> str:
        """Create a topic with settings, dots written as underscores; return its name."""

    def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic more partitions."""

    def write(self, partition: Partition, value: bytes, timestamp: int = 1) -> None:
        """Write a record with the key `k`, outside of transactions."""

    def delete_before(self, partition: Partition, offset: int) -> None:
        """Delete the oldest records of a partition."""

    def flush(self, producer: Any) -> None:
        """Deliver a producer's queued records to the brokers."""

    def add_offsets(
        self, producer: Any, positions: Mapping[Partition, Committed], group: Any
    ) -> None:
        """Add offsets to the open transaction of a producer, without committing it."""

    def close(self) -> None:
        """Close all connections."""


def _spec(name: str, partitions: int, settings: Mapping[str, str]) -> TopicSpec:
    # Records of tests have timestamps of 1970.
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return TopicSpec(name, partitions, 1, {"retention.ms": "-1", **given})


class KafkaCluster:
    """A running Kafka."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.partition(",")[0].rpartition(":")
        self.config: Config = replace(
            CONFIG,
            server_ip=host,
            server_port=int(port),
            transaction_timeout_ms=int(TRANSACTION_TIMEOUT_S * 1000),
        )
        self._admin = Admin(self.config)
        self.clients = KafkaClients(self.config, self._admin)
        self.clock = time
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})

    def make_topic(self, partitions: int = 1, **settings: str) -> str:
        """See `Cluster.make_topic`."""
        name = f"compared_{os.getpid()}_{next(_numbers)}"
        self._admin.ensure_topics([_spec(name, partitions, settings)])
        self._admin.topic_ids([name])
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        """See `Cluster.add_partitions`."""
        (added,) = self._admin._client.create_partitions([NewPartitions(topic, total)]).values()
        added.result()

    def write(self, partition: Partition, value: bytes, timestamp: int = 1) -> None:
        """See `Cluster.write`."""
        topic, number = partition
        self._producer.produce(topic, value, b"k", number, timestamp=timestamp)
        assert self._producer.flush(10) == 0

    def delete_before(self, partition: Partition, offset: int) -> None:
        """See `Cluster.delete_before`."""
        self._admin.delete_before({partition: offset})

    def flush(self, producer: Any) -> None:
        """See `Cluster.flush`."""
        assert producer._producer.client.flush(10) == 0

    def add_offsets(
        self, producer: Any, positions: Mapping[Partition, Committed], group: Any
    ) -> None:
        """See `Cluster.add_offsets`."""
        places = [TopicPartition(*p, at.offset, at.metadata) for p, at in positions.items()]
        producer._producer.send_offsets(places, group)

    def close(self) -> None:
        """See `Cluster.close`."""
        self._producer.flush(10)


class MemoryCluster:
    """A cluster in memory, without any faults."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._broker = Broker(self.clock)
        self.clients = MemoryClients(self._broker, TRANSACTION_TIMEOUT_S)

    def make_topic(self, partitions: int = 1, **settings: str) -> str:
        """See `Cluster.make_topic`."""
        name = f"compared_{next(_numbers)}"
        self._broker.create_topics([_spec(name, partitions, settings)])
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        """See `Cluster.add_partitions`."""
        self._broker.add_partitions(topic, total)

    def write(self, partition: Partition, value: bytes, timestamp: int = 1) -> None:
        """See `Cluster.write`."""
        self._broker.write(partition, b"k", value, timestamp)

    def delete_before(self, partition: Partition, offset: int) -> None:
        """See `Cluster.delete_before`."""
        self._broker.log(partition).delete_before(offset)

    def flush(self, producer: Any) -> None:
        """See `Cluster.flush`."""
        producer.send_now()

    def add_offsets(
        self, producer: Any, positions: Mapping[Partition, Committed], group: Any
    ) -> None:
        """See `Cluster.add_offsets`."""
        assert isinstance(producer, MemoryProducer)
        producer.send_offsets(positions, group)

    def close(self) -> None:
        """See `Cluster.close`."""


def send(producer: TransactionalProducer, partition: Partition, *values: bytes) -> None:
    """Send records with the key `k` to a partition."""
    topic, number = partition
    producer.send_records([(topic, b"k", value, number, 1, None) for value in values])
