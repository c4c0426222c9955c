"""The records that a managed consumer hands on, and the state that its successor starts with."""

from __future__ import annotations

import threading
import time
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka import control, lifeline, managed_consumer, stall_watch
from kafka_pipeline.common.kafka.clients import Partition, is_out_of_range, translate
from kafka_pipeline.common.kafka.control import ControlReader
from kafka_pipeline.common.kafka.lifeline import LOSS_TIMEOUT_S, Lifeline
from kafka_pipeline.common.kafka.managed_consumer import REST_AFTER_S, ManagedConsumer
from tests.unit.common.fake_consumer import FakeConsumer
from tests.waiting import wait_until

LINES, WORDS = ("lines", 0), ("words", 0)
SETTINGS: dict[str, Any] = {"bootstrap.servers": "one:1,two:2"}


def give_clients(monkeypatch: pytest.MonkeyPatch, *clients: FakeConsumer) -> None:
    """Let consumers and scouts have one client after the other."""
    left = iter(clients)

    def connect(_: object, settings: dict[str, str]) -> tuple[FakeConsumer, Lifeline]:
        client = next(left)
        client.servers = settings["bootstrap.servers"]
        return client, Lifeline()

    for module in (managed_consumer, stall_watch, lifeline):
        monkeypatch.setattr(module, "connect_with_lifeline", connect)


def consumer_of(
    monkeypatch: pytest.MonkeyPatch, *clients: FakeConsumer, silence_s: float | None = None
) -> ManagedConsumer:
    """Return a consumer that has one client after the other."""
    give_clients(monkeypatch, *clients)
    return ManagedConsumer(SETTINGS, silence_s)


class Watched:
    """A consumer that is silent for up to two seconds; half a second passes at each look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *clients: FakeConsumer) -> None:
        now_s = count(time.monotonic(), 0.5)
        clock = SimpleNamespace(monotonic=lambda: next(now_s))
        monkeypatch.setattr(managed_consumer, "time", clock)
        self.consumer = consumer_of(monkeypatch, *clients, silence_s=2)

    def look(self) -> None:
        """Receive what there is, and wait until the scouts that were sent are back."""
        self.consumer.receive(100, 0, take)
        for watch in (self.consumer._stall_watch, self.consumer._unheard_watch):
            assert watch is not None
            if (scout := watch._scout) is not None:
                wait_until(lambda: scout.is_back)


def client_of(consumer: ManagedConsumer) -> Any:
    return consumer.client


def lose_brokers(consumer: ManagedConsumer) -> None:
    consumer._lifeline.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    consumer._lifeline._lost_s = time.monotonic() - LOSS_TIMEOUT_S


def take(_partition: Partition, messages: list[Message]) -> int:
    return (messages[-1].offset() or 0) + 1


def test_successor_reads_on_where_its_predecessor_was_and_pauses_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = FakeConsumer([3, 4]), FakeConsumer([5])
    consumer = consumer_of(monkeypatch, first, second)
    consumer.assign({LINES: 3, WORDS: 8, ("words", 1): 0})
    consumer.pause([WORDS, LINES])
    assert first.unassigned == {WORDS, LINES}
    consumer.resume([LINES])
    assert first.assigned == [("lines", 0, 3)]
    consumer.unassign([("words", 1)])
    lose_brokers(consumer)
    consumer.receive(100, 0, take)
    assert client_of(consumer) is first, "it has brought something"
    consumer.receive(100, 0, take)
    assert client_of(consumer) is second
    assert second.assigned == [("lines", 0, 5)]
    assert consumer.paused == {WORDS}
    consumer.resume([WORDS])
    assert second.assigned == [("words", 0, 8)]
    assert first.closed.wait(10)
    consumer.receive(100, 0, take)
    assert consumer.positions == {LINES: 6, WORDS: 8}


def test_consumer_that_cannot_be_replaced_goes_on_and_is_replaced_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The function for tokens, or the file of a certificate, may be out of reach for a while."""
    first, second = FakeConsumer([]), FakeConsumer([8])
    consumer = consumer_of(monkeypatch, first)
    consumer.assign({LINES: 7, WORDS: 3})
    tries = []

    def no_client(*_: object) -> None:
        tries.append(1)
        raise UnavailableError("there is no token")

    monkeypatch.setattr(lifeline, "connect_with_lifeline", no_client)
    lose_brokers(consumer)
    consumer.receive(100, 0, take)
    first.bring([7])
    first.report(KafkaError._AUTO_OFFSET_RESET, 3, *WORDS)
    assert [partition for partition, _ in consumer.receive(100, 0, take).errors] == [WORDS]
    consumer.receive(100, 0, take)
    assert (client_of(consumer), len(tries)) == (first, 2), "not at each call"
    assert first.unassigned == {WORDS}
    consumer.unassign([WORDS])
    assert not first.closed.is_set()
    give_clients(monkeypatch, second)
    lose_brokers(consumer)
    consumer.receive(100, 0, take)
    assert second.assigned == [(*LINES, 8)]


