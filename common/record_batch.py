"""Records of one partition as columns, the unit that a task processes, and their sizes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from itertools import chain

KafkaHeaders = list[tuple[str, bytes | None]] | None

OutputRecord = tuple[str, bytes | None, bytes | None, int, int, KafkaHeaders]
"""A record to send: topic, key, value, partition, timestamp and headers.

The partition is -1 if the key decides. It is a plain tuple, because every record needs one.
"""

_MOST_BYTES = 16_000_000


@dataclass(slots=True)
class RecordBatch:
    """Consecutive records of one topic partition, oldest first; all columns have the same length.

    Keys and values are the bytes in the topic, `None` where the record has none. Timestamps are
    milliseconds since the epoch. `headers` is `None` if no record of the batch has any. Offsets
    ascend but may have gaps (transaction markers, compaction).

    `error` is usually empty. In a batch of one record, it says why that record cannot be processed
    at all; `cause` is the exception that rejects it, if there is one.
    """

    topic: str
    partition: int
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    offsets: Sequence[int]
    headers: Sequence[KafkaHeaders] | None = None
    error: str = ""
    cause: Exception | None = None
    clocks: Sequence[int] | None = None
    """The clocks of the records (`streams.event_time`); `None` if all are in order."""
    _largest_timestamp: int | None = field(default=None, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.offsets)

    def value_bytes(self) -> int:
        """Return the total size of the values in bytes."""
        try:
            return len(b"".join(self.values))  # type: ignore[arg-type]
        except TypeError:  # some are None
            return sum(map(len, filter(None, self.values)))

    def count_before(self, offset: int) -> int:
        """Return the number of records before an offset."""
        return bisect_left(self.offsets, offset)

    def largest_timestamp(self, start: int, stop: int) -> int:
        """Return the largest timestamp of the records from index `start` to `stop`, at least one.

        The result for the whole batch is cached.
        """
        if stop - start == 1:
            return self.timestamps[start]
        if stop - start < len(self):
            return max(self.timestamps[start:stop])
        if self._largest_timestamp is None:
            self._largest_timestamp = max(self.timestamps)
        return self._largest_timestamp

    @property
    def smallest_timestamp(self) -> int:
        """The smallest timestamp of the batch; not cached."""
        return min(self.timestamps)

    def part(self, start: int, stop: int) -> RecordBatch:
        """Return the records from index `start` to `stop`; the batch itself if these are all."""
        if stop - start == len(self):
            return self
        return RecordBatch(
            self.topic,
            self.partition,
            self.keys[start:stop],
            self.values[start:stop],
            self.timestamps[start:stop],
            self.offsets[start:stop],
            self.headers[start:stop] if self.headers else None,
            self.error,
            self.cause,
            self.clocks[start:stop] if self.clocks else None,
        )

    def only(self, indices: Sequence[int]) -> RecordBatch:
        """Return the records at these indices, which must ascend."""
        headers, clocks = self.headers, self.clocks
        return RecordBatch(
            self.topic,
            self.partition,
            [self.keys[index] for index in indices],
            [self.values[index] for index in indices],
            [self.timestamps[index] for index in indices],
            [self.offsets[index] for index in indices],
            None if headers is None else [headers[index] for index in indices],
            self.error,
            self.cause,
            None if clocks is None else [clocks[index] for index in indices],
        )


def parts(records: Iterable[OutputRecord], most: int) -> Iterator[list[OutputRecord]]:
    """Yield records in parts for one transaction each, so that none times out.

    A part ends once it has `most` records, or 16 MB of keys and values.
    """
    part: list[OutputRecord] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(record[1] or b"") + len(record[2] or b"")
        if len(part) == most or size >= _MOST_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


_BATCH_HEADER = 61
_ATTRIBUTES = 1
_ZERO_DELTAS = 2
"""The deltas of timestamp and offset, which are 0 for the first record of a batch."""

MAX_OVERHEAD = 97
"""The most that a record without headers adds to the size of its key and value, in bytes."""

_MAX_HEADER_OVERHEAD = 10
_MAX_UTF8_BYTES = 4


def record_size(key: bytes | None, value: bytes | None, headers: KafkaHeaders) -> int:
    """Return the size in bytes of a batch (format 2, not compressed) with only this record.

    Brokers compare this size with `max.message.bytes`.
    """
    size = _ATTRIBUTES + _ZERO_DELTAS + _field(key) + _field(value) + _varint(len(headers or ()))
    for name, content in headers or ():
        size += _field(name.encode()) + _field(content)
    return _BATCH_HEADER + _varint(size) + size


def size_bound(
    keys: Sequence[bytes | None],
    value_sizes: Sequence[int],
    headers: Sequence[KafkaHeaders] | None,
) -> int:
    """Return a size that no record of these columns exceeds; far cheaper than the size of each.

    `value_sizes` has the `sizes` of the values.
    """
    bound = MAX_OVERHEAD + _longest(keys) + max(value_sizes, default=0)
    pairs = list(chain.from_iterable(filter(None, headers or ())))
    if pairs:
        names, contents = zip(*pairs, strict=True)
        header = _MAX_UTF8_BYTES * _longest(names) + _longest(contents) + _MAX_HEADER_OVERHEAD
        bound += header * _longest(headers or ())
    return bound


def sizes(column: Sequence[Sized | None]) -> list[int]:
    """Return the sizes in bytes of a column's items, without items that are `None` or empty."""
    return list(map(len, filter(None, column)))


def _longest(column: Sequence[Sized | None]) -> int:
    return max(map(len, filter(None, column)), default=0)


def _field(content: bytes | None) -> int:
    return 1 if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """Return the size of a number (0..) as a zigzag varint: 7 bits a byte, one for the sign."""
    return number.bit_length() // 7 + 1
