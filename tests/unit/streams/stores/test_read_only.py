"""The view that tasks have of a global store, while another thread changes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_pipeline import StateStoreError, serdes, stores
from kafka_pipeline.streams.stores import KeyValueStore
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from kafka_pipeline.streams.stores.read_only import ReadOnlyBytes
from kafka_pipeline.streams.stores.rocksdb_directory import StoreCorruptedError

ENTRIES = [(b"%04d" % number, b"v") for number in range(3000)]


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BytesStore]:
    definition = stores.key_value(
        "s", serdes.bytes, serdes.bytes, persistent=request.param == "rocksdb"
    )
    opened = definition.open(tmp_path / "s", {})
    yield opened
    if not opened.is_closed:
        opened.close()


def fill(store: BytesStore, entries: list[tuple[bytes, bytes]]) -> None:
    for key, value in entries:
        store.put(key, value)
    store.commit(0)


def view_of(store: BytesStore, lock: threading.Lock) -> KeyValueStore[bytes, bytes]:
    return KeyValueStore("s", ReadOnlyBytes("s", store, lock), serdes.bytes, serdes.bytes)


def test_it_shows_what_the_store_has(store: BytesStore) -> None:
    fill(store, [(b"a", b"1"), (b"b", b"2"), (b"bc", b"3")])
    view = view_of(store, threading.Lock())
    assert (view.get(b"a"), view.get(b"z")) == (b"1", None)
    assert list(view.all()) == [(b"a", b"1"), (b"b", b"2"), (b"bc", b"3")]
    assert list(view.reverse_range(b"b", None)) == [(b"bc", b"3"), (b"b", b"2")]
    assert list(view.prefix_scan(b"b", serdes.bytes)) == [(b"b", b"2"), (b"bc", b"3")]
    assert view.approximate_num_entries() == 3


def test_an_iterator_shows_the_moment_of_the_call(store: BytesStore) -> None:
    fill(store, ENTRIES)
    entries = view_of(store, threading.Lock()).all()
    first = next(entries)
    store.put(b"0005", None)
    store.put(b"9999", b"new")
    store.commit(0)
    assert [first, *entries] == ENTRIES


def test_whatever_writes_is_refused_and_changes_nothing(store: BytesStore) -> None:
    view = view_of(store, threading.Lock())
    writes: list[Callable[[], object]] = [
        lambda: view.put(b"a", b"1"),
        lambda: view.put_all([(b"a", b"1")]),
        lambda: view.put_if_absent(b"a", b"1"),
        lambda: view.delete(b"a"),
    ]
    for write in writes:
        with pytest.raises(StateStoreError, match='the store "s" is global and only to be read'):
            write()
    assert (store.uncommitted, view.get_all([b"a", b"b"])) == ({}, [None, None])


def test_a_store_that_is_gone_is_no_fault_of_a_record(store: BytesStore) -> None:
    """An error of the engine's, so that the task starts again instead of skipping the record."""
    fill(store, ENTRIES)
    view = view_of(store, threading.Lock())
    entries = view.all()
    store.close()
    for read in (lambda: view.get(b"a"), view.all, lambda: next(entries)):
        with pytest.raises(StoreCorruptedError, match='the copy of the global store "s" is gone'):
            read()


def test_a_reader_waits_for_whoever_changes_the_store(store: BytesStore) -> None:
    lock = threading.Lock()
    view = view_of(store, lock)
    found: list[bytes | None] = []
    with lock:
        reader = threading.Thread(target=lambda: found.append(view.get(b"a")))
        reader.start()
        store.put(b"a", b"half")
        store.put(b"a", b"whole")
        store.commit(0)
        assert found == []
    reader.join()
    assert found == [b"whole"]


def test_many_readers_see_whole_changes_only_while_one_writes(store: BytesStore) -> None:
    """Two keys that always change together are never seen apart within one scan."""
    lock = threading.Lock()
    view = view_of(store, lock)
    odd: list[object] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            with view.all() as entries:
                found = list(entries)
            if len({value for _, value in found}) > 1:
                odd.append(found)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(200):
        with lock:
            fill(store, [(b"a", b"%d" % number), (b"b", b"%d" % number)])
    is_over.set()
    for reader in readers:
        reader.join()
    assert odd == []
