"""A lock between processes."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock of a file, waiting without limit while another process holds it.

    The operating system releases the lock when its holder dies, so it is never stale. The file and
    its folder are created, and stay: if the file were deleted, a process that waits for it and the
    next process to create it could both get the lock.

    Raises:
        OSError: the file cannot be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
