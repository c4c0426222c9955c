"""All brokers are asked where partitions end, as one of them may be cut off from the others."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka import every_broker
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition, TransactionFailedError
from kafka_pipeline.common.kafka.every_broker import EveryBroker
from tests.unit.taskmanager.fakes import CONFIG

PLACES: list[Partition] = [("in", 0), ("in", 1)]


class Asked:
    """An admin client that knows the brokers, or begins with one of them.

    The broker "old" takes itself for the leader of all partitions.
    """

    def __init__(self, config: Config | None = None) -> None:
        self._address = config.bootstrap_servers if config else ""

    def brokers(self) -> list[str]:
        return ["a:1", "old:1", "b:1"]

    def stable_ends(self, places: list[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(places, 5 if self._address == "old:1" else 9)

    def offsets_at(self, places: list[Partition], timestamp_ms: int) -> dict[Partition, Any]:
        # Each offset has its own number as its time.
        ends = self.stable_ends(places)
        return {p: timestamp_ms if timestamp_ms < end else None for p, end in ends.items()}


@pytest.fixture
def every(monkeypatch: pytest.MonkeyPatch) -> EveryBroker:
    monkeypatch.setattr(every_broker, "Admin", Asked)
    return EveryBroker(CONFIG, cast(Admin, Asked()))


def test_the_answer_that_goes_furthest_counts(every: EveryBroker) -> None:
    assert every.stable_ends(PLACES) == dict.fromkeys(PLACES, 9)
    found = [every.offsets_at(PLACES, time)["in", 1] for time in (3, 7, 9)]
    assert found == [3, 7, None]


def test_a_broker_that_does_not_answer_leaves_the_question_open(
    every: EveryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise TransactionFailedError("timed out")

    monkeypatch.setattr(Asked, "stable_ends", fail)
    with pytest.raises(UnavailableError, match=r"a:1 gives no answer: try again later \(timed out"):
        every.stable_ends(PLACES)
