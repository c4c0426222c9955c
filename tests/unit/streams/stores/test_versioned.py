"""Versioned stores: validity, versions that come late, history that ends (KIP-889)."""

from __future__ import annotations

import pytest

from kafka_pipeline import serdes, stores
from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.stores import (
    PUT_RETURN_CODE_NOT_PUT,
    PUT_RETURN_CODE_VALID_TO_UNDEFINED,
    VersionedKeyValueStore,
    VersionedRecord,
)
from kafka_pipeline.streams.stores.bytes_store import Entry
from kafka_pipeline.streams.stores.iterators import StoreIterator
from kafka_pipeline.streams.stores.layout import version_key, version_time
from kafka_pipeline.streams.stores.memory import MemoryStore
from tests.unit.streams.stores.backends import Backend

HISTORY = 300_000
NOW = 100_000
LATEST = PUT_RETURN_CODE_VALID_TO_UNDEFINED

DEFINITION = stores.versioned_key_value(
    "prices", serdes.string, serdes.string, history_retention_ms=HISTORY
)


@pytest.fixture
def prices(backend: Backend) -> VersionedKeyValueStore[str, str]:
    store: VersionedKeyValueStore[str, str] = backend.build(DEFINITION)
    return store


# A put is (value, time, what it returns); an answer is (time asked for, value, since, until), or
# (time asked for,) where there is none.
Put = tuple[str | None, int, int]
Answer = tuple[int] | tuple[int, str, int, int | None]

LATE_NULLS: list[Put] = [
    (None, NOW - 2, NOW),
    (None, NOW - 1, NOW),
    (None, NOW - 4, NOW - 2),
    ("v5", NOW - 5, NOW - 4),
    ("v3", NOW - 3, NOW - 2),
    (None, NOW - 6, NOW - 5),
]
AFTER_LATE_NULLS: list[Answer] = [
    (NOW - 1,),
    (NOW - 2,),
    (NOW - 3, "v3", NOW - 3, NOW - 2),
    (NOW - 4,),
    (NOW - 5, "v5", NOW - 5, NOW - 4),
    (NOW - 6,),
]
LATE_VALUES: list[Put] = [
    ("v2", NOW - 2, NOW),
    ("v1", NOW - 1, NOW),
    ("v4", NOW - 4, NOW - 2),
]
AFTER_LATE_VALUES: list[Answer] = [
    (NOW - 1, "v1", NOW - 1, NOW),
    (NOW - 2, "v2", NOW - 2, NOW - 1),
    (NOW - 3, "v4", NOW - 4, NOW - 2),
    (NOW - 5,),
]

CASES: dict[str, tuple[list[Put], list[Answer]]] = {
    "latest": (
        [("v", NOW, LATEST), ("v2", NOW + 1, LATEST)],
        [
            (NOW - 1,),
            (NOW, "v", NOW, NOW + 1),
            (NOW + 1, "v2", NOW + 1, None),
            (NOW + 2, "v2", NOW + 1, None),
        ],
    ),
    "null as latest": (
        [(None, NOW, LATEST), (None, NOW + 1, LATEST)],
        [(NOW,), (NOW + 1,), (NOW + 2,)],
    ),
    "older than a value": (
        [("v", NOW, LATEST), *LATE_VALUES],
        [(NOW, "v", NOW, None), *AFTER_LATE_VALUES],
    ),
    "older than a deletion": ([(None, NOW, LATEST), *LATE_VALUES], [(NOW,), *AFTER_LATE_VALUES]),
    "older deletions before a value": (
        [("v", NOW, LATEST), *LATE_NULLS],
        [(NOW, "v", NOW, None), *AFTER_LATE_NULLS],
    ),
    "older deletions before a deletion": (
        [(None, NOW, LATEST), *LATE_NULLS],
        [(NOW,), *AFTER_LATE_NULLS],
    ),
    "one timestamp again and again": (
        [
            ("replaced", NOW, LATEST),
            ("b", NOW, LATEST),
            (None, NOW, LATEST),
            (None, NOW, LATEST),
            ("c", NOW, LATEST),
        ],
        [(NOW - 1,), (NOW, "c", NOW, None)],
    ),
    "older timestamps again": (
        [
            ("replaced", NOW + 20, LATEST),
            (None, NOW - 10, NOW + 20),
            ("replaced", NOW - 10, NOW + 20),
            (None, NOW - 10, NOW + 20),
            ("replaced", NOW + 5, NOW + 20),
            ("vp5", NOW + 5, NOW + 20),
            (None, NOW + 10, NOW + 20),
            ("vn5", NOW - 5, NOW + 5),
            (None, NOW + 20, LATEST),
        ],
        [
            (NOW + 30,),
            (NOW + 15,),
            (NOW + 6, "vp5", NOW + 5, NOW + 10),
            (NOW, "vn5", NOW - 5, NOW + 5),
            (NOW - 8,),
        ],
    ),
    "empty values are not deletions": (
        [(None, NOW + 20, LATEST), ("", NOW + 5, NOW + 20), (None, NOW + 10, NOW + 20)],
        [(NOW + 15,), (NOW + 6, "", NOW + 5, NOW + 10), (NOW,)],
    ),
}


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize(("puts", "answers"), CASES.values(), ids=CASES)
def test_every_version_holds_until_the_next_one(
    backend: Backend,
    prices: VersionedKeyValueStore[str, str],
    puts: list[Put],
    answers: list[Answer],
    is_committed: bool,
) -> None:
    for value, time, returned in puts:
        assert prices.put("k", value, time) == returned
        if is_committed:
            backend.store.commit(1)
    for answer in answers:
        wanted = VersionedRecord(*answer[1:]) if len(answer) > 1 else None
        assert prices.get("k", answer[0]) == wanted
    latest = prices.get("k", NOW + HISTORY)
    assert prices.get("k") == latest


