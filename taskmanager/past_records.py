"""The records of a partition that a table has, read ahead while the task processes others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial

from kafka_pipeline.common.process.spare_threads import SpareThreads
from kafka_pipeline.common.record_batch import RecordBatch

_FIRST_OFFSETS = 100
_MOST_OFFSETS = 200_000
_CHUNK_BYTES = 8 * 1024 * 1024
"""How many bytes of values a chunk is to have; two chunks are in memory at a time."""
_GROWTH = 8


class PastRecords:
    """The records from an offset up to `end`, where Kafka goes on.

    Chunks are ranges of offsets. `take` does not wait for storage; only one thread may call it.
    """

    def __init__(self, read: Callable[[int, int], RecordBatch], start: int, end: int) -> None:
        """`read` returns the records from an offset up to another one, and may block."""
        self.end = end
        self._read = read
        self._at = start
        self._offsets = _FIRST_OFFSETS
        self._threads = SpareThreads("history")
        self._chunk: RecordBatch | None = None
        self._taken = 0
        self._next: Future[RecordBatch] | None = None
        self._read_ahead()

    @property
    def is_done(self) -> bool:
        """Whether all records were taken."""
        return self._chunk is None and self._next is None

    @property
    def pending(self) -> Future[RecordBatch] | None:
        """The chunk that must come before there is more to take."""
        return self._next if self._chunk is None else None

    def take(self, most: int) -> RecordBatch | None:
        """Return the next records, up to `most`; `None` if there are none, or none yet.

        Raises what `read` raises.
        """
        if self._chunk is None and self._next is not None and self._next.done():
            chunk, size = self._next.result(), self._offsets
            largest = _CHUNK_BYTES * size // max(chunk.value_bytes(), 1)
            self._offsets = max(1, min(largest, size * _GROWTH, _MOST_OFFSETS))
            self._read_ahead()
            self._chunk, self._taken = (chunk if len(chunk) else None), 0
        if self._chunk is None:
            return None
        stop = min(self._taken + most, len(self._chunk))
        part = self._chunk.part(self._taken, stop)
        self._taken = stop
        if stop == len(self._chunk):
            self._chunk = None
        return part

    def _read_ahead(self) -> None:
        start, self._at = self._at, min(self._at + self._offsets, self.end)
        more = start < self._at
        call = partial(self._read, start, self._at)
        self._next = self._threads.submit(call) if more else None


def wait_for_any(all_: Iterable[PastRecords], wait_s: float) -> None:
    """Wait until one of them has more to take; returns at once if there is none."""
    wait([each.pending for each in all_ if each.pending], wait_s, FIRST_COMPLETED)
