"""Windows without grace behind a repartition, for the chaos harness, and the brake in front of it.

Each key of the load belongs to a lane, and each lane has keys of all source partitions. So a window
of a lane is right only if it waits for the slowest task in front of the repartition.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from kafka_pipeline import Processor, Record, StreamsBuilder, serdes, stores, windows
from kafka_pipeline.streams.engine.topology import Topology
from tests.user_code.numbered import WINDOW_MS

LANES = 6
_KEY = re.compile(rb"k(\d\d)")
_LOOK_EVERY_S = 0.05
_CREDIT_S = 2.0
"""How far a braked task may be behind its rate, and then catch up."""


def lane_of(key: bytes) -> bytes:
    """Return the lane of a key."""
    return b"lane%d" % (int(key[1:]) % LANES)


class Brake(Processor):
    """Passes records on, those of one partition slowly while a file says so.

    The file has the partition and the number of records per second. Each record that had to wait
    adds a byte to the file `passed_of(file)`.
    """

    def __init__(self, file: str) -> None:
        self._file = Path(file)
        self._looked_at_s = self._due_s = float("-inf")
        self._pause_s = 0.0

    def process(self, record: Record) -> None:
        """Pass the record on when it is its turn."""
        if self._find_pause():
            self._wait()
        self.context.forward(record)

    def _wait(self) -> None:
        # The task does not work all the time, as others of its thread have their turns.
        self._due_s = max(self._due_s, time.monotonic() - _CREDIT_S) + self._find_pause()
        while self._find_pause() and (left_s := self._due_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _LOOK_EVERY_S))
        with passed_of(self._file).open("ab") as passed:
            passed.write(b".")

    def _find_pause(self) -> float:
        """Return the seconds between two records; 0 without a brake."""
        if time.monotonic() - self._looked_at_s >= _LOOK_EVERY_S:
            try:
                partition, _, rate = self._file.read_text().partition(" ")
                is_own = int(partition) == self.context.partition
                self._pause_s = 1 / float(rate) if is_own else 0.0
            except FileNotFoundError:
                self._pause_s = 0.0
            self._looked_at_s = time.monotonic()
        return self._pause_s


def passed_of(file: Path) -> Path:
    """Return the file that has a byte for each record that a brake held up."""
    return file.with_name(f"{file.name}_passed")


def build(base: int, brake: str) -> Topology:
    """Count and sum the numbers of each lane in windows that close without grace."""
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.bytes)
    numbers = (
        builder.stream("source", name="Numbered")
        .filter(lambda key, value: key is not None and _KEY.fullmatch(key) is not None)
        .process_values(lambda: Brake(brake), name="Brake")
        .map_values(lambda value: int(value) - base, value_serde=serdes.int64)
    )
    numbers.group_by(lambda key, number: lane_of(key), name="ByLane").windowed_by(
        windows.tumbling(WINDOW_MS, grace_ms=0), emit="on_close"
    ).aggregate(
        lambda: [0, 0],
        lambda lane, number, sums: [sums[0] + 1, sums[1] + number],
        name="Lanes",
        value_serde=serdes.json,
    ).to_stream().map(_shown).to("sink")
    return builder.build()


def _shown(windowed: stores.Windowed[bytes], sums: list[int]) -> tuple[bytes, bytes]:
    return windowed.key, b"dsl lane %d %d %d" % (windowed.window.start, *sums)