def test_delete_returns_what_held_at_that_time(prices: VersionedKeyValueStore[str, str]) -> None:
    for value, time in (("vp20", 20), ("vp10", 10), ("v0", 0), ("v8", 8)):
        prices.put("k", value, NOW + time)
    assert prices.delete("k", NOW + 5) == ("v0", NOW, NOW + 8)
    assert prices.delete("k", NOW + 10) == ("vp10", NOW + 10, NOW + 20)
    assert prices.delete("k", NOW + 10) is None
    assert prices.delete("k", NOW + 25) == ("vp20", NOW + 20, None)
    assert prices.get("k") is None


def test_version_older_than_the_history_is_not_put(
    prices: VersionedKeyValueStore[str, str],
) -> None:
    prices.put("k", "v", HISTORY + 10)
    assert prices.put("k1", "v1", 10) == LATEST
    assert prices.put("k2", "v2", 9) == PUT_RETURN_CODE_NOT_PUT
    assert prices.get("k1") == ("v1", 10, None)
    assert prices.get("k2") is None
    assert prices.dropped == 1


def test_deletion_older_than_the_history_deletes_nothing(
    prices: VersionedKeyValueStore[str, str],
) -> None:
    prices.put("k1", "v1", 1)
    prices.put("k2", "v2", 1)
    prices.put("other", "v", HISTORY + 10)
    assert prices.delete("k1", 10) == ("v1", 1, None)
    assert prices.get("k1") is None
    assert prices.delete("k2", 9) is None
    assert prices.get("k2") == ("v2", 1, None)
    assert prices.dropped == 1


def test_time_before_the_history_has_no_answer_but_the_latest(
    prices: VersionedKeyValueStore[str, str],
) -> None:
    prices.put("k", "old", 0)
    prices.put("k", "new", NOW)
    prices.put("other", "v", HISTORY + NOW - 1)
    assert prices.get("k", NOW - 1) == ("old", 0, NOW)
    prices.put("other", "v", HISTORY + NOW)
    assert prices.get("k", NOW - 1) is None
    prices.put("other", "v", HISTORY + NOW + 10)
    assert prices.get("k", NOW + 1) == ("new", NOW, None)
    assert prices.get("k", -1) is None


def test_history_of_nothing_keeps_the_latest(backend: Backend) -> None:
    store = backend.build(
        stores.versioned_key_value("latest", serdes.string, serdes.string, history_retention_ms=0)
    )
    assert store.put("k", "v1", 10) == LATEST
    assert store.put("k", "v2", 11) == LATEST
    assert store.put("k", "v0", 10) == PUT_RETURN_CODE_NOT_PUT
    assert store.put("k", "v3", 11) == LATEST
    assert store.get("k") == store.get("k", 11) == ("v3", 11, None)
    assert store.get("k", 10) is None


VERSIONS = (("v1", -30), ("v2", -25), (None, -20), (None, -15), ("v3", -10), ("v4", -5))


@pytest.mark.parametrize(
    ("time_from", "time_to", "wanted"),
    [
        (-40, -35, []),
        (-30, -5, ["v1", "v2", "v3", "v4"]),
        (-NOW * 3, HISTORY, ["v1", "v2", "v3", "v4"]),
        (-4, 0, ["v4"]),
        (-5, -5, ["v4"]),
        (-31, -21, ["v1", "v2"]),
        (-24, -11, ["v2"]),
        (-11, -4, ["v3", "v4"]),
        (-26, -5, ["v1", "v2", "v3", "v4"]),
        (-15, -10, ["v3"]),
        (-20, -11, []),
    ],
)
def test_versions_of_a_time_come_oldest_first(
    prices: VersionedKeyValueStore[str, str], time_from: int, time_to: int, wanted: list[str]
) -> None:
    for value, time in VERSIONS:
        prices.put("k", value, NOW + time)
    prices.put("k\x00", "another key", NOW - 12)
    with prices.get_versions("k", NOW + time_from, NOW + time_to) as found:
        assert [record.value for record in found] == wanted
    with prices.get_versions("k") as found:
        assert list(found) == [
            ("v1", NOW - 30, NOW - 25),
            ("v2", NOW - 25, NOW - 20),
            ("v3", NOW - 10, NOW - 5),
            ("v4", NOW - 5, None),
        ]


