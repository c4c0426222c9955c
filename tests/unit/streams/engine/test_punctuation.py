"""Punctuation: when callbacks are due, and what they may do meanwhile."""

from __future__ import annotations

import pytest

from kafka_pipeline.streams.punctuation import (
    Cancellable,
    PunctuationQueue,
    PunctuationType,
    Punctuator,
    first_due_ms,
)


class Clock:
    """A queue and the times at which its punctuations fired."""

    def __init__(self) -> None:
        self.queue = PunctuationQueue()
        self.fired: list[int] = []

    def schedule(self, interval_ms: int, start_ms: int = 0) -> Cancellable:
        return self.queue.schedule(interval_ms, self.fired.append, start_ms)

    def at(self, *times_ms: int) -> list[int]:
        """Let it be each of the times in turn, and return all times that fired."""
        for now_ms in times_ms:
            self.queue.punctuate(now_ms, call)
        return self.fired


def call(callback: Punctuator, now_ms: int) -> None:
    callback(now_ms)


@pytest.fixture
def clock() -> Clock:
    return Clock()


# When they are due


def test_stream_time_starts_at_zero_and_wall_clock_time_with_an_interval() -> None:
    assert first_due_ms(PunctuationType.STREAM_TIME, 100, now_ms=7000) == 0
    assert first_due_ms(PunctuationType.WALL_CLOCK_TIME, 100, now_ms=7000) == 7100


@pytest.mark.parametrize("type_", PunctuationType)
@pytest.mark.parametrize(
    ("start_ms", "now_ms", "due_ms"),
    [(3, -1, 3), (115, 100, 115), (100, 100, 100), (95, 100, 105), (3, 100, 103), (0, 100, 110)],
)
def test_a_start_is_when_it_is_due_or_what_the_intervals_count_from(
    type_: PunctuationType, start_ms: int, now_ms: int, due_ms: int
) -> None:
    """KIP-1146: the times are those of Kafka Streams 4.3."""
    assert first_due_ms(type_, 10, now_ms, start_ms) == due_ms


@pytest.mark.parametrize("start_ms", [0, 50])
@pytest.mark.parametrize(
    ("after_ms", "fired", "next_after_ms"),
    [
        (-100, False, 0),
        (-1, False, 0),
        (0, True, 100),
        (99, True, 100),
        (100, True, 200),
        (901, True, 1000),
        (1000, True, 1100),
    ],
)
def test_due_from_the_start_on_and_then_on_the_grid_of_the_interval(
    clock: Clock, start_ms: int, after_ms: int, fired: bool, next_after_ms: int
) -> None:
    clock.schedule(100, start_ms)
    assert clock.queue.next_ms == start_ms
    assert clock.at(start_ms + after_ms) == [start_ms + after_ms] * fired
    assert clock.queue.next_ms == start_ms + next_after_ms


def test_missed_intervals_are_made_up_by_one_call_without_drifting(clock: Clock) -> None:
    clock.schedule(100, start_ms=50)
    assert clock.at(50, 149, 150, 1051, 1052, 1149, 1150) == [50, 150, 1051, 1150]
    assert clock.queue.next_ms == 1250


def test_what_is_passed_over_is_not_called_and_keeps_its_rhythm(clock: Clock) -> None:
    clock.schedule(10)
    clock.queue.skip(25)
    assert clock.at(25, 29, 30) == [30]
    clock.queue.skip(-1)
    assert clock.queue.next_ms == 40


def test_unknown_stream_time_fires_nothing(clock: Clock) -> None:
    clock.schedule(20)
    assert clock.at(-1) == []


def test_stream_time_fires_with_the_first_record_and_stays_aligned_to_zero(clock: Clock) -> None:
    clock.schedule(10)
    assert clock.at(20, 25, 142, 145, 155, 159, 160, 161) == [20, 142, 155, 160]


@pytest.mark.parametrize(
    ("after_ms", "fired"),
    [
        ([10, 20, 29, 30, 50, 50], [10, 20, 30, 50]),
        ([0, 9], []),
        (
            [100, 100, 110, 122, 129, 130, 235, 235, 240, 240],
            [100, 110, 122, 130, 235, 240],
        ),
    ],
    ids=["elapsed", "not elapsed", "after gaps"],
)
def test_wall_clock_time_stays_aligned_to_its_start(
    clock: Clock, after_ms: list[int], fired: list[int]
) -> None:
    now_ms = 5003
    clock.schedule(10, first_due_ms(PunctuationType.WALL_CLOCK_TIME, 10, now_ms))
    assert clock.at(*[now_ms + ms for ms in after_ms]) == [now_ms + ms for ms in fired]


