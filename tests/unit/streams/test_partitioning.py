"""Partitioning: Kafka's hash of a key, and the answers of a user's partitioner."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.streams.errors import PartitionError
from kafka_pipeline.streams.partitioning import (
    StreamPartitioner,
    as_partitioner,
    choose,
    default_partition,
    murmur2,
)


class Always:
    """A partitioner with one answer; remembers what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: tuple[object, ...] = ()

    def partitions(self, topic: str, key: object, value: object, num_partitions: int) -> Any:
        self.asked = (topic, key, value, num_partitions)
        return self.answer


def chosen(answer: Any, num_partitions: int = 12) -> tuple[int, ...] | None:
    return choose(Always(answer), "sink", "key", "value", num_partitions)


def refusal(answer: Any, num_partitions: int = 12) -> str:
    with pytest.raises(PartitionError) as caught:
        chosen(answer, num_partitions)
    return str(caught.value)


def bytewise_murmur2(data: bytes) -> int:
    """The hash as its definition puts it together, byte by byte."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    digest = 0x9747B28C ^ len(data)
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        word = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        word = word * factor & mask
        word ^= word >> 24
        word = word * factor & mask
        digest = digest * factor & mask
        digest ^= word
    for place, byte in enumerate(data[whole:]):
        digest ^= byte << 8 * place
    if len(data) > whole:
        digest = digest * factor & mask
    digest ^= digest >> 13
    digest = digest * factor & mask
    digest ^= digest >> 15
    return digest - 2**32 if digest >= 2**31 else digest


# The default


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_is_that_of_java_clients(data: bytes, digest: int) -> None:
    assert murmur2(data) == digest


@given(data=st.binary(max_size=40) | st.binary(min_size=240, max_size=270))
def test_hash_of_any_length_is_the_one_of_the_definition(data: bytes) -> None:
    assert murmur2(data) == bytewise_murmur2(data)


@pytest.mark.parametrize("num_partitions", [1, 3, 12])
def test_partition_of_a_negative_hash_is_the_one_java_clients_choose(num_partitions: int) -> None:
    assert default_partition(b"21", num_partitions) == (-973932308 + 2**31) % num_partitions


def test_partition_of_a_positive_hash_is_its_remainder() -> None:
    assert default_partition(b"abc", 10) == 7


# Partitioners


def test_partitioner_gets_topic_key_value_and_number_of_partitions() -> None:
    partitioner = Always({3})
    assert choose(partitioner, "sink", "key", 7, 12) == (3,)
    assert partitioner.asked == ("sink", "key", 7, 12)


def test_a_function_is_a_partitioner_too() -> None:
    partitioner = as_partitioner(lambda topic, key, value, n: {len(topic + key) + value, n - 1})
    assert choose(partitioner, "sink", "key", 1, 12) == (8, 11)


def test_a_partitioner_stays_itself() -> None:
    partitioner: StreamPartitioner[object, object] = Always({0})
    assert as_partitioner(partitioner) is partitioner


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(TypeError, match="has a method partitions, not a int"):
        as_partitioner(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "partitions"),
    [
        (None, None),
        (set(), ()),
        ({11, 0, 5}, (0, 5, 11)),
        (frozenset({4}), (4,)),
        (set(range(0, 12, 2)), (0, 2, 4, 6, 8, 10)),
        (set(range(12)), tuple(range(12))),
    ],
    ids=["default", "dropped", "some", "frozen", "even ones", "broadcast"],
)
def test_answer_comes_back_sorted(answer: Any, partitions: tuple[int, ...] | None) -> None:
    assert chosen(answer) == partitions


@pytest.mark.parametrize("number", [-1, 12, 13])
def test_partition_that_does_not_exist_is_refused(number: int) -> None:
    message = refusal({0, number})
    assert f"topic sink chose partition {number}, but the topic has 12" in message


@pytest.mark.parametrize(
    ("answer", "type_name"), [(3, "int"), ([3], "list"), ({3: 3}, "dict"), ("3", "str")]
)
def test_answer_that_is_no_set_is_refused(answer: Any, type_name: str) -> None:
    assert refusal(answer).endswith(f"a set of partition numbers or None, not a {type_name}")


@pytest.mark.parametrize(
    ("answer", "type_name"), [({"3"}, "str"), ({1.0}, "float"), ({True}, "bool"), ({None}, "Non")]
)
def test_set_of_anything_but_whole_numbers_is_refused(answer: Any, type_name: str) -> None:
    assert f"topic sink must return whole numbers, not a {type_name}" in refusal(answer)


def test_error_of_a_partitioner_goes_through() -> None:
    def broken(topic: str, key: object, value: object, num_partitions: int) -> set[int]:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        choose(as_partitioner(broken), "sink", None, None, 1)
