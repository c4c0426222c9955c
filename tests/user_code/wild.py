"""User code that does what takes others with it, if nobody is careful."""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path


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
    if key.startswith(b"cancel"):
        raise asyncio.CancelledError
    if key.startswith(b"hang") and may_hang.exists():
        while True:
            pass
