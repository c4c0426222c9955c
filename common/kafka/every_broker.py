"""Asks every broker where partitions end, since one that is cut off from the others is behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition

T = TypeVar("T")


class EveryBroker:
    """Asks for offsets of partitions by way of each broker, for topics that are not to be written.

    A broker that is cut off from the others takes itself for the leader, and its partitions end too
    early. The other brokers know who leads. So the answer that goes furthest counts. Brokers that
    are dead are not asked: after some seconds, those that live do not name them any more.

    All calls raise `UnavailableError` if a broker gives no answer.
    """

    def __init__(self, config: Config, admin: Admin) -> None:
        """Connect to each broker that `admin` finds."""
        self._admins = {
            address: Admin(replace(config, kafka={**config.kafka, "bootstrap.servers": address}))
            for address in admin.brokers()
        }

    def stable_ends(self, places: Sequence[Partition]) -> dict[Partition, int]:
        """Return the last stable offset of each partition."""
        answers = self._ask(lambda admin: admin.stable_ends(places))
        return {place: max(answer[place] for answer in answers) for place in places}

    def offsets_at(
        self, places: Sequence[Partition], timestamp_ms: int
    ) -> dict[Partition, int | None]:
        """Return the offset of the first record of that time or later; `None` if there is none."""
        answers = self._ask(lambda admin: admin.offsets_at(places, timestamp_ms))
        return {place: _first(place, answers) for place in places}

    def _ask(self, question: Callable[[Admin], T]) -> list[T]:
        answers: list[T] = []
        for address, admin in self._admins.items():
            try:
                answers.append(question(admin))
            except EngineError as error:
                raise UnavailableError(
                    f"only all brokers together say for sure where a topic ends, and {address} "
                    f"gives no answer: try again later ({error})"
                ) from error
        return answers


def _first(place: Partition, answers: Sequence[Mapping[Partition, int | None]]) -> int | None:
    """Return the offset that a broker has found: what it has, all leaders after it have."""
    found = (answer[place] for answer in answers)
    return next((offset for offset in found if offset is not None), None)
