"""Writes records to any partitions in transactions, for tools that move records."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError, UnavailableError
from kafka_pipeline.common.kafka.clients import (
    Partition,
    TransactionFailedError,
    client_config,
    retry,
    translate,
)
from kafka_pipeline.common.kafka.lifeline import connect_with_lifeline
from kafka_pipeline.common.kafka.task_producer import END_KEY, note_end
from kafka_pipeline.common.kafka.writer_rights import named
from kafka_pipeline.common.record_batch import OutputRecord
from kafka_pipeline.common.topics import ANY_SIZE_BYTES

_START_TIMEOUT_S = 30
_POLL_S = 0.1


class RecordMover:
    """Writes records in transactions: all records of a call, or none."""

    def __init__(self, config: Config, transactional_id: str) -> None:
        """Fence all earlier movers with this id; their uncommitted records are aborted.

        Raises `UnavailableError` if Kafka does not answer.
        """
        self._config = config
        self._id = transactional_id
        self._timeout_s = config.transaction_timeout_ms / 1000
        settings = client_config(
            config,
            "producer",
            transactional_id=transactional_id,
            transaction_timeout_ms=config.transaction_timeout_ms,
            enable_idempotence=True,
            acks="all",
            message_max_bytes=ANY_SIZE_BYTES,
            # Java's default: keys go to the partitions that Java clients would choose.
            partitioner="murmur2_random",
        )
        self._producer, self._lifeline = connect_with_lifeline(Producer, settings)
        try:
            retry(self._producer.init_transactions, _START_TIMEOUT_S)
        except EngineError as error:
            why = named(error, config, transactional_id)
            raise UnavailableError(f"no records can be written now: {why}") from error

    def write(self, records: Iterable[OutputRecord]) -> None:
        """Write records in one transaction.

        Raises `UnavailableError` if Kafka does not accept them, or if another mover has started.
        None of them were then written, or, if only the commit got no answer, perhaps all.
        """
        topics: set[str] = set()
        try:
            self._write(records, topics)
        except EngineError as error:
            why = named(error, self._config, self._id, sorted(topics))
            raise UnavailableError(f"records are not written: {why}") from error

    def find_ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return where partitions end, by a record in each, in a transaction that is aborted.

        All that earlier movers have written comes before these ends. See `proven_ends`. Raises
        `UnavailableError` if a partition takes no record.
        """
        ends: dict[Partition, int] = {}
        try:
            self._find_ends(partitions, ends)
        except EngineError as error:
            topics = sorted({topic for topic, _ in partitions})
            why = named(error, self._config, self._id, topics)
            raise UnavailableError(f"the ends of topics are not sure: {why}") from error
        return ends

    def _find_ends(self, partitions: Collection[Partition], ends: dict[Partition, int]) -> None:
        try:
            self._producer.begin_transaction()
            for place in partitions:
                report = partial(note_end, ends, place)
                self._producer.produce(place[0], None, END_KEY, place[1], on_delivery=report)
            deadline_s = time.monotonic() + self._timeout_s
            while len(self._producer) and time.monotonic() < deadline_s:
                self._producer.poll(_POLL_S)
                self._require_open()
        except KafkaException as exception:
            raise translate(exception) from exception
        if missing := sorted({*partitions} - ends.keys()):
            topic, number = missing[0]
            raise TransactionFailedError(f"{topic}[{number}] does not take a record")
        retry(self._producer.abort_transaction, self._timeout_s)

    def _require_open(self) -> None:
        """Raise the error that has ended the open transaction, if one has: its records stay."""
        try:
            # While one is open, this changes nothing, and the error says no more than that.
            self._producer.begin_transaction()
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError._STATE:
                raise

    def _write(self, records: Iterable[OutputRecord], topics: set[str]) -> None:
        """Write records in one transaction; add their topics to `topics`."""
        try:
            self._producer.begin_transaction()
            for record in records:
                topics.add(record[0])
                self._produce(record)
        except KafkaException as exception:
            raise translate(exception) from exception
        retry(self._producer.commit_transaction, self._timeout_s)

    def _produce(self, record: OutputRecord) -> None:
        topic, key, value, partition, timestamp, headers = record
        # confluent-kafka's type does not allow a list of headers with only bytes, though it may be
        # one.
        some: Any = headers or []
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition, timestamp=timestamp, headers=some
                )
                return
            except BufferError:
                self._producer.poll(_POLL_S)
