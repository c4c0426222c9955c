"""A processor whose results are committed outside of Kafka, by a system that keeps its position."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from kafka_pipeline.streams.processor import BatchProcessor


@dataclass(frozen=True, slots=True)
class SinkStart:
    """The only input of a task as it starts, with offsets in Kafka.

    The task reads from `committed`, the offset of its group, or from the oldest record if that is
    `None`. `end` follows the last record. The id changes if the topic is deleted and made again.
    """

    topic: str
    topic_id: str
    partition: int
    committed: int | None
    oldest: int
    end: int


class ExactSink(BatchProcessor):
    """Keeps the results of its records until `write`, which commits them with a position.

    `write` comes before the group's offsets are committed. So what is outside of Kafka is ahead of
    these offsets, or equal. After a start, the records in between come again: `process` does the
    same to them, rejects the same ones, and keeps no result. So their dead letters, which are in
    the transaction with the offsets, are written exactly once too.
    """

    @abstractmethod
    def resume(self, start: SinkStart) -> None:
        """Find the position outside of Kafka; called once, before any record.

        Raises `NonRetriableError` if records would be missing, or if the results cannot be written
        at all, and `TransactionFailedError` if the other system does not answer.
        """

    @abstractmethod
    def write(self, position: int) -> None:
        """Commit the results of all records before an offset, with that offset, in one step.

        Blocks for as long as that takes. Raises `FencedError` if another owner of the task has
        committed since, and `TransactionFailedError` if the outcome is unknown.
        """
