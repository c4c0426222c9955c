"""Watches committed results arrive, without keeping them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import PartitionReader

_FETCH_RECORDS = 20_000


class SinkFollower:
    """Counts the committed records of topics and notes when they arrived."""

    def __init__(self, config: Config, topics: Mapping[str, int]) -> None:
        """Begin with the first records of topics; each is given its number of partitions."""
        partitions = [(topic, number) for topic, size in topics.items() for number in range(size)]
        self.records = 0
        self.arrivals_s: dict[Partition, list[float]] = {place: [] for place in partitions}
        """Times by `time.monotonic`, for each partition, ascending; one for each batch."""
        self._reader = PartitionReader(config, "quickstart")
        self._reader.assign(dict.fromkeys(partitions, 0))

    def read(self, wait_s: float) -> None:
        """Count the records that have arrived, waiting up to `wait_s` for them."""
        fetched = self._reader.fetch(_FETCH_RECORDS, wait_s)
        for (topic, number), reason in fetched.errors:
            raise UnavailableError(f"{topic}[{number}] cannot be read: {reason}")
        for batch in fetched.batches:
            self.records += len(batch)
            self.arrivals_s[batch.topic, batch.partition].append(time.monotonic())

    def close(self) -> None:
        """Disconnect from the brokers."""
        self._reader.close()