def test_versions_before_the_history_are_not_returned(
    prices: VersionedKeyValueStore[str, str],
) -> None:
    prices.put("k", "v0", 0)
    prices.put("k", "v1", 10)
    prices.put("k", "v2", 20)
    prices.put("other", "v", HISTORY + 15)
    with prices.get_versions("k", 0, 12) as found:
        assert list(found) == []
    with prices.get_versions("k", 0, 19) as found:
        assert [record.value for record in found] == ["v1"]
    prices.put("other", "v", HISTORY + 25)
    with prices.get_versions("k", 0, 22) as found:
        assert [record.value for record in found] == ["v2"]


def test_keys_that_begin_like_others_are_kept_apart(backend: Backend) -> None:
    store = backend.build(
        stores.versioned_key_value("raw", serdes.bytes, serdes.string, history_retention_ms=HISTORY)
    )
    time = (NOW).to_bytes(8, "big")
    for number, key in enumerate((b"", b"k", b"k" + time, b"k\x00", b"k" + time + time)):
        store.put(key, f"{number}", NOW + number)
    assert [store.get(key).value for key in (b"", b"k", b"k" + time, b"k\x00")] == list("0123")
    assert store.get(b"k", NOW) is None
    assert store.get(b"k", NOW + 9) == ("1", NOW + 1, None)
    assert store.put(b"k", "late", NOW - 5) == NOW + 1


def test_other_keys_that_begin_with_a_key_are_not_read_with_it() -> None:
    ranges: list[tuple[bytes, bytes | None]] = []

    class Noting(MemoryStore):
        def scan(
            self, low: bytes, high: bytes | None, reverse: bool = False
        ) -> StoreIterator[Entry]:
            ranges.append((low, high))
            return super().scan(low, high, reverse)

        def range(self, low: bytes, high: bytes) -> list[Entry]:
            ranges.append((low, high))
            return super().range(low, high)

    store = VersionedKeyValueStore(
        "v", Noting(version_time), serdes.string, serdes.string, history_retention_ms=HISTORY
    )
    for key in ("1", "10", "123"):
        store.put(key, "v", NOW)
    others = [version_key(key, NOW) for key in (b"10", b"123")]
    ranges.clear()
    store.get("1")
    store.get("1", NOW)
    store.get_versions("1").close()
    store.get_serialized(b"1", 0, NOW)
    assert len(ranges) == 4
    for low, high in ranges:
        assert not any(low <= other and (high is None or other < high) for other in others)


def test_history_that_ended_leaves_store_and_state_topic(
    backend: Backend, prices: VersionedKeyValueStore[str, str]
) -> None:
    for time in range(0, 50, 10):
        prices.put("k", f"v{time}", time)
    prices.put("idle", "a", 1)
    prices.put("idle", "b", 2)
    prices.put("deleted", "a", 1)
    prices.put("deleted", None, 2)
    backend.store.commit(1)
    for number in range(20):
        prices.put("other", "v", 2 * HISTORY + number)
    removed = {key for key, value in backend.store.uncommitted.items() if value is None}
    assert {key[:-8] for key in removed} == {b"k", b"idle", b"deleted"}
    backend.store.commit(2)
    with backend.store.scan(b"", None) as entries:
        left = [(key[:-8], int.from_bytes(key[-8:], "big")) for key, _ in entries]
    assert left[:2] == [(b"idle", 2), (b"k", 40)]
    assert {key for key, _ in left[2:]} == {b"other"}
    assert prices.get("k") == ("v40", 40, None)


def test_stream_time_is_turned_back_by_a_rollback_and_lasts_over_a_restart(
    backend: Backend, prices: VersionedKeyValueStore[str, str]
) -> None:
    start = 2 * HISTORY
    prices.put("k", "v", start)
    backend.store.commit(1)
    prices.put("k", "w", start + 2 * HISTORY)
    assert prices.put("k", "late", start) == PUT_RETURN_CODE_NOT_PUT
    backend.store.rollback()
    assert prices.put("k", "u", start + 1) == LATEST
    backend.store.commit(2)
    again = DEFINITION.build(backend.reopen())
    assert isinstance(again, VersionedKeyValueStore)
    assert again.put("k", "late", start - HISTORY) == PUT_RETURN_CODE_NOT_PUT
    assert again.get("k", start) == ("v", start, start + 1)


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.put(None, "v", 1),
        lambda store: store.get(None),
        lambda store: store.get(None, 1),
        lambda store: store.delete(None, 1),
        lambda store: store.get_versions(None),
        lambda store: store.put("k", "v", -1),
        lambda store: store.put("k", "v", 2**63),
    ],
)
def test_null_keys_and_impossible_times_are_refused(
    prices: VersionedKeyValueStore[str, str], use: object
) -> None:
    assert callable(use)
    with pytest.raises(StateStoreError, match="prices"):
        use(prices)