class Resting:
    """A consumer that may rest, with a client for each time that it is replaced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.clients: list[FakeConsumer] = []
        self.waits_ms: list[int] = []
        """The setting of each client."""
        for module in (managed_consumer, lifeline):
            monkeypatch.setattr(module, "connect_with_lifeline", self._connect)
        monkeypatch.setattr(managed_consumer, "time", SimpleNamespace(monotonic=self._now))
        self.consumer = ManagedConsumer(SETTINGS | {"wait": 10}, None, {"wait": 500})

    def _connect(self, _: object, settings: dict[str, int]) -> tuple[FakeConsumer, Lifeline]:
        self.waits_ms.append(settings["wait"])
        self.clients.append(FakeConsumer([]))
        return self.clients[-1], Lifeline()

    def _now(self) -> float:
        return self.now_s

    def reach_end(self, offset: int, partition: Partition = LINES) -> None:
        self.clients[-1].report(KafkaError._PARTITION_EOF, offset, *partition)
        self.consumer.receive(100, 0, take)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.consumer.receive(100, 0, take)


@pytest.fixture
def resting(monkeypatch: pytest.MonkeyPatch) -> Resting:
    made = Resting(monkeypatch)
    made.consumer.assign({LINES: 3})
    return made


def test_a_consumer_rests_once_it_has_brought_nothing_for_a_while(resting: Resting) -> None:
    resting.reach_end(5)
    resting.wait(REST_AFTER_S - 0.1)
    assert resting.waits_ms == [10]
    resting.wait(0.1)
    assert resting.waits_ms == [10, 500]
    assert resting.clients[0].closed.wait(10)
    assert resting.clients[1].assigned == [("lines", 0, 5)]
    resting.reach_end(5)
    resting.wait(1000)
    assert resting.waits_ms == [10, 500], "it goes on with its rest"


def test_a_consumer_that_rests_delivers_what_comes_and_ends_its_rest(resting: Resting) -> None:
    resting.reach_end(3)
    resting.wait(REST_AFTER_S)
    resting.clients[-1].bring([3, 4])
    taken: list[int | None] = []

    def take_all(_partition: Partition, messages: list[Message]) -> int:
        taken.extend(each.offset() for each in messages)
        return (messages[-1].offset() or 0) + 1

    resting.consumer.receive(100, 0, take_all)
    assert (taken, resting.waits_ms) == ([3, 4], [10, 500]), "records come before the change"
    resting.wait(0)
    assert resting.waits_ms == [10, 500, 10]
    assert resting.clients[-1].assigned == [("lines", 0, 5)]
    resting.wait(REST_AFTER_S)
    assert resting.waits_ms == [10, 500, 10], "it has not reached the end since"
    resting.reach_end(5)
    resting.wait(0)
    assert resting.waits_ms == [10, 500, 10, 500]


def test_a_partition_that_is_added_ends_the_rest(resting: Resting) -> None:
    resting.reach_end(3)
    resting.wait(REST_AFTER_S)
    resting.consumer.assign({WORDS: 0})
    resting.wait(0)
    assert resting.waits_ms == [10, 500, 10]
    assert sorted(resting.clients[-1].assigned) == [("lines", 0, 3), ("words", 0, 0)]


def test_a_consumer_does_not_rest_before_it_is_at_the_end_of_all_partitions(
    resting: Resting,
) -> None:
    resting.consumer.assign({WORDS: 0})
    resting.reach_end(3)
    resting.wait(2 * REST_AFTER_S)
    resting.reach_end(0, WORDS)
    resting.clients[0].bring([3])
    resting.clients[0].report(KafkaError._PARTITION_EOF, 3)
    resting.consumer.receive(100, 0, take)
    resting.wait(2 * REST_AFTER_S)
    assert resting.waits_ms == [10], "that end came before the record"
    resting.reach_end(4)
    resting.consumer.pause([WORDS])
    resting.wait(0)
    assert resting.waits_ms == [10]
    resting.consumer.resume([WORDS])
    resting.wait(0)
    assert resting.waits_ms == [10, 500]


def test_ends_move_the_position_on_and_errors_that_pass_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = FakeConsumer([3])
    consumer = consumer_of(monkeypatch, client)
    consumer.assign({LINES: 3, WORDS: 0})
    client.report(KafkaError._PARTITION_EOF, 6)
    client.report(KafkaError._TRANSPORT, 0)
    client.report(KafkaError.TOPIC_AUTHORIZATION_FAILED, 0, *WORDS)
    client.report(KafkaError._PARTITION_EOF, 9, "gone")
    signals = consumer.receive(100, 0, take)
    assert signals.ends == [(LINES, 6)]
    assert [(partition, error.code()) for partition, error in signals.errors] == [
        (WORDS, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    ]
    assert consumer.positions == {LINES: 6, WORDS: 0}


def test_lost_offset_of_an_earlier_assignment_is_not_one_of_this(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = FakeConsumer([])
    consumer = consumer_of(monkeypatch, client)
    consumer.assign({LINES: 7})
    client.report(KafkaError._AUTO_OFFSET_RESET, 3)
    assert not consumer.receive(100, 0, take).errors
    assert client_of(consumer) is client


def test_broker_without_an_offset_is_left_for_a_new_client_which_reads_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, third = FakeConsumer([]), FakeConsumer([]), FakeConsumer([])
    consumer = consumer_of(monkeypatch, first, second, third)
    consumer.assign({LINES: 7, WORDS: 3})
    first.report(KafkaError._AUTO_OFFSET_RESET, 7)
    ((partition, _),) = consumer.receive(100, 0, take).errors
    assert (partition, client_of(consumer)) == (LINES, second)
    assert second.assigned == [(*WORDS, 3)]
    assert not consumer.receive(100, 0, take).errors
    lose_brokers(consumer)
    consumer.receive(100, 0, take)
    assert third.assigned == [(*WORDS, 3)], "it is not read again by itself"
    consumer.unassign([LINES])
    consumer.assign({LINES: 7})
    assert third.assigned == [(*LINES, 7)]


def test_truncated_log_is_certain_though_the_error_has_no_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the partition would be read no more, or, once it is long enough, with a gap."""
    client = FakeConsumer([])
    consumer = consumer_of(monkeypatch, client)
    consumer.assign({LINES: 7, WORDS: 3})
    reason = "Partition log truncation detected at offset 7: broker end offset is 5"
    client.report(KafkaError._AUTO_OFFSET_RESET, OFFSET_INVALID, reason=reason)
    ((partition, error),) = consumer.receive(100, 0, take).errors
    assert (partition, is_out_of_range(error)) == (LINES, False)
    assert str(translate(KafkaException(error))).startswith(f"{reason} (the offset to continue")


