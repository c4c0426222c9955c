"""Detects a consumer that delivers nothing although there are records to read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.lifeline import Lifeline, connect_with_lifeline

SILENCE_S = 10.0
GRACE_S = 5.0
_MOST_STEP_S = 0.5
_LONGEST_SILENCE_S = 600.0
_ANSWER_S = 10.0


class Scout:
    """A new consumer that looks where partitions end, and can read on from there.

    librdkafka asks the broker that it has used last for leaders (`rd_kafka_broker_weight_usable`,
    2.16). So a consumer of one leader asks that one. If it is cut off from the other brokers, it
    names itself for as long as that lasts, and answers fetches with nothing. A new consumer begins
    with a broker of its configuration.
    """

    def __init__(self, settings: dict[str, Any], partitions: Collection[Partition]) -> None:
        """Connect and ask in a thread of its own. End with `take` or `dismiss`."""
        self.ends: Mapping[Partition, int] = {}
        """The last stable offsets, once they are known; none if that failed."""
        self.is_back = False
        """Whether there is an answer, or will be none."""
        self._client: tuple[Consumer, Lifeline] | None = None
        self._is_taken = False
        self._is_done = threading.Event()
        threading.Thread(
            target=self._look, args=(settings, list(partitions)), name="scout", daemon=True
        ).start()

    def take(self) -> tuple[Consumer, Lifeline]:
        """Return the consumer, which now belongs to the caller. Only once `ends` are known."""
        assert self._client is not None
        self._is_taken = True
        self._is_done.set()
        return self._client

    def dismiss(self) -> None:
        """Close the consumer as soon as it has its answer; does not block."""
        self._is_done.set()

    def _look(self, settings: dict[str, Any], partitions: list[Partition]) -> None:
        wanted = [TopicPartition(*partition, OFFSET_END) for partition in partitions]
        # The consumer in use reports what is wrong.
        with suppress(EngineError, KafkaException):
            self._client = client, _ = connect_with_lifeline(Consumer, settings)
            found = client.offsets_for_times(wanted, timeout=_ANSWER_S)
            self.ends = {(e.topic, e.partition): e.offset for e in found if e.error is None}
        self.is_back = True
        self._is_done.wait()
        if self._client is not None and not self._is_taken:
            self._client[0].close()


class StallWatch:
    """Sends a scout once a consumer has delivered nothing for some seconds (at first).

    If the consumer then delivers nothing during `GRACE_S`, although the scout has found an end
    after its position, it is stalled, and the scout takes its place.

    A consumer also delivers nothing while it reads past records of aborted transactions. So each
    time a new consumer did not help, the next one gets twice as long.

    Of the time between two checks, at most half a second counts: for the rest, this process was
    stopped or busy.
    """

    def __init__(
        self, send: Callable[[Collection[Partition]], Scout], silence_s: float = SILENCE_S
    ) -> None:
        self._send = send
        self._least_silence_s = self._timeout_s = silence_s
        self._looked_s = 0.0
        self._silent_s = 0.0
        self._scout: Scout | None = None

    def heard(self, now_s: float) -> None:
        """Record that the consumer has delivered something."""
        self._timeout_s = self._least_silence_s
        self.begin(now_s)

    def begin(self, now_s: float) -> None:
        """Record that the consumer reads other partitions or positions from now on."""
        self._looked_s = now_s
        self._silent_s = 0.0
        self.end()

    def end(self) -> None:
        """Dismiss the scout that is under way."""
        if self._scout is not None:
            self._scout.dismiss()
            self._scout = None

    def find_successor(self, positions: Mapping[Partition, int], now_s: float) -> Scout | None:
        """Return what replaces the consumer, which reads these offsets next, if it is stalled.

        Never blocks.
        """
        if not positions:
            self.begin(now_s)
            return None
        self._silent_s += min(now_s - self._looked_s, _MOST_STEP_S)
        self._looked_s = now_s
        if self._silent_s < self._timeout_s:
            return None
        if self._scout is None:
            self._scout = self._send(positions)
        if self._silent_s < self._timeout_s + GRACE_S:
            return None
        scout = self._scout
        ends = scout.ends
        if not any(ends.get(partition, -1) > at for partition, at in positions.items()):
            self.begin(now_s)
            return None
        self._scout = None
        self.begin(now_s)
        self._timeout_s = min(2 * self._timeout_s, _LONGEST_SILENCE_S)
        return scout
