"""A lock between processes."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, *, wait: bool = True) -> Iterator[int]:
    """Hold the lock of a file; the value is its descriptor.

    Waits without limit while another process holds it, unless `wait` is False. A child process that
    inherits the descriptor holds the lock too, until it ends.

    The operating system releases the lock when its holders die, so it is never stale. The file and
    its folder are created, and stay: if the file were deleted, a process that waits for it and the
    next process to create it could both get the lock.

    Raises:
        BlockingIOError: another process holds it, and `wait` is False.
        OSError: the file cannot be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file.fileno()
