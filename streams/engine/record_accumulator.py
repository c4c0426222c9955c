"""Holds records back until no more come, so that one call processes many of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from itertools import chain, groupby
from typing import Any

from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.call_size import CallSize
from kafka_pipeline.streams.engine.record_queues import Partition

MOST_RECORDS = 100_000
_FEWEST_RECORDS = 10
_MOST_BYTES = 64 * 1024 * 1024
_CALL_S = 1.0
_SMALL_CALLS = 4
_MOST_FIXED_S = 10.0


class RecordAccumulator:
    """The records of a task that are not processed yet.

    They wait until all that is known of their partitions is here, until a round of the caller adds
    none, or until there are `limit` of them (1 to `MOST_RECORDS`) or 64 MB. The limit adapts to the
    speed of the calls, so that a call takes up to a second longer than one of few records. Those
    may take a second by themselves on a busy machine, and fewer records in a call would then only
    cost more calls. The limit starts low, because the time per record is still unknown, and at most
    doubles from call to call.
    """

    def __init__(self) -> None:
        self._call_size = CallSize(_CALL_S, _FEWEST_RECORDS, MOST_RECORDS)
        self._small_calls_s = deque[float](maxlen=_SMALL_CALLS)
        """How long the last calls of the fewest records took, which most calls take at least."""
        self._batches: list[RecordBatch] = []
        self._size = 0
        self._bytes = 0
        self._has_grown = False

    def __len__(self) -> int:
        return self._size

    @property
    def limit(self) -> int:
        """How many records one call takes at most."""
        return self._call_size.limit

    def without_held(self, partitions: Collection[Partition]) -> Collection[Partition]:
        """Return partitions of which no record is held back: one may be the oldest of a task."""
        return {*partitions} - {*map(_partition, self._batches)} if self._batches else partitions

    @property
    def oldest_ms(self) -> int | None:
        """The smallest timestamp among the first records of the batches, `None` without batches."""
        return min((batch.timestamps[0] for batch in self._batches), default=None)

    def add(self, batch: RecordBatch) -> None:
        """Append records to the earlier ones of their partition."""
        self._batches.append(batch)
        self._size += len(batch)
        self._bytes += sum(map(len, filter(None, batch.values)))
        self._has_grown = True

    def take(self, all_here: Container[Partition]) -> list[RecordBatch]:
        """Return all records if it is time, as one batch per partition where possible.

        Call this once in each round.
        """
        has_grown, self._has_grown = self._has_grown, False
        is_full = self._size >= self.limit or self._bytes >= _MOST_BYTES
        if has_grown and not is_full and not self._are_all(all_here):
            return []
        batches, self._batches = self._batches, []
        self._size = self._bytes = 0
        batches.sort(key=_partition)
        return [joined for _, run in groupby(batches, _partition) for joined in _joined(list(run))]

    def learn(self, records: int, seconds: float) -> bool:
        """Record how long a call took; return whether other tasks should have their turn now."""
        if records <= _FEWEST_RECORDS:
            self._small_calls_s.append(seconds)
        # Only a call that is nearly full says how much longer one of more records takes.
        is_large = records >= self.limit // 2
        fixed_s = min(*self._small_calls_s, _MOST_FIXED_S) if self._small_calls_s else 0.0
        self._call_size.learn(records, seconds - fixed_s if is_large else seconds)
        return seconds >= _CALL_S / 2

    def _are_all(self, all_here: Container[Partition]) -> bool:
        return all(_partition(batch) in all_here for batch in self._batches)


def _partition(batch: RecordBatch) -> Partition:
    return batch.topic, batch.partition


def _joined(batches: list[RecordBatch]) -> Iterator[RecordBatch]:
    """Join batches of one partition into one; a batch with an error stays separate."""
    for has_error, run in groupby(batches, lambda batch: bool(batch.error)):
        parts = list(run)
        if has_error or len(parts) == 1:
            yield from parts
            continue

        def column(of: Callable[[RecordBatch], Sequence[Any]], parts: Any = parts) -> list[Any]:
            return list(chain.from_iterable(map(of, parts)))

        yield RecordBatch(
            parts[0].topic,
            parts[0].partition,
            column(lambda part: part.keys),
            column(lambda part: part.values),
            column(lambda part: part.timestamps),
            column(lambda part: part.offsets),
            column(lambda part: part.headers or [None] * len(part))
            if any(part.headers for part in parts)
            else None,
            clocks=column(lambda part: part.clocks or part.timestamps)
            if any(part.clocks for part in parts)
            else None,
        )
