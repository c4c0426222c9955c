"""Committed offsets come from a coordinator that could just commit, if the caller wants that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from kafka_pipeline.common.kafka import data, lifeline, managed_consumer
from kafka_pipeline.common.kafka.clients import MissingRightError, TransactionFailedError
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.lifeline import Lifeline
from tests.unit.common.fake_consumer import FakeConsumer

PROOF = ("threads", 0)
PLACE = ("lines", 0)
LONG_S = 60


class Coordinated(FakeConsumer):
    """A consumer whose commits end one after the other, as a test says."""

    def __init__(self, outcomes: list[KafkaError | None]) -> None:
        super().__init__([])
        self.requests: list[str] = []
        self.on_commit: Callable[..., None]
        self._outcomes = outcomes
        self.sent: list[TopicPartition] = []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        self.requests.append(f"commit {offsets[0].topic}[{offsets[0].partition}]")
        self.sent = offsets

    def poll(self, wait_s: float) -> Message | None:
        if self.sent and self._outcomes:
            sent, self.sent = self.sent, []
            self.on_commit(self._outcomes.pop(0), sent)
        return super().poll(wait_s)

    def committed(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.requests.append("fetch")
        return [TopicPartition(tp.topic, tp.partition, 7) for tp in wanted]


def reader_of(consumers: list[Coordinated], monkeypatch: pytest.MonkeyPatch) -> PartitionReader:
    """Return a reader with the first of the consumers; each replaces the one before."""
    left = iter(consumers)

    def connect(_client: object, settings: dict[str, Any]) -> tuple[Coordinated, Lifeline]:
        consumer = next(left)
        consumer.on_commit = settings["on_commit"]
        return consumer, Lifeline()

    for module in (managed_consumer, lifeline):
        monkeypatch.setattr(module, "connect_with_lifeline", connect)
    monkeypatch.setattr(data, "client_config", lambda *_, **__: {"group.id": "orders"})
    unused: Any = None
    return PartitionReader(unused, "orders")


def test_offsets_are_asked_for_once_the_coordinator_has_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Coordinated([None])
    found = reader_of([consumer], monkeypatch).committed([PLACE], LONG_S, PROOF)
    assert {place: at.offset for place, at in found.items()} == {PLACE: 7}
    assert consumer.requests == ["commit threads[0]", "fetch"]


def test_those_who_only_look_commit_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Coordinated([])
    reader_of([consumer], monkeypatch).committed([PLACE], LONG_S)
    assert consumer.requests == ["fetch"]


def test_the_next_coordinator_is_asked_if_one_is_none_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Coordinated([KafkaError(KafkaError.NOT_COORDINATOR), None])
    reader_of([consumer], monkeypatch).committed([PLACE], LONG_S, PROOF)
    assert consumer.requests == [*2 * ["commit threads[0]"], "fetch"]


@pytest.mark.parametrize(
    "outcomes", [[], [KafkaError(KafkaError.REQUEST_TIMED_OUT)]], ids=["silent", "timed out"]
)
def test_a_coordinator_whose_replicas_do_not_follow_is_not_believed(
    outcomes: list[KafkaError | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Coordinated(outcomes)
    consumers = [consumer, Coordinated([])]
    with pytest.raises(TransactionFailedError):
        reader_of(consumers, monkeypatch).committed([PLACE], 0.05, PROOF)
    assert "fetch" not in consumer.requests


def test_a_consumer_whose_coordinator_does_not_commit_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data, "_FIRST_COMMIT_S", 0.02)
    cut_off, current = Coordinated([]), Coordinated([None])
    consumers = [cut_off, current]
    reader = reader_of(consumers, monkeypatch)
    reader.committed([PLACE], LONG_S, PROOF)
    assert cut_off.requests == ["commit threads[0]"]
    assert cut_off.closed.wait(LONG_S)
    assert current.requests == ["commit threads[0]", "fetch"]


def test_late_report_of_a_replaced_consumer_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "_FIRST_COMMIT_S", 0.02)
    cut_off, *others = [Coordinated([]) for _ in range(6)]
    reader = reader_of([cut_off, *others], monkeypatch)
    monkeypatch.setattr(cut_off, "close", lambda: cut_off.on_commit(None, cut_off.sent))
    with pytest.raises(TransactionFailedError):
        reader.committed([PLACE], 0.05, PROOF)
    assert not any("fetch" in each.requests for each in (cut_off, *others))


def test_an_answer_that_takes_long_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    consumer = Coordinated([None, None])

    def answer(wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        consumer.requests.append("fetch")
        now_s[0] += timeout if consumer.requests.count("fetch") == 1 else 0
        return [TopicPartition(tp.topic, tp.partition, 7) for tp in wanted]

    monkeypatch.setattr(consumer, "committed", answer)
    reader_of([consumer], monkeypatch).committed([PLACE], LONG_S, PROOF)
    assert consumer.requests == 2 * ["commit threads[0]", "fetch"]


def test_a_missing_right_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(MissingRightError, match="Read of topic threads"):
        reader_of([Coordinated([refused])], monkeypatch).committed([PLACE], LONG_S, PROOF)
    consumer = Coordinated([])
    consumer._messages.append(Message(error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)))
    # Closing the one whose commit is under way would wait for that.
    with pytest.raises(MissingRightError, match="Describe of group orders"):
        reader_of([consumer, Coordinated([])], monkeypatch).committed([PLACE], LONG_S, PROOF)
