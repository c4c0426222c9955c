"""Bytes stores: the merge of the open transaction with what is committed, undo marks, times."""

from __future__ import annotations

from time import process_time

import pytest

from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from tests.unit.streams.stores.backends import Backend


def content(store: BytesStore, reverse: bool = False) -> dict[bytes, bytes]:
    with store.scan(b"", None, reverse) as entries:
        found = list(entries)
    assert store.range(b"", b"\xff" * 20) == (found[::-1] if reverse else found)
    return dict(found)


def keys(store: BytesStore, low: bytes, high: bytes | None, reverse: bool = False) -> list[bytes]:
    with store.scan(low, high, reverse) as entries:
        found = list(entries)
    if high is not None and low < high and not reverse:
        assert store.range(low, high) == found
    return [key for key, _ in found]


def put_all(store: BytesStore, *entries: bytes) -> None:
    for key in entries:
        store.put(key, b"value of " + key)


def time_of(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big")


def at(time: int, key: bytes = b"k") -> bytes:
    return key + time.to_bytes(8, "big")


# Scans.


def test_scan_has_committed_and_uncommitted_entries_in_byte_order(store: BytesStore) -> None:
    put_all(store, b"b", b"d", b"f")
    store.commit(1)
    put_all(store, b"e", b"a", b"g")
    assert keys(store, b"", None) == [b"a", b"b", b"d", b"e", b"f", b"g"]
    assert keys(store, b"", None, reverse=True) == [b"g", b"f", b"e", b"d", b"b", b"a"]


def test_scan_shows_what_the_open_transaction_made_of_committed_entries(store: BytesStore) -> None:
    put_all(store, b"a", b"b", b"c")
    store.commit(1)
    store.put(b"a", b"new")
    store.put(b"b", None)
    wanted = {b"a": b"new", b"c": b"value of c"}
    assert content(store) == content(store, reverse=True) == wanted


@pytest.mark.parametrize(
    ("committed", "changed", "wanted"),
    [
        ("a", {"b": None}, "a"),
        ("b", {"a": None}, "b"),
        ("a", {"a": None}, ""),
        ("abc", {"a": None, "b": None, "c": None}, ""),
        ("", {"a": None, "b": None}, ""),
        ("abcdefgh", {"a": b"1", "b": None, "c": None, "f": b"1", "h": None}, "adefg"),
        ("aceg", {"b": b"1", "d": b"1", "f": b"1", "h": b"1"}, "abcdefgh"),
        ("bd", {"a": None, "b": b"1", "c": None, "d": None, "e": b"1"}, "be"),
    ],
)
def test_deleted_and_changed_keys_are_merged_wherever_they_stand(
    store: BytesStore, committed: str, changed: dict[str, bytes | None], wanted: str
) -> None:
    put_all(store, *(key.encode() for key in committed))
    store.commit(1)
    for key, value in changed.items():
        store.put(key.encode(), value)
    expected = [key.encode() for key in wanted]
    assert keys(store, b"", None) == expected
    assert keys(store, b"", None, reverse=True) == expected[::-1]
    assert all(store.get(key) == value for key, value in content(store).items())


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (b"", None, [b"", b"a", b"a\x00", b"ab", b"b", b"\xff", b"\xff\xff"]),
        (b"a", b"b", [b"a", b"a\x00", b"ab"]),
        (b"a", b"a\x00", [b"a"]),
        (b"a\x00", b"ab", [b"a\x00"]),
        (b"\xff", None, [b"\xff", b"\xff\xff"]),
        (b"aa", b"ab", []),
        (b"b", b"a", []),
        (b"a", b"a", []),
    ],
)
def test_scan_includes_its_low_end_and_not_its_high_one(
    store: BytesStore, committed: bool, low: bytes, high: bytes | None, wanted: list[bytes]
) -> None:
    put_all(store, b"\xff\xff", b"a", b"ab", b"", b"\xff", b"b", b"a\x00")
    if committed:
        store.commit(1)
    assert keys(store, low, high) == wanted
    assert keys(store, low, high, reverse=True) == wanted[::-1]


def test_later_writes_do_not_show_in_a_scan(store: BytesStore) -> None:
    put_all(store, b"a", b"c")
    store.commit(1)
    put_all(store, b"d", b"e")
    with store.scan(b"", None) as entries:
        store.put(b"b", b"later")
        store.put(b"d", b"later")
        store.put(b"e", None)
        wanted = [(key, b"value of " + key) for key in (b"a", b"c", b"d", b"e")]
        assert next(entries) == wanted[0]
        store.put(b"c", None)
        store.commit(2)
        store.put(b"d", None)
        store.rollback()
        assert list(entries) == wanted[1:]


