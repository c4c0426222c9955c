"""User code that does what takes others with it, if nobody is careful."""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path

_CHUNK_BYTES, _MOST_CHUNKS = 32_000_000, 125
"""4 GB at most, if nothing ends the process before."""


class Panic(BaseException):
    """Like the panics of extensions in Rust (PyO3 3918), which are no `Exception`."""


def misbehave(key: bytes, may_hang: Path) -> None:
    """Do what the beginning of the key says; loop forever only while the file `may_hang` exists."""
    if key.startswith(b"panic"):
        raise Panic("called `Option::unwrap()` on a `None` value")
    if key.startswith(b"exit"):
        raise SystemExit(1)
    if key.startswith(b"crash"):
        ctypes.string_at(0)
    if key.startswith(b"end"):
        os._exit(3)
    if key.startswith(b"bomb"):
        taken = [b"\1" * _CHUNK_BYTES for _ in range(_MOST_CHUNKS)]
        raise MemoryError(f"{len(taken)} chunks of memory, and nothing has ended this process")
    if key.startswith(b"cancel"):
        raise asyncio.CancelledError
    if key.startswith(b"hang") and may_hang.exists():
        while True:
            pass
