"""Reads offsets of partitions, for monitoring only: a missing answer is not an error."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import closing, suppress
from typing import Any, NamedTuple

from confluent_kafka import KafkaException

from kafka_pipeline.common.committed import offsets_of
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition, offset_of
from kafka_pipeline.common.kafka.data import PartitionReader

ANSWER_S = 4.0
_FETCH_WAIT_S = 0.1
_MOST_RECORDS = 1000


class FirstRecord(NamedTuple):
    """The first committed record at or after an offset.

    `timestamp_ms` is `None` if there is no such record yet; `offset` is then the end.
    """

    offset: int
    timestamp_ms: int | None


def answered(requests: Mapping[Partition, Future[Any]], timeout_s: float) -> dict[Partition, int]:
    """Return the offsets that brokers answer in time; blocks up to `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    offsets: dict[Partition, int] = {}
    for partition, answer in requests.items():
        with suppress(KafkaException, TimeoutError, CancelledError):
            offsets[partition] = offset_of(answer.result(max(deadline_s - time.monotonic(), 0)))
    return offsets


class Offsets:
    """Asks brokers for offsets, and leaves out those that do not come within four seconds.

    For one thread at a time.
    """

    def __init__(self, config: Config, admin: Admin) -> None:
        self._config = config
        self._admin = admin

    def stable_ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the last stable offset of partitions: the end for `read_committed`."""
        return answered(self._admin.request_stable_ends(partitions), ANSWER_S)

    def committed(self, group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the committed offsets of a group; partitions never committed are left out."""
        # Not with the admin client: its requests to a slow coordinator can abort the process
        # (librdkafka 4605, 5397).
        with closing(PartitionReader(self._config, group)) as reader, suppress(EngineError):
            return offsets_of(reader.committed(list(partitions), ANSWER_S))
        return {}

    def first_records(self, positions: Mapping[Partition, int]) -> dict[Partition, FirstRecord]:
        """Return the first record at or after the given offset of each partition.

        Reads up to a megabyte from each.
        """
        group = self._config.topic_names.fetch_group
        deadline_s = time.monotonic() + ANSWER_S
        found: dict[Partition, FirstRecord] = {}
        missing = set(positions)
        with closing(PartitionReader(self._config, group)) as reader:
            reader.assign(positions)
            while missing and time.monotonic() < deadline_s:
                fetched = reader.fetch(_MOST_RECORDS, _FETCH_WAIT_S)
                for batch in fetched.batches:
                    first = FirstRecord(batch.offsets[0], batch.timestamps[0])
                    found.setdefault((batch.topic, batch.partition), first)
                for partition, end in fetched.ends:
                    found.setdefault(partition, FirstRecord(end, None))
                done = missing & {*found, *(error.partition for error in fetched.errors)}
                reader.unassign(done)
                missing -= done
        return found
