"""`KnownWindows` has the results of a window store that is read and written record by record."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_pipeline import serdes, stores
from kafka_pipeline.streams.stores import WindowStore
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from kafka_pipeline.streams.stores.known_windows import KnownWindows
from kafka_pipeline.streams.stores.segments import MIN_SEGMENT_MS
from tests.unit.streams.stores.backends import Backend

RETENTION = 2 * MIN_SEGMENT_MS
DEFINITION = stores.window(
    "windows", serdes.bytes, serdes.bytes, retention_ms=RETENTION, window_size_ms=10
)
KEYS = [b"a", b"ab", b"b"]
SPAN = MIN_SEGMENT_MS // 4

Windows = WindowStore[bytes, bytes]


@pytest.fixture
def store(backend: Backend) -> Windows:
    windows: Windows = backend.build(DEFINITION)
    return windows


@pytest.fixture
def plain() -> Iterator[Windows]:
    """A store of its own, for what is expected."""
    definition = replace(DEFINITION, persistent=False)
    opened = definition.open(Path(), {})
    windows = definition.build(opened)
    assert isinstance(windows, WindowStore)
    yield windows
    opened.close()


def bytes_of(store: Windows) -> BytesStore:
    assert isinstance(store._store, BytesStore)
    return store._store


def content(store: Windows) -> dict[bytes, bytes]:
    return dict(bytes_of(store).entries())


@pytest.mark.parametrize("follows", [False, True], ids=["", "follows a step"])
@pytest.mark.parametrize("seed", range(10))
def test_results_are_those_of_the_store(
    seed: int, follows: bool, store: Windows, plain: Windows
) -> None:
    """Puts, deletions, late puts, commits, undone writes, and writes of others."""
    chance = random.Random(seed)
    known, now = KnownWindows(store), 0
    if follows:
        store.follow(0)
        plain.follow(0)
    for offset in range(60):
        for each in (store, plain):
            bytes_of(each).mark()
            each.mark()
        known.begin()
        for _ in range(chance.randrange(1, 5)):
            key, now = chance.choice(KEYS), now + chance.randrange(SPAN)
            at = max(0, now - chance.choice([0, 0, 0, SPAN, 20 * SPAN]))
            first = max(0, at - 2 * SPAN)
            windows = known.of_key(key, first)
            expected = plain.fetch_list(key, first, at)
            found = windows.between(first, at)
            assert [(start, windows.get(start)) for start in found] == expected
            assert windows.has(at) == (plain.fetch_window(key, at) is not None)
            value = chance.choice([None, b"%d" % now, b"%d" % now])
            windows.put(at, value)
            plain.put(key, value, at)
            if chance.random() < 0.3:
                known.write()
                assert content(store) == content(plain)
        action = chance.choice(["", "", "undo", "commit", "roll back", "other", "go on"])
        if action != "undo":
            known.end()
            assert content(store) == content(plain)
        assert store.dropped == plain.dropped
        for each in (store, plain):
            match action:
                case "undo":
                    bytes_of(each).undo()
                    each.back_to_mark()
                case "commit":
                    bytes_of(each).commit(offset)
                case "roll back":
                    bytes_of(each).rollback()
                case "other":
                    each.put(KEYS[0], b"other", now)
                case "go on" if follows:
                    each.go_on(now)


def test_windows_of_a_key_are_searched_for_once(store: Windows) -> None:
    known, searches = KnownWindows(store), []
    search = store.fetch_serialized

    def counted(*given: object) -> list[tuple[int, bytes]]:
        searches.append(given)
        return search(*given)  # type: ignore[arg-type]

    store.fetch_serialized = counted  # type: ignore[method-assign, assignment]
    for at in range(5):
        known.begin()
        known.of_key(b"a", at).put(at, b"x")
        known.end()
        bytes_of(store).commit(at)
    assert len(searches) == 1


def test_windows_are_found_although_another_thread_has_emptied_the_cache(store: Windows) -> None:
    known = KnownWindows(store)
    known.begin()
    windows = known.of_key(b"a", 0)
    windows.put(1, b"x")
    known.clear()
    assert list(known.of_key(b"a", 0).between(0, 5)) == [1]
    known.end()
    known.clear()
    known.begin()
    assert list(known.of_key(b"a", 0).between(0, 5)) == [1]


def test_windows_claim_what_they_take(store: Windows) -> None:
    known = KnownWindows(store)
    for at in range(200):
        known.begin()
        windows = known.of_key(b"a", max(0, at - 5))
        for start in range(max(0, at - 5), at):
            windows.put(start, b"x" * (at % 7))
        if at % 3 == 0:
            windows.put(at - 2 if at > 1 else 0, None)
        known.end()
        assert known.measure() <= known.size <= known.measure() + 1000
