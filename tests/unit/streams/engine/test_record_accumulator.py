"""Records that wait until no more come."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.record_accumulator import MOST_RECORDS, RecordAccumulator


def records(start: int, stop: int, partition: int = 0, error: str = "") -> RecordBatch:
    numbers = range(start, stop)
    values = [b"%d" % number for number in numbers]
    return RecordBatch("t", partition, values, values, [*numbers], [*numbers], error=error)


def offsets(batches: list[RecordBatch]) -> list[tuple[int, list[int]]]:
    return [(batch.partition, list(batch.offsets)) for batch in batches]


def test_records_wait_for_a_round_that_brings_none() -> None:
    accumulator = RecordAccumulator()
    accumulator.add(records(0, 3))
    assert accumulator.take(()) == []
    accumulator.add(records(3, 5))
    assert accumulator.take(()) == []
    assert len(accumulator) == 5
    assert offsets(accumulator.take(())) == [(0, [0, 1, 2, 3, 4])]
    assert len(accumulator) == 0


def test_records_do_not_wait_once_everything_was_read() -> None:
    accumulator = RecordAccumulator()
    accumulator.add(records(0, 2))
    accumulator.add(records(0, 2, partition=1))
    assert accumulator.take([("t", 0)]) == []
    accumulator.add(records(2, 3))
    assert offsets(accumulator.take([("t", 0), ("t", 1)])) == [(0, [0, 1, 2]), (1, [0, 1])]


def test_records_do_not_wait_once_there_are_many() -> None:
    accumulator = RecordAccumulator()
    accumulator.add(records(0, accumulator.limit))
    assert len(accumulator.take(())[0]) == accumulator.limit


def test_record_with_an_error_stays_a_batch_of_its_own() -> None:
    accumulator = RecordAccumulator()
    for batch in (records(0, 2), records(2, 3, error="broken"), records(3, 4), records(4, 5)):
        accumulator.add(batch)
    taken = accumulator.take([("t", 0)])
    assert offsets(taken) == [(0, [0, 1]), (0, [2]), (0, [3, 4])]
    assert [batch.error for batch in taken] == ["", "broken", ""]


def test_headers_of_some_records_stay_with_them() -> None:
    accumulator = RecordAccumulator()
    accumulator.add(records(0, 1))
    with_headers = records(1, 2)
    with_headers.headers = [[("h", b"x")]]
    accumulator.add(with_headers)
    (batch,) = accumulator.take([("t", 0)])
    assert batch.headers == [None, [("h", b"x")]]


def test_calls_that_are_fast_get_more_records_and_slow_ones_fewer() -> None:
    accumulator = RecordAccumulator()
    assert (
        accumulator.limit <= 10
    )  # records of several seconds each are no reason to end the thread
    for _ in range(14):
        assert not accumulator.learn(accumulator.limit, 0.1)
    assert accumulator.limit == MOST_RECORDS
    assert accumulator.learn(MOST_RECORDS, 20)
    assert accumulator.limit == int(MOST_RECORDS / 19.9)
    limit = accumulator.limit
    accumulator.learn(10, 0.05)
    assert accumulator.limit == limit


def limit_after(calls: int, fixed_s: float, record_s: float) -> int:
    accumulator = RecordAccumulator()
    for _ in range(calls):
        accumulator.learn(accumulator.limit, fixed_s + accumulator.limit * record_s)
    return accumulator.limit


def test_limit_rises_again_once_even_small_calls_are_slow() -> None:
    accumulator = RecordAccumulator()
    for fixed_s in (0.02, 1.5):
        for _ in range(40):
            accumulator.learn(accumulator.limit, fixed_s)
    assert accumulator.limit == MOST_RECORDS


@pytest.mark.parametrize("calls", [40, 41])
def test_calls_that_take_a_second_whatever_their_size_get_more_records(calls: int) -> None:
    assert limit_after(calls, fixed_s=1.5, record_s=0) == MOST_RECORDS
    assert 500 <= limit_after(calls, fixed_s=1.5, record_s=0.001) <= 2_000


@pytest.mark.parametrize("calls", [40, 41])
@pytest.mark.parametrize("record_s", [0.1, 0.5, 3])
def test_slow_records_stay_few(calls: int, record_s: float) -> None:
    assert limit_after(calls, fixed_s=0.02, record_s=record_s) <= 20
