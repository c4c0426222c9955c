"""The outputs of processors, until they are taken and sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from common.record_batch import KafkaHeaders, OutputRecord


class OutputTopics(Protocol):
    """Tells a task what it must know about the topics that it writes to.

    `num_partitions` and `size_limit` may block on the first call for a topic. They raise what the
    engine's clients raise if the topic cannot be found.
    """

    def num_partitions(self, topic: str) -> int:
        """Return how many partitions a topic has."""

    def size_limit(self, topic: str) -> int:
        """Return how many bytes a record in a topic may have, including its overhead."""

    def recheck_size_limit(self, topic: str) -> None:
        """Check whether the limit of a topic, which refuses a record, still holds.

        Raises `EngineError` if it does not: the task starts again, and reads the new limit.
        """


@dataclass(frozen=True, slots=True)
class OutputColumns:
    """Records for one topic.

    `partitions` is `None` if the keys of all records decide their partitions; otherwise, it has the
    partition of each record, or -1 where the key decides. `value_bytes` is the total size of the
    values.
    """

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[KafkaHeaders] | None
    partitions: Sequence[int] | None
    value_bytes: int


ELSEWHERE = ""
"""The place of records that the task has left out before it came to this TaskManager."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A record that was left out for a reason, to be counted: dropped, or sent to `late_to`.

    `place` is the topic that the record was read from or was for, the store that refused it, or the
    processor that left it out.
    """

    reason: str
    place: str


def described(dropped: Mapping[Dropped, int]) -> dict[str, int]:
    """Return counts of dropped records as a log shows them."""
    return {f"{each.place}: {each.reason}": count for each, count in dropped.items()}


Output = OutputRecord | OutputColumns | Dropped
