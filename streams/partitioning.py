"""Chooses a record's partitions: Kafka's default by key, or a partitioner of your own.

def to_even_ones(topic: str, key: str, value: int, num_partitions: int) -> set[int]:
    return set(range(0, num_partitions, 2))

partitioner = as_partitioner(to_even_ones)
choose(partitioner, "sink", "k", 7, num_partitions=4)  # (0, 2)
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable
from zlib import crc32

from kafka_pipeline.streams.errors import PartitionError

K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_32_BITS = 0xFFFFFFFF
_FNV_BASIS = 0x811C9DC5
_FNV_PRIME = 0x01000193

# For keys of up to 255 bytes; the format for a longer key is made when it is needed.
_WORDS = [struct.Struct(f"<{count}I").unpack_from for count in range(64)]


@runtime_checkable
class StreamPartitioner(Protocol[K_contra, V_contra]):
    """Chooses the partitions of a topic that a record goes to (KIP-837)."""

    def partitions(
        self, topic: str, key: K_contra, value: V_contra, num_partitions: int
    ) -> set[int] | None:
        """Return partition numbers, 0 to `num_partitions - 1`.

        The empty set drops the record, several numbers send it to each of those partitions, and
        `None` leaves the choice to the default partitioner.
        """


PartitionFunction = Callable[[str, Any, Any, int], set[int] | None]

ChooseForAll = Callable[[Sequence[Any], Sequence[Any], int], list[int]]


class ColumnPartitioner(ABC):
    """For the engine: a partitioner that chooses for whole columns, one partition per record."""

    @abstractmethod
    def of_columns(
        self, keys: Sequence[Any], values: Sequence[Any], num_partitions: int
    ) -> list[int]:
        """Return the partition of each record; -1 means the default one for its key."""

    def partitions(self, topic: str, key: Any, value: Any, num_partitions: int) -> set[int] | None:
        """Return the partition of one record; see `StreamPartitioner`."""
        (partition,) = self.of_columns([key], [value], num_partitions)
        return None if partition < 0 else {partition}


@dataclass(frozen=True, slots=True)
class _FunctionPartitioner:
    partitions: PartitionFunction


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit hash of a key, -2**31 to 2**31 - 1, like Java's `Utils.murmur2`."""
    length = len(data)
    count = length >> 2
    words = _WORDS[count](data) if count < 64 else struct.unpack_from(f"<{count}I", data)
    digest = _SEED ^ length
    for word in words:
        mixed = word * _MULTIPLIER & _32_BITS
        digest = (digest * _MULTIPLIER ^ (mixed ^ mixed >> 24) * _MULTIPLIER) & _32_BITS
    if length & 3:
        tail = int.from_bytes(data[count << 2 :], "little")
        digest = (digest ^ tail) * _MULTIPLIER & _32_BITS
    digest = (digest ^ digest >> 13) * _MULTIPLIER & _32_BITS
    digest ^= digest >> 15
    return digest - 0x100000000 if digest & 0x80000000 else digest


def default_partition(key: bytes, num_partitions: int) -> int:
    """Return the partition of a key as Java clients choose it; `num_partitions` is at least 1.

    The producer, not this function, chooses the partition of a record without a key.
    """
    return (murmur2(key) & 0x7FFFFFFF) % num_partitions


def crc32_partition(key: bytes, num_partitions: int) -> int:
    """Return the partition of a key as librdkafka does by default (`consistent_random`)."""
    return crc32(key) % num_partitions


def fnv1a_partition(key: bytes, num_partitions: int) -> int:
    """Return the partition of a key as Sarama (Go) does, and librdkafka with `fnv1a_random`."""
    digest = _FNV_BASIS
    for byte in key:
        digest = (digest ^ byte) * _FNV_PRIME & _32_BITS
    return abs(digest - 0x100000000 if digest & 0x80000000 else digest) % num_partitions


DEFAULT_PARTITIONER = "murmur2_random"

PARTITIONERS: Mapping[str, Callable[[bytes, int], int]] = {
    DEFAULT_PARTITIONER: default_partition,
    "consistent_random": crc32_partition,
    "fnv1a_random": fnv1a_partition,
}
"""The ways in which producers choose the partition of a key that is not empty, by the names that
librdkafka has for them (`partitioner`)."""


def as_partitioner(
    partitioner: StreamPartitioner[Any, Any] | PartitionFunction,
) -> StreamPartitioner[Any, Any]:
    """Make a partitioner from a function `(topic, key, value, num_partitions) -> set | None`.

    A partitioner is returned as it is; anything else raises `TypeError`.
    """
    if isinstance(partitioner, type):
        raise TypeError(f"the partitioner {partitioner.__name__} is a class: give an instance")
    if isinstance(partitioner, StreamPartitioner):
        return partitioner
    if callable(partitioner):
        return _FunctionPartitioner(partitioner)
    raise TypeError(
        f"a partitioner is a function or has a method partitions, not a {_type_name(partitioner)}"
    )


def choose(
    partitioner: StreamPartitioner[Any, Any],
    topic: str,
    key: object,
    value: object,
    num_partitions: int,
) -> tuple[int, ...] | None:
    """Call a partitioner, and return its answer checked and sorted.

    `None` means the default partitioner, `()` that the record is dropped. Raises `PartitionError`
    for an answer that is not a set of numbers of existing partitions. The partitioner's own errors
    propagate.
    """
    answer = partitioner.partitions(topic, key, value, num_partitions)
    if answer is None:
        return None
    if not isinstance(answer, set | frozenset):
        raise PartitionError(
            f"the partitioner of topic {topic} must return a set of partition numbers or None, "
            f"not a {_type_name(answer)}"
        )
    for number in answer:
        if type(number) is not int:
            raise PartitionError(
                f"the partitioner of topic {topic} must return whole numbers, "
                f"not a {_type_name(number)}"
            )
        if not 0 <= number < num_partitions:
            raise PartitionError(
                f"the partitioner of topic {topic} chose partition {number}, "
                f"but the topic has {num_partitions}, numbered from 0",
                shown=f"the partitioner of topic {topic} chose a partition that does not exist: "
                f"the topic has {num_partitions}, numbered from 0",
            )
    return tuple(sorted(answer))


def _type_name(value: object) -> str:
    return type(value).__name__
