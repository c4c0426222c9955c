"""The store that is not persistent: in memory, restored from the state topic after every start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.stores.bytes_store import NO_TIMESTAMP, BytesStore, Entry
from kafka_pipeline.streams.stores.committed import CommittedBytes, Views
from kafka_pipeline.streams.stores.iterators import Readers
from kafka_pipeline.streams.stores.sorted_keys import SortedKeys

_READ_AT_ONCE = 500


class MemoryStore(BytesStore):
    """Keeps committed entries in a dict, and their keys in byte order."""

    def __init__(
        self,
        timestamp_of: Callable[[bytes], int] | None = None,
        segment_of: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """Make an empty store; `BytesStore` explains the arguments."""
        super().__init__(timestamp_of, segment_of)
        self._committed: dict[bytes, bytes] = {}
        self._keys = SortedKeys()
        self._committed_readers: Readers[Entry] = Readers()
        self._offset: int | None = None

    @property
    def offset(self) -> int | None:
        return self._offset

    def approximate_num_entries(self) -> int:
        """Return the exact number of entries; takes longer the more the open transaction wrote."""
        if self._closed:
            raise StateStoreError("the store is closed")
        changes = (
            (value is not None) - (self._local(key) in self._committed)
            for key, value in self.uncommitted.items()
        )
        return len(self._committed) + sum(changes)

    def get(self, key: bytes) -> bytes | None:
        if key in self.uncommitted:
            return self.uncommitted[key]
        if self._closed:
            raise StateStoreError("the store is closed")
        return self._committed.get(self._local(key))

    def drop_range(self, low: bytes, high: bytes | None) -> None:
        """Forget committed entries with `low <= key < high`; takes 1 µs per entry."""
        if self._closed:
            raise StateStoreError("the store is closed")
        self._committed_readers.read_all()
        with self._views.changing:
            for key in list(self._keys.between(low, high)):
                del self._committed[key]
                self._keys.discard(key)

    def wipe(self) -> None:
        self._views.end()
        self._close_scans()
        self.generation += 1
        self._forget()
        self._begin(NO_TIMESTAMP)
        self._views.begin()

    def close(self) -> None:
        """Drop the content and close the iterators."""
        self._views.end()
        self._end()
        self._forget()

    def _forget(self) -> None:
        self._committed = {}
        self._keys = SortedKeys()
        self._offset = None

    def _view(self, most_entries: int, most_s: float) -> CommittedBytes:
        times = self.committed_timestamp, self.committed_expiry_time
        return _View(
            self._committed, self._keys, self._local, self._views, times, most_entries, most_s
        )

    def _apply(self, entries: Mapping[bytes, bytes | None], offset: int, timestamp: int) -> None:
        self._committed_readers.read_all()
        committed, keys = self._committed, self._keys
        for key, value in entries.items():
            local = self._local(key)
            if value is None:
                if committed.pop(local, None) is not None:
                    keys.discard(local)
                continue
            if local not in committed:
                keys.add(local)
            committed[local] = value
        self._offset = offset

    def _scan_committed(self, low: bytes, high: bytes | None, reverse: bool) -> Iterator[Entry]:
        committed, keys = self._committed, self._keys.between(low, high, reverse)
        return self._committed_readers.read((key, committed[key]) for key in keys)

    def _committed_range(self, low: bytes, high: bytes) -> list[Entry]:
        committed = self._committed
        return [(key, committed[key]) for key in self._keys.range(low, high)]


class _View(CommittedBytes):
    """What is committed now, whenever it is read: a copy would take too long."""

    def __init__(
        self,
        committed: Mapping[bytes, bytes],
        keys: SortedKeys,
        local: Callable[[bytes], bytes],
        views: Views,
        times: tuple[int, int],
        most_entries: int,
        most_s: float,
    ) -> None:
        super().__init__(views, times, most_entries, most_s)
        self._committed = committed
        self._keys = keys
        self._local = local

    def _value(self, key: bytes) -> bytes | None:
        return self._committed.get(self._local(key))

    def _entries(self, low: bytes, high: bytes | None, reverse: bool) -> Iterator[Entry]:
        while True:
            with self._views.changing:
                keys = list(islice(self._keys.between(low, high, reverse), _READ_AT_ONCE))
                entries = [(key, self._committed[key]) for key in keys]
            yield from entries
            if len(entries) < _READ_AT_ONCE:
                return
            if reverse:
                high = entries[-1][0]
            else:
                low = entries[-1][0] + b"\x00"

    def _release(self) -> None:
        """Hold nothing: the content is the store's."""
