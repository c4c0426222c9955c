"""Bytes of the messages of a foreign-key join, which may be on their way through an upgrade."""

from __future__ import annotations

import pytest

from kafka_pipeline import SerializationError
from kafka_pipeline.streams.dsl.foreign_key_messages import (
    Instruction,
    answer,
    hash_and_value,
    partition_of_answer,
    partition_of_subscription,
    parts_of_subscription,
    subscription,
    value_hash,
)
from kafka_pipeline.streams.dsl.packing import pack

HASH = value_hash(b"row")


@pytest.mark.parametrize("digest", [HASH, None], ids=["row", "no row"])
@pytest.mark.parametrize("key", [b"", b"key", b"k" * 1000], ids=len)
@pytest.mark.parametrize("value", [b"", b"value", None])
def test_an_answer_returns_hash_and_partition_of_its_subscription(
    digest: bytes | None, key: bytes, value: bytes | None
) -> None:
    asked = subscription(Instruction.ANSWER_IF_FOUND, digest, key, 70_000)
    assert asked == pack([b"\x03\x00\x01\x11\x70", digest, key])
    assert partition_of_subscription(asked) == 70_000

    instruction, found, head = parts_of_subscription(asked)
    assert (instruction, found) == (Instruction.ANSWER_IF_FOUND, key)

    answered = answer(head, value)
    assert answered == pack([b"\x00\x01\x11\x70", digest, value])
    assert partition_of_answer(answered) == 70_000
    assert hash_and_value(answered) == (digest, value)


@pytest.mark.parametrize("digest", [HASH, None], ids=["row", "no row"])
def test_damaged_messages_are_refused(digest: bytes | None) -> None:
    asked = subscription(Instruction.ANSWER, digest, b"key", 0)
    answered = answer(parts_of_subscription(asked)[2], b"value")
    for end in range(len(asked)):
        with pytest.raises(SerializationError, match="not a subscription, or are cut off"):
            parts_of_subscription(asked[:end])
    with pytest.raises(SerializationError, match="not a subscription, or are cut off"):
        parts_of_subscription(asked + b"x")
    for damaged in (b"", answered[:-1], answered + b"x", answered[:8]):
        with pytest.raises(SerializationError, match="not an answer, or are cut off"):
            hash_and_value(damaged)
