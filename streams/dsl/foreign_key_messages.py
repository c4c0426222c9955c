"""What the two sides of a foreign-key join send each other (KIP-213, KIP-775)."""

from __future__ import annotations

import struct
from enum import IntEnum
from hashlib import blake2b
from typing import Any, NamedTuple

from streams.dsl.packing import pack, unpack
from streams.serdes import Serde

_NUMBERS = struct.Struct(">Bi")
_LENGTH = struct.Struct(">i")


class Instruction(IntEnum):
    """What the right side does with a subscription."""

    END_SILENTLY = 0
    """Forget it: the row of the left table has another foreign key now, which answers."""

    END = 1
    """Forget it, and answer that there is no value: the row has no foreign key any more."""

    ANSWER = 2
    """Keep it, and answer whether there is a value or not."""

    ANSWER_IF_FOUND = 3
    """Keep it, and answer if there is a value: otherwise, there was no result before either."""


class Subscription(NamedTuple):
    """A row of the left table asks for the value of its foreign key.

    `hash` is that of the row's value, `None` if the row was deleted; `partition` is that of the
    row.
    """

    instruction: Instruction
    hash: bytes | None
    key: Any
    partition: int


class Answer(NamedTuple):
    """The value of a foreign key, or `None`, for the row that had a value with this hash."""

    hash: bytes | None
    value: Any
    partition: int


def value_hash(data: bytes) -> bytes:
    """Return 16 bytes by which answers for a former value of a row are recognised."""
    return blake2b(data, digest_size=16).digest()


def subscription_serde(key_serde: Serde[Any]) -> Serde[Subscription]:
    """Return the serde of subscriptions; `key_serde` is that of the left table's keys."""

    def serialize(subscription: Subscription) -> bytes:
        instruction, digest, key, partition = subscription
        numbers = _NUMBERS.pack(instruction, partition)
        return pack([numbers, digest, key_serde.serialize(key)])

    def deserialize(data: bytes) -> Subscription:
        numbers, digest, key = unpack(data)
        instruction, partition = _NUMBERS.unpack(numbers or b"")
        owner = key_serde.deserialize(key or b"")
        return Subscription(Instruction(instruction), digest, owner, partition)

    return Serde(f"subscription of {key_serde.name}", serialize, deserialize)


def answer_serde(value_serde: Serde[Any]) -> Serde[Answer]:
    """Return the serde of answers; `value_serde` is that of the right table's values."""

    def serialize(answer: Answer) -> bytes:
        digest, value, partition = answer
        data = None if value is None else value_serde.serialize(value)
        return pack([_LENGTH.pack(partition), digest, data])

    def deserialize(data: bytes) -> Answer:
        partition, digest, written = unpack(data)
        value = None if written is None else value_serde.deserialize(written)
        return Answer(digest, value, _LENGTH.unpack(partition or b"")[0])

    return Serde(f"answer with {value_serde.name}", serialize, deserialize)


def foreign_key_prefix(foreign_key: bytes) -> bytes:
    """Return what the stored subscriptions of a foreign key begin with."""
    return _LENGTH.pack(len(foreign_key)) + foreign_key
