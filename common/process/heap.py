"""The heap of the C library: what is free in it goes back to the system."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERVAL_S = 60.0


@contextmanager
def trimmed_heap(interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Give free memory back to the system each minute, on another thread, while this is entered.

    glibc has separate heaps for threads, and keeps what becomes free in the middle of them. Each
    start of a task has clients with threads of their own, so a process seemed to need ever more
    memory. With another C library, this does nothing.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        yield
        return
    trim = library.malloc_trim
    trim.argtypes = (ctypes.c_size_t,)
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(interval_s):
            trim(0)

    threading.Thread(target=run, name="heap", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
