"""Notices a consumer that brings nothing though there is something to bring."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import KafkaException

from common.kafka.clients import Partition

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
    """Asks for the ends of partitions when nothing was heard of them for ten seconds (at first).

    If a consumer then brings nothing for five more, though one of these ends lies behind what it
    has read, it stands still, and only another one helps. That is longer than a request may take.

    A consumer brings nothing, either, while it reads past records of aborted transactions: each
    time that another one did not help, the next one gets twice as long.

    Of the time between two looks, half a second counts: in the rest, this process was stopped, or
    busy with other things.
    """

    def __init__(self, asker: EndsAsker) -> None:
        self._asker = asker
        self._looked_s = 0.0
        self._silent_s = 0.0
        self._patience_s = SILENCE_S
        self._pending: dict[Partition, Future[Any]] = {}

    def heard(self, now_s: float) -> None:
        """Take note that the consumer has brought something."""
        self._patience_s = SILENCE_S
        self.begin(now_s)

    def begin(self, now_s: float) -> None:
        """Take note that the consumer is to read something else."""
        self._looked_s = now_s
        self._silent_s = 0.0
        self._pending = {}

    def stands_still(self, positions: Mapping[Partition, int], now_s: float) -> bool:
        """Tell whether the consumer does, which is to read these offsets next. Never blocks."""
        if not positions:
            self.begin(now_s)
            return False
        self._silent_s += min(now_s - self._looked_s, _MOST_STEP_S)
        self._looked_s = now_s
        if self._silent_s < self._patience_s:
            return False
        if not self._pending:
            self._pending = dict(self._asker.request_stable_ends(positions))
        if self._silent_s < self._patience_s + GRACE_S:
            return False
        answers = self._pending
        self.begin(now_s)
        stands_still = any(
            _offset(answer) > positions[partition]
            for partition, answer in answers.items()
            if partition in positions
        )
        if stands_still:
            self._patience_s = min(2 * self._patience_s, _LONGEST_SILENCE_S)
        return stands_still


def _offset(answer: Future[Any]) -> int:
    """Return the offset that was asked for, -1 if there is no answer, or none yet."""
    if not answer.done():
        return -1
    try:
        return int(answer.result().offset)
    except KafkaException:
        return -1
