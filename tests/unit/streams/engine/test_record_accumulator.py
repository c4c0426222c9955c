"""Records that wait until no more come."""

from __future__ import annotations

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
    assert accumulator.limit == MOST_RECORDS / 20
    limit = accumulator.limit
    accumulator.learn(10, 0.05)
    assert accumulator.limit == limit
