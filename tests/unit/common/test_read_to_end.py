"""Reading partitions up to given ends, and giving up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafka_pipeline.common.kafka import read_to_end as module
from kafka_pipeline.common.kafka.clients import Partition, TransactionFailedError
from kafka_pipeline.common.kafka.read_to_end import read_to_end

LINES, WORDS = ("lines", 0), ("words", 0)


class FakeReader:
    """Is at the next of these positions after each fetch; each takes five seconds."""

    def __init__(self, *places: dict[Partition, int]) -> None:
        self._places = list(places)
        self.now_s = 0.0

    @property
    def positions(self) -> dict[Partition, int]:
        return self._places[0]

    def fetch(self) -> dict[Partition, int]:
        self.now_s += 5
        if len(self._places) > 1:
            self._places.pop(0)
        return self.positions


def left_after_each(
    reader: FakeReader, ends: dict[Partition, int], monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: reader.now_s))
    found = []
    for fetched, left in read_to_end(reader, ends, reader.fetch, 12):
        assert fetched == reader.positions
        found.append(left)
    return found


def test_it_ends_when_all_partitions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = FakeReader(
        {LINES: 0, WORDS: 3}, {LINES: 4, WORDS: 3}, {LINES: 9, WORDS: 3}, {LINES: 9, WORDS: 5}
    )
    assert left_after_each(reader, {LINES: 7, WORDS: 5}, monkeypatch) == [5, 2, 0]


def test_nothing_is_fetched_when_there_is_nothing_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for positions in ({}, {LINES: 7}, {LINES: 8}):
        reader = FakeReader(positions)
        assert left_after_each(reader, {LINES: 7}, monkeypatch) == []
        assert reader.now_s == 0


def test_a_reader_that_gets_no_further_for_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = FakeReader({LINES: 0}, {LINES: 0}, {LINES: 0}, {LINES: 4})
    with pytest.raises(TransactionFailedError, match="reading lines stalls, 3 offsets before the"):
        left_after_each(reader, {LINES: 7}, monkeypatch)
    assert reader.now_s == 30, "five seconds for each fetch, and 15 without anything after the last"
