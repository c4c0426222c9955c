"""The RocksDB store: processes that end, hang or collide while they open one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafka_pipeline.streams.stores import rocksdb_directory
from kafka_pipeline.streams.stores.rocksdb import RocksDBStore
from kafka_pipeline.streams.stores.rocksdb_directory import StoreLockedError, _claim
from tests.unit.streams.rocksdb_stores import IDENTITY, reopened

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 60
RECYCLED_MIDDLE = 7
"""A type of records that RocksDB's logs have where old ones are written over, and ours never."""

SETUP = """
import os, signal, sys
from pathlib import Path
from kafka_pipeline.streams.stores import rocksdb, rocksdb_directory
from tests.unit.streams.rocksdb_stores import IDENTITY
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
"""
OPEN = "store = rocksdb.RocksDBStore(Path(sys.argv[1]), IDENTITY)\n"
DIE_IN_ROCKSDB = "rocksdb_directory.Rdict = die\n"
STAY = "print('open', flush=True)\nsys.stdin.read()\n"


def process(directory: Path, script: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SETUP + script, str(directory)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def let_one_be_killed_while_it_opens(directory: Path) -> None:
    with process(directory, DIE_IN_ROCKSDB + OPEN) as victim:
        assert victim.wait(TIMEOUT_S) == -signal.SIGKILL


def fill(directory: Path, value: bytes) -> None:
    store = RocksDBStore(directory, IDENTITY)
    store.restore({b"k": value}, 3)
    store.close()


def test_store_over_which_rocksdb_loops_forever_is_wiped_by_the_next_process(
    directory: Path,
) -> None:
    """facebook/rocksdb#13333: with rocksdict 0.3.29, nothing but `kill -9` ends that process."""
    fill(directory, b"1")
    (manifest,) = directory.glob("MANIFEST-*")
    content = bytearray(manifest.read_bytes())
    # Before each record's content: 4 bytes of checksum, 2 of length, 1 of type.
    second = 7 + int.from_bytes(content[4:6], "little")
    content[second + 6] = RECYCLED_MIDDLE
    manifest.write_bytes(content)
    with process(directory, OPEN) as victim:
        # Not before it opens the store: the next process would loop in its place.
        while victim.poll() is None and (directory / "OPENING").stat().st_size == 0:
            time.sleep(0.01)
        assert victim.poll() in (None, 0)
        victim.kill()
    store = RocksDBStore(directory, IDENTITY)
    assert (store.get(b"k"), store.offset) == (None, None)
    store.close()


def test_store_in_which_a_process_ended_is_wiped_once(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(directory, b"1")
    let_one_be_killed_while_it_opens(directory)
    store = RocksDBStore(directory, IDENTITY)
    assert "state wiped: a process ended while it opened it" in capsys.readouterr().out
    assert store.offset is None
    store.restore({b"k": b"2"}, 3)
    again = reopened(store, directory)
    assert (again.get(b"k"), again.offset) == (b"2", 3)
    again.close()


def test_store_that_another_process_has_open_is_locked_and_left_alone(directory: Path) -> None:
    write = "store.restore({b'a': b'1'}, 10)\n"
    with process(directory, OPEN + write + STAY) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        with pytest.raises(StoreLockedError, match="Counter_0"):
            RocksDBStore(directory, IDENTITY)
        owner.kill()
    store = RocksDBStore(directory, IDENTITY)
    assert (store.get(b"a"), store.offset) == (b"1", 10)
    store.close()


def test_store_that_another_process_has_open_is_not_wiped(directory: Path) -> None:
    """Though a third one ended while it tried to open it, too."""
    fill(directory, b"1")
    with process(directory, OPEN + STAY) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        let_one_be_killed_while_it_opens(directory)
        with pytest.raises(StoreLockedError):
            RocksDBStore(directory, IDENTITY)
        assert list(directory.glob("MANIFEST-*"))
        owner.kill()


def test_store_that_somebody_is_just_opening_is_locked(directory: Path) -> None:
    fill(directory, b"1")
    with _claim(directory) as is_left:
        assert not is_left
        with pytest.raises(StoreLockedError):
            RocksDBStore(directory, IDENTITY)
    store = RocksDBStore(directory, IDENTITY)
    assert store.get(b"k") == b"1"
    store.close()


@pytest.fixture
def two_logs(tmp_path: Path) -> Path:
    """Return a store as a loss of power may leave it: without the end of the older of two logs.

    The flush that would have made the older log superfluous has not ended.
    """
    directory, left = tmp_path / "store", tmp_path / "left"
    store = RocksDBStore(directory, IDENTITY)
    store.restore({b"a": b"1"}, 1)
    (older,) = directory.glob("*.log")
    size = older.stat().st_size
    store.restore({b"b": b"2"}, 2)
    shutil.copytree(directory, left)
    os.truncate(left / older.name, size)
    store._db.flush()
    store.restore({b"c": b"3"}, 3)
    (newer,) = directory.glob("*.log")
    shutil.copy(newer, left)
    store.close()
    return left


def test_rocksdb_replays_a_log_though_the_one_before_it_has_lost_its_end(two_logs: Path) -> None:
    """facebook/rocksdb#7701. Once this fails, stores need not be wiped after a loss of power."""
    store = RocksDBStore(two_logs, IDENTITY)
    assert [store.get(key) for key in (b"a", b"b", b"c")] == [b"1", None, b"3"]
    assert store.offset == 3
    store.close()


def test_store_with_two_logs_is_wiped_once_the_machine_has_started_again(
    two_logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rocksdb_directory, "boot_id", lambda: "another")
    store = RocksDBStore(two_logs, IDENTITY)
    assert "state wiped: the machine has started again since" in capsys.readouterr().out
    assert (store.get(b"a"), store.offset) == (None, None)
    store.restore({b"a": b"1"}, 1)
    again = reopened(store, two_logs)
    assert (again.get(b"a"), again.offset) == (b"1", 1)
    again.close()


def test_store_with_one_log_has_what_is_left_of_it_after_a_loss_of_power(
    two_logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    max(two_logs.glob("*.log")).unlink()
    monkeypatch.setattr(rocksdb_directory, "boot_id", lambda: "another")
    store = RocksDBStore(two_logs, IDENTITY)
    assert (store.get(b"a"), store.get(b"b"), store.offset) == (b"1", None, 1)
    assert (two_logs / "BOOT").read_text() == "another"
    store.close()


def test_store_that_is_closed_while_it_flushes_has_one_log(directory: Path) -> None:
    """Else, the whole store would have to be restored after the machine was started again."""
    store = RocksDBStore(directory, IDENTITY)
    for number in range(3):
        store.restore({b"%d" % key: bytes(10_000) for key in range(1_000)}, number)
        store._db.flush(wait=False)
        store = reopened(store, directory)
    store.close()
    assert len(list(directory.glob("*.log"))) == 1


def test_only_its_owner_may_enter_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "tasks" / "store"
    RocksDBStore(directory, IDENTITY).close()
    assert directory.stat().st_mode & 0o777 == 0o700
