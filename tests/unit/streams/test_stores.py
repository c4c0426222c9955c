"""The RocksDB store: crashes, restores and memory; `stores/test_model.py` has its transactions."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.streams.stores.rocksdb import RocksDBStore
from tests.unit.streams.rocksdb_stores import IDENTITY, reopened


def test_size_on_disk_grows_with_what_is_written(store: RocksDBStore) -> None:
    before = store.disk_bytes()
    for n in range(40):
        store.put(b"%d" % n, bytes(100_000))
    store.commit(40)
    store.approximate_num_entries()  # writes what is only in memory
    assert store.disk_bytes() >= before + 3_000_000


@pytest.mark.parametrize("key", [b"\x00offset", b"\x00identity", b"\x01", b"offset", b"\x01a"])
def test_keys_of_users_do_not_meet_the_stores_own(key: bytes, directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.put(key, b"mine")
    store.commit(10)
    again = reopened(store, directory)
    assert (again.get(key), again.offset) == (b"mine", 10)
    again.put(key, None)
    again.commit(11)
    assert (again.get(key), again.offset) == (None, 11)
    again.close()


# Closing and opening.


def test_committed_content_and_offset_survive(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.put(b"a", b"1")
    store.put(b"b", b"2")
    store.commit(10)
    store.put(b"b", None)
    store.commit(11)
    again = reopened(store, directory)
    assert (again.get(b"a"), again.get(b"b"), again.offset) == (b"1", None, 11)
    again.close()


def test_uncommitted_content_is_gone(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.put(b"a", b"1")
    store.commit(10)
    store.put(b"a", b"2")
    again = reopened(store, directory)
    assert (again.get(b"a"), again.offset) == (b"1", 10)
    again.close()


def test_restored_entries_and_deletions_survive(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.restore({b"a": b"1", b"b": b"2"}, 5)
    store.restore({b"a": None, b"c": b"3"}, 9)
    again = reopened(store, directory)
    assert [again.get(key) for key in (b"a", b"b", b"c")] == [None, b"2", b"3"]
    assert again.offset == 9
    again.close()


def test_restored_entries_replace_what_was_read_before(store: RocksDBStore) -> None:
    store.put(b"a", b"1")
    store.commit(10)
    assert (store.get(b"a"), store.get(b"b")) == (b"1", None)
    store.restore({b"b": b"2", b"a": None}, 20)
    assert (store.get(b"a"), store.get(b"b"), store.offset) == (None, b"2", 20)


def test_transaction_with_more_keys_than_are_cached_is_whole(
    directory: Path,
) -> None:
    store = RocksDBStore(directory, IDENTITY, resources=StoreResources(1000))
    for value in (b"1", b"2"):
        for number in range(25):
            store.put(b"%d" % number, value)
        store.commit(int(value))
        assert {store.get(b"%d" % number) for number in range(25)} == {value}
    store.close()


RESTORER = """
import sys
from itertools import pairwise
from pathlib import Path
from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.stores.rocksdb import RocksDBStore
store = RocksDBStore(Path(sys.argv[1]), {"topic": "state_topic_Counter"})
for offset in range(1, 1_000_000):
    store.restore({b"%d" % key: b"%d" % offset for key in range(500)}, offset)
    print(offset, flush=True)