def test_key_that_is_committed_again_comes_once(store: BytesStore) -> None:
    for value in (b"1", b"2"):
        store.put(b"a", value)
        store.commit(int(value))
    with store.scan(b"", None) as entries:
        assert list(entries) == [(b"a", b"2")]


def test_first_entry_of_a_large_store_is_read_without_the_others(store: BytesStore) -> None:
    def put_many(first: int) -> None:
        for number in range(first, 20_000, 2):
            store.put(b"%05d" % number, b"")

    put_many(0)
    store.commit(1)
    put_many(1)
    list(store.scan(b"", b"0"))
    begin = process_time()
    for _ in range(200):
        with store.scan(b"", None) as entries:
            next(entries)
    assert process_time() - begin < 0.5  # of 20,000 each it would be 2 s and more


def test_scan_of_a_transaction_that_goes_on_shows_each_new_state(store: BytesStore) -> None:
    put_all(store, b"a")
    assert keys(store, b"", None) == [b"a"]
    put_all(store, b"c", b"b")
    assert keys(store, b"", None) == [b"a", b"b", b"c"]
    store.put(b"b", None)
    assert keys(store, b"", None) == [b"a", b"c"]
    put_all(store, b"b")
    assert keys(store, b"", None) == [b"a", b"b", b"c"]


def test_after_a_rollback_a_scan_has_exactly_what_is_committed(store: BytesStore) -> None:
    put_all(store, b"a", b"b")
    store.commit(1)
    committed = content(store)
    store.put(b"a", None)
    put_all(store, b"c")
    assert keys(store, b"", None) == [b"b", b"c"]
    store.rollback()
    assert content(store) == committed
    assert store.uncommitted == {}


def test_many_scans_at_once_keep_to_their_ranges(store: BytesStore) -> None:
    for number in range(300):
        store.put(b"%03d" % number, b"")
    store.commit(1)
    ranges = [(low, low + 1 + low % 50) for low in range(0, 250, 3)]
    scans = [store.scan(b"%03d" % low, b"%03d" % high) for low, high in ranges]
    for (low, high), scan in zip(ranges, scans, strict=True):
        assert [int(key) for key, _ in scan] == list(range(low, high))


# Iterators.


def test_iterator_that_is_closed_cannot_go_on_but_closes_again(store: BytesStore) -> None:
    put_all(store, b"a", b"b")
    entries = store.scan(b"", None)
    next(entries)
    entries.close()
    entries.close()
    with pytest.raises(StateStoreError, match="closed"):
        next(entries)


def test_iterator_at_its_end_stays_there(store: BytesStore) -> None:
    put_all(store, b"a")
    entries = store.scan(b"", None)
    assert len(list(entries)) == 1
    assert list(entries) == []


def test_open_iterators_are_closed_with_the_store(backend: Backend) -> None:
    store = backend.open()
    put_all(store, b"a", b"b")
    store.commit(1)
    begun, fresh = store.scan(b"", None), store.scan(b"", None, reverse=True)
    next(begun)
    again = backend.reopen()  # RocksDB would refuse while an iterator is open
    for entries in (begun, fresh):
        with pytest.raises(StateStoreError):
            next(entries)
    assert keys(again, b"", None) == [b"a", b"b"]


def test_open_iterators_are_closed_by_a_wipe(store: BytesStore) -> None:
    put_all(store, b"a", b"b")
    store.commit(1)
    entries = store.scan(b"", None)
    store.wipe()
    with pytest.raises(StateStoreError):
        next(entries)
    assert content(store) == {}
    assert (store.offset, store.max_timestamp) == (None, -1)


def test_closed_store_cannot_be_used(store: BytesStore) -> None:
    put_all(store, b"a")
    store.commit(1)
    put_all(store, b"b")
    store.close()
    store.close()
    for use in (
        lambda: store.get(b"a"),
        lambda: store.get(b"b"),
        lambda: store.put(b"a", b"1"),
        lambda: store.scan(b"", None),
        lambda: store.range(b"", b"1"),
        lambda: store.drop_range(b"", None),
        lambda: store.approximate_num_entries(),
    ):
        with pytest.raises(StateStoreError, match="closed"):
            use()


# Undo marks.


