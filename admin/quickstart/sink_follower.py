"""Watches committed results arrive, without keeping them."""

from __future__ import annotations

import time

from common.config import Config
from common.errors import UnavailableError
from common.kafka.data import PartitionReader

_FETCH_RECORDS = 20_000


class SinkFollower:
    """Counts the committed records of the sink topic and notes when they arrived."""

    def __init__(self, config: Config) -> None:
        """Begin with the first record of the topic, which is still empty."""
        self.records = 0
        self.arrivals_s: dict[int, list[float]] = {p: [] for p in range(config.parallelism)}
        """Times by `time.monotonic`, for each partition, ascending; one for each batch."""
        self._reader = PartitionReader(config, "quickstart")
        self._reader.assign({(config.sink_topic, p): 0 for p in range(config.parallelism)})

    def read(self, wait_s: float) -> None:
        """Count the records that have arrived, waiting up to `wait_s` for them."""
        fetched = self._reader.fetch(_FETCH_RECORDS, wait_s)
        for (topic, number), reason in fetched.errors:
            raise UnavailableError(f"{topic}[{number}] cannot be read: {reason}")
        for batch in fetched.batches:
            self.records += len(batch)
            self.arrivals_s[batch.partition].append(time.monotonic())

    def close(self) -> None:
        """Disconnect from the brokers."""
        self._reader.close()
