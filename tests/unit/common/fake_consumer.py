"""A consumer of librdkafka that has what a test gives it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, Message, TopicPartition


def message(offset: int, topic: str = "lines", partition: int = 0, **others: Any) -> Message:
    value = b"%d" % offset
    return Message(topic=topic, partition=partition, offset=offset, key=b"k", value=value, **others)


class FakeConsumer:
    """Hands out records that have these offsets, and once."""

    def __init__(self, offsets: Sequence[int]) -> None:
        self.bring(offsets)
        self.assigned: list[tuple[str, int, int]] = []
        """The last ones."""
        self.unassigned: set[tuple[str, int]] = set()
        self.ends: dict[tuple[str, int], int] = {}
        """Where partitions end; those that are not here have no leader."""
        self.servers = ""
        """The brokers that it was given."""
        self.closed = threading.Event()

    def bring(self, offsets: Sequence[int]) -> None:
        self._messages = [message(offset) for offset in offsets]

    def bring_mixed(self, *places: tuple[str, int, int]) -> None:
        """Hand out records of these topics, partitions and offsets next."""
        self._messages = [message(offset, topic, number) for topic, number, offset in places]

    def report(
        self,
        code: int,
        offset: int,
        topic: str = "lines",
        partition: int = 0,
        reason: str | None = None,
    ) -> None:
        """Hand out an error, or an end, after the records that are there."""
        error = KafkaError(code, reason)
        self._messages.append(Message(topic=topic, partition=partition, offset=offset, error=error))

    def poll(self, _wait_s: float) -> Message | None:
        return self._messages.pop(0) if self._messages else None

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned = [(each.topic, each.partition, each.offset) for each in partitions]

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self.unassigned |= {(each.topic, each.partition) for each in partitions}

    def list_topics(self, _topic: str, timeout: float) -> None:
        pass

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        """Only for ends."""
        assert {each.offset for each in partitions} == {OFFSET_END}
        answers = [TopicPartition(each.topic, each.partition) for each in partitions]
        for answer in answers:
            if (end := self.ends.get((answer.topic, answer.partition))) is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            answer.offset = end
        return answers

    def close(self) -> None:
        self.closed.set()

    def consume(self, count: int, _wait_s: float) -> list[Message]:
        taken, self._messages = self._messages[:count], self._messages[count:]
        return taken
