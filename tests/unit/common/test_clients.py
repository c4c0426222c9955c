"""The settings of librdkafka's clients, and which of their messages are logged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

import kafka_pipeline.common.kafka.admin
import kafka_pipeline.common.kafka.control
import kafka_pipeline.common.kafka.guarded_producer
from kafka_pipeline.common.kafka import clients
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import NonRetriableError
from kafka_pipeline.common.kafka.control import CommandWriter, ReportWriter
from kafka_pipeline.common.kafka.guarded_producer import GuardedProducer
from kafka_pipeline.common.process.spare_threads import SpareThreads
from tests.unit.common.config_texts import BASE, load

CONFIG = load(BASE)


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("librdkafka", logging.ERROR, "", 0, message, None, None)


def test_a_broker_that_is_away_is_logged_once_in_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    log_filter = clients._LogFilter()
    logged = []
    for _ in range(200):
        logged.append(
            log_filter.filter(record("FAIL 127.0.0.1:1/1: Connect to ipv4#… failed: refused"))
        )
        now_s += 0.125
    assert [index for index, is_logged in enumerate(logged) if is_logged] == [0, 80, 160]


def test_other_messages_are_logged_except_those_that_the_caller_gets_as_exceptions() -> None:
    log_filter = clients._LogFilter()
    assert log_filter.filter(record("FAIL 127.0.0.1:1/1: Disconnected (after 5 ms in state UP)"))
    assert not log_filter.filter(record("TXNERR Current transaction failed in state InTransaction"))


LOST = "FAIL [rdkafka#producer-1] [thrd:…]: localhost:9092/1: Disconnected (after 5 ms in state UP)"
WRONG = "CONFWARN [rdkafka#producer-1] [thrd:app]: Configuration property x is deprecated"


class Client:
    """A client of librdkafka, which keeps its messages until it is polled."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.logger = settings["logger"]
        self.kept: list[str] = []

    def poll(self, _timeout_s: float) -> None:
        for message in self.kept:
            self.logger.error(message)
        self.kept = []

    def begin_transaction(self) -> None:
        pass

    def commit_transaction(self, timeout: float) -> None:
        # A flush serves the log as well.
        self.poll(timeout)

    def list_topics(self, timeout: float) -> None:
        pass

    init_transactions = list_topics


def admin() -> tuple[Client, Callable[[], object]]:
    made = Admin(CONFIG)
    return made._latest, lambda: made._client  # type: ignore[return-value]


def command_writer() -> tuple[Client, Callable[[], object]]:
    made = CommandWriter(CONFIG, "jobmanager")
    return made._producer, lambda: made.write([])  # type: ignore[return-value]


def report_writer() -> tuple[Client, Callable[[], object]]:
    made = ReportWriter(CONFIG)
    return made._producer, made.poll  # type: ignore[return-value]


def task_producer() -> tuple[Client, Callable[[], object]]:
    settings = clients.client_config(CONFIG, "producer")
    made = GuardedProducer(settings, 1, SpareThreads("test"))
    return made.client, made.poll  # type: ignore[return-value]


def test_clients_with_short_transactions_wait_no_longer_for_an_answer() -> None:
    settings = clients.client_config(
        CONFIG, "producer", transactional_id="short", transaction_timeout_ms=1000
    )
    Producer(settings)  # librdkafka refuses a longer socket.timeout.ms


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as the only element."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for module in (
        kafka_pipeline.common.kafka.control,
        kafka_pipeline.common.kafka.guarded_producer,
    ):
        monkeypatch.setattr(module, "Producer", Client)
    monkeypatch.setattr(kafka_pipeline.common.kafka.admin, "AdminClient", Client)
    return now


@pytest.mark.parametrize("make", [admin, command_writer, report_writer, task_producer])
def test_lost_connection_is_logged_when_it_happens_or_not_at_all(
    make: Callable[[], tuple[Client, Callable[[], object]]],
    now_s: list[float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    client, use = make()
    use()
    client.kept = [LOST]
    now_s[0] += 1
    use()
    assert caplog.messages == [LOST]
    client.kept = [LOST, WRONG]
    now_s[0] += 60
    use()
    assert caplog.messages == [LOST, WRONG], "a minute is too late for a lost connection"
    client.kept = [LOST]
    now_s[0] += 1
    use()
    assert caplog.messages == [LOST, WRONG, LOST]


def test_transaction_timeout_that_brokers_refuse_is_corrected_in_config_yaml() -> None:
    """A task would start again without end, and the error names a setting of brokers only."""
    error = KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT, "Broker: Transaction timeout")
    found = clients.translate(KafkaException(error))
    assert isinstance(found, NonRetriableError)
    assert "lower transaction_timeout_ms in config.yaml" in str(found)
