"""The clock of a record: the largest timestamp of its source partition up to this record.

A record in order has its own timestamp as its clock. A record that is behind carries its clock
over internal topics in a header, so that whether it is late does not depend on the tasks' speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch

if TYPE_CHECKING:
    from kafka_pipeline.streams.record import Batch, Record

CLOCK_HEADER = "__streams.clock"
"""The last header of an out-of-order record in an internal topic: its clock, in decimal digits."""

NO_CLOCK = -1
"""In the place of a clock, says that the record is in order."""


class TaskClock(Protocol):
    """The event time of a task, for its steps."""

    follows_records: bool
    """Whether each record moves event time on; see `InputTime.follows_records`."""
    clock: int
    """The clock of the record in hand; -1 if it is in order."""
    reached_ms: int
    """The time that all inputs have reached, also those whose records come back; -1 at first."""

    def each(self, batch: Batch, receive: Callable[[Record], None]) -> None:
        """Pass the records of a batch on one by one, each with its clock."""


Times = npt.NDArray[np.int64]


def clocks_of(timestamps: Sequence[int], known_ms: int) -> list[int] | None:
    """Return the clocks of records of a source partition, `None` if all are in order.

    `known_ms` is the largest timestamp of the partition's earlier records.
    """
    if not timestamps:
        return None
    if timestamps[0] >= known_ms and sorted(timestamps) == list(timestamps):
        return None
    return list(accumulate(timestamps, max, initial=known_ms))[1:]


def clocks_by_time(batch: Batch, timestamps: Any) -> list[int] | None:
    """Return the clocks of results that code without clocks has computed from a batch.

    A result gets the clock of the record with its timestamp, the least of several. A result with a
    new timestamp is in order.
    """
    if batch.clocks is None:
        return None
    known: dict[int, int] = {}
    for timestamp, clock in zip(batch.timestamps, batch.clocks, strict=True):
        known[timestamp] = min(clock, known.get(timestamp, clock))
    return [known.get(timestamp, timestamp) for timestamp in timestamps]


def with_clock(headers: KafkaHeaders, clock: int) -> list[tuple[str, bytes | None]]:
    """Return the headers of an out-of-order record, with its clock."""
    return [*(headers or ()), (CLOCK_HEADER, b"%d" % clock)]


def with_clocks(
    headers: Sequence[KafkaHeaders] | None, timestamps: Sequence[int], clocks: Sequence[int]
) -> list[KafkaHeaders] | None:
    """Return the headers of records, with the clocks of out-of-order ones."""
    given = headers or [None] * len(timestamps)
    columns = zip(given, timestamps, clocks, strict=True)
    found = [
        with_clock(each, clock) if clock > timestamp else each for each, timestamp, clock in columns
    ]
    return found if any(found) else None


def clocks_in(headers: Sequence[KafkaHeaders], timestamps: Sequence[int]) -> list[int]:
    """Return the clocks of records of an internal topic; those in order have their timestamps."""
    return [
        max(timestamp, _read(*each[-1]) if each else NO_CLOCK)
        for each, timestamp in zip(headers, timestamps, strict=True)
    ]


def clocked(batch: RecordBatch) -> RecordBatch:
    """Return records of an internal topic with the clocks that their headers have."""
    if batch.headers is None:
        return batch
    clocks: list[int] = []
    headers: list[KafkaHeaders] = []
    for each, timestamp in zip(batch.headers, batch.timestamps, strict=True):
        clock = NO_CLOCK if not each else _read(*each[-1])
        clocks.append(max(clock, timestamp))
        headers.append(each if not each or clock == NO_CLOCK else each[:-1] or None)
    if headers == batch.headers:
        return batch
    return replace(batch, headers=headers if any(headers) else None, clocks=clocks)


def _read(name: str, value: bytes | None) -> int:
    is_clock = name == CLOCK_HEADER and value is not None and value.isdigit()
    return int(value) if is_clock and value is not None else NO_CLOCK


def late_by(times: Any, clocks: Sequence[int] | None, now: int, *, follows_records: bool) -> Times:
    """Return the time by which each of some records is late for what has closed by then.

    `now` is the time of the step before them. If it `follows_records`, each of them moves it on.
    """
    own = np.asarray(times, np.int64)
    reached = np.maximum.accumulate(np.maximum(own, now)) if follows_records else None
    if clocks is not None:
        own = np.maximum(own, np.asarray(clocks, np.int64))
    return np.maximum(own, now if reached is None else reached)
