"""Windows that are also in memory are those of the store, one record at a time or in batches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline import serdes, stores
from kafka_pipeline.streams.stores import WindowStore
from kafka_pipeline.streams.stores.recent_windows import RecentWindows
from kafka_pipeline.streams.stores.window_batch import WindowBatch, meet
from tests.unit.streams.stores.backends import Backend

RETENTION = 12
LOOKBACK = 4
DEFINITION = stores.window(
    "joins",
    serdes.bytes,
    serdes.bytes,
    retention_ms=RETENTION,
    window_size_ms=1,
    retain_duplicates=True,
)
LONG = b"x" * 300

Row = tuple[bytes, int]
"""Key and time of a record."""

rows = st.lists(
    st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 30)), min_size=1, max_size=8
)
steps = st.lists(
    st.tuples(st.sampled_from(["batch", "batch", "one by one", "commit", "rollback", "time"]), rows)
    | st.tuples(st.sampled_from(["failing batch", "failing record", "clear", "reopen"]), rows),
    min_size=2,
    max_size=14,
)


def value_of(row: Row, number: int) -> bytes:
    return b"%s%d-%d" % (*row, number) + (LONG if number % 3 == 0 else b"")


def joined(side: Any, batch: Sequence[Row]) -> list[Any]:
    """Look up what is around each record, then add the record."""
    found = []
    for number, row in enumerate(batch):
        key, time = row
        found.append([*side.fetch_serialized(key, time - LOOKBACK, time + LOOKBACK)])
        side.put_one_serialized(key, time, value_of(row, number))
    return found


def joined_at_once(recent: RecentWindows, rows: Sequence[Row]) -> list[Any]:
    batch = WindowBatch(recent)
    for key, time in rows:
        batch.expect(key, time - LOOKBACK, time + LOOKBACK)
    batch.load()
    found = joined(batch, rows)
    batch.end()
    return found


def content(store: WindowStore[Any, Any]) -> list[Any]:
    return [(each.key, each.window.start, value) for each, value in store.all()]


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
@given(
    steps=steps,
    limit_bytes=st.sampled_from([2_000, 12_000, 10**9]),
    follows=st.booleans(),
)
def test_what_is_found_and_kept_is_that_of_the_store_alone(
    kind: str,
    steps: list[tuple[str, list[Row]]],
    limit_bytes: int,
    follows: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    backend = Backend(kind, tmp_path_factory.mktemp("recent"))
    alone = Backend("memory", Path())
    store: Any = backend.build(DEFINITION)
    expected: Any = alone.build(DEFINITION)
    both = (store, expected)
    backend.store.caches.limit_bytes = limit_bytes
    recent = RecentWindows(store, LOOKBACK)
    if follows:
        for each in both:
            each.follow(0)
    for number, (action, batch) in enumerate(steps, 1):
        for each in (*both, backend.store, alone.store):
            each.mark()
        match action:
            case "batch" | "failing batch":
                assert joined_at_once(recent, batch) == joined(expected, batch)
            case "one by one" | "failing record":
                assert joined(recent, batch) == joined(expected, batch)
            case "time" if follows:
                for each in both:
                    each.go_on(batch[0][1])
            case "clear":
                recent.clear()
            case "commit":
                backend.store.commit(number)
                alone.store.commit(number)
            case "rollback":
                backend.store.rollback()
                alone.store.rollback()
            case "reopen" if not follows:
                store = DEFINITION.build(backend.reopen())
                expected = DEFINITION.build(alone.reopen())
                both = (store, expected)
                backend.store.caches.limit_bytes = limit_bytes
                recent = RecentWindows(store, LOOKBACK)
        if action.startswith("failing"):
            for each in (backend.store, alone.store):
                each.undo()
            for each in both:
                each.back_to_mark()
        assert content(store) == content(expected)
        assert store.dropped == expected.dropped
    backend.close()


@given(
    batches=st.lists(
        st.tuples(
            st.sampled_from(["keep", "keep", "commit", "undo"]),
            st.lists(
                st.tuples(
                    st.integers(0, 1),
                    st.sampled_from([b"a", b"b"]),
                    st.integers(0, 9) | st.just(30),
                ),
                min_size=1,
                max_size=8,
            ),
        ),
        min_size=1,
        max_size=6,
    ),
    before_ms=st.tuples(st.integers(-2, 6), st.integers(-2, 6)),
    after_ms=st.tuples(st.integers(-2, 6), st.integers(-2, 6)),
    later=st.booleans(),
)
def test_records_of_two_sides_meet_as_one_after_the_other(
    batches: list[tuple[str, list[tuple[int, bytes, int]]]],
    before_ms: tuple[int, int],
    after_ms: tuple[int, int],
    later: bool,
) -> None:
    backends = [Backend("memory", Path()) for _ in range(4)]
    built: list[Any] = [backend.build(DEFINITION) for backend in backends]
    sides, expected = [RecentWindows(store, 6) for store in built[:2]], built[2:]
    for number, (action, batch) in enumerate(batches):
        for each in backends:
            each.store.mark()
        start = 7 * number if later else 0
        records = [
            (side, key, start + time, b"%d" % place)
            for place, (side, key, time) in enumerate(batch)
        ]
        one_by_one = []
        for place, (side, key, time, value) in enumerate(records):
            first, last = time - before_ms[side], time + after_ms[side]
            others = expected[1 - side].fetch_serialized(key, first, last)
            one_by_one += [(place, *each) for each in others]
            expected[side].put_one_serialized(key, time, value)
        together = [WindowBatch(side) for side in sides]
        for side, key, time, _ in records:
            together[1 - side].expect(key, time - before_ms[side], time + after_ms[side])
        for side_batch in together:
            side_batch.load()
        assert meet(together, records, before_ms, after_ms) == one_by_one
        for side_batch in together:
            side_batch.end()
        for each in backends:
            if action == "commit":
                each.store.commit(number)
            elif action == "undo":
                each.store.undo()
        assert [content(store) for store in built[:2]] == [content(store) for store in expected]
        assert [store.stream_time for store in built[:2]] == [s.stream_time for s in expected]


def test_what_was_put_is_found_without_a_look_into_the_store(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = backend.build(DEFINITION)
    recent = RecentWindows(store, LOOKBACK)
    recent.put_one_serialized(b"a", 5, b"first")
    joined_at_once(recent, [(b"a", 6), (b"b", 7)])
    backend.store.commit(1)
    monkeypatch.delattr(WindowStore, "fetch_serialized")
    monkeypatch.delattr(WindowStore, "next_number")
    assert [[time for time, _ in each] for each in joined_at_once(recent, [(b"a", 7)])] == [[5, 6]]
    assert [time for time, _ in recent.fetch_serialized(b"a", 3, 9)] == [5, 6, 7]


def test_memory_is_limited_to_what_may_be_looked_up(backend: Backend) -> None:
    store = backend.build(DEFINITION)
    backend.store.caches.limit_bytes = 8 * 4_000
    recent = RecentWindows(store, LOOKBACK)
    for time in range(100):
        recent.put_one_serialized(b"key", time, b"value")
        assert recent.size <= 4_000
    entries, complete_after = recent.follow()
    oldest = entries[b"key"][0][0]
    assert complete_after < oldest
    assert 99 - oldest >= LOOKBACK


def test_memory_is_free_at_once_though_the_task_rests(backend: Backend) -> None:
    """Other stores clear it while memory is short."""
    recent = RecentWindows(backend.build(DEFINITION), LOOKBACK)
    value = bytes(1_000_000)
    recent.put_one_serialized(b"key", 0, value)
    backend.store.commit(1)
    held = sys.getrefcount(value)
    recent.clear()
    assert sys.getrefcount(value) == held - 1


def test_batch_in_which_memory_is_cleared_ends_as_it_began(backend: Backend) -> None:
    recent = RecentWindows(backend.build(DEFINITION), LOOKBACK)
    recent.put_one_serialized(b"key", 1, b"first")
    batch = WindowBatch(recent)
    batch.expect(b"key", 0, 9)
    batch.load()
    recent.clear()
    batch.put_one_serialized(b"key", 2, b"second")
    assert [time for time, _ in batch.fetch_serialized(b"key", 0, 9)] == [1, 2]
    batch.end()
    assert [time for time, _ in recent.fetch_serialized(b"key", 0, 9)] == [1, 2]


def test_memory_holds_nothing_if_the_window_is_larger_than_the_limit(backend: Backend) -> None:
    store = backend.build(DEFINITION)
    backend.store.caches.limit_bytes = 8 * 1_000
    recent = RecentWindows(store, 1_000)
    for time in range(20):
        recent.put_one_serialized(b"key", time, b"value")
        assert recent.size <= 1_000
    assert [time for time, _ in recent.fetch_serialized(b"key", 0, 100)] == [*range(8, 20)]
