"""Records that wait until no more come."""

from __future__ import annotations

from common.record_batch import RecordBatch
from streams.engine.gathering import MOST_RECORDS, Gathering


def records(start: int, stop: int, partition: int = 0, error: str = "") -> RecordBatch:
    numbers = range(start, stop)
    values = [b"%d" % number for number in numbers]
    return RecordBatch("t", partition, values, values, [*numbers], [*numbers], error=error)


def offsets(batches: list[RecordBatch]) -> list[tuple[int, list[int]]]:
    return [(batch.partition, list(batch.offsets)) for batch in batches]


def test_records_wait_for_a_round_that_brings_none() -> None:
    gathering = Gathering()
    gathering.add(records(0, 3))
    assert gathering.take(()) == []
    gathering.add(records(3, 5))
    assert gathering.take(()) == []
    assert len(gathering) == 5
    assert offsets(gathering.take(())) == [(0, [0, 1, 2, 3, 4])]
    assert len(gathering) == 0


def test_records_do_not_wait_once_everything_was_read() -> None:
    gathering = Gathering()
    gathering.add(records(0, 2))
    gathering.add(records(0, 2, partition=1))
    assert gathering.take([("t", 0)]) == []
    gathering.add(records(2, 3))
    assert offsets(gathering.take([("t", 0), ("t", 1)])) == [(0, [0, 1, 2]), (1, [0, 1])]


def test_records_do_not_wait_once_there_are_many() -> None:
    gathering = Gathering()
    gathering.add(records(0, gathering.limit))
    assert len(gathering.take(())[0]) == gathering.limit


def test_record_with_an_error_stays_a_batch_of_its_own() -> None:
    gathering = Gathering()
    for batch in (records(0, 2), records(2, 3, error="broken"), records(3, 4), records(4, 5)):
        gathering.add(batch)
    taken = gathering.take([("t", 0)])
    assert offsets(taken) == [(0, [0, 1]), (0, [2]), (0, [3, 4])]
    assert [batch.error for batch in taken] == ["", "broken", ""]


def test_headers_of_some_records_stay_with_them() -> None:
    gathering = Gathering()
    gathering.add(records(0, 1))
    with_headers = records(1, 2)
    with_headers.headers = [[("h", b"x")]]
    gathering.add(with_headers)
    (batch,) = gathering.take([("t", 0)])
    assert batch.headers == [None, [("h", b"x")]]


def test_calls_that_are_fast_get_more_records_and_slow_ones_fewer() -> None:
    gathering = Gathering()
    assert gathering.limit <= 10  # records of several seconds each are no reason to end the thread
    for _ in range(14):
        assert not gathering.learn(gathering.limit, 0.1)
    assert gathering.limit == MOST_RECORDS
    assert gathering.learn(MOST_RECORDS, 20)
    assert gathering.limit == MOST_RECORDS / 20
    limit = gathering.limit
    gathering.learn(10, 0.05)
    assert gathering.limit == limit
