"""RocksDB gets what several transactions committed at once, and always with the right offset."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafka_pipeline.streams.stores import rocksdb
from kafka_pipeline.streams.stores.rocksdb import MOST_COMMITS, RocksDBStore
from tests.unit.streams.rocksdb_stores import IDENTITY, reopened


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


def after_a_crash(directory: Path) -> tuple[int | None, dict[bytes, bytes]]:
    """Return the offset and the content that a process would find if this one were killed now."""
    copy = directory.with_name("copy")
    shutil.copytree(directory, copy)
    store = RocksDBStore(copy, IDENTITY)
    found = store.offset, dict(store.scan(b"", None))
    store.close()
    shutil.rmtree(copy)
    return found


def commit(store: RocksDBStore, offset: int, **changes: bytes | None) -> None:
    for key, value in changes.items():
        store.put(key.encode(), value)
    store.commit(offset)


def test_content_and_offset_belong_together_after_a_crash_at_any_time(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    written = []
    for number in range(1, 3 * MOST_COMMITS + 1):
        commit(store, number, count=b"%d" % number)
        offset, content = after_a_crash(directory)
        assert content == ({b"count": b"%d" % offset} if offset else {})
        assert (store.offset, store.get(b"count")) == (number, b"%d" % number)
        written.append(offset)
    assert set(written) == {None, MOST_COMMITS, 2 * MOST_COMMITS, 3 * MOST_COMMITS}
    store.close()


def test_what_is_not_written_yet_is_read_all_the_same(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.restore({b"old": b"1", b"gone": b"1", b"new": b"1"}, 5)
    assert store.get_many([b"old", b"gone", b"new"]) == [b"1", b"1", b"1"]
    commit(store, 7, new=b"2", gone=None)

    assert store.get(b"new") == b"2"
    assert store.get_many([b"old", b"gone", b"new", b"none"]) == [b"1", None, b"2", None]
    store.put(b"new", b"3")
    assert store.get_many([b"new"]) == [b"3"]
    store.rollback()
    assert store.get_many([b"new"]) == [b"2"]
    store.close()


def test_a_scan_sees_everything_in_order(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.restore({b"b": b"1", b"d": b"1"}, 5)
    commit(store, 7, a=b"2", d=None)
    store.put(b"c", b"3")

    assert list(store.scan(b"", None)) == [(b"a", b"2"), (b"b", b"1"), (b"c", b"3")]
    store.close()


def test_entries_that_are_not_written_yet_are_counted(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    commit(store, 7, a=b"1", b=b"1")

    assert store.approximate_num_entries() == 2
    store.close()


def test_ranges_are_dropped_with_what_is_not_written_yet(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    commit(store, 7, a=b"1", b=b"1")

    store.drop_range(b"a", b"b")

    assert (store.get(b"a"), store.get(b"b")) == (None, b"1")
    store.close()


def test_a_store_that_is_closed_has_everything(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    commit(store, 7, a=b"1")
    store.put(b"b", b"of a transaction that is lost")

    store = reopened(store, directory)

    assert (store.offset, dict(store.scan(b"", None))) == (7, {b"a": b"1"})
    store.close()


def test_state_that_is_read_from_the_topic_comes_over_what_was_committed(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    commit(store, 7, a=b"1")

    store.restore({b"a": b"2"}, 9)

    assert (store.offset, store.get(b"a")) == (9, b"2")
    assert after_a_crash(directory) == (9, {b"a": b"2"})
    store.close()


def test_a_store_that_is_wiped_forgets_what_was_committed(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    commit(store, 7, a=b"1")

    store.wipe()

    assert (store.offset, store.get(b"a")) == (None, None)
    assert reopened(store, directory).offset is None


@pytest.mark.parametrize(("name", "most"), [("MOST_KEYS", 3), ("MOST_BYTES", 30)])
def test_memory_for_what_is_not_written_is_bounded(
    directory: Path, name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb, name, most)
    store = RocksDBStore(directory, IDENTITY)
    for number in range(1, 4):
        store.put(b"%d" % number, b"x" * 10)
        store.commit(number)

    assert after_a_crash(directory)[0] == 3
    store.close()


def test_the_largest_timestamp_is_written_with_its_keys(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY, timestamp_of=int)
    commit(store, 1, **{"100": b"a"})
    commit(store, 2, **{"50": b"b"})
    store.close()

    store = RocksDBStore(directory, IDENTITY, timestamp_of=int)
    assert store.max_timestamp == 100
    store.close()
