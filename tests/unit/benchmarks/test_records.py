"""What the benchmarks' models accept and what they refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from benchmarks.records import (
    KEYS,
    STRIDE,
    Check,
    EachOnce,
    EachOnceByKey,
    LastOfEachKey,
    WrongOutputError,
    counted,
    one_more,
    rows,
    unchanged,
)
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.partitioning import default_partition

_KEYS = 7 * 11
"""Few, so that keys come often in a short test."""


def _key(number: int, keys: int = _KEYS) -> bytes:
    return b"%d" % (number * STRIDE % keys)


def _batch(
    keys: Iterable[bytes | None], values: Iterable[bytes | None], partition: int = 0
) -> RecordBatch:
    key_column, value_column = list(keys), list(values)
    offsets = range(len(key_column))
    return RecordBatch("sink", partition, key_column, value_column, [0] * len(offsets), offsets)


def _counts(numbers: Sequence[int], keys: int = _KEYS, partition: int = 0) -> RecordBatch:
    return _batch(
        (_key(number, keys) for number in numbers),
        (b"%d" % (number // keys + 1) for number in numbers),
        partition,
    )


def _partitions(total: int, keys: int = _KEYS) -> list[list[int]]:
    """Return the numbers of the records that each of two partitions gets."""
    found: list[list[int]] = [[], []]
    for number in range(total):
        found[default_partition(_key(number, keys), 2)].append(number)
    return found


def _feed(check: Check, batches: Iterable[RecordBatch]) -> list[int]:
    return [int(number) for batch in batches for number in check.add(batch)]


def test_values_have_16_digits_and_all_keys_come_before_one_comes_twice() -> None:
    records = list(rows(0, KEYS + 1))

    assert {len(value or b"") for _, value in records} == {16}
    assert len({key for key, _ in records[:KEYS]}) == KEYS
    assert records[KEYS][0] == records[0][0]


def test_copies_of_all_records_are_complete() -> None:
    check = EachOnce(300, unchanged, _KEYS)
    records = list(rows(0, 300, _KEYS))

    for partition, numbers in enumerate(_partitions(300)):
        assert not check.is_complete
        keys, values = zip(*(records[number] for number in numbers), strict=True)
        assert _feed(check, [_batch(keys, values, partition)]) == numbers

    assert check.is_complete


@pytest.mark.parametrize("size", [1, 7, 150])
def test_counts_tell_their_records_in_batches_of_any_size(size: int) -> None:
    check = EachOnce(300, counted, _KEYS)

    for partition, numbers in enumerate(_partitions(300)):
        batches = [
            _counts(numbers[start : start + size], partition=partition)
            for start in range(0, len(numbers), size)
        ]
        assert _feed(check, batches) == numbers

    assert check.is_complete


def test_sums_are_values_plus_one() -> None:
    check = EachOnce(2, one_more, _KEYS)

    assert _feed(check, [_batch([_key(0), _key(1)], [b"1", b"2"])]) == [0, 1]


def test_a_query_keeps_the_records_that_end_in_a_digit() -> None:
    check = EachOnce(25, unchanged, _KEYS, last_digit=1)
    kept = [1, 11, 21]

    _feed(check, [_batch(map(_key, kept), (b"%016d" % number for number in kept))])

    assert check.expected == 3
    assert check.is_complete


@pytest.mark.parametrize(
    ("batches", "complaint"),
    [
        ([_counts([0, 1, 1])], "came twice or out of order"),
        ([_counts([0, 1]), _counts([1])], "came twice or out of order"),
        ([_counts([1, 0])], "came twice or out of order"),
        ([_counts([0]), _counts([0], partition=1)], "came in another partition too"),
        ([_counts([10])], "is of no record"),
        ([_batch([_key(0)], [b"0"])], "is of no record"),
        ([_batch([b"99999"], [b"1"])], "is of no record|has another key"),
        ([_batch([_key(0)], [b"x"])], "not decimal digits"),
        ([_batch([_key(0)], [None])], "not decimal digits"),
    ],
)
def test_wrong_counts_are_refused(batches: list[RecordBatch], complaint: str) -> None:
    check = EachOnce(10, counted, _KEYS)

    with pytest.raises(WrongOutputError, match=complaint):
        _feed(check, batches)


def test_a_value_with_another_records_key_is_refused() -> None:
    with pytest.raises(WrongOutputError, match="has another key"):
        EachOnce(10, unchanged, _KEYS).add(_batch([_key(1)], [b"%016d" % 0]))


def test_a_record_that_should_be_left_out_is_refused() -> None:
    check = EachOnce(10, unchanged, _KEYS, last_digit=1)

    with pytest.raises(WrongOutputError, match="should have been left out"):
        check.add(_batch([_key(2)], [b"%016d" % 2]))


def test_what_is_missing_keeps_a_check_from_being_complete() -> None:
    check = EachOnce(3, counted, _KEYS)

    check.add(_counts([0, 2]))

    assert not check.is_complete
    assert check.missing() == "2 of 3 outputs came"


def test_stamps_are_numbered_by_the_order_of_their_keys() -> None:
    check = EachOnceByKey(1000, _KEYS)

    for partition, numbers in enumerate(_partitions(300)):
        batches = [
            _batch(map(_key, part), [b"%016d" % 1] * len(part), partition)
            for part in (numbers[:1], numbers[1:70], numbers[70:])
        ]
        assert _feed(check, batches) == numbers

    check.total = 300
    assert check.is_complete


def test_a_stamp_that_comes_twice_is_noticed() -> None:
    check = EachOnceByKey(300, _KEYS)
    numbers = _partitions(300)[0]
    doubled = [*numbers[:5], *numbers[4:]]

    with pytest.raises(WrongOutputError):
        check.add(_batch(map(_key, doubled), [b"1"] * len(doubled)))


def test_a_cache_may_leave_out_all_counts_but_the_last() -> None:
    check = LastOfEachKey(200, _KEYS)

    check.add(_counts([5, 3, 5 + _KEYS]))
    assert not check.is_complete
    check.add(_counts(range(200 - _KEYS, 200)))

    assert check.is_complete


@pytest.mark.parametrize(
    ("batches", "complaint"),
    [
        ([_counts([5 + _KEYS, 5])], "came twice or out of order"),
        ([_counts([5]), _counts([5])], "came twice or out of order"),
        ([_counts([5, 6, 5])], "came twice or out of order"),
        ([_counts([200])], "is of no record"),
        ([_batch([b"77"], [b"1"])], "is the key of no record"),
        ([_batch([b"0"], [b"0"])], "came twice or out of order"),
    ],
)
def test_wrong_cached_counts_are_refused(batches: list[RecordBatch], complaint: str) -> None:
    check = LastOfEachKey(200, _KEYS)

    with pytest.raises(WrongOutputError, match=complaint):
        _feed(check, batches)


def test_a_cached_count_that_is_behind_is_missing() -> None:
    check = LastOfEachKey(200, _KEYS)
    last = np.arange(200 - _KEYS, 200)

    check.add(_counts([int(number) for number in last[1:]]))

    assert check.missing() == "the last outputs of 1 keys have not come"
