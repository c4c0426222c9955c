"""Window stores: ranges of time, expiry by stream time, duplicates."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from kafka_pipeline import serdes, stores
from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.stores import Window, Windowed, WindowStore, layout
from kafka_pipeline.streams.stores.segments import MIN_SEGMENT_MS
from tests.unit.streams.stores.backends import Backend

SIZE = 3
RETENTION = 2 * MIN_SEGMENT_MS
START = MIN_SEGMENT_MS - 4  # so that windows lie in two segments
MAX = 2**63 - 1

DEFINITION = stores.window(
    "counts", serdes.int32, serdes.string, retention_ms=RETENTION, window_size_ms=SIZE
)
DUPLICATES = stores.window(
    "joins",
    serdes.int32,
    serdes.string,
    retention_ms=RETENTION,
    window_size_ms=SIZE,
    retain_duplicates=True,
)
RAW = stores.window("raw", serdes.bytes, serdes.string, retention_ms=RETENTION, window_size_ms=SIZE)

FIRST = [(0, "zero", 0), (1, "one", 1), (2, "two", 2), (3, "three", 2), (4, "four", 4)]
SECOND = [(2, f"two+{number}", 2 + number) for number in range(1, 7)]


@pytest.fixture
def counts(backend: Backend) -> WindowStore[int, str]:
    store: WindowStore[int, str] = backend.build(DEFINITION)
    return store


@pytest.fixture(params=["uncommitted", "committed", "both"])
def filled(
    request: pytest.FixtureRequest, backend: Backend, counts: WindowStore[int, str]
) -> WindowStore[int, str]:
    """A store with two batches, whatever of them is committed."""
    for key, value, time in FIRST:
        counts.put(key, value, START + time)
    if request.param == "both":
        backend.store.commit(1)
    for key, value, time in SECOND:
        counts.put(key, value, START + time)
    if request.param == "committed":
        backend.store.commit(1)
    return counts


def windowed(key: int, time: int) -> Windowed[int]:
    return Windowed(key, Window(START + time, START + time + SIZE))


def test_single_windows_are_found_by_their_start(filled: WindowStore[int, str]) -> None:
    assert [filled.fetch_window(2, START + time) for time in range(1, 10)] == [
        None,
        "two",
        *(f"two+{number}" for number in range(1, 7)),
        None,
    ]
    assert filled.fetch_window(9, START) is None
    assert filled.fetch_window(2, -1) is None


def test_fetch_has_the_starts_between_its_bounds_in_either_direction(
    filled: WindowStore[int, str],
) -> None:
    for time_from, time_to in product(range(-5, 10), range(-2, 13)):
        wanted = [
            (START + time, value)
            for key, value, time in FIRST + SECOND
            if key == 2 and time_from <= time <= time_to
        ]
        with filled.fetch(2, START + time_from, START + time_to) as found:
            assert list(found) == wanted
        with filled.backward_fetch(2, START + time_from, START + time_to) as found:
            assert list(found) == wanted[::-1]
        assert filled.fetch_list(2, START + time_from, START + time_to) == wanted


@pytest.mark.parametrize(
    ("key_from", "key_to", "time_from", "time_to", "wanted"),
    [
        (0, 1, 0, 3, [(0, 0), (1, 1)]),
        (1, 3, 0, 2, [(1, 1), (2, 2), (3, 2)]),
        (None, 1, 0, 3, [(0, 0), (1, 1)]),
        (3, None, 0, 9, [(3, 2), (4, 4)]),
        (None, None, 4, 5, [(2, 4), (2, 5), (4, 4)]),
        (None, None, 9, 20, []),
        (2, 1, 0, 9, []),
        (0, 4, 5, 4, []),
        (0, 4, -(10**15), -(10**14), []),
        (None, None, -(10**15), -(10**14), []),
    ],
)
def test_ranges_of_keys_and_times_include_their_ends(
    filled: WindowStore[int, str],
    key_from: int | None,
    key_to: int | None,
    time_from: int,
    time_to: int,
    wanted: list[tuple[int, int]],
) -> None:
    values = {(key, time): value for key, value, time in FIRST + SECOND}
    pairs = [(windowed(key, time), values[key, time]) for key, time in wanted]
    bounds = (key_from, key_to, START + time_from, START + time_to)
    with filled.fetch_range(*bounds) as found:
        assert list(found) == pairs
    with filled.backward_fetch_range(*bounds) as found:
        assert list(found) == pairs[::-1]


def test_all_windows_come_by_segment_then_key_then_time(filled: WindowStore[int, str]) -> None:
    first_segment = [(0, 0), (1, 1), (2, 2), (2, 3), (3, 2)]
    second_segment = [(2, 4), (2, 5), (2, 6), (2, 7), (2, 8), (4, 4)]
    wanted = [windowed(key, time) for key, time in first_segment + second_segment]
    assert [key for key, _ in filled.all()] == wanted
    assert [key for key, _ in filled.backward_all()] == wanted[::-1]
    assert [key for key, _ in filled.fetch_all(0, MAX)] == wanted
    assert [key for key, _ in filled.fetch_all(START + 4, START + 5)] == [
        windowed(2, 4),
        windowed(2, 5),
        windowed(4, 4),
    ]
    assert [key for key, _ in filled.backward_fetch_all(START, START + 1)] == [
        windowed(1, 1),
        windowed(0, 0),
    ]


def test_state_topic_has_one_record_per_window(
    backend: Backend, counts: WindowStore[int, str]
) -> None:
    counts.put(1, "one", 60_005)
    counts.put(1, "one v2", 60_005)
    (key,) = backend.store.uncommitted
    assert key == (1).to_bytes(4, "big") + (60_005).to_bytes(8, "big") + bytes(4)
    assert list(counts.fetch(1, 0, MAX)) == [(60_005, "one v2")]


def test_null_deletes_a_window(counts: WindowStore[int, str]) -> None:
    for key, value, time in FIRST:
        counts.put(key, value, START + time)
    counts.put(1, None, START + 1)
    counts.put(3, None, START + 2)
    counts.put(9, None, START + 2)
    assert [value for _, value in counts.all()] == ["zero", "two", "four"]
    assert counts.fetch_window(1, START + 1) is None


def test_iterator_that_was_closed_early_hides_nothing(filled: WindowStore[int, str]) -> None:
    with filled.all() as found:
        next(found)
    with pytest.raises(StateStoreError):
        next(found)
    assert len(list(filled.all())) == 11


def test_windows_that_are_put_during_a_fetch_do_not_show(counts: WindowStore[int, str]) -> None:
    counts.put(1, "one", START)
    with counts.all() as found:
        counts.put(1, "two", START + 10)  # in the next segment
        counts.put(0, "three", START)
        assert [value for _, value in found] == ["one"]


def test_iterators_are_closed_with_the_store(
    backend: Backend, filled: WindowStore[int, str]
) -> None:
    fetched, everything = filled.fetch(2, 0, MAX), filled.all()
    next(fetched)
    backend.store.close()
    for found in (fetched, everything):
        with pytest.raises(StateStoreError):
            next(found)


def test_keys_that_begin_like_others_are_kept_apart(backend: Backend) -> None:
    store = backend.build(RAW)
    inside = b"\x00" + (1).to_bytes(8, "big")
    puts = [(b"\x00", 0), (b"\x00\x00", 0), (b"\x00\x00\x00", 0), (inside, 0), (b"", 0), (b"", 9)]
    puts += [(b"\x00", 1), (b"\x00\x00", 1), (b"\x00", 59_999), (b"\x00\x00", 60_000)]
    for number, (key, time) in enumerate(puts):
        store.put(key, f"{number}", time)
    for wanted in {key for key, _ in puts}:
        times = sorted(time for key, time in puts if key == wanted)
        assert [start for start, _ in store.fetch(wanted, 0, MAX)] == times
        assert [key.window.start for key, _ in store.fetch_range(wanted, wanted, 0, MAX)] == times
    in_range = {(key.key, key.window.start) for key, _ in store.fetch_range(b"", b"\x00", 0, MAX)}
    assert in_range == {(b"", 0), (b"", 9), (b"\x00", 0), (b"\x00", 1), (b"\x00", 59_999)}
    # The times of the empty key follow this one.
    behind = store.fetch_range(b"", bytes(9), 9, 9)
    assert [(key.key, key.window.start) for key, _ in behind] == [(b"", 9)]


def test_largest_times_and_retentions_are_no_special_case(backend: Backend) -> None:
    long = 0x7A00000000000000
    store = backend.build(
        stores.window("long", serdes.string, serdes.string, retention_ms=long, window_size_ms=long)
    )
    for key, time in (("a", 0), ("aa", 0), ("a", 1), ("aa", 1), ("a", long - 1), ("a", MAX)):
        store.put(key, key, time)
    assert [start for start, _ in store.fetch("a", 0, MAX)] == [long - 1, MAX]
    assert [start for start, _ in store.fetch_list("a", 0, MAX)] == [long - 1, MAX]
    assert store.fetch_window("a", 1) is None


# Expiry.


def test_window_expires_a_retention_after_its_start(counts: WindowStore[int, str]) -> None:
    counts.put(1, "first", 0)
    counts.put(1, "second", 1)
    counts.put(2, "other", RETENTION - 1)
    assert [value for _, value in counts.fetch(1, 0, MAX)] == ["first", "second"]
    counts.put(2, "other", RETENTION)
    assert [value for _, value in counts.fetch(1, 0, MAX)] == ["second"]
    assert [value for _, value in counts.backward_fetch(1, 0, MAX)] == ["second"]
    assert [value for _, value in counts.fetch_list(1, 0, MAX)] == ["second"]
    assert [key.window.start for key, _ in counts.all()] == [1, RETENTION - 1, RETENTION]
    assert [value for _, value in counts.fetch_range(1, 1, 0, 10)] == ["second"]
    assert (counts.fetch_window(1, 0), counts.fetch_window(1, 1)) == (None, "second")


def test_late_windows_are_dropped_and_counted(
    backend: Backend, counts: WindowStore[int, str]
) -> None:
    counts.put(1, "initial", 2 * RETENTION)
    counts.put(1, "late", 0)
    counts.put(1, "late", RETENTION)
    counts.put(1, None, RETENTION)
    counts.put(1, "on time", RETENTION + 1)
    assert counts.dropped == 3
    assert len(backend.store.uncommitted) == 2
    assert [value for _, value in counts.all()] == ["on time", "initial"]


def test_range_of_times_that_expired_is_empty(counts: WindowStore[int, str]) -> None:
    counts.put(1, "one", 5 * RETENTION)
    with counts.fetch_range(1, 10, 0, 10) as found:
        assert list(found) == []
    assert list(counts.fetch(1, 0, 10)) == []


def physical(backend: Backend) -> list[int]:
    with backend.store.scan(b"", None) as entries:
        return [layout.window_start(key) for key, _ in entries]


def test_segments_that_expired_are_dropped_once_that_is_committed(
    backend: Backend, counts: WindowStore[int, str]
) -> None:
    for time in (0, MIN_SEGMENT_MS - 1, MIN_SEGMENT_MS):
        counts.put(1, "old", time)
    backend.store.commit(1)
    late = RETENTION + MIN_SEGMENT_MS + 10
    counts.put(1, "new", late)
    counts.put(1, "new", late + 1)
    assert physical(backend) == [0, MIN_SEGMENT_MS - 1, MIN_SEGMENT_MS, late, late + 1]
    backend.store.rollback()
    assert [start for start, _ in counts.fetch(1, 0, MAX)] == physical(backend)
    counts.put(1, "new", late)
    backend.store.commit(2)
    counts.put(1, "new", late + 1)
    assert physical(backend) == [MIN_SEGMENT_MS, late, late + 1]
    # One deletion says so to copies of the store, however many entries are gone.
    deleted = [key for key, value in backend.store.uncommitted.items() if value is None]
    assert deleted == [layout.dropped_mark("window", MIN_SEGMENT_MS)]


def test_windows_that_expire_stay_in_an_iterator_that_is_open(
    backend: Backend, counts: WindowStore[int, str]
) -> None:
    counts.put(1, "a", 0)
    counts.put(1, "b", 1)
    backend.store.commit(1)
    with counts.fetch(1, 0, 50) as found:
        assert next(found) == (0, "a")
        counts.put(1, "far", 10 * RETENTION)
        backend.store.commit(2)
        counts.put(1, "far", 10 * RETENTION)  # drops the segment
        assert list(found) == [(1, "b")]
    assert physical(backend) == [10 * RETENTION]


def test_stream_time_lasts_over_a_restart(backend: Backend, counts: WindowStore[int, str]) -> None:
    counts.put(1, "old", 5)
    counts.put(1, "new", RETENTION + 1)
    backend.store.commit(1)
    again = DEFINITION.build(backend.reopen())
    assert isinstance(again, WindowStore)
    assert [start for start, _ in again.fetch(1, 0, MAX)] == [5, RETENTION + 1]
    again.put(1, "late", 1)
    assert again.dropped == 1


def test_stream_time_of_a_record_that_fails_is_undone(
    backend: Backend, counts: WindowStore[int, str]
) -> None:
    counts.put(1, "old", 5)
    backend.store.mark()
    counts.put(1, "far", 10 * RETENTION)
    assert counts.fetch_window(1, 5) is None
    backend.store.undo()
    assert counts.fetch_window(1, 5) == "old"
    counts.put(1, "again", 6)
    assert counts.dropped == 0


# Duplicates.


def test_duplicates_are_all_kept(backend: Backend) -> None:
    store = backend.build(DUPLICATES)
    for value in ("a", "b"):
        store.put(1, value, START)
    backend.store.commit(1)
    store.put(1, "a", START)
    store.put(1, None, START)
    store.put(2, "x", START)
    store.put(1, "later", START + 1)
    assert [value for _, value in store.fetch(1, START, START)] == ["a", "b", "a"]
    assert [value for _, value in store.backward_fetch(1, 0, MAX)] == ["later", "a", "b", "a"]
    assert store.fetch_window(1, START) == "a"
    assert store.fetch_window(3, START) is None
    assert [value for _, value in store.fetch_range(1, 2, START, START)] == ["a", "b", "a", "x"]


def test_duplicates_after_a_restart_and_a_rollback_replace_nothing(backend: Backend) -> None:
    store = backend.build(DUPLICATES)
    store.put(1, "a", START)
    backend.store.commit(1)
    store.put(1, "b", START)
    backend.store.rollback()
    store.put(1, "c", START)
    backend.store.commit(2)
    again: Any = DUPLICATES.build(backend.reopen())
    again.put(1, "d", START)
    assert [value for _, value in again.fetch(1, 0, MAX)] == ["a", "c", "d"]


@pytest.mark.parametrize("is_committed", [False, True])
def test_duplicates_are_read_without_the_empty_segments_before_them(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    """A store that follows a step has all segments since 1970 until the step knows its time."""
    store = backend.build(DUPLICATES)
    store.follow(-1)
    key, now = serdes.int32.serialize(1), 1_767_225_600_000
    assert store.fetch_numbered(key) == []
    store.put(1, "a", now)
    store.put(2, "other", now + 10 * RETENTION)
    store.put(1, "b", now)
    store.put(1, "c", now + 20 * RETENTION)
    if is_committed:
        backend.store.commit(1)
    reads, read = [], backend.store.range

    def counted(low: bytes, high: bytes) -> list[tuple[bytes, bytes]]:
        reads.append(low)
        assert len(reads) <= 3, "it reads empty segments"
        return read(low, high)

    monkeypatch.setattr(backend.store, "range", counted)
    assert store.fetch_numbered(key) == [
        (now, 0, b"a"),
        (now, 1, b"b"),
        (now + 20 * RETENTION, 0, b"c"),
    ]


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.put(None, "x", 0),
        lambda store: store.fetch(None, 0, 1),
        lambda store: store.backward_fetch(None, 0, 1),
        lambda store: store.fetch_window(None, 0),
        lambda store: store.put(1, "x", -1),
        lambda store: store.put(1, "x", MAX + 1),
    ],
)
def test_null_keys_and_impossible_times_are_refused(
    counts: WindowStore[int, str], use: Callable[[WindowStore[Any, Any]], Any]
) -> None:
    with pytest.raises(StateStoreError, match='"counts"'):
        use(counts)


def test_range_of_keys_that_ends_before_it_begins_is_logged(
    filled: WindowStore[int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(filled.fetch_range(-1, 1, 0, MAX)) == []
    assert "range of keys is empty" in capsys.readouterr().out