def test_consumer_that_brings_only_errors_that_pass_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = FakeConsumer([]), FakeConsumer([])
    second.ends[LINES] = 8
    watched = Watched(monkeypatch, first, second)
    watched.consumer.assign({LINES: 7})
    for _ in range(20):
        first.report(KafkaError._TRANSPORT, 0)
        watched.look()
    assert client_of(watched.consumer) is second
    assert second.assigned == [("lines", 0, 7)]
    assert first.closed.wait(10)
    assert not second.closed.is_set()


def test_scouts_that_find_nothing_more_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *scouts = (FakeConsumer([]) for _ in range(4))
    for scout in scouts:
        scout.ends[LINES] = 7
    watched = Watched(monkeypatch, first, *scouts)
    watched.consumer.assign({LINES: 7})
    watched.consumer._settings = {"bootstrap.servers": "one:1,,two:2,"}
    for _ in range(40):
        watched.look()
    assert client_of(watched.consumer) is first
    assert scouts[0].closed.wait(10)
    watched.consumer.close()
    assert all(scout.closed.wait(10) for scout in scouts)
    assert first.servers == "one:1,two:2"
    assert [scout.servers for scout in scouts] == ["one:1", "two:2", "one:1"]


@pytest.mark.parametrize("heard", [False, True])
def test_consumer_that_brings_nothing_of_one_partition_is_replaced(
    monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    first, second = FakeConsumer([]), FakeConsumer([])
    second.ends[WORDS] = 1000
    watched = Watched(monkeypatch, first, second)
    consumer = watched.consumer
    consumer.assign({LINES: 7, WORDS: 0, ("paused", 0): 0})
    consumer.pause([("paused", 0)])
    if heard:
        first.report(KafkaError._PARTITION_EOF, 0, *WORDS)
        consumer.receive(100, 0, take)
    for offset in range(7, 57):
        first.bring([offset])
        watched.look()
        if client_of(consumer) is second:
            break
    assert (client_of(consumer) is second) != heard
    if not heard:
        # It goes on where it was.
        assert sorted(second.assigned) == [("lines", 0, consumer.positions[LINES]), ("words", 0, 0)]
        second.bring([57])
        consumer.receive(100, 0, take)
        consumer.resume([("paused", 0)])
        assert second.assigned == [("paused", 0, 0)]


def control_reader(monkeypatch: pytest.MonkeyPatch) -> ControlReader:
    """Return a reader of "lines" that begins at offset 7."""
    monkeypatch.setattr(control, "client_config", lambda *_, **__: dict(SETTINGS))
    monkeypatch.setattr(ControlReader, "_start", lambda *_: 7)
    unused: Any = None
    return ControlReader(unused, ["lines"])


def test_control_reader_is_at_the_end_once_it_has_read_what_was_there_when_it_looked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, failing, scout = FakeConsumer([7]), FakeConsumer([]), FakeConsumer([])
    give_clients(monkeypatch, client, failing, scout)
    reader = control_reader(monkeypatch)

    def look() -> None:
        reader.look_for_end()
        looking = reader._scout
        assert looking is not None
        wait_until(lambda: looking.is_back)

    assert not reader.is_at_end
    look()
    reader.read(0)
    assert not reader.is_at_end, "there is no answer"
    assert not failing.closed.is_set()
    scout.ends[LINES] = 10
    look()
    assert failing.closed.wait(10)
    assert not reader.is_at_end
    client.bring([8])
    client.report(KafkaError._PARTITION_EOF, 10)  # after the marker of a transaction
    reader.read(0)
    assert reader.is_at_end
    reader.close()
    assert scout.closed.wait(10)


class Silent(FakeConsumer):
    """Its broker is dead, so it waits for an answer until it is let go."""

    def __init__(self) -> None:
        super().__init__([])
        self.released = threading.Event()

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        assert self.released.wait(20)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_control_reader_asks_another_broker_for_the_end_after_two_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, dead, scout = FakeConsumer([]), Silent(), FakeConsumer([])
    scout.ends[LINES] = 7
    give_clients(monkeypatch, client, dead, scout)
    now_s = [100.0]
    monkeypatch.setattr(control, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    reader = control_reader(monkeypatch)
    reader.look_for_end()
    asked = reader._scout
    now_s[0] += 1.9
    reader.look_for_end()
    assert reader._scout is asked
    now_s[0] += 0.2
    reader.look_for_end()
    wait_until(lambda: reader.is_at_end)
    dead.released.set()
    assert dead.closed.wait(10)
    reader.close()


def test_control_topic_that_was_made_again_is_read_though_its_offsets_are_low(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = FakeConsumer([7])
    give_clients(monkeypatch, client)
    reader = control_reader(monkeypatch)
    assert [record.offset for record in reader.read(0)] == [7]
    client.bring([0, 1])
    assert [record.offset for record in reader.read(0)] == [0, 1]
    assert reader._consumer.positions == {LINES: 2}
