"""Tests of how fetched records become batches; those with a real Kafka are in integration/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from common.kafka import data
from common.kafka.data import PartitionReader


class FakeConsumer:
    """Hands out records that have these offsets, and once."""

    def __init__(self, offsets: Sequence[int]) -> None:
        self._messages = [
            Message(topic="lines", partition=0, offset=offset, key=b"k", value=b"%d" % offset)
            for offset in offsets
        ]

    def poll(self, _wait_s: float) -> Message | None:
        return self._messages.pop(0) if self._messages else None

    def consume(self, count: int, _wait_s: float) -> list[Message]:
        taken, self._messages = self._messages[:count], self._messages[count:]
        return taken


def fetched(offsets: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    consumer: Any = FakeConsumer(offsets)
    monkeypatch.setattr(data, "connect", lambda *_: consumer)
    monkeypatch.setattr(data, "client_config", lambda *_, **__: {})
    unused: Any = None
    (batch,) = PartitionReader(unused, "group").fetch(100, 0).batches
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
