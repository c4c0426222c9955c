"""The writer of the input: with and without transactions, some of which abort."""

from __future__ import annotations

from random import Random

from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import Partition
from tests.memory.broker import Broker, GroupMetadata
from tests.memory.clients import MemoryClients
from tests.memory.producer import MemoryProducer

TIMEOUT_S = 10.0
_MOST_RECORDS = 8


class Upstream:
    """Writes to a partition, under keys that no other writer uses.

    The value of each record is a number, except for some poison records.
    """

    def __init__(self, broker: Broker, partition: Partition, random: Random, poison: float) -> None:
        self._broker = broker
        self._partition = partition
        self._random = random
        self._poison = poison
        self._clients = MemoryClients(broker, TIMEOUT_S)
        self._name = f"{partition[0]}-{partition[1]}"
        self._keys = [f"{self._name}-{letter}".encode() for letter in "abc"]
        self._number = 0
        self._time_ms = 0
        self._producer: MemoryProducer | None = None
        """The producer of the open transaction, if there is one."""

    def act(self) -> None:
        """Write some records; begin, continue or end a transaction."""
        if self._producer is None and self._random.random() < 0.6:
            for _ in range(self._random.randint(1, _MOST_RECORDS)):
                self._broker.write(self._partition, *self._draw())
            return
        try:
            self._write_in_a_transaction()
        except EngineError:
            self._producer = None  # the transaction took too long

    def finish(self) -> None:
        """End the open transaction."""
        if self._producer is not None:
            self._connect()
            self._producer = None

    def _write_in_a_transaction(self) -> None:
        random = self._random
        if self._producer is None:
            self._producer = self._connect()
            self._producer.begin()
        records = [self._draw() for _ in range(random.randint(1, _MOST_RECORDS))]
        topic, number = self._partition
        self._producer.send_records([(topic, k, v, number, at, None) for k, v, at in records])
        self._producer.send_now()
        match random.choice(("commit", "abort", "stay open")):
            case "commit":
                self._producer.commit({}, GroupMetadata(self._name))
                self._producer = None
            case "abort":
                self.finish()

    def _connect(self) -> MemoryProducer:
        producer = self._clients.producer(
            f"writer of {self._name}", {self._partition[0]: 1_000_000}
        )
        producer.fence(TIMEOUT_S)
        return producer

    def _draw(self) -> tuple[bytes, bytes, int]:
        random = self._random
        self._number += 1
        # Now and then a record is late, or as old as the one before it.
        self._time_ms += random.choice((-1, 0, 1, 10))
        is_poison = self._poison and random.random() < self._poison
        value = b"%s%d" % (b"no " if is_poison else b"", self._number)
        return random.choice(self._keys), value, max(self._time_ms, 1)
