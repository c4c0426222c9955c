"""Detects clients that may never look for brokers again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import structlog
from confluent_kafka import KafkaError

from kafka_pipeline.common.errors import PipelineError
from kafka_pipeline.common.kafka.clients import PromptLog, connect, is_refusal

LOSS_TIMEOUT_S = 5.0
REFUSED_AFTER_S = 3.0

T = TypeVar("T")

logger = structlog.get_logger()


class Lifeline:
    """Reports when a client must be replaced: it lost all brokers five seconds ago.

    When the last broker shuts down cleanly, its last answers name no brokers, and librdkafka
    forgets all that it knew. If the connections break at that very moment, it never connects again
    (its issue 5301, open; seen with 2.16.0). This looks the same as if the brokers were away. So
    every client that reports the loss of all brokers is replaced, and so is its successor if it
    finds none.
    """

    def __init__(self) -> None:
        self._lost_s: float | None = None
        self._refused_s = 0.0
        self.refusal: KafkaError | None = None
        """The first refusal of a login or a certificate, on either side."""
        self.log = PromptLog()
        """The log of the client; wrap polls in its `polling` if the client is rarely polled."""

    def on_error(self, error: KafkaError) -> None:
        """Record an error; the client calls this while it is polled."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._lost_s is None:
            self._lost_s = time.monotonic()
        if is_refusal(error) and self.refusal is None:
            self.refusal = error
            self._refused_s = time.monotonic()

    def on_answer(self) -> None:
        """Record that a broker has answered."""
        self._lost_s = None

    def put_off(self) -> None:
        """Report a loss again after five seconds: no successor can be made now."""
        if self._lost_s is not None:
            self._lost_s = time.monotonic()

    @property
    def is_refused(self) -> bool:
        """Whether the first refusal was three seconds ago: it is not just a starting broker."""
        return self.refusal is not None and time.monotonic() - self._refused_s >= REFUSED_AFTER_S

    @property
    def is_cut(self) -> bool:
        """Whether the client has lost all brokers, and no answer has come since."""
        return self._lost_s is not None

    @property
    def is_lost(self) -> bool:
        """Whether the client must be replaced."""
        return self._lost_s is not None and time.monotonic() - self._lost_s >= LOSS_TIMEOUT_S


def successor(
    client: Callable[[dict[str, Any]], T], settings: dict[str, Any], former: Lifeline
) -> tuple[T, Lifeline] | None:
    """Make a client that replaces one, or return `None`, with a warning, if that fails for now.

    It does while there is no token, or while somebody replaces the files of a certificate. That
    must not end a daemon: its clients work as long as their connections last.
    """
    try:
        return connect_with_lifeline(client, settings)
    except PipelineError as error:
        logger.warning("a client of Kafka cannot be replaced now", reason=str(error))
        former.put_off()
        return None


def connect_with_lifeline(
    client: Callable[[dict[str, Any]], T], settings: dict[str, Any]
) -> tuple[T, Lifeline]:
    """Make a client, and the lifeline that says when to replace it. Raises as `connect`."""
    lifeline = Lifeline()
    logger = lifeline.log.logger(settings)
    return connect(client, settings | {"error_cb": lifeline.on_error, "logger": logger}), lifeline
