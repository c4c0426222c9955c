"""Watches committed results arrive, without keeping them."""

from __future__ import annotations

import time

from common.config import Config
from common.errors import UnavailableError
from common.kafka.data import PartitionReader

_FETCH_RECORDS = 20_000


class SinkFollower:
    """Counts the committed records of the sink topic and notes when they came."""

    def __init__(self, config: Config) -> None:
        """Begin with the first record that arrives in the empty topic."""
        self.records = 0
        self.arrivals_s: dict[int, list[float]] = {p: [] for p in range(config.parallelism)}
        """By `time.monotonic`, for each partition, ascending; one for each batch that came."""
        self._reader = PartitionReader(config, "quickstart")
        self._reader.assign({(config.sink_topic, p): 0 for p in range(config.parallelism)})

    def read(self, wait_s: float) -> None:
        """Count what has arrived, after waiting up to `wait_s` for it."""
        fetched = self._reader.fetch(_FETCH_RECORDS, wait_s)
        for (topic, number), reason in fetched.errors:
            raise UnavailableError(f"{topic}[{number}] cannot be read: {reason}")
        for batch in fetched.batches:
            self.records += len(batch)
            self.arrivals_s[batch.partition].append(time.monotonic())

    def close(self) -> None:
        """Leave the brokers."""
        self._reader.close()
