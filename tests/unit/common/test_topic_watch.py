"""Changes of topics while they are read, as the answers of brokers show them."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_pipeline.common.kafka.clients import GONE_AFTER_S
from kafka_pipeline.common.kafka.topic_watch import DELETED, INTERVAL_S, MADE_ANEW, TopicIdWatch


@dataclass(frozen=True)
class Description:
    topic_id: str


class Brokers:
    """Answers with the ids in `ids`, or with the error in their place; not while `is_away`."""

    def __init__(self, **ids: str | int) -> None:
        self.ids = ids
        self.is_away = False
        self.questions = 0

    def request_topics(self, names: Collection[str]) -> dict[str, Future[Any]]:
        self.questions += 1
        answers: dict[str, Future[Any]] = {name: Future() for name in names}
        for name, answer in answers.items():
            content = self.ids.get(name, KafkaError.UNKNOWN_TOPIC_OR_PART)
            if self.is_away:
                continue
            if isinstance(content, int):
                answer.set_exception(KafkaException(KafkaError(content)))
            else:
                answer.set_result(Description(content))
        return answers


def watched(
    brokers: Brokers, watch: TopicIdWatch, start_s: float, seconds: float
) -> dict[str, str]:
    """Look every tenth of a second; return all that was reported."""
    found: dict[str, str] = {}
    for tenth in range(int(seconds * 10)):
        found |= watch.gone({"a", "b"}, start_s + tenth / 10)
    return found


@pytest.fixture
def brokers() -> Brokers:
    return Brokers(a="1", b="2")


def test_topics_that_stay_are_never_gone_and_seldom_asked_about(brokers: Brokers) -> None:
    assert watched(brokers, TopicIdWatch(brokers), 0, 600) == {}
    assert brokers.questions == 600 / INTERVAL_S


@pytest.mark.parametrize(
    ("becomes", "reason"), [(KafkaError.UNKNOWN_TOPIC_OR_PART, DELETED), ("3", MADE_ANEW)]
)
def test_topic_that_is_gone_is_reported_after_a_while(
    brokers: Brokers, becomes: str | int, reason: str
) -> None:
    watch = TopicIdWatch(brokers)
    watched(brokers, watch, 0, 20)
    brokers.ids["b"] = becomes
    assert watched(brokers, watch, 20, GONE_AFTER_S) == {}
    assert watched(brokers, watch, 20 + GONE_AFTER_S, 3 * INTERVAL_S) == {"b": reason}


def test_broker_that_does_not_know_its_topics_yet_is_forgiven(brokers: Brokers) -> None:
    watch = TopicIdWatch(brokers)
    known = dict(brokers.ids)
    for restart in range(10):
        start_s = restart * 30.0
        brokers.ids = {}
        assert watched(brokers, watch, start_s, GONE_AFTER_S) == {}
        brokers.ids = dict(known)
        assert watched(brokers, watch, start_s + GONE_AFTER_S, 30 - GONE_AFTER_S) == {}


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.UNKNOWN])
def test_errors_that_say_nothing_about_the_topic_count_for_nothing(
    brokers: Brokers, code: int
) -> None:
    brokers.ids = {"a": code, "b": code}
    assert watched(brokers, TopicIdWatch(brokers), 0, 60) == {}


def test_brokers_that_do_not_answer_are_not_asked_again(brokers: Brokers) -> None:
    brokers.is_away = True
    assert watched(brokers, TopicIdWatch(brokers), 0, 60) == {}
    assert brokers.questions == 1


def test_topic_that_is_read_again_is_taken_for_what_it_is_then(brokers: Brokers) -> None:
    watch = TopicIdWatch(brokers)
    watched(brokers, watch, 0, 20)
    brokers.ids["a"] = brokers.ids["b"] = "9"
    watch.forget("a")
    assert watched(brokers, watch, 20, 60) == {"b": MADE_ANEW}


def test_answers_that_are_under_way_are_not_touched(brokers: Brokers) -> None:
    """The client takes what it has given for its own: were one missing there, all would fail."""
    given: list[dict[str, Future[Any]]] = []

    class Client(Brokers):
        def request_topics(self, names: Collection[str]) -> dict[str, Future[Any]]:
            given.append(super().request_topics(names))
            return given[-1]

    watch = TopicIdWatch(Client(a="1", b="2"))
    watch.gone({"a", "b"}, 0)
    watch.forget("a")
    assert given[0].keys() == {"a", "b"}
