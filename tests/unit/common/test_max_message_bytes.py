"""A Kafka that allows no topic with the engine's limit of sizes: `max_message_bytes` lowers it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

import kafka_pipeline.common.kafka.admin
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.topics import RECORDS, STATE, TopicSpec, allowed
from tests.unit.common.config_texts import BASE, load

CONFIG = load(BASE)
ALLOWED_BYTES = 8_388_608


class ManagedKafka:
    """Makes topics, and refuses those that take larger records than it allows."""

    def __init__(self, _settings: Any) -> None:
        self.made: dict[str, dict[str, str]] = {}

    def poll(self, _timeout_s: float) -> None:
        pass

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={})

    def create_topics(self, specs: Any, **_: Any) -> dict[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {spec.topic: Future() for spec in specs}
        for spec in specs:
            if int(spec.config.get("max.message.bytes", 0)) <= ALLOWED_BYTES:
                answers[spec.topic].set_result(None)
                continue
            text = f"Config property 'max.message.bytes' exceeded max limit of {ALLOWED_BYTES}."
            error = KafkaError(KafkaError.POLICY_VIOLATION, text)
            answers[spec.topic].set_exception(KafkaException(error))
        return answers


@pytest.fixture(autouse=True)
def _managed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_pipeline.common.kafka.admin, "AdminClient", ManagedKafka)


def test_topics_are_made_with_the_limit_that_kafka_allows() -> None:
    admin = Admin(replace(CONFIG, max_message_bytes=ALLOWED_BYTES))
    specs = [TopicSpec("arc", 1, 3, RECORDS), TopicSpec("state", 1, 3, STATE)]
    assert admin.ensure_topics(specs) == ["arc", "state"]


def test_without_it_the_error_says_what_to_set() -> None:
    with pytest.raises(
        ConfigError, match=r"create topic arc: .*8388608\. Lower max_message_bytes in config\.yaml"
    ):
        Admin(CONFIG).ensure_topics([TopicSpec("arc", 1, 3, RECORDS)])


def test_limits_that_users_give_stay() -> None:
    given = {"max.message.bytes": "20000000"}
    assert allowed(given, ALLOWED_BYTES) == given
    assert allowed({"retention.ms": "1"}, ALLOWED_BYTES) == {"retention.ms": "1"}