def test_undo_takes_the_writes_since_the_mark_back(store: BytesStore) -> None:
    put_all(store, b"a", b"b", b"c")
    store.commit(1)
    store.put(b"a", b"kept")
    store.put(b"d", b"kept")
    store.mark()
    before = dict(store.uncommitted)
    store.put(b"a", b"1")
    store.put(b"a", None)
    store.put(b"b", None)
    store.put(b"d", b"1")
    store.put(b"e", b"1")
    store.undo()
    assert store.uncommitted == before
    assert content(store) == {
        b"a": b"kept",
        b"b": b"value of b",
        b"c": b"value of c",
        b"d": b"kept",
    }


def test_undo_reaches_scans_that_began_in_the_transaction(store: BytesStore) -> None:
    put_all(store, b"a")
    store.mark()
    assert keys(store, b"", None) == [b"a"]
    put_all(store, b"c", b"b")
    store.undo()
    assert keys(store, b"", None) == [b"a"]
    put_all(store, b"c")
    assert keys(store, b"", None) == [b"a", b"c"]


def test_undo_without_a_mark_goes_back_to_the_begin(store: BytesStore) -> None:
    put_all(store, b"a")
    store.commit(1)
    put_all(store, b"b")
    store.undo()
    assert store.uncommitted == {}
    assert keys(store, b"", None) == [b"a"]


def test_undo_twice_is_undo_once(store: BytesStore) -> None:
    put_all(store, b"a")
    store.mark()
    put_all(store, b"b")
    store.undo()
    store.undo()
    assert list(store.uncommitted) == [b"a"]


def test_later_mark_forgets_the_earlier_one(store: BytesStore) -> None:
    store.mark()
    put_all(store, b"a")
    store.mark()
    put_all(store, b"b")
    store.mark()
    store.undo()
    assert list(store.uncommitted) == [b"a", b"b"]


# Offsets, sizes, restoring.


def test_restored_entries_can_be_scanned(backend: Backend) -> None:
    store = backend.open()
    store.restore({b"b": b"1", b"a": b"1", b"c": b"1"}, 3)
    store.restore({b"b": None, b"d": b"2"}, 5)
    assert content(store) == {b"a": b"1", b"c": b"1", b"d": b"2"}
    assert store.offset == 5
    assert content(backend.reopen()) == {b"a": b"1", b"c": b"1", b"d": b"2"}


def test_memory_store_has_no_offset_after_opening(store: BytesStore) -> None:
    assert store.offset is None


def test_number_of_entries_counts_the_open_transaction(store: BytesStore) -> None:
    assert store.approximate_num_entries() == 0
    put_all(store, b"a", b"b", b"c")
    assert store.approximate_num_entries() == 3
    store.commit(1)
    assert store.approximate_num_entries() == 3
    store.put(b"a", None)
    assert store.approximate_num_entries() == 2
    for key in (b"a", b"b", b"c", b"d", b"e", b"f"):
        store.put(key, None)
    assert store.approximate_num_entries() == 0


def test_dropped_range_is_gone_here_but_not_in_the_state_topic(backend: Backend) -> None:
    store = backend.open()
    put_all(store, b"a", b"b", b"c", b"d")
    store.commit(1)
    assert store.get(b"b") == b"value of b"
    store.drop_range(b"b", b"d")
    assert store.uncommitted == {}
    assert [store.get(key) for key in (b"b", b"c")] == [None, None]
    assert keys(store, b"", None) == keys(backend.reopen(), b"", None) == [b"a", b"d"]
    assert backend.store is not None
    backend.store.drop_range(b"b", None)
    assert keys(backend.store, b"", None) == [b"a"]


def test_uncommitted_entries_of_a_dropped_range_stay(store: BytesStore) -> None:
    put_all(store, b"a", b"b")
    store.commit(1)
    store.put(b"b", b"new")
    store.drop_range(b"", None)
    assert content(store) == {b"b": b"new"}


# Times.


def test_largest_timestamp_is_that_of_any_key_ever_put(backend: Backend) -> None:
    store = backend.open(time_of)
    assert store.max_timestamp == -1
    store.put(at(5), b"1")
    store.put(at(9), None)
    store.put(at(7), b"1")
    assert (store.max_timestamp, store.committed_timestamp) == (9, -1)
    store.commit(1)
    store.put(at(7), None)
    assert (store.max_timestamp, store.committed_timestamp) == (9, 9)


def test_largest_timestamp_is_undone_and_rolled_back(backend: Backend) -> None:
    store = backend.open(time_of)
    store.put(at(5), b"1")
    store.commit(1)
    store.put(at(6), b"1")
    store.mark()
    store.put(at(8), b"1")
    store.undo()
    assert store.max_timestamp == 6
    store.put(at(8), b"1")
    store.rollback()
    assert (store.max_timestamp, store.committed_timestamp) == (5, 5)


