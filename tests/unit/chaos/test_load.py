"""The writer of the chaos harness: the event times of its records."""

from __future__ import annotations

import time
from collections.abc import Iterable
from random import Random

import pytest

from common.config import Config
from tests.chaos import load
from tests.chaos.event_times import EventTimes
from tests.chaos.load import KEYS, TICK_S, Load

CONFIG = Config(
    server_ip="127.0.0.1",
    server_port=9092,
    tm_number=1,
    parallelism=1,
    replication_factor=1,
    source_topic="in",
    sink_topic="out",
)


class Writer:
    """Keeps the times of the records that it gets."""

    written: list[int]

    def __init__(self, config: Config, topic: str) -> None:
        Writer.written = []

    def write_at(self, rows: Iterable[tuple[bytes, bytes, int]]) -> None:
        self.written += [row_time for _, _, row_time in rows]

    def flush(self, timeout_s: float) -> None:
        pass


def test_no_record_is_behind_the_time_of_another_key_whenever_an_epoch_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load, "BulkWriter", Writer)
    # A tick does not write all keys.
    writer = Load(CONFIG, Random(1), int(20 / TICK_S), EventTimes(KEYS))
    for _ in range(3):
        before = len(Writer.written)
        writer.resume()
        while len(Writer.written) == before:
            time.sleep(TICK_S / 10)
        writer.pause()
        writer.close_windows()
    writer.close()
    assert Writer.written == sorted(Writer.written)
    assert len(set(Writer.written)) > 3
