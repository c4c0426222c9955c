"""The outputs of processors, until they are taken and sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafka_pipeline.common.record_batch import KafkaHeaders, OutputRecord
from kafka_pipeline.common.topics import TopicLimits
from kafka_pipeline.common.user_series import UserSeries


class OutputTopics(Protocol):
    """Tells a task what it must know about the topics that it writes to.

    `num_partitions` and `limits` may block on the first call for a topic. They raise what the
    engine's clients raise if the topic cannot be found.
    """

    def num_partitions(self, topic: str) -> int:
        """Return how many partitions a topic has."""

    def limits(self, topic: str) -> TopicLimits:
        """Return what a topic accepts; `size_bytes` is for a record with all its overhead."""

    def recheck_limits(self, topic: str) -> None:
        """Check whether the limits of a topic, which refuses a record, still hold.

        Raises `EngineError` if they do not: the task starts again, and reads the new ones.
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


@dataclass(frozen=True, slots=True)
class Counted:
    """What user code adds to one of its counters."""

    series: UserSeries
    amount: float


@dataclass(frozen=True, slots=True)
class Gauged:
    """What user code sets one of its gauges to."""

    series: UserSeries
    value: float


Note = Dropped | Counted | Gauged
"""An output that goes into the figures, and is not sent."""


def described(dropped: Mapping[Dropped, int]) -> dict[str, int]:
    """Return counts of dropped records as a log shows them."""
    return {f"{each.place}: {each.reason}": count for each, count in dropped.items()}


NOTES = frozenset({Dropped, Counted, Gauged})
"""The types of a `Note`."""

Output = OutputRecord | OutputColumns | Note
