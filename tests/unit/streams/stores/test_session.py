"""Session stores: finding the sessions to merge, expiry by stream time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_pipeline import serdes, stores
from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.stores import SessionStore, Window, Windowed
from kafka_pipeline.streams.stores.segments import MIN_SEGMENT_MS
from tests.unit.streams.stores.backends import Backend

RETENTION = 10_000
MAX = 2**63 - 1

DEFINITION = stores.session("sessions", serdes.string, serdes.int64, retention_ms=RETENTION)


@pytest.fixture
def sessions(backend: Backend) -> SessionStore[str, int]:
    store: SessionStore[str, int] = backend.build(DEFINITION)
    return store


def session(key: str, start: int, end: int) -> Windowed[str]:
    return Windowed(key, Window(start, end))


Found = list[tuple[Windowed[str], int]]


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize(
    ("earliest_end", "latest_start", "wanted"),
    [
        (0, 1000, [1, 2]),
        (400, 600, [2]),
        (-1, 10, [1]),
        (1000, 1500, [2, 3]),
        (1001, 1499, []),
        (0, MAX, [1, 2, 3, 4]),
        (3000, 2500, [4]),
        (3001, MAX, []),
    ],
)
def test_sessions_are_found_by_earliest_end_and_latest_start(
    backend: Backend,
    sessions: SessionStore[str, int],
    is_committed: bool,
    earliest_end: int,
    latest_start: int,
    wanted: list[int],
) -> None:
    windows = [(10, 10), (500, 1000), (1500, 2000), (2500, 3000)]
    for number, (start, end) in enumerate(windows, 1):
        sessions.put(session("a", start, end), number)
    sessions.put(session("aa", 500, 1000), 9)
    if is_committed:
        backend.store.commit(1)
    pairs: Found = [(session("a", *windows[number - 1]), number) for number in wanted]
    with sessions.find_sessions("a", earliest_end, latest_start) as found:
        assert list(found) == pairs
    assert sessions.find_sessions_list("a", earliest_end, latest_start) == pairs
    with sessions.backward_find_sessions("a", earliest_end, latest_start) as found:
        assert list(found) == pairs[::-1]


def test_sessions_to_merge_are_those_that_touch(sessions: SessionStore[str, int]) -> None:
    for number in range(1, 6):
        start = 0 if number == 1 else 100 * (number - 1) + 1
        sessions.put(session("a", start, 100 * number), number)
    with sessions.find_sessions("a", 150, 300) as found:
        assert [value for _, value in found] == [2, 3]


def test_sessions_of_a_key_come_by_their_end(sessions: SessionStore[str, int]) -> None:
    ends = (0, 10, 100, 1000)
    for end in reversed(ends):
        sessions.put(session("a", end, end), end)
    sessions.put(session("aa", 0, 0), 5)
    wanted: Found = [(session("a", end, end), end) for end in ends]
    assert list(sessions.fetch("a")) == wanted
    assert list(sessions.backward_fetch("a")) == wanted[::-1]


@pytest.mark.parametrize(
    ("key_from", "key_to", "first", "behind"),
    [("aa", "bb", 1, 6), (None, "bb", 0, 6), ("aa", None, 1, 7), (None, None, 0, 7)],
)
def test_ranges_of_keys_include_their_ends(
    sessions: SessionStore[str, int],
    key_from: str | None,
    key_to: str | None,
    first: int,
    behind: int,
) -> None:
    everything: Found = [
        (session("a", 0, 0), 1),
        (session("aa", 10, 10), 2),
        (session("aaa", 100, 100), 3),
        (session("aaaa", 100, 100), 6),
        (session("b", 1000, 1000), 4),
        (session("bb", 1500, 2000), 5),
        (session("bbb", 2500, 3000), 6),
    ]
    for key, value in everything:
        sessions.put(key, value)
    wanted = everything[first:behind]
    assert list(sessions.fetch_range(key_from, key_to)) == wanted
    assert list(sessions.backward_fetch_range(key_from, key_to)) == wanted[::-1]
    assert list(sessions.find_sessions_in_range(key_from, key_to, 0, MAX)) == wanted
    found = sessions.backward_find_sessions_in_range(key_from, key_to, 100, 1000)
    between = [pair for pair in wanted if pair[0].window.end >= 100]
    assert list(found) == [pair for pair in between[::-1] if pair[0].window.start <= 1000]


@pytest.mark.parametrize(
    ("earliest_end", "latest_end", "wanted"),
    [(0, 0, [5]), (0, 20, [5, 10]), (0, 19, [5]), (1, 20, [10]), (19, 41, [10, 20])],
)
def test_sessions_of_all_keys_are_found_by_their_ends(
    sessions: SessionStore[str, int], earliest_end: int, latest_end: int, wanted: list[int]
) -> None:
    sessions.put(session("a", 0, 0), 5)
    sessions.put(session("b", 10, 20), 10)
    sessions.put(session("c", 30, 40), 20)
    with sessions.find_sessions_by_end(earliest_end, latest_end) as found:
        assert [value for _, value in found] == wanted


def test_one_session_is_found_by_key_start_and_end(sessions: SessionStore[str, int]) -> None:
    for number, (key, start, end) in enumerate(
        [("a", 0, 4), ("aa", 0, 3), ("aa", 0, 4), ("aa", 1, 4), ("aaa", 0, 4)]
    ):
        sessions.put(session(key, start, end), number)
    assert sessions.fetch_session("aa", 0, 4) == 2
    assert sessions.fetch_session("aa", 2, 4) is None
    assert sessions.fetch_session("any", 0, 5) is None


@pytest.mark.parametrize("is_by_null", [False, True])
def test_removed_sessions_are_not_found(sessions: SessionStore[str, int], is_by_null: bool) -> None:
    sessions.put(session("a", 0, 1000), 1)
    sessions.put(session("a", 1500, 2500), 2)
    if is_by_null:
        sessions.put(session("a", 0, 1000), None)
    else:
        sessions.remove(session("a", 0, 1000))
    assert list(sessions.find_sessions("a", 0, 1000)) == []
    assert sessions.find_sessions_list("a", 0, 1000) == []
    assert sessions.fetch_session("a", 0, 1000) is None
    assert [value for _, value in sessions.fetch("a")] == [2]


def test_session_that_does_not_exist_may_be_removed(sessions: SessionStore[str, int]) -> None:
    sessions.remove(session("a", 0, 1))
    assert list(sessions.fetch("a")) == []


def test_keys_that_begin_like_others_are_kept_apart(backend: Backend) -> None:
    store = backend.build(
        stores.session("raw", serdes.bytes, serdes.int64, retention_ms=2 * RETENTION)
    )
    keys = [b"\x00", b"\x00\x00", b"\x00\x00\x00", b"\x00" + (10).to_bytes(8, "big"), b""]
    for number, key in enumerate(keys):
        for end in (0, 10, 20):
            store.put(Windowed(key, Window(0, end)), number)
    for number, key in enumerate(keys):
        assert [value for _, value in store.fetch(key)] == [number] * 3
        assert [value for _, value in store.fetch_range(key, key)] == [number] * 3


def test_key_in_the_state_topic_has_the_end_before_the_start(
    backend: Backend, sessions: SessionStore[str, int]
) -> None:
    sessions.put(session("a", 3, 7), 1)
    (key,) = backend.store.uncommitted
    assert key == b"a" + (7).to_bytes(8, "big") + (3).to_bytes(8, "big")


# Expiry.


def test_session_expires_a_retention_after_its_end(sessions: SessionStore[str, int]) -> None:
    sessions.put(session("a", 0, 0), 1)
    sessions.put(session("aa", 0, 10), 2)
    sessions.put(session("a", 10, 20), 3)
    sessions.put(session("aa", 10, RETENTION - 1), 4)
    assert {value for _, value in sessions.fetch_range("a", "b")} == {1, 2, 3, 4}
    sessions.put(session("aa", 10, RETENTION), 5)
    assert {value for _, value in sessions.fetch_range("a", "b")} == {2, 3, 4, 5}
    assert sessions.fetch_session("a", 0, 0) is None
    assert [value for _, value in sessions.find_sessions("a", 0, MAX)] == [3]
    assert [value for _, value in sessions.find_sessions_list("a", 0, MAX)] == [3]
    assert [value for _, value in sessions.find_sessions_by_end(0, 10)] == [2]


def test_late_sessions_are_dropped_and_counted(sessions: SessionStore[str, int]) -> None:
    sessions.put(session("a", 0, 2 * MIN_SEGMENT_MS), 0)
    sessions.put(session("late", 0, 0), 0)
    sessions.put(session("on time", 0, 2 * MIN_SEGMENT_MS), 0)
    assert sessions.dropped == 1
    assert list(sessions.fetch("late")) == []
    sessions.remove(session("late", 0, 0))


def test_sessions_that_expired_are_not_found_by_any_bounds(
    sessions: SessionStore[str, int],
) -> None:
    now = 1_700_000_000_000
    sessions.put(session("p", now - 3 * RETENTION, now - 2 * RETENTION), 1)
    sessions.put(session("q", now - 2 * RETENTION, now - RETENTION), 4)
    sessions.put(session("r", now - RETENTION, now - RETENTION // 2), 3)
    sessions.put(session("p", now - RETENTION, now - RETENTION // 2), 2)
    found = sessions.find_sessions("p", now - 2 * RETENTION, now - RETENTION)
    assert [value for _, value in found] == [2]
    long_ago = (now - 5 * RETENTION, now - 4 * RETENTION)
    assert list(sessions.backward_find_sessions("p", *long_ago)) == []
    assert list(sessions.find_sessions_in_range("p", "r", *long_ago)) == []
    for bounds in ((now - RETENTION, now - RETENTION // 2), (now - 2 * RETENTION, now - RETENTION)):
        values = {value for _, value in sessions.find_sessions_in_range("p", "r", *bounds)}
        assert values == {2, 3, 4}


def test_segments_that_expired_are_dropped(
    backend: Backend, sessions: SessionStore[str, int]
) -> None:
    sessions.put(session("a", 0, 0), 1)
    sessions.put(session("a", 0, 10 * MIN_SEGMENT_MS), 2)
    backend.store.commit(1)
    sessions.put(session("b", 0, 10 * MIN_SEGMENT_MS), 3)
    with backend.store.scan(b"", None) as entries:
        assert len(list(entries)) == 2


def test_what_has_expired_is_known_for_as_long_as_it_lingers(backend: Backend) -> None:
    segment = MIN_SEGMENT_MS
    options = {**DEFINITION.options, "lingering": 2 * segment}
    store: Any = backend.build(replace(DEFINITION, options=options))
    store.put(session("a", 50, 100), 1)
    store.put(session("aa", 50, 200), 1)
    assert not store.has_expired("a", 100, 100), "it is there"
    for step in (1, 2):
        store.put(session("b", 0, step * segment + RETENTION), 2)
        backend.store.commit(step)
        assert list(store.fetch("a")) == []
        assert store.has_expired("a", 100, 50)
    assert not store.has_expired("a", 101, 200)
    assert not store.has_expired("a", 0, 49), "it begins later"
    store.put(session("b", 0, 5 * segment + RETENTION), 3)
    backend.store.commit(3)
    store.put(session("b", 0, 5 * segment + RETENTION), 3)
    assert not store.has_expired("a", 100, 50)


def test_content_lasts_over_a_restart(backend: Backend, sessions: SessionStore[str, int]) -> None:
    sessions.put(session("a", 0, 5), 1)
    sessions.put(session("a", RETENTION, RETENTION + 4), 2)
    backend.store.commit(1)
    again: Any = DEFINITION.build(backend.reopen())
    assert [value for _, value in again.fetch("a")] == [1, 2]
    again.put(session("a", 0, 4), 3)
    assert again.dropped == 1


@pytest.mark.parametrize(
    "find",
    [
        lambda store, start: list(store.find_sessions("a", start, MAX)),
        lambda store, start: list(store.backward_find_sessions("a", start, MAX))[::-1],
        lambda store, start: store.find_sessions_list("a", start, MAX),
        lambda store, start: list(store.find_sessions_in_range("a", "a", start, MAX)),
    ],
)
@pytest.mark.parametrize("is_committed", [False, True])
def test_sessions_are_found_without_the_empty_segments_before_them(
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    find: Callable[..., Found],
    is_committed: bool,
) -> None:
    """A step may be a year behind, where one source partition is read from its beginning."""
    store, now, year_ms = backend.build(DEFINITION), 1_767_225_600_000, 31_536_000_000
    store.follow(now - year_ms)
    first, last = session("a", now - year_ms, now - year_ms + 1), session("a", now, now)
    store.put(first, 1)
    store.put(last, 2)
    store.put(session("b", now + 10 * MIN_SEGMENT_MS, now + 10 * MIN_SEGMENT_MS), 3)
    if is_committed:
        backend.store.commit(1)
    reads = []

    def counted(read: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any) -> Any:
            reads.append(arguments)
            assert len(reads) <= 8, "it reads empty segments"
            return read(*arguments)

        return count

    for name in ("scan", "range"):
        monkeypatch.setattr(backend.store, name, counted(getattr(backend.store, name)))
    assert find(store, now - year_ms) == [(first, 1), (last, 2)]


def test_iterators_are_closed_with_the_store(
    backend: Backend, sessions: SessionStore[str, int]
) -> None:
    sessions.put(session("a", 0, 0), 1)
    found = sessions.fetch("a")
    backend.store.close()
    with pytest.raises(StateStoreError):
        next(found)


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.put(Windowed(None, Window(0, 1)), 1),
        lambda store: store.remove(Windowed(None, Window(0, 1))),
        lambda store: store.fetch(None),
        lambda store: store.fetch_session(None, 0, 1),
        lambda store: store.find_sessions(None, 0, 1),
        lambda store: store.find_sessions_list(None, 0, 1),
        lambda store: store.put(session("a", -1, 1), 1),
        lambda store: store.put(session("a", 0, MAX + 1), 1),
        lambda store: store.put(session("a", 2, 1), 1),
    ],
)
def test_null_keys_and_impossible_sessions_are_refused(
    sessions: SessionStore[str, int], use: Callable[[SessionStore[Any, Any]], Any]
) -> None:
    with pytest.raises(StateStoreError, match='"sessions"'):
        use(sessions)


def test_range_of_keys_that_ends_before_it_begins_is_logged(
    sessions: SessionStore[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(sessions.find_sessions_in_range("b", "a", 0, MAX)) == []
    assert "range of keys is empty" in capsys.readouterr().out
