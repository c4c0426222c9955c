"""Writes records to any partitions in transactions, for tools that move records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaException, Producer

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError, UnavailableError
from kafka_pipeline.common.kafka.clients import client_config, retry, translate
from kafka_pipeline.common.kafka.lifeline import connect_with_lifeline
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
