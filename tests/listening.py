"""The TCP ports at which processes listen; of Linux."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")


@dataclass(frozen=True)
class Listener:
    """A port, and the address as the kernel shows it."""

    port: int
    address: str

    @property
    def is_loopback(self) -> bool:
        """Whether only this host can connect."""
        return self.address in _LOOPBACK


def listeners(pid: int) -> Iterator[Listener]:
    """Yield the ports at which a process listens."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(link))
        except FileNotFoundError:  # It was closed since the list was made.
            continue
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = line.split()[1], line.split()[3], line.split()[9]
            if state == "0A" and f"socket:[{inode}]" in inodes:
                address, _, port = local.rpartition(":")
                yield Listener(int(port, 16), address)
