"""Opens RocksDB directories: one process at a time, and never the same damage twice."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
from rocksdict import Options, Rdict

from kafka_pipeline.common.boot import boot_id
from kafka_pipeline.common.errors import EngineError

_BOOT = "BOOT"
"""The file with the id of the boot under which the store was last opened."""
_LOCKED = ("While lock file", "lock hold by current process")
# Parts of RocksDB's errors that do not blame the content of the directory.
_SHORTAGES = tuple(
    map(
        os.strerror,
        (
            errno.ENOSPC,
            errno.EDQUOT,
            errno.EFBIG,
            errno.EMFILE,
            errno.ENFILE,
            errno.ENOMEM,
            errno.EACCES,
            errno.EROFS,
        ),
    )
)

logger = structlog.get_logger()


class StoreLockedError(EngineError):
    """Another process has the store open. The caller waits and tries again."""


class StoreCorruptedError(EngineError):
    """The local copy was damaged and is gone. The caller opens a new one and restores all of it."""


class StoreUnavailableError(EngineError):
    """The host is short of something, such as disk space. The caller opens it again later."""


def open_directory(directory: Path, options: Callable[[], Options]) -> Rdict:
    """Open RocksDB in `directory`, which is made if missing, and wiped if it cannot be read.

    Only its owner may enter it. `options` makes RocksDB's options for each attempt. Raises
    `StoreLockedError` while another process has the store open, `StoreUnavailableError`, and
    `OSError` if the directory cannot be written.
    """
    directory.mkdir(0o700, parents=True, exist_ok=True)
    with _claim(directory) as is_left:
        is_of_now = _is_of_this_boot(directory)
        if is_left:
            logger.warning(
                "state wiped: a process ended while it opened it", directory=str(directory)
            )
        elif not is_of_now and _may_lack_changes(directory):
            logger.warning(
                "state wiped: the machine has started again since, and may have lost the end of "
                "one of two write-ahead logs",
                directory=str(directory),
            )
        else:
            if not is_of_now:
                (directory / _BOOT).write_text(boot_id())
            try:
                return Rdict(str(directory), options())
            except Exception as error:  # rocksdict raises bare Exceptions
                if any(text in str(error) for text in _LOCKED):
                    raise StoreLockedError(f"{directory} is in use") from error
                if is_shortage(error):
                    raise StoreUnavailableError(f"{directory}: {error}") from error
                logger.warning(
                    "state wiped: RocksDB cannot open it",
                    directory=str(directory),
                    reason=str(error),
                )
        shutil.rmtree(directory)
        directory.mkdir(0o700, parents=True)
        (directory / _BOOT).write_text(boot_id())
        try:
            return Rdict(str(directory), options())
        except Exception as error:  # rocksdict raises bare Exceptions
            raise StoreUnavailableError(f"{directory}: {error}") from error


def _is_of_this_boot(directory: Path) -> bool:
    """Whether the store was last opened since the machine started."""
    try:
        return (directory / _BOOT).read_bytes() == boot_id().encode()
    except FileNotFoundError:
        return False


def _may_lack_changes(directory: Path) -> bool:
    """Whether a loss of power may have left a gap in the store.

    Nothing syncs the logs to disk. A single one is replayed up to what it has lost. Of two, which
    there are while RocksDB flushes what the older one has, the newer one is replayed, too, if the
    older one was cut between two records (facebook/rocksdb#7701). The store would then say that it
    has all changes up to its offset.
    """
    return len(list(directory.glob("*.log"))) > 1


def is_shortage(error: Exception) -> bool:
    """Whether the host is to blame, and not the content of the directory."""
    return any(text in str(error) for text in _SHORTAGES)


@contextmanager
def _claim(directory: Path) -> Iterator[bool]:
    """Claim a directory while RocksDB opens it; yields whether an earlier claim was not released.

    On some damaged files, RocksDB loops forever and keeps the interpreter's lock
    (facebook/rocksdb#13333). A process that ends in this loop leaves its claim, so that the next
    process does not enter the loop too. Raises `StoreLockedError` while somebody else has a claim
    or the store.
    """
    descriptor = os.open(directory / "OPENING", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreLockedError(f"{directory} is in use") from error
        # The size of the file marks the claim: that needs no space, even on a full disk.
        is_left = os.fstat(descriptor).st_size > 0
        if is_left:
            _require_unlocked(directory)
        os.ftruncate(descriptor, 1)
        try:
            yield is_left
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _require_unlocked(directory: Path) -> None:
    """Raise `StoreLockedError` if another process holds RocksDB's lock of a directory."""
    with (directory / "LOCK").open("a") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise StoreLockedError(f"{directory} is in use") from error
