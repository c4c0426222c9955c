"""Notices clients that may never look for brokers again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError

from common.kafka.clients import connect

PATIENCE_S = 5.0

T = TypeVar("T")


class Lifeline:
    """Tells that a client lost all brokers five seconds ago: it is to be replaced.

    The last broker that stops in good order names no broker in its last answers. librdkafka then
    forgets all that it knew, and where the connections broke at that very moment, it never
    connects again (its issue 5301, open; seen with 2.16.0). From outside that is like brokers that
    are away, so every client that says that it has lost all is replaced, and so is its successor,
    if that finds none.
    """

    def __init__(self) -> None:
        self._lost_s: float | None = None

    def on_error(self, error: KafkaError) -> None:
        """Take note of an error; the client calls this while it is polled."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._lost_s is None:
            self._lost_s = time.monotonic()

    def mend(self) -> None:
        """Take note that a broker has answered."""
        self._lost_s = None

    @property
    def is_cut(self) -> bool:
        """Whether the client has lost all brokers, and was not mended."""
        return self._lost_s is not None

    @property
    def is_lost(self) -> bool:
        """Whether the client is to be replaced."""
        return self._lost_s is not None and time.monotonic() - self._lost_s >= PATIENCE_S


def connect_with_lifeline(
    client: Callable[[dict[str, Any]], T], settings: dict[str, Any]
) -> tuple[T, Lifeline]:
    """Make a client, and what tells when it is to be replaced. Raises as `connect`."""
    lifeline = Lifeline()
    return connect(client, settings | {"error_cb": lifeline.on_error}), lifeline
