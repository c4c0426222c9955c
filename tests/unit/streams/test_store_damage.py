"""The RocksDB store: damaged directories, and hosts short of a resource."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.stores.rocksdb import MOST_COMMITS, RocksDBStore
from kafka_pipeline.streams.stores.rocksdb_directory import (
    StoreCorruptedError,
    StoreLockedError,
    StoreUnavailableError,
)
from tests.unit.streams.rocksdb_stores import IDENTITY, reopened


@pytest.mark.parametrize("damage", [b"", b"garbage\n", b"MANIFEST-999999\n"])
def test_store_with_a_corrupt_current_file_is_wiped_and_works(
    directory: Path, damage: bytes
) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.put(b"a", b"1")
    store.commit(10)
    store.close()
    (directory / "CURRENT").write_bytes(damage)
    again = RocksDBStore(directory, IDENTITY)
    assert (again.get(b"a"), again.offset) == (None, None)
    again.put(b"a", b"2")
    again.commit(4)
    assert again.get(b"a") == b"2"
    again.close()


def test_store_with_a_truncated_manifest_is_wiped_and_works(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.put(b"a", b"1")
    store.commit(10)
    store.close()
    for manifest in directory.glob("MANIFEST-*"):
        manifest.write_bytes(b"")
    again = RocksDBStore(directory, IDENTITY)
    assert (again.get(b"a"), again.offset) in [(None, None), (b"1", 10)]
    again.commit(4)
    assert again.offset == 4
    again.close()


def damaged(directory: Path, first: int, last: int) -> None:
    """Make a store with an SST file and flip its bytes from `first` to `last`."""
    store = RocksDBStore(directory, IDENTITY)
    for number in range(2000):
        store.put(b"key %d" % number, b"v" * 50)
    store.commit(10)
    reopened(store, directory).close()  # Opening writes what is in the log to an SST file.
    (path,) = directory.glob("*.sst")
    content = bytearray(path.read_bytes())
    content[first:last] = bytes(byte ^ 0xFF for byte in content[first:last])
    path.write_bytes(content)


def test_one_bit_that_flipped_is_found_or_changes_nothing(directory: Path, tmp_path: Path) -> None:
    """Whatever a store still has is what was committed before its offset."""
    draws = Random(1)
    contents: list[dict[bytes, bytes]] = [{}]
    store = RocksDBStore(directory, IDENTITY)
    for offset in range(1, 5 * MOST_COMMITS + 1):
        if offset % (2 * MOST_COMMITS) == 1:
            store = reopened(store, directory)  # what is in the log goes to an SST file
        changes = {b"key %d" % draws.randrange(100): draws.randbytes(200) for _ in range(20)}
        for key, value in changes.items():
            store.put(key, value)
        store.commit(offset)
        contents.append(contents[-1] | changes)
    whole = shutil.copytree(directory, tmp_path / "whole")
    store.close()
    kinds = ("*.sst", "*.log", "MANIFEST-*", "CURRENT", "rocksdict-config.json")
    seen = set[str]()
    for number, kind in product(range(8), kinds):
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(whole, directory)
        file = draws.choice([each for each in sorted(directory.glob(kind)) if each.stat().st_size])
        data = bytearray(file.read_bytes())
        bit = draws.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        found = RocksDBStore(directory, IDENTITY)
        try:
            entries, offset = dict(found.scan(b"", None)), found.offset or 0
        except StoreCorruptedError:
            seen.add("damaged")
        else:
            assert entries == contents[offset], f"{file.name}, bit {bit}, number {number}"
            seen.add("wiped" if offset == 0 else "older" if offset + 1 < len(contents) else "whole")
        found.close()
    assert seen == {"damaged", "wiped", "older", "whole"}


def test_store_with_corrupt_blocks_is_wiped_not_taken_for_locked(directory: Path) -> None:
    damaged(directory, -4000, -100)
    store = RocksDBStore(directory, IDENTITY)
    assert (store.get(b"key 1"), store.offset) == (None, None)
    store.commit(4)
    assert store.offset == 4
    store.close()


def test_store_whose_identity_cannot_be_read_is_wiped_and_says_so(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged(directory, 0, 2000)
    store = RocksDBStore(directory, IDENTITY)
    assert (store.get(b"key 1"), store.offset) == (None, None)
    assert f"state wiped: {directory} was damaged: Corruption" in capsys.readouterr().out
    store.close()


def test_store_whose_data_turns_out_corrupt_is_new_when_it_is_opened_again(
    directory: Path,
) -> None:
    damaged(directory, 8000, 12_000)
    store = RocksDBStore(directory, IDENTITY)
    assert store.offset == 10
    with pytest.raises(StoreCorruptedError, match="Counter_0"):
        [store.get(b"key %d" % number) for number in range(2000)]
    again = reopened(store, directory)
    assert (again.get(b"key 1"), again.offset) == (None, None)
    again.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_that_finds_damage_does_not_end_as_if_all_were_there(
    directory: Path, reverse: bool
) -> None:
    damaged(directory, 8000, 12_000)
    store = RocksDBStore(directory, IDENTITY)
    entries = store.scan(b"", None, reverse)
    waiting = store.scan(b"", None)
    with pytest.raises(StoreCorruptedError, match="Counter_0"):
        list(entries)
    with pytest.raises(StateStoreError):
        next(waiting)
    again = reopened(store, directory)
    assert (again.get(b"key 1"), again.offset) == (None, None)
    again.close()


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({"kind": "window"}, "kind of store window, this version has kind of store session"),
        ({"kind": "session", "format": "0"}, "format 0, this version has format 1"),
        ({"kind": "session", "topic": "t2"}, "belongs to another store"),
    ],
)
def test_warning_says_why_the_content_cannot_be_used(
    directory: Path, found: dict[str, str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    RocksDBStore(directory, {"topic": "t", **found}).close()
    RocksDBStore(directory, {"topic": "t", "kind": "session"}).close()
    assert why in capsys.readouterr().out
    RocksDBStore(directory, {"topic": "t", "kind": "session"}).close()
    assert "state wiped" not in capsys.readouterr().out


def test_store_that_is_closed_and_read_keeps_its_directory(directory: Path) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.put(b"a", b"1")
    store.commit(10)
    store.close()
    with pytest.raises(StateStoreError, match="closed"):
        store.get(b"a")
    again = RocksDBStore(directory, IDENTITY)
    assert (again.get(b"a"), again.offset) == (b"1", 10)
    again.close()


def test_directory_with_foreign_files_is_used(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "notes.txt").write_text("mine")
    store = RocksDBStore(directory, IDENTITY)
    store.commit(1)
    assert store.offset == 1
    store.close()


def test_store_that_is_open_in_this_process_is_locked(store: RocksDBStore, directory: Path) -> None:
    with pytest.raises(StoreLockedError):
        RocksDBStore(directory, IDENTITY)
    store.commit(1)
    assert store.offset == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_directory_that_cannot_be_written_is_an_oserror(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="ermission"):
        RocksDBStore(tmp_path / "store", IDENTITY)
    tmp_path.chmod(0o700)


def test_file_in_the_place_of_the_directory_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(OSError, match="exists"):
        RocksDBStore(tmp_path / "store", IDENTITY)


SHORT = "IO error: No space left on device: While appending to file"


class ShortDisk:
    """RocksDB on a host that is short of something."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._fail

    def _fail(self, *_: object) -> None:
        raise Exception(SHORT)

    def close(self) -> None: ...


