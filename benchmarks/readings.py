"""Readings of places in partitions of unequal size, and how often windows count each of them.

All partitions span the same hour, each in the order of time: the first one is large, the others are
small. So a task that reads a small one goes through the hour much faster than the task that reads
the large one. Each partition ends with readings of other places, hours later, which close all
windows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from benchmarks.records import Numbers
from kafka_pipeline.common.record_batch import RecordBatch

PARTITIONS = 4
PLACES = 10
USERS = 20
"""The users of each partition. Their names are the keys of the records."""
START_MS = 1_704_067_200_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
CLOSED_AFTER_MS = 2 * HOUR_MS
CLOSING = "closing"
CLOSING_PLACES = 64
"""How many places close windows: so many that each partition after a repartition gets some."""

Window = tuple[str, int]
"""A place, and the start of a minute."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A record that was not written yet."""

    partition: int
    user: str
    place: str
    timestamp: int

    @property
    def value(self) -> bytes:
        """The value, whose field `place` is what windows group by."""
        return json.dumps({"user": self.user, "place": self.place, "n": 1}).encode()

    @property
    def window(self) -> Window:
        """The window that counts it."""
        return self.place, self.timestamp // MINUTE_MS * MINUTE_MS


def readings(large: int, small: int) -> Iterator[Reading]:
    """Yield the readings of all partitions, each in the order of time."""
    for partition in range(PARTITIONS):
        count = small if partition else large
        for number in range(count):
            user = f"user_{partition}_{number % USERS}"
            place = f"place_{number % PLACES}"
            yield Reading(partition, user, place, START_MS + HOUR_MS * number // count)


def closing_readings() -> Iterator[Reading]:
    """Yield the last readings of each partition."""
    for partition in range(PARTITIONS):
        for number in range(CLOSING_PLACES):
            place = f"{CLOSING}_{number}"
            yield Reading(partition, CLOSING, place, START_MS + HOUR_MS + CLOSED_AFTER_MS)


@dataclass(slots=True)
class MinuteCounts:
    """The results of an engine, next to the exact counts; if a window repeats, the last one holds.

    A result has the place as its key, and `{"minute": …, "records": …}` as its value.
    """

    expected: Counter[Window]
    found: dict[Window, int] = field(default_factory=dict)
    repeated: int = 0
    """How many results came for windows that had one already."""

    def add(self, batch: RecordBatch) -> Numbers:
        """Take results from the sink. Returns no numbers, as results are not of single records."""
        for key, value in zip(batch.keys, batch.values, strict=True):
            place, result = (key or b"").decode(), json.loads(value or b"null")
            if not place.startswith(CLOSING):
                window = place, result["minute"]
                self.repeated += window in self.found
                self.found[window] = result["records"]
        return np.empty(0, np.int64)

    @property
    def is_complete(self) -> bool:
        return self.found == self.expected

    def missing(self) -> str:
        return f"{self.records_missing:,} records are missing"

    @property
    def records_missing(self) -> int:
        """How many of the records no result counts."""
        return (self.expected - Counter(self.found)).total()

    @property
    def wrong(self) -> int:
        """How many windows have no result, have another one than expected, or should not exist."""
        windows = self.expected.keys() | self.found.keys()
        return sum(self.expected[window] != self.found.get(window) for window in windows)
