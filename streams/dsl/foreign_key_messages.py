"""What the two sides of a foreign-key join send each other (KIP-213, KIP-775).

Both messages stay bytes on their way, with the layout of `streams.dsl.packing`: the right side
copies the head of an answer from its subscription, and deserializes no keys or values of rows.

| message | parts |
| --- | --- |
| subscription | instruction and partition of the row; hash of its value, or `None`; its key |
| answer | partition of the row; hash of its value, or `None`; value of the right table, or `None` |
"""

from __future__ import annotations

import struct
from enum import IntEnum
from hashlib import blake2b

from kafka_pipeline.streams.dsl.packing import pack
from kafka_pipeline.streams.errors import SerializationError

_NUMBERS = struct.Struct(">Bi")
_LENGTH = struct.Struct(">i")
_HASH_BYTES = 16
_BEFORE_HASH = struct.Struct(">iBii")
_SIZE_OF_NUMBERS = b"\x00\x00\x00\x05"
_SIZE_OF_PARTITION = b"\x00\x00\x00\x04"
_SIZE_OF_HASH = b"\x00\x00\x00\x10"
_NONE = b"\xff\xff\xff\xff"
# Where the parts of a subscription begin. An answer has one byte less in front of its hash.
_INSTRUCTION, _PARTITION, _HASH = 4, 5, 9
_AFTER_HASH = _HASH + 4 + _HASH_BYTES
_KEY_BY_SIZE_OF_HASH = {_SIZE_OF_HASH: _AFTER_HASH, _NONE: _HASH + 4}
_VALUE_BY_SIZE_OF_HASH = {_SIZE_OF_HASH: _AFTER_HASH - 1, _NONE: _HASH + 3}
"""Where the length of the last part is, by the length of the hash before it."""


class Instruction(IntEnum):
    """What the right side does with a subscription."""

    END_SILENTLY = 0
    """Forget it: the row of the left table has another foreign key now, which answers."""

    END = 1
    """Forget it, and answer that there is no value: the row has no foreign key any more."""

    ANSWER = 2
    """Keep it, and answer whether there is a value or not."""

    ANSWER_IF_FOUND = 3
    """Keep it, and answer if there is a value: otherwise, the row has no result to take back."""


def value_hash(data: bytes) -> bytes:
    """Return 16 bytes that tell answers for a row's current value from outdated ones."""
    return blake2b(data, digest_size=_HASH_BYTES).digest()


def subscription(
    instruction: Instruction, digest: bytes | None, key: bytes, partition: int
) -> bytes:
    """Return the message by which a row of the left table asks for the value of its foreign key.

    `digest` is the `value_hash` of the row, `None` if it was deleted. `key` and `partition` are
    those of the row.
    """
    if digest is None:
        return pack([_NUMBERS.pack(instruction, partition), None, key])
    head = _BEFORE_HASH.pack(_NUMBERS.size, instruction, partition, _HASH_BYTES)
    return b"".join((head, digest, _LENGTH.pack(len(key)), key))


def parts_of_subscription(data: bytes) -> tuple[int, bytes, bytes]:
    """Return the instruction of a subscription, the row key, and the head of its answer.

    Raises `SerializationError` for other bytes.
    """
    length = _KEY_BY_SIZE_OF_HASH.get(data[_HASH : _HASH + 4], -1)
    key = data[length + 4 :]
    if data[:4] != _SIZE_OF_NUMBERS or data[length : length + 4] != _LENGTH.pack(len(key)):
        raise SerializationError("these bytes are not a subscription, or are cut off")
    return data[_INSTRUCTION], key, _SIZE_OF_PARTITION + data[_PARTITION:length]


def partition_of_subscription(data: bytes) -> int:
    """Return the partition of the row that a subscription is for."""
    return int.from_bytes(data[_PARTITION:_HASH], "big", signed=True)


def with_partition(data: bytes, partition: int) -> bytes:
    """Return a subscription with another partition of its row."""
    return data[:_PARTITION] + _LENGTH.pack(partition) + data[_HASH:]


def answer(head: bytes, value: bytes | None) -> bytes:
    """Return the message with the value of a foreign key, or `None`, for a row.

    `head` is what `parts_of_subscription` returned for it.
    """
    return head + _NONE if value is None else b"".join((head, _LENGTH.pack(len(value)), value))


def partition_of_answer(data: bytes) -> int:
    """Return the partition of the row that an answer is for."""
    return int.from_bytes(data[4:8], "big", signed=True)


def hash_and_value(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the hash that the row had, and the value of the foreign key, from an answer.

    Raises `SerializationError` for other bytes.
    """
    length = _VALUE_BY_SIZE_OF_HASH.get(data[8:12], -1)
    value, size = data[length + 4 :], data[length : length + 4]
    digest = data[12:length] or None
    if data[:4] == _SIZE_OF_PARTITION:
        if size == _LENGTH.pack(len(value)):
            return digest, value
        if size == _NONE and not value:
            return digest, None
    raise SerializationError("these bytes are not an answer, or are cut off")


def foreign_key_prefix(foreign_key: bytes) -> bytes:
    """Return the common prefix of the stored subscriptions of a foreign key."""
    return _LENGTH.pack(len(foreign_key)) + foreign_key