def commit_often(store: RocksDBStore) -> None:
    """Commit until the changes are written."""
    for _ in range(MOST_COMMITS):
        store.commit(3)


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.get(b"key"),
        lambda store: store.drop_range(b"", None),
        lambda store: store.scan(b"", None),
        commit_often,
    ],
    ids=["get", "drop_range", "scan", "commit"],
)
def test_what_the_host_is_short_of_is_no_damage(
    directory: Path, use: Callable[[RocksDBStore], object]
) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.restore({b"kept": b"1"}, 3)
    db, store._db = store._db, ShortDisk()  # type: ignore[assignment]
    with pytest.raises(StoreUnavailableError, match="No space left"):
        use(store)
    store._db = db
    again = reopened(store, directory)
    assert (again.get(b"kept"), again.offset) == (b"1", 3)
    again.close()


class BrokenDisk(ShortDisk):
    """RocksDB on a disk that fails, which also closing reports."""

    def _fail(self, *_: object) -> None:
        raise Exception("IO error: While fdatasync: 000016.log: Input/output error")

    def close(self) -> None:
        self._fail()


def test_disk_that_fails_while_a_store_is_wiped_is_no_bug_of_the_engine(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksDBStore(directory, IDENTITY)
    db, store._db = store._db, BrokenDisk()  # type: ignore[assignment]
    with pytest.raises(StoreUnavailableError, match="Input/output error"):
        store.wipe()
    store._db = db
    with monkeypatch.context() as patch:
        patch.setattr(
            "kafka_pipeline.streams.stores.rocksdb_directory.Rdict", lambda *_: BrokenDisk().open()
        )
        with pytest.raises(StoreUnavailableError, match="Input/output error"):
            store.wipe()
    again = reopened(store, directory)
    again.commit(4)
    assert again.offset == 4
    again.close()


def test_damage_that_rocksdb_finds_as_it_compacts_ends_the_store(directory: Path) -> None:
    """From then on it takes no more writes; closing it, it may say so again."""

    class ReadOnly(ShortDisk):
        def _fail(self, *_: object) -> None:
            raise Exception("Corruption: block checksum mismatch: stored = 1, computed = 2")

        def close(self) -> None:
            self._fail()

    uses: list[Callable[[RocksDBStore], object]] = [
        commit_often,
        lambda store: store.restore({b"k": b"1"}, 7),
        lambda store: store.drop_range(b"", None),
        lambda store: store.scan(b"", None),
    ]
    for use in uses:
        store = RocksDBStore(directory, IDENTITY)
        store.restore({b"kept": b"1"}, 3)
        store._db.close()
        store._db = ReadOnly()  # type: ignore[assignment]
        with pytest.raises(StoreCorruptedError, match="block checksum mismatch"):
            use(store)
        again = RocksDBStore(directory, IDENTITY)
        assert again.offset is None
        again.close()


def test_store_that_cannot_be_opened_for_a_shortage_is_kept(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.restore({b"kept": b"1"}, 3)
    store.close()
    with monkeypatch.context() as patch:
        patch.setattr(
            "kafka_pipeline.streams.stores.rocksdb_directory.Rdict", lambda *_: ShortDisk().open()
        )
        with pytest.raises(StoreUnavailableError, match="No space left"):
            RocksDBStore(directory, IDENTITY)
    again = RocksDBStore(directory, IDENTITY)
    assert again.get(b"kept") == b"1"
    again.close()


def test_damaged_store_says_so_as_often_as_it_is_used(directory: Path) -> None:
    """The user's code may have taken the first error for one of its own."""
    damaged(directory, 8000, 12_000)
    store = RocksDBStore(directory, IDENTITY)
    with pytest.raises(StoreCorruptedError):
        [store.get(b"key %d" % number) for number in range(2000)]
    uses: list[Callable[[], object]] = [
        lambda: store.get(b"x"),
        lambda: store.put(b"x", b"1"),
        lambda: store.scan(b"", None),
        lambda: store.drop_range(b"", None),
        store.require_open,
    ]
    for use in uses:
        with pytest.raises(StoreCorruptedError, match="was damaged"):
            use()
    store.close()


def test_store_closes_after_a_write_that_failed(directory: Path) -> None:
    class FullDisk:
        def close(self) -> None:
            raise Exception("IO error: Writer has previous error.")

    store = RocksDBStore(directory, IDENTITY)
    store.close()
    store._db = FullDisk()  # type: ignore[assignment]
    store.close()
