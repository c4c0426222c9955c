"""Tests of how fetched records become batches; those with a real Kafka are in integration/."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.kafka import data, managed_consumer
from kafka_pipeline.common.kafka import lifeline as lifelines
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.lifeline import LOSS_TIMEOUT_S, Lifeline
from kafka_pipeline.common.kafka.managed_consumer import CHUNK_RECORDS
from tests.unit.common.fake_consumer import FakeConsumer, message


def reader_of(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> PartitionReader:
    monkeypatch.setattr(
        managed_consumer, "connect_with_lifeline", lambda *_: (consumer, Lifeline())
    )
    monkeypatch.setattr(data, "client_config", lambda *_, **__: {})
    unused: Any = None
    return PartitionReader(unused, "group")


def fetched(
    offsets: Sequence[int], monkeypatch: pytest.MonkeyPatch, at_least: int = 0
) -> list[int]:
    consumer: Any = FakeConsumer(offsets)
    reader = reader_of(consumer, monkeypatch)
    reader.assign({("lines", 0): 0})
    (batch,) = reader.fetch(100 + 2 * at_least, 0).batches
    assert batch.values == [b"%d" % offset for offset in batch.offsets]
    return list(batch.offsets)


@pytest.mark.parametrize(
    ("delivered", "kept"),
    [
        ([5, 6, 7, 5, 6, 7, 8], [5, 6, 7, 8]),
        ([5, 6, 9, 5, 6, 9, 10], [5, 6, 9, 10]),
        # Of transaction markers there are gaps, as many as records come again.
        ([5, 6, 9, 5, 6, 9, 11], [5, 6, 9, 11]),
        ([5, 5], [5]),
        ([5, 6, 7, 5], [5, 6, 7]),
        ([5, 6, 8, 9], [5, 6, 8, 9]),
    ],
)
def test_records_that_come_again_amid_others_are_left_out(
    delivered: list[int], kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fetched(delivered, monkeypatch) == kept


@given(st.integers(1, 20), st.integers(0, 19), st.integers(0, 20))
def test_whatever_run_comes_again_each_offset_is_there_once_and_in_order(
    count: int, back_to: int, more: int
) -> None:
    first = list(range(count))
    delivered = [*first, *range(min(back_to, count - 1), count + more)]
    with pytest.MonkeyPatch.context() as patch:
        assert fetched(delivered, patch) == list(range(count + more))


@pytest.mark.parametrize(
    ("delivered", "kept", "position"),
    [
        ([[5, 6], [7]], [5, 6, 7], 8),
        ([[5, 6], [5]], [5, 6], 7),
        ([[5, 6], [5, 6, 8]], [5, 6, 8], 9),
        ([[5, 6, 5], [7]], [5, 6, 7], 8),
        ([[5, 4]], [5], 6),
    ],
)
def test_a_changelog_gives_no_old_value_of_a_key_after_a_new_one(
    delivered: list[list[int]],
    kept: list[int],
    position: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = FakeConsumer([])
    reader = reader_of(consumer, monkeypatch)
    reader.assign({("lines", 0): 5})
    changes = []
    for offsets in delivered:
        consumer.bring(offsets)
        changes.append(reader.fetch_changes(100, 0))
    values = [each.last[b"k"] for each in changes if each.last]
    assert values[-1] == b"%d" % kept[-1]
    assert sum(each.records for each in changes) == len(kept)
    assert reader.positions == {("lines", 0): position}


def offsets_by_partition(reader: PartitionReader) -> list[tuple[str, int, list[int]]]:
    """Fetch; return what came, batch by batch, and check that columns belong together."""
    batches = reader.fetch(10_000, 0).batches
    for batch in batches:
        assert batch.values == [b"%d" % offset for offset in batch.offsets]
        assert len(batch.keys) == len(batch.timestamps) == len(batch)
    return [(batch.topic, batch.partition, list(batch.offsets)) for batch in batches]


def test_records_of_a_partition_are_one_batch_wherever_they_come_between_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = FakeConsumer([])
    reader = reader_of(consumer, monkeypatch)
    reader.assign({("lines", 0): 5, ("lines", 1): 5, ("words", 0): 7})
    consumer.bring_mixed(
        ("lines", 0, 5),
        ("lines", 1, 5),
        ("lines", 1, 6),
        ("words", 0, 7),
        ("lines", 0, 6),
        ("words", 0, 8),
    )
    assert offsets_by_partition(reader) == [
        ("lines", 0, [5, 6]),
        ("lines", 1, [5, 6]),
        ("words", 0, [7, 8]),
    ]


@pytest.mark.parametrize("repeated", [False, True])
def test_more_records_than_are_decoded_at_once_are_one_batch(
    monkeypatch: pytest.MonkeyPatch, repeated: bool
) -> None:
    size = 3 * CHUNK_RECORDS
    # What comes again may begin anywhere, in the same chunk or in a later one.
    offsets = [*range(size), *(range(CHUNK_RECORDS - 7, size) if repeated else ()), size]
    assert fetched(offsets, monkeypatch, size) == list(range(size + 1))


def test_no_more_records_are_taken_than_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = FakeConsumer(range(2 * CHUNK_RECORDS))
    reader = reader_of(consumer, monkeypatch)
    reader.assign({("lines", 0): 0})
    limits = (1, CHUNK_RECORDS - 1, 2, CHUNK_RECORDS)
    found = [[len(batch) for batch in reader.fetch(limit, 0).batches] for limit in limits]
    assert found == [[1], [CHUNK_RECORDS - 1], [2], [CHUNK_RECORDS - 2]]


def test_headers_of_some_records_are_a_column_with_nothing_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = CHUNK_RECORDS
    consumer = FakeConsumer([])
    consumer._messages = [message(offset) for offset in range(2 * size)]
    consumer._messages += [message(2 * size, headers=[("a", b"1")]), message(2 * size + 1)]
    reader = reader_of(consumer, monkeypatch)
    reader.assign({("lines", 0): 0})
    (batch,) = reader.fetch(10_000, 0).batches
    assert batch.headers == [*([None] * 2 * size), [("a", b"1")], None]


def test_records_that_an_earlier_fetch_had_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = FakeConsumer([5, 6])
    reader = reader_of(consumer, monkeypatch)
    reader.assign({("lines", 0): 5})
    assert offsets_by_partition(reader) == [("lines", 0, [5, 6])]
    consumer.bring([5, 6])
    assert offsets_by_partition(reader) == []
    consumer.bring([6, 7])
    assert offsets_by_partition(reader) == [("lines", 0, [7])]
    consumer.bring([4, 5])
    assert offsets_by_partition(reader) == []


def test_a_partition_that_is_assigned_again_begins_where_it_is_assigned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = FakeConsumer([5, 6])
    reader = reader_of(consumer, monkeypatch)
    reader.assign({("lines", 0): 5, ("lines", 1): 0, ("lines", 2): 0})
    assert offsets_by_partition(reader) == [("lines", 0, [5, 6])]
    reader.unassign([("lines", 0)])
    consumer.bring_mixed(("lines", 0, 7), ("lines", 1, 0))
    assert offsets_by_partition(reader) == [("lines", 1, [0])]
    reader.assign({("lines", 0): 6})
    consumer.bring_mixed(("lines", 0, 5), ("lines", 0, 6), ("lines", 1, 0), ("lines", 1, 1))
    assert offsets_by_partition(reader) == [("lines", 0, [6]), ("lines", 1, [1])]


def test_a_consumer_that_replaces_another_delivers_nothing_a_second_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer, successor = FakeConsumer([3, 4]), FakeConsumer([3, 4, 5])
    reader = reader_of(consumer, monkeypatch)
    lifeline = reader._consumer._lifeline
    reader.assign({("lines", 0): 3})
    assert offsets_by_partition(reader) == [("lines", 0, [3, 4])]
    monkeypatch.setattr(lifelines, "connect_with_lifeline", lambda *_: (successor, Lifeline()))
    lifeline.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    lifeline._lost_s = time.monotonic() - LOSS_TIMEOUT_S
    assert offsets_by_partition(reader) == []
    assert successor.assigned == [("lines", 0, 5)]
    assert offsets_by_partition(reader) == [("lines", 0, [5])]


def test_consumer_that_lost_all_brokers_is_replaced_five_seconds_later_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer, successor = FakeConsumer([3, 4]), FakeConsumer([5])
    reader = reader_of(consumer, monkeypatch)
    lifeline = reader._consumer._lifeline
    monkeypatch.setattr(lifelines, "connect_with_lifeline", lambda *_: (successor, Lifeline()))
    reader.assign({("lines", 0): 3})
    lifeline.on_error(KafkaError(KafkaError._TRANSPORT))
    lifeline.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert [list(b.offsets) for b in reader.fetch(100, 0).batches] == [[3, 4]]
    reader.fetch(100, 0)
    assert not consumer.closed.is_set()
    lifeline._lost_s = time.monotonic() - LOSS_TIMEOUT_S
    assert reader.fetch(100, 0).batches == []
    assert successor.assigned == [("lines", 0, 5)]
    assert [list(b.offsets) for b in reader.fetch(100, 0).batches] == [[5]]
    assert consumer.closed.wait(10)


def test_an_end_that_comes_before_records_does_not_set_the_position_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = FakeConsumer([10, 11])
    end = KafkaError(KafkaError._PARTITION_EOF)
    consumer._messages.insert(0, Message(topic="lines", partition=0, offset=10, error=end))
    reader = reader_of(consumer, monkeypatch)
    reader.assign({("lines", 0): 10})
    fetched_now = reader.fetch(100, 0)
    assert fetched_now.ends == [(("lines", 0), 10)]
    assert [list(batch.offsets) for batch in fetched_now.batches] == [[10, 11]]
    assert reader.positions == {("lines", 0): 12}
