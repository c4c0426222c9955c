"""What a task's producer hands to librdkafka; the rest is in the integration tests."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka import guarded_producer
from kafka_pipeline.common.kafka.clients import FencedError, NonRetriableError
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from tests.unit.streams.pipeline.loading import CONFIG

Sent = tuple[str, bytes | None, bytes | None, int, int | None]
LIMITS = {"out": 1_000, "state": 1_000}


class FakeProducer:
    """Takes records until its queue is full, which `poll` empties."""

    def __init__(self, room: int) -> None:
        self.sent: list[Sent] = []
        self.callbacks: list[int] = []
        self.polls = 0
        self.fatal: KafkaError | None = None
        self._room = room
        self._left = room

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        on_delivery: Callable[..., None] | None = None,
        _same: None = None,
        timestamp: int | None = None,
        headers: Any = None,
    ) -> None:
        if not self._left:
            raise BufferError
        self._left -= 1
        if on_delivery is not None:
            self.callbacks.append(len(self.sent))
        self.sent.append((topic, key, value, partition, timestamp))

    def poll(self, _timeout: float) -> None:
        self.polls += 1
        self._left = self._room
        if self.fatal is not None:
            fatal, self.fatal = self.fatal, None
            raise KafkaException(fatal)


@pytest.fixture(params=[1, 3, 100])
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeProducer:
    made = FakeProducer(request.param)
    monkeypatch.setattr(guarded_producer, "Producer", lambda _: made)
    return made


@pytest.fixture
def producer(fake: FakeProducer) -> TaskProducer:
    config: Config = CONFIG
    return TaskProducer(config, "id", LIMITS)


def test_columns_are_sent_once_and_in_order_though_the_queue_gets_full(
    fake: FakeProducer, producer: TaskProducer
) -> None:
    keys = [b"%d" % number for number in range(10)]
    values = [b"v%d" % number if number != 4 else None for number in range(10)]
    times = list(range(10))
    producer.send_columns("out", keys, values, times, None, None)
    # librdkafka takes 0 for the current time.
    given = [max(time, 1) for time in times]
    assert fake.sent == [
        ("out", key, value, -1, time) for key, value, time in zip(keys, values, given, strict=True)
    ]


def test_records_without_a_key_go_where_the_caller_says(
    fake: FakeProducer, producer: TaskProducer
) -> None:
    producer.send_columns("out", [b"a", None], [b"1", b"2"], [5, 6], None, [-1, 7])
    assert fake.sent == [("out", b"a", b"1", -1, 5), ("out", None, b"2", 7, 6)]


@pytest.mark.parametrize("count", [1, 10])
def test_records_are_sent_once_and_in_order_to_where_each_is_to_go(
    fake: FakeProducer, producer: TaskProducer, count: int
) -> None:
    rows = [("out" if n % 2 else "other", b"k", b"%d" % n, n - 1, n) for n in range(count)]
    producer.send_records([(*row, None) for row in rows])
    assert fake.sent == [
        (topic, key, value, to, max(time, 1)) for topic, key, value, to, time in rows
    ]


@pytest.mark.parametrize("count", [1, 2, 10])
def test_state_is_sent_once_and_in_order_and_only_the_last_change_reports_its_offset(
    fake: FakeProducer, producer: TaskProducer, count: int
) -> None:
    changes = {b"%d" % number: b"v" if number % 3 else None for number in range(count)}
    producer.send_state("state", 2, changes)
    assert [row[:4] for row in fake.sent] == [("state", k, v, 2) for k, v in changes.items()]
    assert fake.callbacks == [count - 1]


def test_state_that_does_not_fit_is_refused_before_any_is_sent(
    fake: FakeProducer, producer: TaskProducer
) -> None:
    with pytest.raises(
        NonRetriableError, match="the state of a key of 900 bytes is larger than the"
    ):
        producer.send_state("state", 0, {b"a": b"1", b"k" * 900: b"v" * 100})
    assert not fake.sent
    # Neither is too large, though the longest key and the longest value together would be.
    producer.send_state("state", 0, {b"a": b"v" * 900, b"k" * 900: b"1"})
    assert len(fake.sent) == 2


def test_producer_that_was_fenced_says_so_however_that_is_noticed_first(
    fake: FakeProducer, producer: TaskProducer
) -> None:
    fake.fatal = KafkaError(KafkaError._FENCED, "fenced", fatal=True)
    assert producer.is_suspect
    with pytest.raises(FencedError, match="fenced"):
        producer.require_connected()
    with pytest.raises(FencedError, match="fenced"):
        producer.commit({}, None)


@pytest.mark.parametrize("answer", [None, KafkaError._STATE, KafkaError._FENCED])
def test_closed_producer_aborts_its_transaction_before_it_is_freed(
    monkeypatch: pytest.MonkeyPatch, answer: int | None
) -> None:
    events: list[str] = []
    was_freed = threading.Event()

    class Client(FakeProducer):
        def abort_transaction(self, _timeout: float) -> None:
            events.append("aborted")
            if answer is not None:
                raise KafkaException(KafkaError(answer))

    def note_freed() -> None:
        events.append("freed")
        was_freed.set()

    def make(_settings: object) -> Client:
        made = Client(1)
        weakref.finalize(made, note_freed)
        return made

    monkeypatch.setattr(guarded_producer, "Producer", make)
    TaskProducer(CONFIG, "id", LIMITS).close()
    assert was_freed.wait(10)
    assert events == ["aborted", "freed"]
