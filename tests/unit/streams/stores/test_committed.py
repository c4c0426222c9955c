"""What other threads see of a store: what is committed, and nothing else."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.stores import committed, rocksdb
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from kafka_pipeline.streams.stores.committed import CommittedBytes, ReadLimitError
from kafka_pipeline.streams.stores.rocksdb import MOST_COMMITS, RocksDBStore
from tests.unit.streams.stores.backends import IDENTITY, Backend
from tests.unit.streams.stores.test_model import KINDS, Content

MANY = 10_000
Entries = list[tuple[bytes, bytes]]


def view(store: BytesStore, most_entries: int = MANY) -> CommittedBytes:
    return store.committed(most_entries, 60)


def content(store: BytesStore, reverse: bool = False) -> Entries:
    with view(store) as seen:
        return list(seen.scan(b"", None, reverse))


def commit(store: BytesStore, offset: int, **changes: bytes | None) -> None:
    for key, value in changes.items():
        store.put(key.encode(), value)
    store.commit(offset)


def test_the_open_transaction_is_not_seen_before_it_is_committed(store: BytesStore) -> None:
    commit(store, 1, a=b"1", gone=b"1")
    store.put(b"a", b"2")
    store.put(b"b", b"2")
    store.put(b"gone", None)
    with view(store) as seen:
        assert seen.get_many([b"a", b"b", b"gone"]) == [b"1", None, b"1"]
        assert list(seen.scan(b"", None)) == [(b"a", b"1"), (b"gone", b"1")]
    store.commit(2)
    with view(store) as seen:
        assert seen.get_many([b"a", b"b", b"gone"]) == [b"2", b"2", None]
        assert list(seen.scan(b"", None)) == [(b"a", b"2"), (b"b", b"2")]


def test_what_is_undone_or_rolled_back_is_never_seen(store: BytesStore) -> None:
    commit(store, 1, a=b"1")
    store.mark()
    store.put(b"a", b"2")
    assert content(store) == [(b"a", b"1")]
    store.undo()
    store.put(b"a", b"3")
    store.rollback()
    assert content(store) == [(b"a", b"1")]


steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "commit", "rollback", "restore"]),
        st.sampled_from([b"", b"\x00", b"a", b"a\x00", b"ab", b"\xff"]),
        st.none() | st.binary(max_size=2),
    ),
    max_size=60,
)


@KINDS
@given(steps=steps)
def test_a_view_is_the_content_at_the_last_commit(
    kind: str,
    steps: list[tuple[str, bytes, bytes | None]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    backend = Backend(kind, tmp_path_factory.mktemp("store") / "store")
    store = backend.open()
    expected: Content = {}
    changes: Content = {}
    for number, (action, key, value) in enumerate(steps):
        if action == "put":
            changes[key] = value
            store.put(key, value)
        elif action == "commit":
            expected |= changes
            changes = {}
            store.commit(number)
        elif action == "rollback":
            changes = {}
            store.rollback()
        elif not changes:
            expected[key] = value
            store.restore({key: value}, number)
        wanted = sorted((k, v) for k, v in expected.items() if v is not None)
        assert content(store) == wanted
        assert content(store, reverse=True) == wanted[::-1]
        with view(store) as seen:
            assert seen.get(key) == expected.get(key)
            assert seen.range(b"a", b"b") == [e for e in wanted if b"a" <= e[0] < b"b"]
    backend.close()


def test_a_view_of_rocksdb_stays_as_it_was(tmp_path: Path) -> None:
    store = RocksDBStore(tmp_path / "store", IDENTITY)
    commit(store, 1, a=b"1")
    with view(store) as seen:
        for number in range(2, 3 * MOST_COMMITS):
            commit(store, number, a=b"%d" % number, b=b"1")
        assert seen.get_many([b"a", b"b"]) == [b"1", None]
        assert list(seen.scan(b"", None)) == [(b"a", b"1")]
    store.close()


def test_a_store_that_closes_ends_views_and_can_be_opened_again_at_once(tmp_path: Path) -> None:
    store = RocksDBStore(tmp_path / "store", IDENTITY)
    store.restore({b"%06d" % n: b"v" for n in range(MANY)}, 1)
    has_begun, read = threading.Event(), list[int]()

    def query() -> None:
        try:
            while True:
                with view(store, 10 * MANY) as seen:
                    for count, _ in enumerate(seen.scan(b"", None)):
                        read.append(count)
                        has_begun.set()
        except StateStoreError:
            pass

    threads = [threading.Thread(target=query) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert has_begun.wait(30)
    store.close()
    again = RocksDBStore(tmp_path / "store", IDENTITY)  # refused while an iterator is left
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert read
    assert content(again)[0] == (b"000000", b"v")
    again.close()


def is_closing(store: BytesStore) -> bool:
    try:
        with view(store):
            return False
    except StateStoreError:
        return True


def test_a_store_closes_only_when_its_views_hold_nothing_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed, "END_WAIT_S", 60)
    store = RocksDBStore(tmp_path / "store", IDENTITY)
    commit(store, 1, a=b"1", b=b"1")
    closer = threading.Thread(target=store.close)
    with view(store) as seen:
        entries = seen.scan(b"", None)
        next(entries)
        closer.start()
        while not is_closing(store):
            closer.join(0.01)
        assert closer.is_alive()
        with pytest.raises(StateStoreError, match="closed"):
            next(entries)
        with pytest.raises(StateStoreError, match="closed"):
            seen.get(b"a")
    closer.join(30)
    RocksDBStore(tmp_path / "store", IDENTITY).close()


def test_a_store_that_is_closed_gives_no_views(store: BytesStore) -> None:
    store.close()
    with pytest.raises(StateStoreError, match="closed"):
        view(store)


def test_a_store_that_was_wiped_gives_views_of_what_it_has_then(store: BytesStore) -> None:
    commit(store, 1, a=b"1")
    store.wipe()
    assert content(store) == []
    commit(store, 1, a=b"2")
    assert content(store) == [(b"a", b"2")]


def test_a_view_reads_no_more_than_it_may(store: BytesStore) -> None:
    commit(store, 1, a=b"1", b=b"1", c=b"1")
    with view(store, 2) as seen:
        entries = seen.scan(b"", None)
        assert [next(entries), next(entries)] == [(b"a", b"1"), (b"b", b"1")]
        with pytest.raises(ReadLimitError):
            next(entries)
    with store.committed(MANY, -1) as seen, pytest.raises(ReadLimitError):
        seen.get(b"a")


def test_a_view_does_not_step_over_any_number_of_deleted_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb, "_MOST_DELETED", 100)
    store = RocksDBStore(tmp_path / "store", IDENTITY)
    keys = [b"%06d" % n for n in range(1000)]
    store.restore(dict.fromkeys(keys, b"v"), 1)
    store.restore(dict.fromkeys(keys[10:], None), 2)
    with view(store) as seen:
        assert seen.range(keys[0], keys[5]) == [(key, b"v") for key in keys[:5]]
        with pytest.raises(ReadLimitError):
            list(seen.scan(b"", None))
    store.close()


def test_a_view_cannot_be_written(store: BytesStore) -> None:
    with view(store) as seen:
        with pytest.raises(StateStoreError, match="can only be read"):
            seen.put(b"a", b"1")
        with pytest.raises(StateStoreError, match="can only be read"):
            seen.put_many({})
        with pytest.raises(StateStoreError, match="can only be read"):
            seen.drop_range(b"", None)


def test_queries_while_a_task_commits_see_whole_transactions_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb, "MOST_COMMITS", 3)
    store = RocksDBStore(tmp_path / "store", IDENTITY)
    commit(store, 1, a=b"0", z=b"0")
    stop, seen_values, broken = threading.Event(), set[bytes](), list[Entries]()

    def query() -> None:
        former = b"0"
        while not stop.is_set():
            found = content(store)
            values = {value for _, value in found}
            if len(found) != 2 or len(values) != 1 or int(found[0][1]) < int(former):
                broken.append(found)
                return
            former = found[0][1]
            seen_values.add(former)

    threads = [threading.Thread(target=query) for _ in range(2)]
    for thread in threads:
        thread.start()
    number = 1
    while number < 300 or (len(seen_values) < 20 and number < 100_000 and not broken):
        number += 1
        commit(store, number, a=b"%d" % number, z=b"%d" % number)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not broken
    assert len(seen_values) >= 20
    store.close()
