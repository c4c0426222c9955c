"""Key-value stores, as a processor sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import structlog

from streams.serdes import Serde
from streams.stores.api import ValueAndTimestamp, null_key
from streams.stores.bytes_store import Entry, StoreBytes
from streams.stores.iterators import StoreIterator
from streams.stores.layout import TIME_BYTES, pack_time, prefix_end

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")

logger = structlog.get_logger()


class KeyValueStore(Generic[K, V]):
    """The last value of each key.

    Order is that of the serialized keys: text as its UTF-8 bytes, numbers of the built-in serdes
    only where they are not negative. A null key raises `StateStoreError` everywhere.
    """

    def __init__(
        self, name: str, store: StoreBytes, key_serde: Serde[K], value_serde: Serde[V]
    ) -> None:
        """Show the bytes of `store` as keys and values."""
        self.name = name
        self._store = store
        self._get, self._put = store.get, store.put
        self._write_key, self._read_key = key_serde.serialize, key_serde.deserialize
        self._write, self._read = value_serde.serialize, value_serde.deserialize

    def get(self, key: K) -> V | None:
        """Return the value of `key`, or `None`."""
        if key is None:
            null_key(self.name)
        data = self._get(self._write_key(key))
        return None if data is None else self._read(data)

    def put(self, key: K, value: V | None) -> None:
        """Set the value of `key`; `None` deletes it."""
        if key is None:
            null_key(self.name)
        self._put(self._write_key(key), None if value is None else self._write(value))

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Set the value of `key` if it has none; return the value that it had."""
        former = self.get(key)
        if former is None:
            self.put(key, value)
        return former

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Set several values; `None` deletes."""
        put, write_key, write = self._put, self._write_key, self._write
        for key, value in entries:
            if key is None:
                null_key(self.name)
            put(write_key(key), None if value is None else write(value))

    def delete(self, key: K) -> V | None:
        """Remove `key`; return the value that it had."""
        former = self.get(key)
        self.put(key, None)
        return former

    def range(self, key_from: K | None, key_to: K | None) -> StoreIterator[tuple[K, V]]:
        """Return the entries of a range of keys in order, both ends included; `None` = no end.

        A range that ends before it begins is empty, and logged as a warning.
        """
        return self._range(key_from, key_to, reverse=False)

    def reverse_range(self, key_from: K | None, key_to: K | None) -> StoreIterator[tuple[K, V]]:
        """Return what `range` does, from the last key to the first."""
        return self._range(key_from, key_to, reverse=True)

    def all(self) -> StoreIterator[tuple[K, V]]:
        """Return all entries in order."""
        return self._entries(self._store.scan(b"", None))

    def reverse_all(self) -> StoreIterator[tuple[K, V]]:
        """Return all entries, from the last key to the first."""
        return self._entries(self._store.scan(b"", None, reverse=True))

    def prefix_scan(
        self, prefix: P, prefix_serializer: Serde[P] | Callable[[P], bytes]
    ) -> StoreIterator[tuple[K, V]]:
        """Return the entries whose serialized key begins with the serialized `prefix` (KIP-614).

        An empty prefix is that of all keys.
        """
        if prefix is None:
            null_key(self.name)
        if isinstance(prefix_serializer, Serde):
            low = prefix_serializer.serialize(prefix)
        else:
            low = prefix_serializer(prefix)
        return self._entries(self._store.scan(low, prefix_end(low)))

    @property
    def approximate_num_entries(self) -> int:
        """About how many entries there are."""
        return self._store.approximate_num_entries

    def _range(
        self, key_from: K | None, key_to: K | None, reverse: bool
    ) -> StoreIterator[tuple[K, V]]:
        low = b"" if key_from is None else self._write_key(key_from)
        high = None if key_to is None else self._write_key(key_to) + b"\x00"
        if high is not None and low >= high:
            warn_of_empty_range(self.name)
        return self._entries(self._store.scan(low, high, reverse))

    def _entries(self, scan: StoreIterator[Entry]) -> StoreIterator[tuple[K, V]]:
        read_key, read = self._read_key, self._read
        return StoreIterator(((read_key(key), read(value)) for key, value in scan), (scan,))


class TimestampedKeyValueStore(KeyValueStore[K, ValueAndTimestamp[V]]):
    """The last value of each key, with the time of its record (KIP-258).

    Stored as the time in 8 bytes, big-endian, and the value. A value that is `None` deletes.
    """

    def __init__(
        self, name: str, store: StoreBytes, key_serde: Serde[K], value_serde: Serde[V]
    ) -> None:
        """Show the bytes of `store` as keys and values with their times."""
        super().__init__(name, store, key_serde, timestamped(value_serde))

    def put(self, key: K, value: ValueAndTimestamp[V] | None) -> None:
        """Set value and time of `key`; `None`, or a value that is `None`, deletes it."""
        super().put(key, None if value is None or value[0] is None else value)

    def put_all(self, entries: Iterable[tuple[K, ValueAndTimestamp[V] | None]]) -> None:
        """Set several values, as `put` does."""
        for key, value in entries:
            self.put(key, value)


def timestamped(serde: Serde[V]) -> Serde[ValueAndTimestamp[V]]:
    """Return the serde of values with their times."""
    write, read = serde.serialize, serde.deserialize

    def serialize(value: ValueAndTimestamp[V]) -> bytes:
        return pack_time(value[1]) + write(value[0])

    def deserialize(data: bytes) -> ValueAndTimestamp[V]:
        return ValueAndTimestamp(
            read(data[TIME_BYTES:]), int.from_bytes(data[:TIME_BYTES], "big", signed=True)
        )

    return Serde(f"timestamped {serde.name}", serialize, deserialize)


def warn_of_empty_range(store: str) -> None:
    """Log that a range of keys ends before it begins."""
    logger.warning(
        "range of keys is empty: its begin is behind its end in the order of serialized keys, "
        "in which negative numbers stand behind positive ones",
        store=store,
    )
