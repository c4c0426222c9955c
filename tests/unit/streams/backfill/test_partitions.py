"""Columns of keys go to the partitions that producers choose key by key."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.streams.backfill.partitions import NO_KEY, partitions_of
from kafka_pipeline.streams.partitioning import default_partition

KEYS = st.lists(st.none() | st.binary(max_size=20), max_size=50)


def one_by_one(keys: list[bytes | None], count: int) -> list[int]:
    return [NO_KEY if key is None else default_partition(key, count) for key in keys]


@given(KEYS, st.integers(1, 9))
def test_a_column_gets_the_partitions_that_its_keys_get_one_by_one(
    keys: list[bytes | None], count: int
) -> None:
    assert partitions_of(pa.array(keys, pa.binary()), count).tolist() == one_by_one(keys, count)


@pytest.mark.parametrize("length", [0, 3, 255, 256, 1000])
def test_keys_of_any_length_are_hashed(length: int) -> None:
    keys: list[bytes | None] = [bytes(range(256)) * 4, b"\xff" * length, None, b"k" * length]
    assert partitions_of(pa.array(keys, pa.binary()), 7).tolist() == one_by_one(keys, 7)


def test_a_slice_of_a_column_is_no_other_column() -> None:
    keys: list[bytes | None] = [b"a", b"bb", None, b"ccc", b"dddd", b""]
    column = pa.array(keys, pa.binary()).slice(2, 3)
    assert partitions_of(column, 5).tolist() == one_by_one(keys[2:5], 5)