def test_several_fire_by_due_time_and_then_by_age() -> None:
    queue = PunctuationQueue()
    names: list[str] = []
    queue.schedule(100, lambda _: names.append("a"), 30)
    queue.schedule(100, lambda _: names.append("b"), 10)
    queue.schedule(100, lambda _: names.append("c"), 30)
    assert queue.next_ms == 10
    assert queue.punctuate(20, call) == 1
    assert queue.punctuate(30, call) == 2
    assert queue.punctuate(30, call) == 0
    assert queue.punctuate(500, call) == 3
    assert names == ["b", "a", "c", "b", "a", "c"]


def test_nothing_is_due_in_an_empty_queue(clock: Clock) -> None:
    assert clock.queue.next_ms is None
    assert clock.queue.punctuate(10**15, call) == 0


# What may happen meanwhile


def test_cancelled_one_never_fires_again(clock: Clock) -> None:
    cancellable = clock.schedule(10)
    clock.at(20, 25)
    cancellable.cancel()
    cancellable.cancel()
    assert clock.queue.next_ms is None
    assert clock.at(30, 40, 1000) == [20]


def test_cancelled_before_its_first_time_never_fires(clock: Clock) -> None:
    clock.schedule(20).cancel()
    assert clock.at(0, 20) == []


def test_others_fire_when_one_is_cancelled(clock: Clock) -> None:
    clock.schedule(20, start_ms=5).cancel()
    clock.schedule(20, start_ms=7)
    assert clock.queue.next_ms == 7
    assert clock.at(6, 7) == [7]


def test_callback_may_cancel_itself() -> None:
    queue = PunctuationQueue()
    fired: list[int] = []

    def once(now_ms: int) -> None:
        fired.append(now_ms)
        cancellable.cancel()

    cancellable = queue.schedule(100, once, 0)
    assert queue.punctuate(0, call) == 1
    assert queue.next_ms is None
    assert queue.punctuate(200, call) == 0
    assert fired == [0]


def test_callback_may_cancel_one_that_is_due_behind_it() -> None:
    queue = PunctuationQueue()
    fired: list[int] = []
    queue.schedule(100, lambda _: other.cancel(), 0)
    other = queue.schedule(100, fired.append, 0)
    assert queue.punctuate(0, call) == 1
    assert fired == []


def test_what_a_callback_schedules_comes_later(clock: Clock) -> None:
    def more(now_ms: int) -> None:
        if now_ms == 40:
            clock.schedule(1000, start_ms=0)
            clock.schedule(1000, start_ms=41)

    clock.queue.schedule(40, more, 40)
    assert clock.queue.punctuate(40, call) == 1
    assert clock.fired == []
    assert clock.at(41, 999, 1000) == [41, 1000]


def test_callback_may_replace_its_own_schedule(clock: Clock) -> None:
    calls: list[int] = []

    def again(now_ms: int) -> None:
        calls.append(now_ms)
        former.pop().cancel()
        former.append(clock.queue.schedule(30, again, 0))

    former = [clock.queue.schedule(10, again, 0)]
    for now_ms in (5, 20, 31, 59, 60):
        clock.queue.punctuate(now_ms, call)
    assert calls == [5, 31, 60]


def test_failed_one_is_due_at_its_next_time_and_those_behind_it_still_are(clock: Clock) -> None:
    def fail(now_ms: int) -> None:
        raise ZeroDivisionError

    clock.queue.schedule(100, fail, 0)
    clock.schedule(100, start_ms=1)
    with pytest.raises(ZeroDivisionError):
        clock.at(10)
    assert clock.fired == []
    assert clock.at(10) == [10]
    with pytest.raises(ZeroDivisionError):
        clock.at(100)


def test_caller_decides_how_a_callback_is_called(clock: Clock) -> None:
    clock.schedule(20)
    calls: list[tuple[Punctuator, int]] = []
    assert clock.queue.punctuate(25, lambda callback, now_ms: calls.append((callback, now_ms))) == 1
    assert calls == [(clock.fired.append, 25)]


def test_cleared_queue_has_nothing_left(clock: Clock) -> None:
    clock.schedule(20)
    clock.queue.clear()
    assert clock.queue.next_ms is None
    assert clock.at(100) == []
