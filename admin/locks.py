"""Let one process at a time do a thing."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock of a file, waiting without limit for whoever holds it now.

    The operating system gives the lock back when its holder dies, so none is ever stale. The file
    and its folder are created, and stay: while the file is gone, whoever waits for it and whoever
    comes next would not keep each other out.

    Raises:
        OSError: the file cannot be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
