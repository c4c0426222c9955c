"""How far a task is in event time, from what is known of its inputs."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pipeline.streams.event_time.input_time import (
    FEEDBACK,
    SOURCE,
    InputTime,
    Mark,
    Origins,
    Partition,
)
from kafka_pipeline.streams.event_time.progress import PartProgress, Progress, combined, holding

A, B = ("a", 0), ("b", 0)
LIVE, IDLE = False, True


def update(
    known: InputTime,
    now_ms: int = 0,
    reached: Mapping[Partition, int] = {},
    clocks: Mapping[Partition, int] = {},
    ends: tuple[Partition, ...] = (),
) -> int:
    return known.update(
        now_ms, lambda each: reached.get(each, 0), lambda each: clocks.get(each, -1), ends
    )


def part(time_ms: int, is_idle: bool, *origins: str, held_ms: int = 0) -> PartProgress:
    progress = Progress(time_ms, is_idle, time_ms).held_back(held_ms)
    return PartProgress(progress, frozenset(origins or "P"), has_all=bool(origins))


def of(origin: str) -> Origins:
    return Origins(frozenset(origin), frozenset(origin))


def mark(offset: int, progress: Progress) -> Mark:
    return Mark(offset, progress, progress)


def test_several_are_as_far_as_the_least_of_those_that_are_not_idle() -> None:
    assert combined([part(5, LIVE), part(9, LIVE)]) == Progress(5, LIVE, 5)
    assert combined([part(5, IDLE), part(9, LIVE)]) == Progress(9, LIVE, 9)
    assert combined([part(5, IDLE), part(9, IDLE)]) == Progress(9, IDLE, 9)
    assert combined([]) == Progress(-1, IDLE)


def test_a_mark_counts_once_the_records_before_it_are_processed() -> None:
    known = InputTime({A: 4}, 1000)
    known.learn({A: mark(10, Progress(50))})
    assert update(known, reached={A: 9}) == -1
    assert not known.is_due(lambda _: 9, lambda _: 9)
    assert known.is_due(lambda _: 10, lambda _: 10)
    assert update(known, reached={A: 10}) == 50
    assert known.known(A) == Progress(50)


def test_time_never_goes_back() -> None:
    known = InputTime({A: 4}, 1000, {A: Progress(70)})
    assert update(known) == 70
    known.learn({A: mark(0, Progress(50))})
    assert update(known) == 70


def test_the_same_mark_is_nothing_new() -> None:
    known = InputTime({A: 4}, 1000)
    known.learn({A: mark(10, Progress(50))})
    update(known, reached={A: 10})
    known.learn({A: mark(10, Progress(50))})
    assert not known.is_due(lambda _: 10, lambda _: 0)
    known.learn({A: mark(10, Progress(60))})
    assert known.is_due(lambda _: 10, lambda _: 0)


def test_an_input_is_not_idle_as_long_as_something_may_be_ahead_of_a_mark() -> None:
    known = InputTime({A: 2, B: 2}, 1000)
    known.learn({A: mark(10, Progress(50, IDLE)), B: mark(10, Progress(50, IDLE))})
    assert update(known, reached={A: 10, B: 10}) == 50
    known.learn({A: mark(12, Progress(60, IDLE)), B: mark(11, Progress(90, LIVE))})
    assert update(known, reached={A: 10, B: 11}) == 50
    assert not known.known(A).is_idle
    assert update(known, reached={A: 12, B: 11}) == 90


def test_a_task_far_behind_keeps_few_marks_and_the_last_one() -> None:
    known = InputTime({A: 4}, 1000)
    for offset in range(1000):
        known.learn({A: mark(offset, Progress(offset))})
    assert update(known, reached={A: 999}) == 999


def test_records_of_sources_move_time() -> None:
    assert InputTime({A: SOURCE}, 0).follows_records
    assert not InputTime({A: 1}, 0).follows_records
    assert not InputTime({A: 2}, 0).follows_records
    assert InputTime({A: SOURCE, B: SOURCE}, 0).follows_records
    assert not InputTime({A: SOURCE, B: 1}, 0).follows_records


def test_a_single_source_partition_says_nothing_unless_results_are_held_back() -> None:
    assert update(InputTime({A: SOURCE}, 0), clocks={A: 7}) == -1
    assert update(InputTime({A: SOURCE}, 0, passes_sources_on=True), clocks={A: 7}) == 7


def test_a_source_partition_that_was_read_to_its_end_holds_for_a_while() -> None:
    known = InputTime({A: SOURCE, B: SOURCE}, 1000, passes_sources_on=True)
    clocks = {A: 5, B: 90}
    assert update(known, 0, clocks=clocks, ends=(A,)) == 5
    assert known.next_idle_ms == 1000
    assert update(known, 999, clocks=clocks, ends=(A,)) == 5
    assert update(known, 1000, clocks=clocks, ends=(A,)) == 90
    assert known.next_idle_ms is None
    # Something came of it, and it holds again.
    assert update(known, 1001, clocks={A: 91, B: 95}) == 91


def test_a_source_partition_with_new_records_is_not_idle_although_they_are_processed() -> None:
    known = InputTime({A: SOURCE, B: SOURCE}, 1000, passes_sources_on=True)
    assert update(known, 0, {A: 5}, {A: 5, B: 90}, ends=(A,)) == 5
    assert update(known, 900, {A: 6}, {A: 6, B: 90}, ends=(A,)) == 6
    assert update(known, 1899, {A: 6}, {A: 6, B: 90}, ends=(A,)) == 6
    assert update(known, 1900, {A: 6}, {A: 6, B: 90}, ends=(A,)) == 90


def test_what_is_held_back_does_not_wait_for_records_that_come_back() -> None:
    known = InputTime({A: SOURCE, B: 2}, 1000, returning=("b",))
    assert update(known, 0, clocks={A: 70}) == -1
    assert known.time_of(("a",)) == 70
    known.learn({B: mark(0, Progress(50))})
    assert update(known, 0, clocks={A: 70}) == 50
    assert (known.time_of(("a",)), known.time_of(("a", "b"))) == (70, 50)


def test_what_was_only_read_lets_others_go_ahead() -> None:
    known = InputTime({A: 2, B: SOURCE}, 1000)
    known.learn({A: mark(10, Progress(50))})
    known.read_up_to(A, 9)
    assert known.complete_until(A) == -1
    known.read_up_to(A, 10)
    assert known.complete_until(A) == 50
    known.learn({A: mark(10, Progress(50, IDLE))})
    known.read_up_to(A, 10)
    assert known.complete_until(A) > 2**62


def test_idle_is_nobody_who_has_yet_to_learn_of_records_that_another_part_has() -> None:
    windows, direct = part(50, IDLE, "P"), part(2000, LIVE)
    assert holding([windows, direct]) == [windows, direct]
    assert combined([windows, direct]) == Progress(50, LIVE, 50)
    # It knows of all that the sources had, but what is held back comes when they go on.
    windows = part(2000, IDLE, "P", held_ms=100)
    assert combined([windows, direct]) == Progress(1900, LIVE, 2000)
    # What is not of the same sources says nothing.
    assert combined([part(50, IDLE, "Q"), direct]) == Progress(2000, LIVE, 2000)
    both = part(60, IDLE, "P", "Q")
    assert holding([both, part(50, IDLE, "Q")]) == []
    assert holding([part(50, IDLE, "Q"), both]) == []
    assert holding([both, part(61, IDLE, "Q")]) == [both]


def test_what_is_held_back_while_all_are_idle_is_not_late_when_they_go_on() -> None:
    held, direct = part(2000, IDLE, "P", held_ms=100), part(2000, IDLE, "P")
    assert combined([held, direct]) == Progress(1900, IDLE, 2000)
    # A partition of the source, in the task that also gets what all its tasks send.
    assert combined([held, part(2000, IDLE)]) == Progress(1900, IDLE, 2000)
    # Other sources are not waited for.
    assert combined([held, part(1950, IDLE, "Q")]) == Progress(1950, IDLE, 2000)
    both = part(2000, IDLE, "P", "Q", held_ms=70)
    assert combined([held, direct, both]) == Progress(1930, IDLE, 2000)


def test_a_record_waits_for_an_idle_input_that_has_yet_to_learn_of_it() -> None:
    origins = dict.fromkeys((A, B), of("P"))
    known = InputTime({A: 2, B: 2}, 1000, origins=origins)
    for each in (A, B):
        known.learn({each: mark(10, Progress(50, IDLE, 50))})
        known.read_up_to(each, 10)
    assert known.complete_until(A) > 2**62
    # A record of B was read: of A, nothing is known that is newer.
    known.read_up_to(B, 11)
    assert known.complete_until(A) == 50
    known.learn({B: mark(11, Progress(90, IDLE, 90))})
    known.read_up_to(B, 11)
    assert known.complete_until(A) == 50
    known.learn({A: mark(10, Progress(70, IDLE, 90))})
    known.read_up_to(A, 10)
    assert known.complete_until(A) > 2**62
    # What comes of elsewhere does not matter.
    other = InputTime({A: 2, B: 2}, 1000, origins={A: of("P"), B: of("Q")})
    other.learn({A: mark(10, Progress(50, IDLE, 50))})
    other.read_up_to(A, 10)
    assert other.complete_until(A) > 2**62


def test_no_record_waits_for_what_depends_on_it() -> None:
    origins = {A: Origins(frozenset("PQ"), frozenset("Q")), B: of("P")}
    known = InputTime({A: 2, B: 2}, 1000, origins=origins)
    held, idle = Progress(50, LIVE, 50), Progress(20, IDLE, 20)
    known.learn({A: Mark(10, held, idle), B: mark(10, Progress(90, LIVE, 90))})
    for each in (A, B):
        known.read_up_to(each, 10)
    assert known.complete_until(A) > 2**62
    assert update(known, reached={A: 10, B: 10}) == 50


def test_feedback_neither_holds_time_back_nor_moves_it() -> None:
    known = InputTime({A: 4, B: FEEDBACK}, 1000)
    known.learn({A: mark(10, Progress(50))})
    assert update(known, reached={A: 10}, clocks={B: 10}) == 50
    assert update(known, reached={A: 10}, clocks={B: 90}) == 50
    assert known.known(B) == Progress()
    assert known.next_idle_ms is None


def test_a_source_next_to_feedback_is_as_one_alone() -> None:
    known = InputTime({A: SOURCE, B: FEEDBACK}, 1000, passes_sources_on=True)
    assert known.follows_records
    assert known.is_single
    assert update(known, clocks={A: 70, B: 10}) == 70


def test_what_is_only_looked_up_neither_holds_time_back_nor_moves_it() -> None:
    known = InputTime({A: 4, B: SOURCE}, 1000, looked_up=["b"])
    known.learn({A: mark(10, Progress(50))})
    assert update(known, reached={A: 10}, clocks={B: 10}) == 50
    assert update(known, now_ms=5000, reached={A: 10}, clocks={B: 90}, ends=(B,)) == 50
    assert known.next_idle_ms is None


def test_rows_of_other_tasks_are_waited_for_even_if_they_say_nothing_about_time() -> None:
    known = InputTime({A: SOURCE, B: 4}, 1000, looked_up=["b"])
    known.learn({B: mark(10, Progress(50))})
    assert known.is_due(lambda _: 10, lambda _: 10)
    assert update(known, reached={B: 10}, clocks={A: 20}) == 20
    known.read_up_to(B, 10)
    assert known.complete_until(B) == 50
    assert not known.is_due(lambda _: 10, lambda _: 10)
    # The history of the rows ends by the time of the records that look them up.
    assert not known.follows_records


def test_a_source_next_to_a_table_is_as_one_alone() -> None:
    known = InputTime({A: SOURCE, B: SOURCE}, 1000, looked_up=["b"])
    assert known.follows_records
    assert known.is_single
