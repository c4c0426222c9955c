"""Keys in byte order: chunks split, empty and border on each other."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.streams.stores.sorted_keys import CHUNK_KEYS, SortedKeys

keys = st.binary(max_size=2)


@given(
    start=st.sets(keys),
    steps=st.lists(st.tuples(st.booleans(), keys), max_size=60),
    low=keys,
    high=st.none() | keys,
)
def test_keys_behave_as_a_sorted_set(
    start: set[bytes], steps: list[tuple[bool, bytes]], low: bytes, high: bytes | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafka_pipeline.streams.stores.sorted_keys.CHUNK_KEYS", 3)
        ordered, model = SortedKeys(start), set(start)
        for is_added, key in steps:
            if is_added and key not in model:
                ordered.add(key)
                model.add(key)
            elif not is_added:
                ordered.discard(key)
                model.discard(key)
        assert list(ordered.between(b"", None)) == sorted(model)
        wanted = [key for key in sorted(model) if key >= low and (high is None or key < high)]
        assert list(ordered.between(low, high)) == wanted
        assert list(ordered.between(low, high, reverse=True)) == wanted[::-1]
        if high is not None and low < high:
            assert ordered.range(low, high) == wanted


def test_many_keys_in_any_order_come_sorted() -> None:
    numbers = [b"%d" % number for number in range(10 * CHUNK_KEYS)]
    random.Random(1).shuffle(numbers)
    ordered = SortedKeys()
    for number in numbers:
        ordered.add(number)
    assert list(ordered.between(b"", None)) == sorted(numbers)
    for number in numbers[1:]:
        ordered.discard(number)
    assert list(ordered.between(b"", None)) == numbers[:1]
