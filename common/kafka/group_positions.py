"""Reads the committed positions of other processors' groups, repeatedly."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaException,
    TopicPartition,
)

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition, client_config, forget_leaders
from kafka_pipeline.common.kafka.lifeline import Lifeline, connect_with_lifeline
from kafka_pipeline.common.kafka.offsets import answered

_ANSWER_S = 2.0
_LEAST_ANSWER_S = 0.5


@dataclass(slots=True)
class _Asker:
    """A consumer of a group that asks for positions, but reads no records."""

    consumer: Consumer
    lifeline: Lifeline


class GroupPositions:
    """Asks for positions and offsets, and leaves out those without an answer.

    For one thread at a time. Each group has a consumer, as the admin client must not ask
    coordinators (librdkafka 4605). The consumer gets the last committed positions, without waiting
    for transactions that are about to commit.
    """

    def __init__(self, config: Config, admin: Admin) -> None:
        self._config = config
        self._admin = admin
        self._askers: dict[str, _Asker] = {}

    def committed(
        self, wanted: Mapping[str, Collection[Partition]]
    ) -> dict[str, dict[Partition, Committed]]:
        """Return the committed positions of groups, without partitions never committed.

        Groups share the two seconds in which they may give no answer, so that a lost coordinator
        does not hold up those of the others; each has at least half a second. Closes the consumers
        of all other groups.
        """
        self._connect(wanted)
        found: dict[str, dict[Partition, Committed]] = {}
        left_s = _ANSWER_S
        for group in filter(self._askers.__contains__, wanted):
            began_s = time.monotonic()
            answer = self._ask(group, wanted[group], max(left_s, _LEAST_ANSWER_S))
            if answer is None:
                left_s -= time.monotonic() - began_s
            else:
                found[group] = answer
        return found

    def _ask(
        self, group: str, partitions: Collection[Partition], timeout_s: float
    ) -> dict[Partition, Committed] | None:
        wanted = [TopicPartition(*partition) for partition in partitions]
        try:
            found = self._askers[group].consumer.committed(wanted, timeout=timeout_s)
        except KafkaException:
            return None
        if any(entry.error is not None for entry in found):
            return None
        return {
            (entry.topic, entry.partition): Committed.read(entry.offset, entry.metadata)
            for entry in found
            if entry.offset >= 0
        }

    def ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the high watermarks of partitions, which include open transactions."""
        return self._offsets(partitions, OFFSET_END)

    def starts(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the offsets of the oldest records of partitions."""
        return self._offsets(partitions, OFFSET_BEGINNING)

    def _offsets(self, partitions: Collection[Partition], which: int) -> dict[Partition, int]:
        """Ask for offsets by "time", of which two special values mean the ends (ListOffsets).

        One leader that does not answer takes the answers of all others with it
        (`rd_kafka_offsets_for_times`). Only then the admin client asks, which has an answer for
        each partition: its futures cost more than all else.
        """
        asker = next(iter(self._askers.values()), None)
        if asker is None or not partitions:
            return {}
        wanted = [TopicPartition(*partition, which) for partition in partitions]
        try:
            found = asker.consumer.offsets_for_times(wanted, timeout=_ANSWER_S)
        except KafkaException:
            is_high = which == OFFSET_END
            asked = self._admin.request_watermarks(partitions, _ANSWER_S, is_high=is_high)
            # Those of all leaders come at once, when the last one has answered or its time is up.
            return answered(asked, 2 * _ANSWER_S)
        return {
            (entry.topic, entry.partition): entry.offset
            for entry in found
            if entry.error is None and entry.offset >= 0
        }

    def _connect(self, groups: Collection[str]) -> None:
        """Have a consumer for each of these groups, as far as possible, and for no other.

        They look for their coordinators in the background, all at the same time.
        """
        for group, asker in list(self._askers.items()):
            with asker.lifeline.log.polling():
                asker.consumer.poll(0)
            if group not in groups or asker.lifeline.is_cut:
                self._askers.pop(group).consumer.close()
        for group in groups:
            if group not in self._askers:
                with suppress(EngineError):
                    self._askers[group] = self._asker(group)

    def _asker(self, group: str) -> _Asker:
        settings = client_config(
            self._config,
            "consumer",
            group_id=group,
            isolation_level="read_uncommitted",
            enable_auto_commit=False,
            enable_auto_offset_store=False,
        )
        forget_leaders(settings)
        return _Asker(*connect_with_lifeline(Consumer, settings))
