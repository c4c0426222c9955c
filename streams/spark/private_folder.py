"""Folders for Spark's JVM that only this user may enter, and that do not stay if it is killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_PREFIX = "pipeline-jvm-"
_NEW_S = 60.0
"""A folder that is this new may not be locked yet."""


def private_folder(parent: str | None = None) -> Path:
    """Return a new folder in `parent`, by default in the folder for temporary files.

    The JVM should delete it as it ends. If it is killed, it cannot, and the next call in any
    process does: the folder is locked for as long as this process lives.
    """
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    with suppress(OSError):  # a file system without locks has none for the next call either
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)
    for other in folder.parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is another user's, or its process lives
            _delete_abandoned(other)
    return folder


def _delete_abandoned(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(descriptor)
        if found.st_uid == os.geteuid() and found.st_mtime < time.time() - _NEW_S:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)
