"""Reads the committed positions of other processors' groups, repeatedly."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import Partition, client_config
from kafka_pipeline.common.kafka.lifeline import Lifeline, connect_with_lifeline

_ANSWER_S = 2.0


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

    def __init__(self, config: Config) -> None:
        self._config = config
        self._askers: dict[str, _Asker] = {}

    def committed(
        self, group: str, partitions: Collection[Partition]
    ) -> Mapping[Partition, Committed] | None:
        """Return the committed positions of a group, `None` without an answer.

        Partitions never committed are left out.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        try:
            found = self._asker(group).consumer.committed(wanted, timeout=_ANSWER_S)
        except (KafkaException, EngineError):
            return None
        if any(entry.error is not None for entry in found):
            return None
        return {
            (entry.topic, entry.partition): Committed.read(entry.offset, entry.metadata)
            for entry in found
            if entry.offset >= 0
        }

    def ends(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the high watermarks of partitions, which include open transactions."""
        return self._offsets(partitions, OFFSET_END)

    def starts(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the offsets of the oldest records of partitions."""
        return self._offsets(partitions, OFFSET_BEGINNING)

    def _offsets(self, partitions: Collection[Partition], which: int) -> dict[Partition, int]:
        """Ask for offsets by "time", of which two special values mean the ends (ListOffsets).

        The admin client would make a future for each partition, which costs more than the rest.
        """
        asker = next(iter(self._askers.values()), None)
        if asker is None or not partitions:
            return {}
        wanted = [TopicPartition(*partition, which) for partition in partitions]
        try:
            found = asker.consumer.offsets_for_times(wanted, timeout=_ANSWER_S)
        except KafkaException:
            return {}
        return {
            (entry.topic, entry.partition): entry.offset
            for entry in found
            if entry.error is None and entry.offset >= 0
        }

    def keep_only(self, groups: Collection[str]) -> None:
        """Close the consumers of all other groups."""
        for group in self._askers.keys() - set(groups):
            self._askers.pop(group).consumer.close()

    def _asker(self, group: str) -> _Asker:
        asker = self._askers.get(group)
        if asker is not None:
            with asker.lifeline.log.polling():
                asker.consumer.poll(0)
            if not asker.lifeline.is_cut:
                return asker
            self._askers.pop(group).consumer.close()
        settings = client_config(
            self._config,
            "consumer",
            group_id=group,
            isolation_level="read_uncommitted",
            enable_auto_commit=False,
            enable_auto_offset_store=False,
        )
        asker = self._askers[group] = _Asker(*connect_with_lifeline(Consumer, settings))
        return asker
