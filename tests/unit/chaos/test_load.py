"""The writer of the chaos harness: the event times of its records, and what Kafka has when."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from kafka_pipeline.common.config.config import Config
from tests.chaos import load
from tests.chaos.event_times import EventTimes
from tests.chaos.load import BACKLOG_S, KEYS, TICK_S, Load, keys_in
from tests.small_config import small_config
from tests.user_code.numbered import WINDOW_MS

CONFIG = small_config()


class Writer:
    """Keeps what it gets, and how much of it Kafka had when each record came."""

    written: list[tuple[bytes, int]]
    flushed: int
    flushed_at: list[int]

    def __init__(self, config: Config, topic: str) -> None:
        Writer.written, Writer.flushed_at = [], []
        Writer.flushed = 0

    def write_at(self, rows: Iterable[tuple[bytes, bytes, int]]) -> None:
        for key, _, row_time in rows:
            self.written.append((key, row_time))
            self.flushed_at.append(self.flushed)

    def flush(self, timeout_s: float) -> None:
        Writer.flushed = len(self.written)


@pytest.fixture(autouse=True)
def _fake_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "BulkWriter", Writer)


@contextmanager
def writing(records_per_s: int, times: EventTimes) -> Iterator[Load]:
    writer = Load(CONFIG, Random(1), records_per_s, times)
    try:
        yield writer
    finally:
        writer.close()


def write_some(writer: Load) -> None:
    before = len(Writer.written)
    writer.resume()
    while len(Writer.written) == before:
        time.sleep(TICK_S / 10)
    writer.pause()


def times_of(keys: Iterable[bytes]) -> list[int]:
    return [row_time for key, row_time in Writer.written if key in keys]


def test_no_record_is_behind_the_time_of_another_key_whenever_an_epoch_ends() -> None:
    with writing(int(20 / TICK_S), EventTimes(KEYS)) as writer:  # A tick does not write all keys.
        for _ in range(3):
            write_some(writer)
            writer.close_windows()
    assert times_of(KEYS) == sorted(times_of(KEYS))
    assert len(set(times_of(KEYS))) > 3


def test_an_epoch_begins_with_a_record_in_each_partition() -> None:
    times = EventTimes(KEYS, [])
    with writing(100, times) as writer:
        write_some(writer)
        writer.close_windows()
        begin_ms = times.start_of(1)
        assert {key for key, row_time in Writer.written if row_time >= begin_ms} == set(KEYS)
        assert Writer.flushed == len(Writer.written)


def test_kafka_has_all_records_of_a_window_before_one_of_a_later_window() -> None:
    with writing(40_000, EventTimes(KEYS, keys_in(1, 3))) as writer:
        write_some(writer)
    windows = [row_time // WINDOW_MS for _, row_time in Writer.written]
    assert len(set(windows)) > 3
    for window, flushed in zip(windows, Writer.flushed_at, strict=True):
        earlier = sum(each < window for each in windows)
        assert flushed >= earlier


def test_the_rates_of_partitions_are_those_of_their_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load, "BACKLOG_EVERY_S", float("inf"))
    with writing(40_000, EventTimes(KEYS, keys_in(1, 3))) as writer:
        writer._partitions = 3
        write_some(writer)
        rates = [writer.rate_in(partition) for partition in range(3)]
        counts = [writer.written_in(partition) for partition in range(3)]
    assert sum(rates) == pytest.approx(40_000)
    assert rates[1] > 8 * max(rates[0], rates[2])
    assert counts[1] / sum(counts) == pytest.approx(rates[1] / sum(rates), rel=0.1)


def test_sometimes_a_backlog_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "BACKLOG_EVERY_S", TICK_S)
    with writing(1000, EventTimes(KEYS, [])) as writer:
        write_some(writer)
        assert sum(writer.numbers.values()) >= 0.9 * 1000 * BACKLOG_S


def test_other_records_have_the_time_of_those_around_them() -> None:
    with writing(1000, EventTimes(KEYS, [])) as writer:
        write_some(writer)
        writer.add([(b"other", b"1")])
        write_some(writer)
    rows = [row_time for _, row_time in Writer.written]
    assert rows == sorted(rows)
    place = [key for key, _ in Writer.written].index(b"other")
    assert rows[place] == rows[place - 1]