def test_largest_timestamp_lasts_over_restarts_and_restores(backend: Backend) -> None:
    store = backend.open(time_of)
    store.restore({at(7): b"1", at(9): None, at(3): b"1"}, 4)
    store.restore({at(2): b"1"}, 5)
    store.put(at(11), b"1")
    assert store.max_timestamp == 11
    store.rollback()
    assert store.max_timestamp == 9
    # Memory is restored from what the state topic still has.
    assert backend.reopen().max_timestamp == (7 if backend.kind == "memory" else 9)


# Segments.


def test_segments_order_a_store_but_not_its_state_topic(backend: Backend) -> None:
    store = backend.open(time_of, lambda key: (time_of(key) // 10).to_bytes(8, "big"))
    old, new = at(9, b"z"), at(10, b"a")
    store.put(new, b"new")
    store.put(old, b"old")
    assert set(store.uncommitted) == {new, old}
    in_order = [(0).to_bytes(8, "big") + old, (1).to_bytes(8, "big") + new]
    assert keys(store, b"", None) == in_order
    store.commit(1)
    assert keys(store, b"", None) == keys(backend.reopen(), b"", None) == in_order
    assert backend.store is not None
    assert [backend.store.get(key) for key in (old, new)] == [b"old", b"new"]
    backend.store.drop_range(b"", (1).to_bytes(8, "big"))
    assert [backend.store.get(key) for key in (old, new)] == [None, b"new"]


# Many at once.


def test_values_of_many_keys_are_those_of_each_wherever_they_are(store: BytesStore) -> None:
    put_all(store, b"committed", b"changed", b"deleted")
    store.commit(1)
    store.put(b"changed", b"new")
    store.put(b"deleted", None)
    store.put(b"written", b"w")
    asked = [b"written", b"none", b"deleted", b"committed", b"changed", b"none", b"committed"]
    wanted = [b"w", None, None, b"value of committed", b"new", None, b"value of committed"]
    assert store.get_many(asked) == wanted
    assert store.get_many(asked) == wanted == [store.get(key) for key in asked]
    assert store.get_many([]) == []


def test_values_of_many_keys_are_read_from_the_disk(backend: Backend) -> None:
    store = backend.open()
    put_all(store, *(b"%d" % number for number in range(100)))
    store.commit(1)
    store = backend.reopen()
    asked = [b"%d" % number for number in range(120, -1, -1)]
    wanted = [b"value of " + key if int(key) < 100 else None for key in asked]
    assert store.get_many(asked) == wanted


def test_many_keys_of_a_segmented_store_are_read_by_their_own_names(backend: Backend) -> None:
    store = backend.open(time_of, lambda key: key[-8:])
    store.put_many({at(2): b"2", at(1): b"1"})
    assert store.max_timestamp == 2
    store.commit(1)
    store = backend.reopen()
    assert store.get_many([at(1), at(2), at(3)]) == [b"1", b"2", None]


def test_undo_takes_back_what_was_written_one_by_one_and_many_at_once(store: BytesStore) -> None:
    put_all(store, b"a", b"b")
    store.commit(1)
    store.put(b"b", b"saved")
    store.mark()
    store.put(b"b", b"1")
    store.put_many({b"a": b"2", b"b": None, b"c": b"2"})
    store.put(b"c", b"3")
    assert keys(store, b"", None) == [b"a", b"c"]
    store.put_many({b"c": None, b"d": b"4"})
    assert keys(store, b"", None) == [b"a", b"d"]
    store.undo()
    assert content(store) == {b"a": b"value of a", b"b": b"saved"}
    assert store.uncommitted == {b"b": b"saved"}


def test_an_open_scan_does_not_show_what_many_writes_change(store: BytesStore) -> None:
    put_all(store, b"a", b"b")
    with store.scan(b"", None) as entries:
        store.put_many({b"a": b"later", b"c": b"later"})
        assert [key for key, _ in entries] == [b"a", b"b"]
    store.rollback()
    store.put_many({b"a": b"1"})
    with store.scan(b"", None) as entries:
        store.put_many({b"a": b"2"})
        assert list(entries) == [(b"a", b"1")]


def test_generation_grows_when_writes_are_taken_back_and_not_when_they_are_made(
    backend: Backend,
) -> None:
    store = backend.open()
    seen = [store.generation]
    put_all(store, b"a")
    store.put_many({b"b": b"1"})
    store.mark()
    store.commit(1)
    assert store.generation == seen[0]
    for take_back in (store.undo, store.rollback, lambda: store.restore({}, 2), store.wipe):
        take_back()
        seen.append(store.generation)
    assert sorted(set(seen)) == seen
