"""Missed heartbeats are counted by time, never by arrivals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.jobmanager.heartbeat_controller import HeartbeatController

START_MS = 987_654


def controller(*tm_ids: int) -> HeartbeatController:
    """Return one that has just heard from these TaskManagers, heartbeats being 1 s apart."""
    watcher = HeartbeatController(interval_ms=1000)
    assert watcher.tick(START_MS) == []
    for tm_id in tm_ids:
        watcher.beat(tm_id)
    return watcher


def down_after(watcher: HeartbeatController, *offsets_ms: int) -> dict[int, list[int]]:
    """Tick at these times after the start; return who went down when."""
    ticks = {offset: watcher.tick(START_MS + offset) for offset in offsets_ms}
    return {offset: down for offset, down in ticks.items() if down}


def test_three_missed_beats_mean_down() -> None:
    assert down_after(controller(7), *range(250, 5001, 250)) == {3000: [7]}


def test_down_is_told_once() -> None:
    assert down_after(controller(7), *range(250, 30_001, 250)) == {3000: [7]}


def test_beats_keep_a_taskmanager_up() -> None:
    watcher = controller(7)
    for second in range(1, 60):
        assert watcher.tick(START_MS + second * 1000) == []
        watcher.beat(7)


def test_two_missed_beats_are_forgiven_each_time() -> None:
    watcher = controller(7)
    for offset in range(500, 60_000, 500):
        assert watcher.tick(START_MS + offset) == []
        if offset % 2500 == 0:
            watcher.beat(7)


def test_beats_of_others_do_not_shorten_or_lengthen_the_wait() -> None:
    watcher = controller(0, *range(1, 40))
    downs = {}
    for offset in range(100, 5000, 100):
        for tm_id in range(1, 40):
            watcher.beat(tm_id)
        down = watcher.tick(START_MS + offset)
        if down:
            downs[offset] = down
    assert downs == {3000: [0]}


def test_all_that_fell_silent_together_are_told_together() -> None:
    assert down_after(controller(0, 1, 2), 1000, 2000, 3000) == {3000: [0, 1, 2]}


def test_taskmanager_that_left_is_not_watched() -> None:
    watcher = controller(7)
    watcher.forget(7)
    assert down_after(watcher, *range(1000, 10_000, 1000)) == {}


def test_forgetting_a_stranger_is_no_error() -> None:
    controller().forget(3)


def test_taskmanager_that_came_back_is_watched_again() -> None:
    watcher = controller(7)
    assert down_after(watcher, 1000, 2000, 3000) == {3000: [7]}
    watcher.beat(7)
    assert down_after(watcher, 4000, 5000, 6000) == {6000: [7]}


def test_beat_just_after_the_first_tick_counts_whatever_the_clock_says() -> None:
    watcher = HeartbeatController(interval_ms=1000)
    assert watcher.tick(10**12) == []
    watcher.beat(0)
    assert watcher.tick(10**12 + 1000) == []


def test_pause_of_the_jobmanager_is_not_held_against_taskmanagers() -> None:
    watcher = controller(7)
    assert down_after(watcher, 1000, 601_000) == {}


def test_after_a_pause_the_count_goes_on_where_it_was() -> None:
    watcher = controller(7)
    # One beat was missed before the pause, one counts for the gap, the third comes after it.
    assert down_after(watcher, 1000, 601_000, 601_900, 602_000) == {602_000: [7]}


def test_pauses_in_a_row_never_bring_anybody_down_who_beats_after_each() -> None:
    watcher = controller(7)
    for minute in range(1, 20):
        assert watcher.tick(START_MS + minute * 60_000) == []
        watcher.beat(7)


@pytest.mark.parametrize("interval_ms", [100, 1000, 60_000])
def test_wait_is_three_intervals_whatever_the_interval(interval_ms: int) -> None:
    watcher = HeartbeatController(interval_ms)
    watcher.tick(START_MS)
    watcher.beat(0)
    step_ms = interval_ms // 4
    downs = [at for at in range(step_ms, 5 * interval_ms, step_ms) if watcher.tick(START_MS + at)]
    assert downs == [3 * interval_ms]


@given(st.lists(st.tuples(st.integers(1, 1000), st.booleans()), max_size=60))
def test_down_comes_with_the_first_tick_three_intervals_after_the_last_beat(
    steps: list[tuple[int, bool]],
) -> None:
    watcher = controller(0)
    now_ms = last_ms = START_MS
    watched = True
    for gap_ms, beats in steps:
        now_ms += gap_ms
        expected = [0] if watched and now_ms - last_ms >= 3000 else []
        assert watcher.tick(now_ms) == expected
        watched = watched and not expected
        if beats:
            watcher.beat(0)
            last_ms, watched = now_ms, True


def test_nobody_is_down_while_kafka_is_away() -> None:
    watcher = controller(7)
    watcher.echo()
    assert down_after(watcher, *range(250, 60_000, 250)) == {}


def test_after_kafka_was_away_whoever_stays_silent_has_two_more_beats() -> None:
    watcher = controller(7, 8)
    watcher.echo()
    assert down_after(watcher, *range(250, 60_000, 250)) == {}
    downs = {}
    for offset in range(60_000, 70_000, 250):
        down = watcher.tick(START_MS + offset)
        watcher.echo()
        if offset >= 61_000:
            watcher.beat(8)
        if down:
            downs[offset] = down
    assert downs == {62_000: [7]}


def test_echoes_do_not_keep_a_taskmanager_up() -> None:
    watcher = controller(7)
    downs = {}
    for offset in range(250, 5000, 250):
        down = watcher.tick(START_MS + offset)
        if offset % 1000 == 0:
            watcher.echo()
        if down:
            downs[offset] = down
    assert downs == {3000: [7]}
