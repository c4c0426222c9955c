"""Columns of the records that a consumer delivers, each offset once and ascending."""

from __future__ import annotations

from itertools import islice
from operator import ge
from typing import Any

import structlog
from confluent_kafka import Message

from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch

BROKEN_HEADERS = "the name of a header is not UTF-8"

logger = structlog.get_logger()


class Columns:
    """Turns the records of one partition that come from one fetch into columns.

    A record whose headers are broken is a batch of its own, without its headers. The first call of
    `headers` on it raises; a second call would return tuples with null pointers in them.
    """

    def __init__(self, partition: Partition, begin: int) -> None:
        self.next_offset = begin
        """The first offset that is not in here; records before it are left out."""
        self._topic, self._number = partition
        self._batches: list[RecordBatch] = []
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._timestamps: list[int] = []
        self._offsets: list[int] = []
        self._headers: list[KafkaHeaders] | None = None

    def add(self, messages: list[Message]) -> None:
        """Add records."""
        messages, offsets = unseen(messages, self.next_offset)
        if offsets:
            self.next_offset = offsets[-1] + 1
        unread = iter(messages)
        start = 0
        while start < len(messages):
            headers: list[Any] = []
            try:
                headers.extend(map(Message.headers, unread))
            except SystemError:
                bad = start + len(headers)
                self._append(messages[start:bad], offsets[start:bad], headers)
                self._end_batch()
                self._append(messages[bad : bad + 1], offsets[bad : bad + 1], [None])
                self._end_batch(BROKEN_HEADERS)
                start = bad + 1
            else:
                self._append(messages[start:], offsets[start:], headers)
                break

    def batches(self) -> list[RecordBatch]:
        """Return all records that were added."""
        self._end_batch()
        return self._batches

    def _append(self, messages: list[Message], offsets: list[int], headers: list[Any]) -> None:
        if self._headers is None and any(headers):
            self._headers = [None] * len(self._offsets)
        if self._headers is not None:
            self._headers += headers
        self._offsets += offsets
        self._keys += map(Message.key, messages)
        self._values += map(Message.value, messages)
        self._timestamps += [time for _, time in map(Message.timestamp, messages)]

    def _end_batch(self, error: str = "") -> None:
        if self._offsets:
            self._batches.append(
                RecordBatch(
                    self._topic,
                    self._number,
                    self._keys,
                    self._values,
                    self._timestamps,
                    self._offsets,
                    self._headers,
                    error,
                )
            )
            self._begin_batch()


def unseen(messages: list[Message], begin: int) -> tuple[list[Message], list[int]]:
    """Return the records and their offsets, without those before `begin` and without duplicates.

    librdkafka may deliver such records (its issues 4637 and 5345).
    """
    offsets: list[Any] = list(map(Message.offset, messages))
    if offsets[0] >= begin and not any(map(ge, offsets, islice(offsets, 1, None))):
        return messages, offsets
    kept: list[Message] = []
    end = begin
    for message, offset in zip(messages, offsets, strict=True):
        if offset >= end:
            kept.append(message)
            end = offset + 1
    logger.warning(
        "records delivered twice are ignored",
        topic=messages[0].topic(),
        partition=messages[0].partition(),
        records=len(messages) - len(kept),
    )
    return kept, [message.offset() for message in kept]  # type: ignore[misc]
