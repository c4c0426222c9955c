"""Both kinds of bytes stores under one handle, so that every test runs on each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_pipeline.streams.stores import StoreBuilder
from kafka_pipeline.streams.stores.bytes_store import SEGMENT_BYTES, BytesStore
from kafka_pipeline.streams.stores.memory import MemoryStore
from kafka_pipeline.streams.stores.rocksdb import RocksDBStore

IDENTITY = {"topic": "state_topic_Counter"}


class Backend:
    """Opens a store, and opens it again as after a restart of its task."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self._directory = directory
        self._opened: BytesStore | None = None
        self._open: Callable[[], BytesStore]
        self._segment_bytes = 0

    @property
    def store(self) -> BytesStore:
        assert self._opened is not None
        return self._opened

    def open(
        self,
        timestamp_of: Callable[[bytes], int] | None = None,
        segment_of: Callable[[bytes], bytes] | None = None,
    ) -> BytesStore:
        """Open a bytes store."""

        def opened() -> BytesStore:
            if self.kind == "memory":
                return MemoryStore(timestamp_of, segment_of)
            return RocksDBStore(self._directory, IDENTITY, timestamp_of, segment_of)

        self._segment_bytes = 0 if segment_of is None else SEGMENT_BYTES
        self._open = opened
        self._opened = opened()
        return self._opened

    def build(self, definition: StoreBuilder[Any, Any]) -> Any:
        """Build the store of a definition, on this kind of bytes store."""
        definition = replace(definition, persistent=self.kind == "rocksdb")
        is_segmented = definition.family in ("window", "session")
        self._segment_bytes = SEGMENT_BYTES if is_segmented else 0
        self._open = lambda: definition.open(self._directory, IDENTITY)
        self._opened = self._open()
        return definition.build(self._opened)

    def reopen(self) -> BytesStore:
        """Close and open; what is not persistent is restored from the entries it had."""
        self.store.rollback()
        with self.store.scan(b"", None) as entries:
            content: dict[bytes, bytes | None] = {
                key[self._segment_bytes :]: value for key, value in entries
            }
        offset = self.store.offset
        self.store.close()
        self._opened = self._open()
        if self.kind == "memory" and offset is not None:
            self._opened.restore(content, offset)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
