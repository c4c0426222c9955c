"""Tells the current boot of the machine from others, after which files may have lost their ends."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_id() -> str:
    """Return the id of the current boot, which containers share with their host.

    Where the system has none, as on macOS, each process gets an id of its own.
    """
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return str(uuid4())
