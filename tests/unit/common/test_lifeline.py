"""Clients that lost all brokers are replaced; here, no broker ever existed."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka import lifeline as lifelines
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import TransactionFailedError
from kafka_pipeline.common.kafka.control import CommandWriter, ControlReader, ReportWriter
from kafka_pipeline.common.kafka.lifeline import LOSS_TIMEOUT_S, Lifeline
from tests.unit.common.config_texts import BASE, load
from tests.waiting import wait_until

NOWHERE = load(BASE.replace("9092", "1"))


def age(lifeline: Lifeline) -> None:
    """Let the loss be as long ago as a client is left alone."""
    assert lifeline._lost_s is not None
    lifeline._lost_s -= LOSS_TIMEOUT_S


def test_writer_of_reports_that_lost_all_brokers_gets_another_producer_after_a_while() -> None:
    writer = ReportWriter(NOWHERE)
    first, lifeline = writer._producer, writer._lifeline

    def is_cut() -> bool:
        writer.write([])
        return lifeline.is_cut

    wait_until(is_cut)
    assert writer._producer is first
    age(lifeline)
    writer.write([])
    assert writer._producer is not first


def test_reader_of_control_topics_that_lost_all_brokers_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ControlReader, "_start", lambda *_: 7)
    reader = ControlReader(NOWHERE, ["beats", "orders"])
    first, lifeline = reader._consumer.client, reader._consumer._lifeline

    def is_cut() -> bool:
        assert reader.read(0.05) == []
        return lifeline.is_cut

    wait_until(is_cut)
    assert reader._consumer.client is first
    age(lifeline)
    reader.read(0.05)
    assert reader._consumer.client is not first
    places = {(each.topic, each.partition) for each in reader._consumer.client.assignment()}
    assert places == {("beats", 0), ("orders", 0)}
    assert reader._consumer.positions == {("beats", 0): 7, ("orders", 0): 7}
    reader.close()


def test_admin_that_got_no_answer_asks_by_another_client() -> None:
    admin = Admin(NOWHERE)
    first = admin._client
    asked = Future[Any]()
    admin._asked = [asked]
    admin._lifeline = Lifeline()
    assert admin._client is first
    asked.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    assert admin._client is first
    asked = Future[Any]()
    asked.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    admin._asked = [asked]
    assert admin._client is first, "it is new"
    admin._connected_s -= 11
    second = admin._client
    assert second is not first
    assert admin._asked == []
    assert [client for client, _ in admin._former] == [first], "somebody may wait for it"
    admin._former = [(first, time.monotonic() - 61)]
    assert admin._client is second
    assert admin._former == []


def test_admin_that_lost_all_brokers_asks_by_another_client() -> None:
    admin = Admin(NOWHERE)
    first = admin._client
    admin._connected_s -= 11
    wait_until(lambda: admin._client is not first)


def test_clients_that_cannot_be_replaced_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token or the file of a certificate that is missing now must not end a daemon."""
    admin, writer = Admin(NOWHERE), ReportWriter(NOWHERE)
    client, producer = admin._client, writer._producer

    def refuse(*_: object) -> None:
        raise ConfigError("kafka: in config.yaml: ssl.certificate.location failed")

    monkeypatch.setattr(lifelines, "connect", refuse)
    admin._lifeline._lost_s = writer._lifeline._lost_s = 0.0
    admin._connected_s -= 11
    assert admin._client is client
    assert admin._former == []
    writer.write([])
    assert writer._producer is producer
    assert not writer._lifeline.is_lost, "the next try comes after a while"
    with pytest.raises(TransactionFailedError, match="certificate"):
        CommandWriter(NOWHERE, "orders/jobmanager")


def test_broker_that_answers_mends_a_lifeline() -> None:
    lifeline = Lifeline()
    lifeline._lost_s = 0.0
    assert lifeline.is_cut
    assert lifeline.is_lost
    lifeline.on_answer()
    assert not lifeline.is_cut
    assert not lifeline.is_lost
