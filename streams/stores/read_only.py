"""A store that one processor writes and others read, even from other threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import NoReturn

from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.stores.bytes_store import BytesStore, Entry
from kafka_pipeline.streams.stores.committed import OnlyRead
from kafka_pipeline.streams.stores.iterators import StoreIterator
from kafka_pipeline.streams.stores.rocksdb_directory import StoreCorruptedError


class ReadOnlyBytes(OnlyRead):
    """The bytes of a global store, for everyone but the processor that fills the store.

    The writer holds `lock` during a change; each read takes the lock for a moment. As with every
    store, results stay as they were at that moment. Writing raises `StateStoreError`. Reading
    raises `StoreCorruptedError` once the store is gone: no record is to blame.
    """

    def __init__(self, name: str, store: BytesStore, lock: Lock) -> None:
        self._name = name
        self._store = store
        self._lock = lock
        self._changes = 0

    def has_changed(self) -> None:
        """Record that the writer has committed changes."""
        self._changes += 1

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a key that was ever written."""
        return self._store.max_timestamp

    @property
    def expiry_time(self) -> int:
        """The time by which entries expire."""
        return self._store.expiry_time

    @property
    def committed_expiry_time(self) -> int:
        """The same as `expiry_time`: the writes that readers see are committed."""
        return self._store.committed_expiry_time

    @property
    def generation(self) -> int:
        """The generation of the store, which grows with each commit too: others have written."""
        return self._store.generation + self._changes

    def approximate_num_entries(self) -> int:
        """Return about how many entries there are."""
        with self._lock:
            self._require_open()
            return self._store.approximate_num_entries()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or `None`."""
        with self._lock:
            self._require_open()
            return self._store.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of several keys, as they are at one moment."""
        with self._lock:
            self._require_open()
            return self._store.get_many(keys)

    def scan(self, low: bytes, high: bytes | None, reverse: bool = False) -> StoreIterator[Entry]:
        """Return the entries with `low <= key < high` in byte order; `None` means no upper end."""
        with self._lock:
            self._require_open()
            entries = self._store.scan(low, high, reverse)
        return StoreIterator(self._read(entries), (entries,))

    def range(self, low: bytes, high: bytes) -> list[Entry]:
        """Return the entries with `low <= key < high` in byte order, at once."""
        with self._lock:
            self._require_open()
            return self._store.range(low, high)

    def _read(self, entries: StoreIterator[Entry]) -> Iterator[Entry]:
        while True:
            with self._lock:
                self._require_open()
                entry = next(entries, None)
            if entry is None:
                return
            yield entry

    def _require_open(self) -> None:
        if self._store.is_closed:
            raise StoreCorruptedError(f'the copy of the global store "{self._name}" is gone')

    def _refuse(self) -> NoReturn:
        raise StateStoreError(
            f'the store "{self._name}" is global and only to be read here: write to its topic, '
            "and its own processor will put it in"
        )
