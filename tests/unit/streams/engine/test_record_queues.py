"""Record queues: the order of records across partitions, waiting for partitions, positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.record_queues import (
    NEVER_WAIT,
    Partition,
    RecordQueues,
    RecordSpan,
    parts_of,
)
from kafka_pipeline.streams.punctuation import PunctuationQueue

A: Partition = ("a", 1)
B: Partition = ("b", 1)
C: Partition = ("c", 1)
NOTHING: frozenset[Partition] = frozenset()


def batch(partition: Partition, timestamps: Sequence[int], first_offset: int = 0) -> RecordBatch:
    topic, number = partition
    size = len(timestamps)
    offsets = range(first_offset, first_offset + size)
    return RecordBatch(topic, number, [None] * size, [b""] * size, timestamps, offsets)


def queues_of(*partitions: Partition, max_task_idle_ms: int = NEVER_WAIT) -> RecordQueues:
    return RecordQueues(partitions, max_task_idle_ms)


def filled(a: Sequence[int], b: Sequence[int] | None = None) -> RecordQueues:
    """Return queues of one or two partitions with records of these timestamps."""
    queues = queues_of(A) if b is None else queues_of(A, B)
    queues.add(batch(A, a))
    if b is not None:
        queues.add(batch(B, b))
    return queues


def times(span: RecordSpan) -> list[int]:
    return list(span.batch.timestamps[span.start : span.stop])


def take(
    queues: RecordQueues, max_records: int | None = None, until_ms: int | None = None
) -> tuple[str, list[int]] | None:
    """Take the next span; return its topic and timestamps."""
    span = queues.next_span(max_records, until_ms)
    if span is None:
        return None
    queues.advance(span.partition, span.stop - span.start)
    return span.partition[0], times(span)


def take_one(queues: RecordQueues) -> tuple[str, int] | None:
    taken = take(queues, max_records=1)
    return None if taken is None else (taken[0], taken[1][0])


def take_all(queues: RecordQueues) -> list[tuple[str, list[int]]]:
    spans = []
    while taken := take(queues):
        spans.append(taken)
    return spans


# The order of records


def test_records_that_are_added_later_come_after_those_of_their_partition() -> None:
    queues = filled([1, 3, 5], [2, 4, 6])
    taken = []
    while one := take_one(queues):
        taken.append(one)
        if len(taken) == 2:
            queues.add(batch(A, [2, 4], first_offset=3))
    assert taken == [
        *[("a", 1), ("b", 2)],
        *[("a", 3), ("b", 4), ("a", 5), ("a", 2), ("a", 4), ("b", 6)],
    ]


def test_head_decides_even_behind_a_larger_timestamp_of_its_partition() -> None:
    queues = queues_of(A, B)
    queues.add(batch(A, [1, 5, 3]))
    assert [take_one(queues), take_one(queues)] == [("a", 1), ("a", 5)]
    queues.add(batch(B, [2, 4, 6]))
    assert [take_one(queues), take_one(queues)] == [("b", 2), ("a", 3)]


def test_records_of_two_partitions_come_in_the_order_of_their_timestamps() -> None:
    queues = filled([10, 20, 30], [25, 35, 45])
    sizes = []
    taken = []
    while one := take_one(queues):
        taken.append(one)
        sizes.append(len(queues))
    assert taken == [("a", 10), ("a", 20), ("b", 25), ("a", 30), ("b", 35), ("b", 45)]
    assert sizes == [5, 4, 3, 2, 1, 0]


def test_run_ends_before_the_head_of_another_partition_is_smaller() -> None:
    queues = filled([10, 20, 30], [25, 35, 45])
    assert take_all(queues) == [("a", [10, 20]), ("b", [25]), ("a", [30]), ("b", [35, 45])]


def test_partition_that_is_named_first_goes_first_at_equal_timestamps() -> None:
    queues = filled([1, 2, 2, 3], [1, 2, 3])
    spans = [("a", [1]), ("b", [1]), ("a", [2, 2]), ("b", [2]), ("a", [3]), ("b", [3])]
    assert take_all(queues) == spans


def test_a_run_goes_on_through_smaller_timestamps() -> None:
    queues = filled([5, 1, 2, 9], [6])
    assert take_all(queues) == [("a", [5, 1, 2]), ("b", [6]), ("a", [9])]


def test_a_run_stays_within_one_batch() -> None:
    queues = filled([1, 2])
    queues.add(batch(A, [3, 4], first_offset=2))
    assert take_all(queues) == [("a", [1, 2]), ("a", [3, 4])]


def test_a_run_is_no_longer_than_asked() -> None:
    queues = filled([1, 2, 3, 4, 5])
    assert [take(queues, max_records=2) for _ in range(4)] == [
        ("a", [1, 2]),
        ("a", [3, 4]),
        ("a", [5]),
        None,
    ]


def test_next_span_removes_nothing() -> None:
    queues = filled([1, 2], [3])
    assert queues.next_span() == queues.next_span()
    assert len(queues) == 3


def test_single_partition_runs_through_whole_batches() -> None:
    column = [5, 3, 9]
    queues = filled(column)
    span = queues.next_span()
    assert span is not None
    assert span.batch.timestamps is column
    assert (span.start, span.stop) == (0, 3)


@pytest.mark.parametrize(
    ("until_ms", "expected"),
    [(0, [5]), (5, [5]), (6, [5, 3, 9]), (9, [5, 3, 9]), (10, [5, 3, 9, 9, 20]), (21, None)],
)
@pytest.mark.parametrize("other", [None, [100]], ids=["alone", "with another"])
def test_a_run_ends_behind_the_first_record_that_reaches_a_time(
    until_ms: int, expected: list[int] | None, other: list[int] | None
) -> None:
    column = [5, 3, 9, 9, 20, 4]
    assert take(filled(column, other), until_ms=until_ms) == ("a", expected or column)


def test_stream_time_punctuation_fires_behind_the_record_that_makes_it_due() -> None:
    queues = filled([20, 142, 155, 160], [25, 145, 159, 161])
    punctuations = PunctuationQueue()
    fired: list[int] = []
    punctuations.schedule(10, fired.append, start_ms=0)
    stream_time = -1
    while taken := take(queues, until_ms=punctuations.next_ms):
        stream_time = max(stream_time, *taken[1])
        punctuations.punctuate(stream_time, lambda callback, now_ms: callback(now_ms))
    assert fired == [20, 142, 155, 160]


def one_at_a_time(columns: dict[Partition, list[int]]) -> list[tuple[str, int]]:
    """Order records by the rule itself, by looking at all heads before each."""
    left = {partition: list(column) for partition, column in columns.items()}
    ordered = []
    while any(left.values()):
        chosen = min((p for p in left if left[p]), key=lambda p: left[p][0])
        ordered.append((chosen[0], left[chosen].pop(0)))
    return ordered


@given(data=st.data())
def test_order_depends_neither_on_batches_nor_on_the_length_of_runs(data: st.DataObject) -> None:
    column = st.lists(st.integers(0, 6), max_size=12)
    columns = {partition: data.draw(column) for partition in (A, B, C)}
    queues = queues_of(A, B, C)
    for partition, timestamps in columns.items():
        cut = data.draw(st.integers(0, len(timestamps)))
        queues.add(batch(partition, timestamps[:cut]))
        queues.add(batch(partition, timestamps[cut:], first_offset=cut))
    ordered: list[tuple[str, int]] = []
    while len(queues):
        until_ms = data.draw(st.none() | st.integers(0, 9))
        if data.draw(st.booleans()):
            turns = queues.next_turns(data.draw(st.integers(1, 8)), until_ms)
        else:
            span = queues.next_span(data.draw(st.none() | st.integers(1, 4)), until_ms)
            assert span is not None
            turns = [(span.batch, index) for index in range(span.start, span.stop)]
        for part, index in turns[: data.draw(st.integers(1, len(turns)))]:
            queues.advance((part.topic, part.partition), 1)
            ordered.append((part.topic, part.timestamps[index]))
    assert ordered == one_at_a_time(columns)
    assert queues.next_span() is None
    assert queues.next_turns(1) == []


def turns_of(queues: RecordQueues, max_records: int, until_ms: int | None = None) -> str:
    """Return the next turns: topics and timestamps."""
    turns = queues.next_turns(max_records, until_ms)
    return " ".join(f"{part.topic}{part.timestamps[index]}" for part, index in turns)


@pytest.mark.parametrize(
    ("a", "b", "until_ms", "expected"),
    [
        ([1, 3, 5], [2, 4, 6], None, "a1 b2 a3 b4 a5"),
        ([1, 3, 5], [1, 3, 5], None, "a1 b1 a3 b3 a5"),
        ([4, 1, 2], [3, 4, 9], None, "b3 a4 a1 a2"),
        ([1, 2, 3], [8, 9], None, "a1 a2 a3"),
        ([8, 9], [1, 2, 3], None, "b1 b2 b3"),
        ([1, 3, 5], [2, 4, 6], 3, "a1 b2 a3"),
        ([1, 3, 5], [2, 4, 6], 0, "a1"),
    ],
)
def test_turns_end_where_more_records_of_a_partition_might_be_next(
    a: list[int], b: list[int], until_ms: int | None, expected: str
) -> None:
    queues = filled(a, b)
    queues.add(batch(A, [0], first_offset=len(a)))
    assert turns_of(queues, 100, until_ms) == expected
    assert len(queues) == len(a) + len(b) + 1


def test_turns_have_as_many_records_of_each_partition_as_asked() -> None:
    assert turns_of(filled([1, 2, 3, 4], [2, 4, 6, 8]), 2) == "a1 a2"
    assert turns_of(filled([1, 2, 3, 4], [2, 4, 6, 8]), 3) == "a1 a2 b2 a3"


def test_parts_of_turns_have_the_first_index_and_the_places_of_each_batch() -> None:
    queues = filled([1, 3, 5], [2, 4, 6])
    queues.advance(A, 1)
    turns = queues.next_turns(100)
    parts = [(part.topic, start, places) for part, start, places in parts_of(turns)]
    assert parts == [("b", 0, [0, 2]), ("a", 1, [1, 3])]


def test_turns_end_in_front_of_a_record_that_cannot_be_processed() -> None:
    queues = filled([1], [2, 4])
    bad = batch(A, [3], first_offset=1)
    bad.error = "no timestamp"
    queues.add(bad)
    assert turns_of(queues, 100) == "a1"
    queues.advance(A, 1)
    assert turns_of(queues, 100) == "b2"
    queues.advance(B, 1)
    assert turns_of(queues, 100) == ""


# Positions


def test_position_is_the_offset_of_the_head() -> None:
    queues = queues_of(A)
    queues.add(RecordBatch("a", 1, [None] * 3, [b""] * 3, [1, 2, 3], [10, 13, 15]))
    positions = [queues.position(A)]
    for _ in range(3):
        take_one(queues)
        positions.append(queues.position(A))
    assert positions == [10, 13, 15, 16]


def test_position_of_a_partition_of_which_nothing_was_read_is_unknown() -> None:
    queues = filled([1], [])
    take_one(queues)
    assert (queues.position(A), queues.position(B)) == (1, None)


def test_position_passes_what_is_left_out_behind_the_last_record() -> None:
    queues = filled([1, 2])
    queues.read_up_to(A, 7)
    assert queues.position(A) == 0
    take_all(queues)
    assert queues.position(A) == 7
    queues.read_up_to(A, 5)
    assert queues.position(A) == 7
    queues.add(batch(A, [3], first_offset=9))
    take_all(queues)
    assert queues.position(A) == 10


def test_position_passes_a_batch_of_which_every_record_was_left_out() -> None:
    queues = queues_of(A)
    queues.add(batch(A, []))
    queues.read_up_to(A, 3)
    assert len(queues) == 0
    assert queues.position(A) == 3


@pytest.mark.parametrize("count", [-1, 3])
def test_no_more_can_be_taken_than_the_batch_has(count: int) -> None:
    queues = filled([1, 2])
    queues.add(batch(A, [3], first_offset=2))
    with pytest.raises(ValueError, match=f"cannot take {count} of 2 records"):
        queues.advance(A, count)


def test_nothing_can_be_taken_of_an_empty_queue() -> None:
    with pytest.raises(ValueError, match="cannot take 1 of 0 records"):
        queues_of(A).advance(A, 1)


def test_taking_no_record_changes_nothing() -> None:
    queues = filled([7])
    queues.advance(A, 0)
    assert (len(queues), queues.position(A)) == (1, 0)


# Waiting for partitions


@pytest.mark.parametrize("max_task_idle_ms", [NEVER_WAIT, 0, 1])
@pytest.mark.parametrize("partitions", [(A,), (A, B)], ids=["one", "two"])
def test_without_records_there_is_nothing_to_process(
    max_task_idle_ms: int, partitions: tuple[Partition, ...]
) -> None:
    queues = queues_of(*partitions, max_task_idle_ms=max_task_idle_ms)
    assert not queues.is_processable(0, NOTHING)
    assert not queues.is_processable(1000, set(partitions))
    assert queues.enforced_processing_total == 0


def test_nobody_waits_where_waiting_is_switched_off() -> None:
    queues = queues_of(A, B)
    queues.add(batch(A, [1, 5]))
    assert queues.is_processable(0, NOTHING)
    assert queues.enforced_processing_total == 0


def test_single_partition_waits_for_nobody() -> None:
    queues = queues_of(A, max_task_idle_ms=1000)
    queues.add(batch(A, [1]))
    assert queues.is_processable(0, NOTHING)
    assert queues.enforced_processing_total == 0


@pytest.mark.parametrize("max_task_idle_ms", [0, 1000])
def test_nobody_waits_where_all_partitions_have_records(max_task_idle_ms: int) -> None:
    queues = queues_of(A, B, max_task_idle_ms=max_task_idle_ms)
    queues.add(batch(A, [1, 5]))
    assert not queues.is_processable(0, NOTHING)
    queues.add(batch(B, [1, 5]))
    assert queues.is_processable(0, NOTHING)
    assert queues.enforced_processing_total == 0


def test_partition_is_waited_for_until_it_was_read_to_its_end() -> None:
    queues = queues_of(A, B, max_task_idle_ms=0)
    queues.add(batch(A, [1, 5]))
    assert not queues.is_processable(0, NOTHING)
    assert not queues.is_processable(10**9, {A})
    assert queues.is_processable(10**9, {B})
    assert queues.enforced_processing_total == 1


def test_partition_at_its_end_is_waited_for_as_long_as_configured() -> None:
    queues = queues_of(A, B, max_task_idle_ms=100)
    queues.add(batch(A, [1, 5]))
    answers = [queues.is_processable(now_ms, {B}) for now_ms in (1000, 1099, 1100, 1101)]
    assert answers == [False, False, True, True]
    assert queues.enforced_processing_total == 2


def test_wait_begins_anew_when_the_end_has_moved_away() -> None:
    queues = queues_of(A, B, max_task_idle_ms=100)
    queues.add(batch(A, [1]))
    assert not queues.is_processable(1000, {B})
    assert not queues.is_processable(1150, NOTHING)
    assert not queues.is_processable(1200, {B})
    assert queues.is_processable(1300, {B})


def test_wait_begins_anew_when_records_have_come() -> None:
    queues = queues_of(A, B, max_task_idle_ms=100)
    queues.add(batch(A, [1, 5]))
    assert not queues.is_processable(1000, {B})
    queues.add(batch(B, [0]))
    assert queues.is_processable(1050, {B})
    assert take(queues) == ("b", [0])
    assert not queues.is_processable(1120, {B})
    assert queues.is_processable(1220, {B})


def test_wait_that_is_over_before_the_others_have_records_is_not_repeated() -> None:
    queues = queues_of(A, B, max_task_idle_ms=100)
    assert not queues.is_processable(1000, {A, B})
    queues.add(batch(A, [1]))
    assert not queues.is_processable(1050, {A, B})
    assert queues.is_processable(1100, {A, B})


def test_waits_for_several_partitions_pass_side_by_side() -> None:
    queues = queues_of(A, B, C, max_task_idle_ms=100)
    queues.add(batch(A, [1]))
    assert not queues.is_processable(1000, {B, C})
    assert queues.is_processable(1100, {B, C})
    assert queues.enforced_processing_total == 1


def test_one_partition_to_wait_for_is_enough() -> None:
    queues = queues_of(A, B, C, max_task_idle_ms=0)
    queues.add(batch(A, [1]))
    assert not queues.is_processable(1000, {B})
    assert queues.enforced_processing_total == 0


# What waits


def test_waiting_records_are_counted_by_partition() -> None:
    queues = filled([1, 3], [2])
    seen = [(queues.waiting(A), queues.waiting(B))]
    while take_one(queues):
        seen.append((queues.waiting(A), queues.waiting(B)))
    assert seen == [(2, 1), (1, 1), (1, 0), (0, 0)]


def test_partitions_take_turns_where_timestamps_decide_nothing() -> None:
    queues = RecordQueues([A, B], NEVER_WAIT, is_ordered=False)
    queues.add(batch(A, [10, 1]))
    queues.add(batch(A, [2], first_offset=2))
    queues.add(batch(B, [5]))
    spans = []
    while (span := queues.next_span()) is not None:
        spans.append((span.partition, span.stop - span.start))
        queues.advance(span.partition, span.stop - span.start)
    assert spans == [(A, 2), (B, 1), (A, 1)]


# Starting again


def test_cleared_queues_know_nothing_and_can_be_filled_again() -> None:
    queues = queues_of(A, B, max_task_idle_ms=100)
    queues.add(batch(A, [1, 3, 5]))
    take(queues, max_records=2)
    assert not queues.is_processable(1000, {B})
    queues.clear()
    assert (len(queues), queues.next_span(), queues.position(A)) == (0, None, None)
    queues.add(batch(A, [1, 3, 5]))
    assert not queues.is_processable(1100, {B})
    assert take(queues) == ("a", [1, 3, 5])


UNKNOWN: Partition = ("unknown", 0)


@pytest.mark.parametrize(
    "method",
    [
        lambda queues: queues.add(batch(UNKNOWN, [1])),
        lambda queues: queues.advance(UNKNOWN, 0),
        lambda queues: queues.waiting(UNKNOWN),
        lambda queues: queues.position(UNKNOWN),
        lambda queues: queues.read_up_to(UNKNOWN, 1),
    ],
    ids=lambda method: method.__code__.co_names[0],
)
def test_partition_that_is_no_input_is_refused(method: Callable[[RecordQueues], object]) -> None:
    with pytest.raises(ValueError, match="unknown-0 is none of the task's inputs"):
        method(queues_of(A, B))


def test_feedback_that_was_read_to_its_end_is_not_waited_for() -> None:
    queues = RecordQueues((A, B), 100, feedback=("b",))
    queues.add(batch(A, [1]))
    assert not queues.is_processable(0, NOTHING)
    assert queues.is_processable(0, {B})


def test_a_record_of_a_source_is_waited_for_next_to_feedback() -> None:
    queues = RecordQueues((A, B), 100, feedback=("b",))
    queues.add(batch(B, [1]))
    assert not queues.is_processable(0, {A})
    assert queues.is_processable(100, {A})
