"""Reads partitions up to given end offsets, as long as there is progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

from kafka_pipeline.common.kafka.clients import Partition, TransactionFailedError
from kafka_pipeline.common.suggest import counted

T = TypeVar("T")


class Positioned(Protocol):
    """A reader that knows its positions; `PartitionReader` is one."""

    @property
    def positions(self) -> Mapping[Partition, int]:
        """The offsets to read next, of all partitions that are assigned."""


def read_to_end(
    reader: Positioned,
    ends: Mapping[Partition, int],
    fetch: Callable[[], T],
    stall_timeout_s: float,
) -> Iterator[tuple[T, int]]:
    """Yield the result of each `fetch` of `reader` and the number of offsets left, until it is 0.

    Raises `TransactionFailedError` if the reader makes no progress for `stall_timeout_s`, as
    happens while a transaction stays open.
    """
    left, moved_at_s = _count_left(reader, ends), time.monotonic()
    while left > 0:
        fetched = fetch()
        before, left = left, _count_left(reader, ends)
        now_s = time.monotonic()
        if left < before:
            moved_at_s = now_s
        elif now_s - moved_at_s > stall_timeout_s:
            topics = ", ".join(sorted({topic for topic, _ in ends}))
            raise TransactionFailedError(
                f"reading {topics} stalls, {counted(left, 'offset')} before the end"
            )
        yield fetched, left


def _count_left(reader: Positioned, ends: Mapping[Partition, int]) -> int:
    return sum(max(ends[partition] - at, 0) for partition, at in reader.positions.items())
