"""Persistent stores in memory: their content outlives the task, like RocksDB's files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_pipeline.streams.stores.bytes_store import NO_TIMESTAMP
from kafka_pipeline.streams.stores.memory import MemoryStore
from kafka_pipeline.streams.stores.rocksdb_directory import StoreLockedError

COMMITS_UNTIL_WRITTEN = 3


@dataclass(slots=True)
class Folder:
    """The content of one store while it is closed."""

    identity: Mapping[str, str] = field(default_factory=dict)
    content: dict[bytes, bytes] = field(default_factory=dict)
    offset: int | None = None
    timestamp: int = NO_TIMESTAMP
    is_locked: bool = False


class Disk:
    """The folders of all workers; `open` replaces `RocksDBStore`."""

    def __init__(self) -> None:
        self.folders: dict[Path, Folder] = {}

    def open(
        self,
        directory: Path,
        identity: Mapping[str, str],
        timestamp_of: Callable[[bytes], int] | None = None,
        segment_of: Callable[[bytes], bytes] | None = None,
        resources: object = None,
    ) -> DiskStore:
        """Open a store; it is empty if the folder is new or has another identity."""
        folder = self.folders.setdefault(directory, Folder())
        if folder.is_locked:
            raise StoreLockedError(f"{directory} is open")
        if folder.identity != identity:
            folder = self.folders[directory] = Folder(dict(identity))
        folder.is_locked = True
        return DiskStore(folder, timestamp_of, segment_of)

    def lose(self, name: str) -> None:
        """Lose the folders in one of this name."""
        self.folders = {at: found for at, found in self.folders.items() if name not in at.parts}


class DiskStore(MemoryStore):
    """A store whose folder lacks the last few committed transactions.

    A crash loses these transactions, as it does with RocksDB.
    """

    def __init__(
        self,
        folder: Folder,
        timestamp_of: Callable[[bytes], int] | None,
        segment_of: Callable[[bytes], bytes] | None,
    ) -> None:
        super().__init__(timestamp_of, segment_of)
        self._folder = folder
        self._committed, self._offset = folder.content.copy(), folder.offset
        self._unwritten = 0
        for key in folder.content:
            self._keys.add(key)
        self._begin(folder.timestamp)

    def wipe(self) -> None:
        """Drop the content; the store is then like a new one."""
        super().wipe()
        folder = self._folder
        folder.content, folder.offset, folder.timestamp = {}, None, NO_TIMESTAMP

    def close(self) -> None:
        """Close the folder; another store may open it."""
        if not self._closed:
            self._folder.is_locked = False
        super().close()

    def _apply(self, entries: Mapping[bytes, bytes | None], offset: int, timestamp: int) -> None:
        super()._apply(entries, offset, timestamp)
        self._unwritten = (self._unwritten + 1) % COMMITS_UNTIL_WRITTEN
        if not self._unwritten:
            folder = self._folder
            folder.content = self._committed.copy()
            folder.offset, folder.timestamp = offset, timestamp
