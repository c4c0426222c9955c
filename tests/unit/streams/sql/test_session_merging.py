"""Records that are merged into sessions, one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kafka_pipeline.streams.dsl.windows import SessionWindows
from kafka_pipeline.streams.sql.session_merging import RecordOrder, Session, SessionsOfKey
from tests.tiers import long_but_the_first

GAP_MS, GRACE_MS = 10, 5
WINDOWS = SessionWindows(GAP_MS, GRACE_MS)


def test_record_exactly_a_gap_away_belongs_to_a_session() -> None:
    for time in (90, 130):
        sessions = SessionsOfKey(WINDOWS, [Session(100, 120, [0])])
        assert sessions.add(time, 130, 1)
        assert sessions.found == [Session(min(time, 100), max(time, 120), [0, 1])]


def test_record_further_away_begins_another_session() -> None:
    sessions = SessionsOfKey(WINDOWS, [Session(100, 120, [0])])
    assert sessions.add(131, 131, 1)
    assert sessions.add(140, 140, 2)
    assert sessions.add(89, 104, 3)
    assert sessions.found == [
        Session(89, 89, [3]),
        Session(100, 120, [0]),
        Session(131, 140, [1, 2]),
    ]


def test_record_that_connects_sessions_comes_after_what_they_have() -> None:
    kept = [Session(129, 140, [0]), Session(100, 110, [1])]
    sessions = SessionsOfKey(WINDOWS, kept)
    assert sessions.add(145, 145, 2)
    assert sessions.add(95, 124, 3)
    assert sessions.add(118, 124, 4)
    assert sessions.add(120, 124, 5)
    assert sessions.found == [Session(95, 145, [1, 3, 4, 0, 2, 5])]


@pytest.mark.parametrize("now", [125, 126])
def test_record_is_late_unless_the_session_that_it_would_be_in_is_open(now: int) -> None:
    sessions = SessionsOfKey(WINDOWS, [Session(100, 110, [0])])
    assert sessions.add(105, now, 1) is (now == 125)
    assert sessions.found == [Session(100, 110, [0] if now == 126 else [0, 1])]


def test_session_that_has_closed_is_not_continued() -> None:
    sessions = SessionsOfKey(WINDOWS, [Session(100, 110, [0])])
    assert sessions.add(115, 126, 1)
    assert sessions.found == [Session(100, 110, [0]), Session(115, 115, [1])]


@pytest.mark.parametrize("seed", long_but_the_first(range(200), short=50))
def test_sessions_are_those_of_a_search_through_all(seed: int) -> None:
    chance = random.Random(seed)
    sessions, model = SessionsOfKey(WINDOWS, []), list[Session]()
    now = 0
    for row in range(60):
        time = max(0, 4 * row + chance.randint(-40, 10))
        now = max(now, time)
        near = [
            each
            for each in model
            if each.last + GAP_MS + GRACE_MS >= now
            and each.start - GAP_MS <= time <= each.last + GAP_MS
        ]
        is_late = not near and time + GAP_MS + GRACE_MS < now
        assert sessions.add(time, now, row) is not is_late
        if is_late:
            continue
        near.sort(key=lambda each: each.start)
        model = [each for each in model if each not in near]
        times = [time, *(time for each in near for time in (each.start, each.last))]
        parts = [part for each in near for part in each.parts]
        model.append(Session(min(times), max(times), [*parts, row]))
        found = sorted(sessions.found, key=lambda each: each.parts)
        assert found == sorted(model, key=lambda each: each.parts)


def test_order_of_records() -> None:
    times = np.array([5, 5, 7, 6, 6, 7, 9, 1, 9, 12])
    found = RecordOrder.of(times, None, 5, follows_records=True)
    assert found.order.tolist() == [0, 0, 0, 3, 4, 5, 5, 7, 8, 8]
    assert found.least.tolist() == [5, 5, 7, 7, 7, 7, 9, 9, 9, 12]
    assert found.late_by(found.order, times).tolist() == found.least.tolist()


def test_order_of_records_behind_stream_time() -> None:
    found = RecordOrder.of(np.array([3, 3, 8]), None, 5, follows_records=True)
    assert found.order.tolist() == [0, 1, 2]
    assert found.least.tolist() == [5, 5, 8]
