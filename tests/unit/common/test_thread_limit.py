"""A process that may start no more threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka.clients import connect
from kafka_pipeline.common.process.thread_limit import want_of_threads

REASON = "the limit of processes and threads is reached: raise it"


def allow(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """Let this process start some more threads, as with a limit of its control group."""
    start = threading.Thread.start
    left = iter(range(threads))

    def limited(thread: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)


@pytest.fixture
def number() -> Callable[[], int]:
    before = threading.active_count()
    return lambda: threading.active_count() - before


def test_threads_that_were_tried_have_ended(number: Callable[[], int]) -> None:
    assert want_of_threads() == ""
    assert number() == 0


@pytest.mark.parametrize("threads", [0, 3])
def test_no_client_is_made_whose_threads_librdkafka_could_not_start(
    threads: int, monkeypatch: pytest.MonkeyPatch, number: Callable[[], int]
) -> None:
    allow(monkeypatch, threads)
    made: list[dict[str, Any]] = []
    with pytest.raises(UnavailableError, match=REASON):
        connect(made.append, {})
    assert made == []
    assert number() == 0


def test_threads_that_librdkafka_could_not_start_are_not_a_mistake_in_config_yaml() -> None:
    def fail(_settings: dict[str, Any]) -> None:
        text = "Failed to create thread: Resource temporarily unavailable (11)"
        raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE, text))

    with pytest.raises(UnavailableError, match="Failed to create thread"):
        connect(fail, {})
