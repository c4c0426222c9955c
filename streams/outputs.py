"""What processors have sent to topics and nobody has taken yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from common.record_batch import Headers, OutputRecord


class Outlet(Protocol):
    """What a task must know about the topics that it writes to.

    Both may block, the first time that a topic is asked for, and raise what the engine's clients
    raise if it cannot be found.
    """

    def num_partitions(self, topic: str) -> int:
        """Return how many partitions a topic has."""

    def size_limit(self, topic: str) -> int:
        """Return how many bytes a record may have in a topic, all that comes with it included."""

    def doubt(self, topic: str) -> None:
        """Look whether the limit of a topic still holds; it refuses a record.

        Raises `EngineError` if it does not: the task starts again, and learns the new one.
        """


@dataclass(frozen=True, slots=True)
class OutputColumns:
    """Records for a topic, whose keys decide about the partitions.

    Records without a key go to `keyless_partition`, which is `None` if there are none.
    """

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None
    keyless_partition: int | None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A record that goes nowhere, for a reason: to be counted.

    `place` is the topic that it was read from or should go to, or the store that is without it.
    """

    reason: str
    place: str


def described(dropped: Mapping[Dropped, int]) -> dict[str, int]:
    """Return counts of dropped records as a log shows them."""
    return {f"{each.place}: {each.reason}": count for each, count in dropped.items()}


Output = OutputRecord | OutputColumns | Dropped
