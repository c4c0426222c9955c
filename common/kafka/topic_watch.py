"""Detects topics that are deleted while being read, which librdkafka does not report."""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import KafkaException

from kafka_pipeline.common.kafka.clients import GONE_AFTER_S, is_missing_topic

INTERVAL_S = 5.0

DELETED = "the topic was deleted"
MADE_ANEW = (
    "the topic was deleted and created again: some records of the new one may have been left out"
)


class Describer(Protocol):
    """Asks brokers about topics; `Admin` is one."""

    def request_topics(self, names: Collection[str]) -> dict[str, Future[Any]]:
        """Ask for the `TopicDescription` of topics; does not wait for the answers."""


class TopicIdWatch:
    """Asks every five seconds whether topics still have the ids that they had at first.

    Brokers that are starting or lag behind may know less than others, so a topic counts as gone
    only if no answer has contradicted that for ten seconds. A missing answer means nothing.
    """

    def __init__(self, describer: Describer) -> None:
        self._describer = describer
        self._ask_at_s = 0.0
        self._pending: dict[str, Future[Any]] = {}
        self._ids: dict[str, str] = {}
        self._suspects: dict[str, tuple[str, float]] = {}

    def gone(self, topics: Collection[str], now_s: float | None = None) -> dict[str, str]:
        """Return those of `topics` that are gone, each with what happened to it. Never blocks."""
        now_s = time.monotonic() if now_s is None else now_s
        if now_s < self._ask_at_s or not all(f.done() for f in self._pending.values()):
            return {}
        for topic, answer in self._pending.items():
            self._on_answer(topic, answer, now_s)
        # A copy: the client fails all answers if one is missing from the dict that it returned.
        self._pending = dict(self._describer.request_topics(topics)) if topics else {}
        self._ask_at_s = now_s + INTERVAL_S
        return {
            t: what for t, (what, since) in self._suspects.items() if now_s - since >= GONE_AFTER_S
        }

    def forget(self, topic: str) -> None:
        """Forget a topic that is no longer read: if it is read again, it counts as new."""
        for known in (self._pending, self._ids, self._suspects):
            known.pop(topic, None)

    def _on_answer(self, topic: str, answer: Future[Any], now_s: float) -> None:
        try:
            id_ = str(answer.result().topic_id)
        except KafkaException as exception:
            if not is_missing_topic(exception.args[0]):
                return
            what = DELETED
        else:
            if self._ids.setdefault(topic, id_) == id_:
                self._suspects.pop(topic, None)
                return
            what = MADE_ANEW
        _, since = self._suspects.get(topic, (what, now_s))
        self._suspects[topic] = what, since
