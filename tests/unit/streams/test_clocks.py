"""The clocks of records, and the header that takes them over internal topics."""

from __future__ import annotations

from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.clocks import (
    CLOCK_HEADER,
    clocked,
    clocks_by_time,
    clocks_of,
    late_by,
    with_clocks,
)
from kafka_pipeline.streams.record import Batch


def test_records_in_order_need_no_clocks() -> None:
    assert clocks_of([1, 1, 5], 1) is None
    assert clocks_of([], 9) is None


def test_a_clock_is_the_largest_timestamp_so_far() -> None:
    assert clocks_of([3, 1, 5, 4], 2) == [3, 3, 5, 5]
    assert clocks_of([3, 4], 7) == [7, 7]


def batch(
    timestamps: list[int], headers: list[list[tuple[str, bytes | None]] | None]
) -> RecordBatch:
    size = len(timestamps)
    return RecordBatch("t", 0, [b"k"] * size, [b"v"] * size, timestamps, [*range(size)], headers)


def test_clocks_travel_in_headers_that_nobody_sees() -> None:
    headers = with_clocks([None, [("a", b"1")], None], [5, 3, 6], [5, 5, 6])
    assert headers == [None, [("a", b"1"), (CLOCK_HEADER, b"5")], None]
    found = clocked(batch([5, 3, 6], headers))
    assert found.clocks == [5, 5, 6]
    assert found.headers == [None, [("a", b"1")], None]


def test_a_batch_without_clocks_stays_as_it_is() -> None:
    given = batch([5, 3], [None, [("a", b"1")]])
    assert clocked(given) is given
    assert with_clocks(None, [1, 2], [1, 2]) is None


def test_a_header_that_is_not_a_clock_stays() -> None:
    given = batch([5], [[(CLOCK_HEADER, b"soon")]])
    assert clocked(given) is given


def test_each_record_moves_time_on_where_one_task_writes() -> None:
    found = late_by([5, 9, 7], None, 6, follows_records=True)
    assert found.tolist() == [6, 9, 9]
    assert late_by([5, 7], [5, 12], 6, follows_records=True).tolist() == [6, 12]


def test_only_its_own_clock_counts_where_several_tasks_write() -> None:
    found = late_by([5, 900, 7], [5, 900, 20], 6, follows_records=False)
    assert found.tolist() == [6, 900, 20]


def test_results_of_a_query_have_the_clocks_of_records_of_their_time() -> None:
    given = Batch([1, 2, 3], [1, 2, 3], [5, 3, 3], clocks=[5, 5, 9])
    assert clocks_by_time(given, [3, 8, 5]) == [5, 8, 5]
    assert clocks_by_time(Batch([1], [1], [5]), [5]) is None
