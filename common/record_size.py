"""The size of a record in a topic: brokers measure whole batches, librdkafka does not."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from itertools import chain

from kafka_pipeline.common.record_batch import KafkaHeaders

_BATCH_HEADER = 61
_ATTRIBUTES = 1
_ZERO_DELTAS = 2
"""The deltas of timestamp and offset, 0 since the record is the first one of its batch."""

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
    """Return the sizes of a column's items in bytes, without those that are `None` or empty."""
    return list(map(len, filter(None, column)))


def _longest(column: Sequence[Sized | None]) -> int:
    return max(map(len, filter(None, column)), default=0)


def _field(content: bytes | None) -> int:
    return 1 if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """Return the bytes of a number (0..) as a zigzag varint: 7 bits a byte, one for the sign."""
    return number.bit_length() // 7 + 1
