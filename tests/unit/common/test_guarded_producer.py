"""A producer whose calls hang: the end of its threads and of itself."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_pipeline.common.kafka import guarded_producer
from kafka_pipeline.common.kafka.clients import FencedError, TransactionFailedError
from kafka_pipeline.common.kafka.guarded_producer import GuardedProducer
from kafka_pipeline.common.process.spare_threads import SpareThreads

_TIMEOUT_S = 10
SETTINGS: dict[str, Any] = {"logger": logging.getLogger("librdkafka")}


class Client:
    """Takes offsets, unless it hangs while it does so."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.senders: list[int] = []
        self.inits_s: list[float] = []
        self.questions = 0
        self.wakes_up_at = 0
        self.error: KafkaError | None = None

    def disconnect(self) -> None:
        """Log what librdkafka logs when a connection was closed."""
        record = logging.LogRecord("rdkafka", 4, "", 0, "FAIL [x]: Disconnected", None, None)
        self.settings["logger"].filter(record)

    def send_offsets_to_transaction(self, *_: object) -> None:
        self.senders.append(threading.get_ident())
        assert self.may_go_on.wait(_TIMEOUT_S)
        if self.error is not None:
            raise KafkaException(self.error)

    def list_topics(self, timeout: float) -> None:
        self.questions += 1
        if self.questions == self.wakes_up_at:
            # On a busy machine, its thread needs longer than the short waits to go on.
            guarded_producer._WAIT_S = _TIMEOUT_S
            self.may_go_on.set()

    def init_transactions(self, timeout_s: float) -> None:
        self.inits_s.append(timeout_s)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))

    def abort_transaction(self, _timeout_s: float) -> None:
        pass

    def poll(self, _timeout_s: float) -> None:
        pass


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_producer, "_WAIT_S", 0.001)
    monkeypatch.setattr(guarded_producer, "Producer", Client)


@pytest.fixture
def threads() -> SpareThreads:
    return SpareThreads("offsets")


def producer_of(threads: SpareThreads, timeout_s: float = _TIMEOUT_S) -> GuardedProducer:
    return GuardedProducer(SETTINGS, timeout_s, threads)


def client_of(producer: GuardedProducer) -> Any:
    return producer.client


def test_producers_send_offsets_one_after_another_from_one_thread(threads: SpareThreads) -> None:
    senders = set()
    for _ in range(3):
        producer = producer_of(threads)
        for _ in range(3):
            producer.send_offsets([], None)
        senders.update(client_of(producer).senders)
    assert len(senders) == 1
    assert threading.get_ident() not in senders


def test_a_hang_after_a_lost_connection_is_given_up_after_some_answers(
    threads: SpareThreads,
) -> None:
    producer, other = producer_of(threads), producer_of(threads)
    client = client_of(producer)
    client.may_go_on.clear()
    client.disconnect()
    with pytest.raises(TransactionFailedError, match="librdkafka hangs while it sends offsets"):
        producer.send_offsets([], None)
    assert client.questions in (3, 4)
    assert producer.is_suspect
    other.send_offsets([], None)
    assert client_of(other).senders != client.senders, "its thread is left behind"
    client.may_go_on.set()


def test_a_question_for_metadata_wakes_a_hanging_producer_up(threads: SpareThreads) -> None:
    producer = producer_of(threads)
    client = client_of(producer)
    client.may_go_on.clear()
    client.wakes_up_at = 2
    client.disconnect()
    producer.send_offsets([], None)
    assert client.questions == 2


def test_brokers_that_are_only_slow_are_asked_nothing_and_given_up_when_time_is_up(
    threads: SpareThreads,
) -> None:
    producer = producer_of(threads, timeout_s=0.05)
    client = client_of(producer)
    client.may_go_on.clear()
    with pytest.raises(TransactionFailedError, match="hangs"):
        producer.send_offsets([], None)
    assert client.questions == 0
    assert not producer.is_suspect
    client.may_go_on.set()


def test_what_the_brokers_refuse_is_raised_where_the_offsets_are_sent(
    threads: SpareThreads,
) -> None:
    producer = producer_of(threads)
    client_of(producer).error = KafkaError(KafkaError._FENCED, "fenced")
    with pytest.raises(FencedError, match="fenced"):
        producer.send_offsets([], None)


def test_a_closed_producer_is_freed_though_its_thread_waits_for_other_calls(
    threads: SpareThreads,
) -> None:
    producer = producer_of(threads)
    was_freed = threading.Event()
    weakref.finalize(producer.client, was_freed.set)
    producer.send_offsets([], None)
    producer.close()
    assert was_freed.wait(_TIMEOUT_S)


def test_a_producer_that_hung_is_freed_when_its_call_returns(threads: SpareThreads) -> None:
    producer = producer_of(threads, timeout_s=0.01)
    may_go_on = client_of(producer).may_go_on
    may_go_on.clear()
    was_freed = threading.Event()
    weakref.finalize(producer.client, was_freed.set)
    with pytest.raises(TransactionFailedError):
        producer.send_offsets([], None)
    producer.close()
    assert not was_freed.is_set()
    may_go_on.set()
    assert was_freed.wait(_TIMEOUT_S)


def test_a_fence_without_an_answer_is_given_up_when_it_is_no_longer_wanted(
    threads: SpareThreads,
) -> None:
    producer = producer_of(threads)
    client, looks = client_of(producer), iter([True, True, False])

    def require() -> None:
        if not next(looks):
            raise TransactionFailedError("others may own the task")

    with pytest.raises(TransactionFailedError, match="others may own"):
        producer.fence(_TIMEOUT_S, require)
    assert client.inits_s == [1.0, 1.0], "librdkafka goes on with the same request"
