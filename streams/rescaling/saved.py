"""The state of a processor in a savepoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from kafka_pipeline.common.record_batch import KafkaHeaders


class SavedRow(NamedTuple):
    """A record of a state topic; a value of `None` deletes."""

    key: bytes
    value: bytes | None
    timestamp: int
    headers: KafkaHeaders = None


class SpreadRow(NamedTuple):
    """A record for a partition of a state topic."""

    key: bytes
    value: bytes | None
    partition: int
    timestamp: int
    headers: KafkaHeaders


class SavedState(Protocol):
    """Reads the stores of a processor."""

    def read(self, store: str, task: int) -> Iterable[Sequence[SavedRow]]:
        """Yield the records of a task's state topic, in their order, some at a time."""

    def last(self, store: str, task: int) -> dict[bytes, SavedRow]:
        """Return the last record of each key that was not deleted."""
