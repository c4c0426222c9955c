"""Key-value stores: what processors read, in which order, and what they may not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kafka_pipeline import serdes, stores
from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import KeyValueStore, TimestampedKeyValueStore, ValueAndTimestamp
from tests.unit.streams.stores.backends import Backend

NUMBERS = stores.key_value("numbers", serdes.int32, serdes.string)
WORDS = stores.key_value("words", serdes.string, serdes.string)
RAW = stores.key_value("raw", serdes.bytes, serdes.bytes)
TIMES = stores.timestamped_key_value("times", serdes.string, serdes.int64)


@pytest.fixture
def numbers(backend: Backend) -> KeyValueStore[int, str]:
    store: KeyValueStore[int, str] = backend.build(NUMBERS)
    return store


@pytest.fixture
def words(backend: Backend) -> KeyValueStore[str, str]:
    store: KeyValueStore[str, str] = backend.build(WORDS)
    return store


@pytest.fixture
def times(backend: Backend) -> TimestampedKeyValueStore[str, int]:
    store: TimestampedKeyValueStore[str, int] = backend.build(TIMES)
    return store


FIVE = {0: "zero", 1: "one", 2: "two", 4: "four", 5: "five"}


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize(
    ("key_from", "key_to", "wanted"),
    [
        (2, 4, [2, 4]),
        (2, 6, [2, 4, 5]),
        (None, 2, [0, 1, 2]),
        (2, None, [2, 4, 5]),
        (None, None, [0, 1, 2, 4, 5]),
        (3, 3, []),
        (4, 4, [4]),
    ],
)
def test_range_has_both_its_ends_in_either_direction(
    backend: Backend,
    numbers: KeyValueStore[int, str],
    is_committed: bool,
    key_from: int | None,
    key_to: int | None,
    wanted: list[int],
) -> None:
    numbers.put_all(FIVE.items())
    if is_committed:
        backend.store.commit(1)
    with numbers.range(key_from, key_to) as found:
        assert list(found) == [(key, FIVE[key]) for key in wanted]
    with numbers.reverse_range(key_from, key_to) as found:
        assert list(found) == [(key, FIVE[key]) for key in reversed(wanted)]


def test_values_are_what_was_put_last(numbers: KeyValueStore[int, str]) -> None:
    numbers.put_all(FIVE.items())
    numbers.put(4, "fourth")
    assert [numbers.get(key) for key in (0, 3, 4)] == ["zero", None, "fourth"]
    assert numbers.delete(5) == "five"
    assert numbers.delete(5) is None
    assert numbers.get(5) is None


def test_several_values_are_asked_for_at_once(numbers: KeyValueStore[int, str]) -> None:
    numbers.put_all(FIVE)
    assert numbers.get_all(iter([5, 3, 0, 5])) == ["five", None, "zero", "five"]
    assert numbers.get_all([]) == []
    with pytest.raises(StateStoreError, match="has no null key"):
        numbers.get_all([1, None])  # type: ignore[list-item]


def test_serialized_values_are_read_and_undone_as_others(
    backend: Backend, numbers: KeyValueStore[int, str]
) -> None:
    numbers.put(1, "one")
    backend.store.mark()
    write = serdes.int32.serialize
    numbers.put_serialized({write(1): b"uno", write(2): b"dos", write(3): None})
    assert numbers.get_all([1, 2, 3]) == ["uno", "dos", None]
    backend.store.undo()
    assert numbers.get_all([1, 2, 3]) == ["one", None, None]
    numbers.put_serialized({})
    assert list(backend.store.uncommitted) == [write(1)]


def test_everything_comes_in_the_order_of_serialized_keys(words: KeyValueStore[str, str]) -> None:
    keys = ["b", "", "ä", "a", "ab", "日本", "z", "\U0001f600"]
    words.put_all((key, key) for key in keys)
    in_order = sorted(keys, key=str.encode)
    assert [key for key, _ in words.all()] == in_order
    assert [key for key, _ in words.reverse_all()] == in_order[::-1]


def test_deleted_keys_are_in_no_range(backend: Backend, numbers: KeyValueStore[int, str]) -> None:
    numbers.put_all(FIVE.items())
    backend.store.commit(1)
    numbers.put(0, None)
    numbers.put_all([(1, None), (3, None)])
    assert [key for key, _ in numbers.range(0, 4)] == [2, 4]
    assert [key for key, _ in numbers.all()] == [2, 4, 5]


def test_value_that_is_serialized_to_none_deletes(backend: Backend) -> None:
    nothing: Serde[str] = Serde("nothing", lambda _: None, bytes.decode)  # type: ignore[arg-type,return-value]
    store = backend.build(stores.key_value("none", serdes.string, nothing))
    backend.store.put(b"a", b"there")
    assert store.get("a") == "there"
    store.put("a", "anything")
    assert store.get("a") is None


def test_put_if_absent_keeps_what_is_there(numbers: KeyValueStore[int, str]) -> None:
    assert numbers.put_if_absent(1, "one") is None
    assert numbers.put_if_absent(1, "uno") == "one"
    assert numbers.get(1) == "one"
    assert numbers.put_if_absent(2, None) is None
    assert numbers.get(2) is None
    numbers.put(1, None)
    assert numbers.put_if_absent(1, "uno") is None
    assert numbers.get(1) == "uno"


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.get(None),
        lambda store: store.put(None, "x"),
        lambda store: store.put(None, None),
        lambda store: store.put_if_absent(None, "x"),
        lambda store: store.put_all([(1, "x"), (None, "x")]),
        lambda store: store.delete(None),
        lambda store: store.prefix_scan(None, serdes.string),
    ],
    ids=["get", "put", "put None", "put_if_absent", "put_all", "delete", "prefix_scan"],
)
def test_null_key_is_refused(
    numbers: KeyValueStore[int, str], use: Callable[[KeyValueStore[Any, Any]], Any]
) -> None:
    with pytest.raises(StateStoreError, match='"numbers" has no null key'):
        use(numbers)


@pytest.mark.parametrize(("key_from", "key_to"), [(-1, 1), (2, 1)])
@pytest.mark.parametrize("method", ["range", "reverse_range"])
def test_range_that_ends_before_it_begins_is_empty_and_logged(
    numbers: KeyValueStore[int, str],
    key_from: int,
    key_to: int,
    method: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    numbers.put_all(FIVE.items())
    with getattr(numbers, method)(key_from, key_to) as found:
        assert list(found) == []
    assert "range of keys is empty" in capsys.readouterr().out


def test_range_without_entries_is_not_logged(
    numbers: KeyValueStore[int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(numbers.range(1, 2)) == list(numbers.range(3, 3)) == []
    assert capsys.readouterr().out == ""


def test_entries_that_are_put_during_a_scan_do_not_show(
    numbers: KeyValueStore[int, str],
) -> None:
    numbers.put(0, "zero")
    with numbers.all() as found:
        numbers.put(1, "one")
        assert list(found) == [(0, "zero")]


def test_number_of_entries(numbers: KeyValueStore[int, str]) -> None:
    assert numbers.approximate_num_entries() == 0
    numbers.put_all(FIVE.items())
    assert numbers.approximate_num_entries() == 5
    assert numbers.name == "numbers"


# Prefixes.


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize(
    ("prefix", "wanted"),
    [
        ("prefix", ["prefix_1", "prefix_2", "prefix_3"]),
        ("prefix_2", ["prefix_2"]),
        ("bb", []),
        ("", ["abc", "abcd", "abce", "k1", "k2", "prefix_1", "prefix_2", "prefix_3", "ü", "üb"]),
        ("abcd", ["abcd"]),
        ("ü", ["ü", "üb"]),
    ],
)
def test_prefix_scan_has_the_keys_that_begin_so(
    backend: Backend,
    words: KeyValueStore[str, str],
    is_committed: bool,
    prefix: str,
    wanted: list[str],
) -> None:
    for key in ("k1", "prefix_3", "ü", "k2", "abce", "prefix_2", "abc", "prefix_1", "üb", "abcd"):
        words.put(key, key)
    if is_committed:
        backend.store.commit(1)
    with words.prefix_scan(prefix, serdes.string) as found:
        assert [key for key, _ in found] == wanted
    with words.prefix_scan(prefix, str.encode) as found:
        assert [key for key, _ in found] == wanted


@pytest.mark.parametrize(
    ("prefix", "wanted"),
    [
        (b"\xff", [b"\xff", b"\xff\x00", b"\xff\xff", b"\xff\xff\xff"]),
        (b"\xff\xff", [b"\xff\xff", b"\xff\xff\xff"]),
        (b"\x00\xff", [b"\x00\xff", b"\x00\xff\xff"]),
        (b"\x00", [b"\x00", b"\x00\xff", b"\x00\xff\xff"]),
        (b"\x01", [b"\x01"]),
    ],
)
def test_prefixes_at_the_ends_of_byte_order(
    backend: Backend, prefix: bytes, wanted: list[bytes]
) -> None:
    store = backend.build(RAW)
    for key in (
        b"",
        b"\x00",
        b"\x00\xff",
        b"\x00\xff\xff",
        b"\x01",
        b"\xfe",
        b"\xff",
        b"\xff\x00",
        b"\xff\xff",
        b"\xff\xff\xff",
    ):
        store.put(key, b"")
    backend.store.commit(1)
    assert [key for key, _ in store.prefix_scan(prefix, serdes.bytes)] == wanted


def test_prefix_has_a_serializer_of_its_own(backend: Backend) -> None:
    store = backend.build(stores.key_value("ids", serdes.uuid, serdes.string))
    first, second = UUID(int=0xA1B2 << 112), UUID(int=0xC3D4 << 112)
    store.put_all([(first, "a"), (second, "b")])
    with store.prefix_scan("a1b2", serdes.string) as found:
        assert list(found) == [(first, "a")]


# Transactions and closing.


def test_rollback_shows_exactly_what_is_committed(
    backend: Backend, words: KeyValueStore[str, str]
) -> None:
    words.put_all([("a", "1"), ("b", "1"), ("c", "1")])
    backend.store.commit(1)
    words.delete("a")
    words.put_all([("b", "2"), ("d", "2")])
    assert list(words.all()) == [("b", "2"), ("c", "1"), ("d", "2")]
    backend.store.rollback()
    assert list(words.all()) == [("a", "1"), ("b", "1"), ("c", "1")]


def test_record_that_fails_leaves_no_trace(
    backend: Backend, words: KeyValueStore[str, str]
) -> None:
    words.put("a", "1")
    backend.store.mark()
    words.put_all([("a", "2"), ("b", "2")])
    words.delete("a")
    backend.store.undo()
    assert list(words.all()) == [("a", "1")]


def test_content_lasts_over_a_restart(backend: Backend, words: KeyValueStore[str, str]) -> None:
    words.put_all([("a", "1"), ("b", "1")])
    backend.store.commit(1)
    again = WORDS.build(backend.reopen())
    assert isinstance(again, KeyValueStore)
    assert list(again.all()) == [("a", "1"), ("b", "1")]


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.get("a"),
        lambda store: store.put("a", "1"),
        lambda store: store.put_if_absent("a", "1"),
        lambda store: store.put_all([("a", "1")]),
        lambda store: store.delete("a"),
        lambda store: store.range("a", "b"),
        lambda store: store.reverse_range("a", "b"),
        lambda store: store.all(),
        lambda store: store.reverse_all(),
        lambda store: store.approximate_num_entries(),
    ],
)
def test_closed_store_cannot_be_used(
    backend: Backend,
    words: KeyValueStore[str, str],
    use: Callable[[KeyValueStore[str, str]], Any],
) -> None:
    words.put("a", "1")
    backend.store.close()
    with pytest.raises(StateStoreError, match="closed"):
        use(words)


def test_iterators_of_a_closed_store_cannot_go_on(
    backend: Backend, words: KeyValueStore[str, str]
) -> None:
    words.put_all([("a", "1"), ("b", "1")])
    backend.store.commit(1)
    found = words.all()
    next(found)
    backend.store.close()
    for _ in range(2):
        with pytest.raises(StateStoreError):
            next(found)


def test_iterator_that_is_closed_lets_rocksdb_go(
    backend: Backend, words: KeyValueStore[str, str]
) -> None:
    words.put_all([("a", "1"), ("b", "1")])
    backend.store.commit(1)
    with words.all() as found:
        next(found)
    with pytest.raises(StateStoreError, match="closed"):
        next(found)
    found.close()


# Values with a time.


def test_value_comes_with_the_time_of_its_record(
    backend: Backend, times: TimestampedKeyValueStore[str, int]
) -> None:
    times.put("a", ValueAndTimestamp(7, 1_700_000_000_000))
    assert times.get("a") == (7, 1_700_000_000_000)
    assert backend.store.uncommitted == {
        b"a": (1_700_000_000_000).to_bytes(8, "big") + (7).to_bytes(8, "big")
    }
    with times.range("a", "b") as found:
        assert list(found) == [("a", ValueAndTimestamp(7, 1_700_000_000_000))]


def test_value_of_none_deletes_whatever_its_time(
    times: TimestampedKeyValueStore[str, int],
) -> None:
    times.put("a", ValueAndTimestamp(7, 1))
    times.put("a", ValueAndTimestamp(None, 2))  # type: ignore[arg-type]
    assert times.get("a") is None
    times.put("a", ValueAndTimestamp(7, 1))
    times.put("a", None)
    assert times.get("a") is None