"""


def test_store_of_a_killed_restore_has_what_its_offset_says(directory: Path) -> None:
    restorer = subprocess.Popen(
        [sys.executable, "-c", RESTORER, str(directory)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert restorer.stdout is not None
    with restorer:
        while int(restorer.stdout.readline()) < 50:
            pass
        restorer.kill()
    store = RocksDBStore(directory, {"topic": "state_topic_Counter"})
    assert store.offset is not None
    assert store.offset >= 50
    assert {store.get(b"%d" % key) for key in range(500)} == {b"%d" % store.offset}
    store.close()


@pytest.mark.parametrize(
    "other",
    [
        {**IDENTITY, "partition": "1"},
        {**IDENTITY, "cluster": "xyz"},
        {"topic": "state_topic_Counter"},
        {},
    ],
    ids=["other partition", "other cluster", "fewer facts", "none"],
)
def test_content_of_another_identity_is_wiped(directory: Path, other: dict[str, str]) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.put(b"a", b"1")
    store.commit(10)
    store.close()
    store = RocksDBStore(directory, other)
    assert (store.get(b"a"), store.offset) == (None, None)
    store.put(b"b", b"1")
    store.commit(3)
    store.close()
    again = RocksDBStore(directory, other)
    assert (again.get(b"b"), again.offset) == (b"1", 3)
    again.close()


def test_identity_does_not_depend_on_the_order_of_its_facts(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.commit(10)
    store.close()
    again = RocksDBStore(directory, dict(reversed(IDENTITY.items())))
    assert again.offset == 10
    again.close()


def test_wipe_leaves_a_new_store_that_works(store: RocksDBStore) -> None:
    store.put(b"a", b"1")
    store.commit(10)
    store.put(b"b", b"1")
    store.wipe()
    assert (store.get(b"a"), store.get(b"b"), store.offset) == (None, None, None)
    assert store.uncommitted == {}
    store.put(b"a", b"2")
    store.commit(1)
    assert (store.get(b"a"), store.offset) == (b"2", 1)


def test_caches_of_all_stores_are_bounded_together(directory: Path) -> None:
    limit = 20_000
    resources = StoreResources(limit)
    opened = [RocksDBStore(directory / str(n), IDENTITY, resources=resources) for n in range(3)]

    def cached() -> int:
        return sum(store._cache.measure() for store in opened)

    for number in range(100):
        store = opened[number % 3]
        store.put(b"%d" % number, b"x" * 1000)
        store.commit(number)
        assert cached() <= limit
    for number in range(100):
        for place, store in enumerate(opened):
            wanted = b"x" * 1000 if place == number % 3 else None
            assert store.get(b"%d" % number) == wanted
            assert cached() <= limit
    asked = [b"%d" % number for number in range(100)]
    assert opened[0].get_many(asked) == [b"x" * 1000 if n % 3 == 0 else None for n in range(100)]
    assert cached() <= limit
    assert cached() > 0
    for store in opened:
        store.close()
    assert cached() == 0


def test_stores_share_the_memory_of_rocksdb(directory: Path) -> None:
    resources = StoreResources()
    opened, buffered, blocks = [], [0], [resources._block_cache.get_usage()]
    for number in range(3):
        store = RocksDBStore(directory / str(number), IDENTITY, resources=resources)
        store.put_many({b"%06d" % key: b"x" * 100 for key in range(20_000)})
        store.commit(1)
        opened.append(store)
        buffered.append(resources._write_buffers.get_usage())
    assert all(more - less > 2_000_000 for less, more in pairwise(buffered))
    for store in opened:
        store._db.flush()
        store._cache.clear()
        assert store.get(b"000100") == b"x" * 100
        blocks.append(resources._block_cache.get_usage())
    assert all(more - less > 10_000 for less, more in pairwise(blocks))
    for store in opened:
        store.close()


def test_messages_of_rocksdb_do_not_fill_the_disk(store: RocksDBStore, directory: Path) -> None:
    (options,) = directory.glob("OPTIONS-*")
    lines = options.read_text().splitlines()
    settings = dict(line.strip().split("=", 1) for line in lines if "=" in line)
    assert (settings["max_log_file_size"], settings["keep_log_file_num"]) == ("1048576", "1")


def test_entries_that_are_written_over_stay_in_the_cache(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY, resources=StoreResources(20_000))
    for number in range(200):
        store.put_many({b"%d" % key: b"%d" % number for key in range(20)})
        store.commit(number)
        store._write()
        assert len(store._cached) == 20
    store.close()


def test_the_largest_cache_makes_room_for_others(directory: Path) -> None:
    resources = StoreResources(20_000)
    large, small = (
        RocksDBStore(directory / name, IDENTITY, resources=resources) for name in ("l", "s")
    )
    for store, keys in ((large, 80), (small, 60)):
        store.put_many({b"%d" % key: b"v" for key in range(keys)})
        store.commit(1)
        store._write()
    assert (len(large._cached), len(small._cached)) == (0, 60)
    assert large.get(b"79") == b"v"
    large.close()
    small.close()
