"""Keys and ranges of keys in stores, as rows of JSON, without user code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from kafka_pipeline import serdes, stores
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import StoreBuilder
from kafka_pipeline.streams.stores import lookup as lookups
from kafka_pipeline.streams.stores.committed import ReadLimitError
from kafka_pipeline.streams.stores.key_value import timestamped
from kafka_pipeline.streams.stores.lookup import KeyRange, Row, TimeRange, described, look_up, page
from kafka_pipeline.streams.windowed import Window, Windowed
from tests.tiers import long_but_the_first
from tests.unit.streams.stores.backends import Backend

MINUTE_MS = 60_000
ANY_TIME, ALL = TimeRange(), KeyRange()
WINDOWS = stores.window(
    "w", serdes.string, serdes.int64, retention_ms=4 * MINUTE_MS, window_size_ms=MINUTE_MS
)
SESSIONS = stores.session("s", serdes.string, serdes.int64, retention_ms=4 * MINUTE_MS)
VERSIONS = stores.versioned_key_value(
    "v", serdes.string, serdes.string, history_retention_ms=MINUTE_MS
)
COUNTS = stores.key_value("c", serdes.string, serdes.int64)
STAMPED = stores.timestamped_key_value("t", serdes.int32, serdes.json)


class Looked:
    """A store with committed content, and what queries find in it."""

    def __init__(self, backend: Backend, builder: StoreBuilder[Any, Any]) -> None:
        self.builder = builder
        self.backend = backend
        self.store = backend.build(builder)

    def commit(self) -> Looked:
        self.backend.store.commit(1)
        return self

    def get(
        self, key: bytes, times: TimeRange = ANY_TIME, most: int = 100
    ) -> tuple[list[Row], bool]:
        with self.backend.store.committed(10_000, 60) as view:
            return look_up(self.builder, view, key, times, most)

    def rows(self, wanted: KeyRange = ALL, most: int = 100, entries: int = 10_000) -> Any:
        """Return all rows, page by page; a page has `most` rows, and reads so many entries."""
        found: list[Row] = []
        start: bytes | None = None
        while True:
            with self.backend.store.committed(entries, 60) as view:
                one = page(self.builder, view, wanted, start, most)
            assert len(one.rows) <= most
            found += one.rows
            if one.next is None:
                return found
            assert start is None or one.next > start
            start = one.next


def keys_of(rows: list[Row]) -> list[Any]:
    return [row["key"] for row in rows]


def test_a_key_has_its_committed_value(backend: Backend) -> None:
    looked = Looked(backend, COUNTS)
    looked.store.put("a", 7)
    assert looked.get(b"a") == ([], False)
    looked.commit()
    looked.store.put("a", 8)
    assert looked.get(b"a") == ([{"key": "a", "value": 7}], False)
    assert looked.get(b"b") == ([], False)


def test_a_value_with_a_time_has_it_in_its_row(backend: Backend) -> None:
    looked = Looked(backend, STAMPED)
    looked.store.put(5, stores.ValueAndTimestamp({"n": [1]}, 1234))
    looked.commit()
    row = {"key": 5, "timestamp_ms": 1234, "value": {"n": [1]}}
    assert looked.get(serdes.int32.serialize(5)) == ([row], False)
    assert looked.rows() == [row]


def test_windows_of_the_dsl_have_the_time_of_their_last_record(backend: Backend) -> None:
    serde = timestamped(serdes.json)
    sums = stores.window("w", serdes.string, serde, retention_ms=MINUTE_MS, window_size_ms=10)
    looked = Looked(backend, sums)
    looked.store.put("a", stores.ValueAndTimestamp({"n": 1}, 1234), 1230)
    looked.commit()
    window = {"start_ms": 1230, "end_ms": 1240}
    row = {"key": "a", "window": window, "timestamp_ms": 1234, "value": {"n": 1}}
    assert looked.get(b"a") == ([row], False)
    assert looked.rows() == [row]
    assert described(sums)["values_readable"]


def windows(backend: Backend) -> Looked:
    looked = Looked(backend, WINDOWS)
    for minute in range(6):
        for key in ("a", "ab", "b"):
            looked.store.put(key, minute, minute * MINUTE_MS)
    return looked.commit()


def minutes(rows: list[Row]) -> list[int]:
    assert all(row["window"]["end_ms"] == row["window"]["start_ms"] + MINUTE_MS for row in rows)
    assert all(row["value"] == row["window"]["start_ms"] // MINUTE_MS for row in rows)
    return [row["value"] for row in rows]


def test_windows_of_a_key_are_those_in_a_range_that_have_not_expired(backend: Backend) -> None:
    looked = windows(backend)
    rows, more = looked.get(b"a")
    assert (minutes(rows), more) == ([2, 3, 4, 5], False)
    rows, _ = looked.get(b"a", TimeRange(3 * MINUTE_MS, 4 * MINUTE_MS))
    assert minutes(rows) == [3, 4]
    rows, more = looked.get(b"ab", most=2)
    assert (minutes(rows), more) == ([2, 3], True)


@pytest.mark.parametrize("most", [1, 2, 100])
def test_a_scan_of_windows_gives_each_once_segment_by_segment(backend: Backend, most: int) -> None:
    rows = windows(backend).rows(most=most)
    assert len(rows) == 12
    by_key = {key: minutes([r for r in rows if r["key"] == key]) for key in ("a", "ab", "b")}
    assert by_key == {key: [2, 3, 4, 5] for key in ("a", "ab", "b")}
    # Segments of two minutes, and in each the order of keys.
    assert keys_of(rows[:6]) == ["a", "a", "ab", "ab", "b", "b"]


@pytest.mark.parametrize("wanted", [KeyRange(b"a", b"b"), KeyRange(high=b"ab"), ALL])
def test_windows_of_a_step_that_does_not_know_its_time_are_found(
    backend: Backend, wanted: KeyRange
) -> None:
    """All segments since 1970 are live then: they must not be looked for one by one."""
    looked, now = Looked(backend, WINDOWS), 1_767_225_600_000
    looked.store.follow(-1)
    for number in range(6):
        for key in ("a", "ab"):
            looked.store.put(key, number, now + number * MINUTE_MS)
    looked.commit()
    with backend.store.committed(30, 60) as view:
        rows, more = look_up(WINDOWS, view, b"a", ANY_TIME, 100)
    assert ([row["value"] for row in rows], more) == ([0, 1, 2, 3, 4, 5], False)
    for most in (1, 5, 100):
        rows = looked.rows(wanted, most=most, entries=30)
        assert [(row["key"], row["value"]) for row in rows] == [
            (key, 2 * segment + number)
            for segment in range(3)
            for key in ("a", "ab")
            for number in range(2)
        ]


@pytest.mark.parametrize("builder", [WINDOWS, SESSIONS])
def test_a_key_is_found_among_many_that_begin_with_it(
    backend: Backend, builder: StoreBuilder[Any, Any]
) -> None:
    looked = Looked(backend, builder)
    for number in range(100):
        key = f"1{number:02}" if number else "1"
        if builder is WINDOWS:
            looked.store.put(key, number, MINUTE_MS)
        else:
            looked.store.put(Windowed(key, Window(MINUTE_MS, MINUTE_MS)), number)
    looked.commit()
    with backend.store.committed(5, 60) as view:
        rows, _ = look_up(builder, view, b"1", ANY_TIME, 100)
        assert [row["value"] for row in rows] == [0]
    with backend.store.committed(5, 60) as view:
        found = page(builder, view, KeyRange(low=b"101", high=b"103"), None, 100)
    assert (keys_of(found.rows), found.next) == (["101", "102", "103"], None)


def test_sessions_of_a_key_overlap_the_interval(backend: Backend) -> None:
    looked = Looked(backend, SESSIONS)
    for start, end in ((0, 5), (10, 30), (40, 60)):
        looked.store.put(Windowed("a", Window(start, end)), end)
        looked.store.put(Windowed("b", Window(start, end)), end)
    looked.commit()

    def ends(rows: list[Row]) -> list[int]:
        assert all(row["window"]["end_ms"] == row["value"] for row in rows)
        return [row["value"] for row in rows]

    assert ends(looked.get(b"a")[0]) == [5, 30, 60]
    assert ends(looked.get(b"a", TimeRange(20, 45))[0]) == [30, 60]
    assert ends(looked.rows(KeyRange(low=b"b"))) == [5, 30, 60]
    looked.store.put(Windowed("a", Window(60, 6 * MINUTE_MS)), 0)
    looked.commit()
    assert len(looked.rows()) == 1  # the others have expired


def test_a_versioned_store_gives_the_latest_version_or_that_of_a_time(backend: Backend) -> None:
    looked = Looked(backend, VERSIONS)
    for key in ("a", "b", "gone"):
        looked.store.put(key, f"{key} old", 1000)
        looked.store.put(key, f"{key} new", 2000)
    looked.store.put("gone", None, 3000)
    looked.commit()
    (row,), _ = looked.get(b"a")
    assert row == {"key": "a", "valid_from_ms": 2000, "valid_to_ms": None, "value": "a new"}
    (row,), _ = looked.get(b"a", TimeRange(as_of=1500))
    assert (row["value"], row["valid_to_ms"]) == ("a old", 2000)
    assert looked.get(b"a", TimeRange(as_of=500)) == ([], False)
    assert looked.get(b"gone") == ([], False)
    assert [(row["key"], row["value"]) for row in looked.rows(most=1)] == [
        ("a", "a new"),
        ("b", "b new"),
    ]


RANGES: Mapping[str, tuple[KeyRange, list[str]]] = {
    "all": (KeyRange(), ["a", "ab", "abc", "b", "c"]),
    "from": (KeyRange(low=b"ab"), ["ab", "abc", "b", "c"]),
    "to, included": (KeyRange(high=b"ab"), ["a", "ab"]),
    "both": (KeyRange(low=b"ab", high=b"b"), ["ab", "abc", "b"]),
    "prefix": (KeyRange(prefix=b"ab"), ["ab", "abc"]),
    "prefix and from": (KeyRange(low=b"abb", prefix=b"ab"), ["abc"]),
    "nothing": (KeyRange(low=b"d"), []),
    "turned around": (KeyRange(low=b"b", high=b"a"), []),
}


@pytest.mark.parametrize("most", long_but_the_first([1, 100]))
@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("builder", [COUNTS, WINDOWS, SESSIONS, VERSIONS], ids=lambda b: b.family)
def test_a_scan_gives_a_range_of_keys(
    backend: Backend, builder: StoreBuilder[Any, Any], name: str, most: int
) -> None:
    looked = Looked(backend, builder)
    for key in ("b", "a", "abc", "c", "ab"):
        match builder.family:
            case "key-value":
                looked.store.put(key, 1)
            case "window":
                looked.store.put(key, 1, 0)
            case "session":
                looked.store.put(Windowed(key, Window(0, 1)), 1)
            case _:
                looked.store.put(key, "1", 0)
    looked.commit()
    wanted, keys = RANGES[name]
    assert keys_of(looked.rows(wanted, most)) == keys


def test_a_page_ends_when_it_has_read_as_much_as_it_may(backend: Backend) -> None:
    looked = Looked(backend, WINDOWS)
    for number in range(30):
        looked.store.put(f"k{number:02}", 1, 0)
    looked.commit()
    # Keys that are not wanted are read too, since their times come before those of longer keys.
    assert keys_of(looked.rows(KeyRange(prefix=b"k2"), entries=4)) == [f"k2{n}" for n in range(10)]
    with backend.store.committed(0, 60) as view, pytest.raises(ReadLimitError):
        page(WINDOWS, view, KeyRange(), None, 10)


def test_an_answer_has_a_limited_size_and_always_one_entry(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "MOST_BYTES", 100)
    looked = Looked(backend, stores.key_value("c", serdes.string, serdes.string))
    for key, size in (("a", 40), ("b", 40), ("c", 1000), ("d", 10)):
        looked.store.put(key, "x" * size)
    looked.commit()
    with backend.store.committed(100, 60) as view:
        first = page(looked.builder, view, KeyRange(), None, 100)
        second = page(looked.builder, view, KeyRange(), first.next, 100)
    assert (keys_of(first.rows), keys_of(second.rows)) == (["a", "b"], ["c"])
    assert keys_of(looked.rows()) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("builder", [COUNTS, WINDOWS], ids=lambda b: b.family)
def test_the_place_of_the_next_page_is_short_though_keys_are_long(
    backend: Backend, builder: StoreBuilder[Any, Any]
) -> None:
    """It is part of a request, so a scan ended with an error at a key of 2 kB."""
    looked = Looked(backend, builder)
    keys = [letter + "x" * 10_000 for letter in "abc"]
    for key in keys:
        looked.store.put(*(key, 1) if builder is COUNTS else (key, 1, 0))
    looked.commit()
    with backend.store.committed(100, 60) as view:
        first = page(builder, view, KeyRange(), None, 1)
    assert first.next is not None
    assert len(first.next) < 20
    assert keys_of(looked.rows(most=1)) == keys


def never(_: object) -> Any:
    raise AssertionError("user code was called")


FOREIGN: Serde[Any] = Serde("foreign", never, never)


@pytest.mark.parametrize(
    ("serde", "data", "shown"),
    [
        (serdes.string, b"text", {"value": "text"}),
        (serdes.string, b"\xff", {"value_hex": "ff"}),
        (serdes.integer, b"12", {"value": 12}),
        (serdes.int64, b"\x00", {"value_hex": "00"}),
        (serdes.json, b'{"a":[1.5,null]}', {"value": {"a": [1.5, None]}}),
        (serdes.json(decimals=True), b'{"a":1.50}', {"value_text": '{"a":1.50}'}),
        (serdes.json(decimals=True), b'{"a":', {"value_hex": b'{"a":'.hex()}),
        (serdes.debezium, b'{"op":"r","after":{"a":1.50}}', {"value_text": '{"a":1.50}'}),
        (serdes.debezium_key, b'{"a":0.10}', {"value_text": '{"a":0.10}'}),
        (serdes.float64, b"\x7f\xf8" + bytes(6), {"value": "nan"}),
        (serdes.boolean, b"\x01", {"value": True}),
        (serdes.uuid, str(UUID(int=7)).encode(), {"value": str(UUID(int=7))}),
        (serdes.bytes, "grün\n".encode(), {"value": "grün\n"}),
        (serdes.bytes, b"\x00\x01", {"value_hex": "0001"}),
        (FOREIGN, b'{"n":1}', {"value_text": '{"n":1}'}),
        (FOREIGN, b"\x00", {"value_hex": "00"}),
        (Serde("string", never, never), b"text", {"value_text": "text"}),
    ],
)
def test_only_serdes_of_the_engine_decode(
    serde: Serde[Any], data: bytes, shown: Row, backend: Backend
) -> None:
    looked = Looked(backend, stores.key_value("c", serdes.string, serde))
    backend.store.put(b"k", data)
    looked.commit()
    row = {"key": "k", **shown}
    assert looked.get(b"k")[0] == [row] == looked.rows()
    json.dumps(row, allow_nan=False)


def test_a_store_is_described_with_what_can_be_read() -> None:
    builder = stores.session("s", serdes.string, FOREIGN, retention_ms=9)
    assert described(builder) == {
        "store": "s",
        "type": "session",
        "key_serde": "string",
        "value_serde": "foreign",
        "keys_readable": True,
        "values_readable": False,
        "persistent": True,
        "logged": True,
        "retention_ms": 9,
    }


@pytest.mark.parametrize(
    ("serde", "text", "data"),
    [
        (serdes.string, "7", b"7"),
        (serdes.bytes, "ü", "ü".encode()),
        (serdes.int32, "-1", b"\xff\xff\xff\xff"),
        (serdes.integer, "12", b"12"),
        (serdes.boolean, "true", b"\x01"),
        (serdes.json, '{"a": 1}', b'{"a":1}'),
        (serdes.uuid, str(UUID(int=7)).upper(), str(UUID(int=7)).encode()),
    ],
)
def test_a_key_is_written_as_its_serde_writes_it(serde: Serde[Any], text: str, data: bytes) -> None:
    assert serdes.key_bytes(serde, text) == data


@pytest.mark.parametrize(
    ("serde", "text"),
    [
        (serdes.int32, "x"),
        (serdes.int32, "2147483648"),
        (serdes.int64, "1.5"),
        (serdes.json, "a"),
        (serdes.uuid, "7"),
        (FOREIGN, "k"),
    ],
)
def test_a_text_that_is_not_a_key_is_refused(serde: Serde[Any], text: str) -> None:
    with pytest.raises(SerializationError):
        serdes.key_bytes(serde, text)
