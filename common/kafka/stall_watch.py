"""Detects a consumer that delivers nothing although there are records to read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import KafkaException

from kafka_pipeline.common.kafka.clients import Partition, offset_of

SILENCE_S = 10.0
GRACE_S = 5.0
_MOST_STEP_S = 0.5
_LONGEST_SILENCE_S = 600.0


class EndsAsker(Protocol):
    """Asks brokers where partitions end; `Admin` is one."""

    def request_stable_ends(
        self, partitions: Collection[Partition]
    ) -> dict[Partition, Future[Any]]:
        """Ask for the last stable offsets; does not wait for the answers."""


class StallWatch:
    """Asks for end offsets once a consumer has delivered nothing for ten seconds (at first).

    If the consumer then delivers nothing for five more seconds, although one of these ends is after
    its position, it is stalled, and only a new consumer helps. These 15 s are longer than a request
    may take.

    A consumer also delivers nothing while it reads past records of aborted transactions. So each
    time a new consumer did not help, the next one gets twice as long.

    Of the time between two checks, at most half a second counts: for the rest, this process was
    stopped or busy.
    """

    def __init__(self, asker: EndsAsker) -> None:
        self._asker = asker
        self._looked_s = 0.0
        self._silent_s = 0.0
        self._timeout_s = SILENCE_S
        self._pending: dict[Partition, Future[Any]] = {}

    def heard(self, now_s: float) -> None:
        """Record that the consumer has delivered something."""
        self._timeout_s = SILENCE_S
        self.begin(now_s)

    def begin(self, now_s: float) -> None:
        """Record that the consumer reads other partitions or positions from now on."""
        self._looked_s = now_s
        self._silent_s = 0.0
        self._pending = {}

    def stands_still(self, positions: Mapping[Partition, int], now_s: float) -> bool:
        """Return whether the consumer, which reads these offsets next, is stalled. Never blocks."""
        if not positions:
            self.begin(now_s)
            return False
        self._silent_s += min(now_s - self._looked_s, _MOST_STEP_S)
        self._looked_s = now_s
        if self._silent_s < self._timeout_s:
            return False
        if not self._pending:
            self._pending = dict(self._asker.request_stable_ends(positions))
        if self._silent_s < self._timeout_s + GRACE_S:
            return False
        answers = self._pending
        self.begin(now_s)
        stands_still = any(
            _offset(answer) > positions[partition]
            for partition, answer in answers.items()
            if partition in positions
        )
        if stands_still:
            self._timeout_s = min(2 * self._timeout_s, _LONGEST_SILENCE_S)
        return stands_still


def _offset(answer: Future[Any]) -> int:
    """Return the requested offset, or -1 if there is no answer, or none yet."""
    if not answer.done():
        return -1
    try:
        return offset_of(answer.result())
    except KafkaException:
        return -1
