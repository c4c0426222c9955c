"""Key-value stores, as a processor sees them."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores.api import ValueAndTimestamp, check_value_time, null_key
from kafka_pipeline.streams.stores.bytes_store import Changes, Entry, StoreBytes
from kafka_pipeline.streams.stores.iterators import StoreIterator
from kafka_pipeline.streams.stores.layout import (
    TIME_BYTES,
    pack_signed_time,
    prefix_end,
    signed_time,
)

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")

logger = structlog.get_logger()


class KeyValueStore(Generic[K, V]):
    """The last value of each key.

    Keys are ordered by their serialized bytes: text by its UTF-8 bytes, numbers of the built-in
    serdes by value only if they are not negative. A null key raises `StateStoreError` everywhere.
    """

    def __init__(
        self, name: str, store: StoreBytes, key_serde: Serde[K], value_serde: Serde[V]
    ) -> None:
        """Show the bytes of `store` as keys and values."""
        self.name = name
        self._store = store
        self._get, self._put, self._put_many = store.get, store.put, store.put_many
        self._write_key, self._read_key = key_serde.serialize, key_serde.deserialize
        self._write, self._read = value_serde.serialize, value_serde.deserialize
        self._last_key: object = object()
        """The last key passed to `get`, if it is a str: usually, `put` gets the same key next."""
        self._last_key_data = b""

    @property
    def generation(self) -> int:
        """Grows when the engine undoes writes: code that caches values must then forget them."""
        return self._store.generation

    def get(self, key: K) -> V | None:
        """Return the value of `key`, or `None`."""
        if key is None:
            null_key(self.name)
        key_data = self._write_key(key)
        if key.__class__ is str:
            self._last_key, self._last_key_data = key, key_data
        data = self._get(key_data)
        return None if data is None else self._read(data)

    def get_all(self, keys: Iterable[K]) -> list[V | None]:
        """Return what `get` returns for each of the keys; faster, especially for many keys."""
        write_key, read = self._write_key, self._read
        data: list[bytes] = []
        for key in keys:
            if key is None:
                null_key(self.name)
            data.append(write_key(key))
        return [None if each is None else read(each) for each in self._store.get_many(data)]

    def put(self, key: K, value: V | None) -> None:
        """Set the value of `key`; `None` deletes it."""
        if key is None:
            null_key(self.name)
        key_data = self._last_key_data if key is self._last_key else self._write_key(key)
        self._put(key_data, None if value is None else self._write(value))

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Set the value of `key` if it has none; return the value that it had."""
        former = self.get(key)
        if former is None:
            self.put(key, value)
        return former

    def put_all(self, entries: Mapping[K, V | None] | Iterable[tuple[K, V | None]]) -> None:
        """Set several values, from a mapping or from pairs; `None` deletes."""
        write_key, write = self._write_key, self._write
        changes: dict[bytes, bytes | None] = {}
        for key, value in pairs_of(self.name, entries):
            if key is None:
                null_key(self.name)
            changes[write_key(key)] = None if value is None else write(value)
        if changes:
            self._put_many(changes)

    def put_serialized(self, changes: Changes) -> None:
        """Set several values, given as the serdes would write them; for the built-in types.

        The caller must not use the dict afterwards.
        """
        if changes:
            self._put_many(changes)

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
        """Return the result of `range`, from the last key to the first."""
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

        All keys begin with an empty prefix.
        """
        if prefix is None:
            null_key(self.name)
        write = getattr(prefix_serializer, "serialize", prefix_serializer)
        if not callable(write):
            raise StateStoreError(
                f'the store "{self.name}" needs a serde or a function for the prefix, such as '
                f"serdes.string, not {prefix_serializer!r}"
            )
        low = write(prefix)
        if not isinstance(low, bytes):
            raise StateStoreError(
                f'the prefix for the store "{self.name}" became a {type(low).__name__}: its '
                "serializer must return bytes"
            )
        return self._entries(self._store.scan(low, prefix_end(low)))

    def approximate_num_entries(self) -> int:
        """Return about how many entries there are."""
        return self._store.approximate_num_entries()

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

    The stored bytes are the time in 8 bytes, big-endian, and then the value. A value of `None`
    deletes.
    """

    def __init__(
        self, name: str, store: StoreBytes, key_serde: Serde[K], value_serde: Serde[V]
    ) -> None:
        """Show the bytes of `store` as keys and values with their times."""
        super().__init__(name, store, key_serde, timestamped(value_serde))
        self._write_value, self._read_value = value_serde.serialize, value_serde.deserialize

    def get_serialized(self, key: bytes) -> tuple[bytes, int] | None:
        """Return value and time of a serialized key, the value serialized; for the engine."""
        data = self._get(key)
        return value_and_time(data)

    def get_all_serialized(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        """Return what `get_serialized` returns for each of the keys."""
        return list(map(value_and_time, self._store.get_many(keys)))

    def get_all_stored(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return what is stored under serialized keys: time and value as bytes; for the engine."""
        return self._store.get_many(keys)

    def put(self, key: K, value: ValueAndTimestamp[V] | None) -> None:
        """Set value and time of `key`; `None`, or a value that is `None`, deletes it.

        A plain pair of value and time works as well; a time of -1 means that it is unknown.
        """
        if value is None:
            self.put_value(key, None, 0)
            return
        if not isinstance(value, tuple) or len(value) != 2:
            raise StateStoreError(
                f'the store "{self.name}" takes a ValueAndTimestamp, or a pair of a value and '
                f"its time, not a {type(value).__name__}"
            )
        check_value_time(self.name, value[1])
        self.put_value(key, value[0], value[1])

    def put_value(self, key: K, value: V | None, timestamp: int) -> None:
        """Do what `put` does, with value and time apart."""
        if key is None:
            null_key(self.name)
        key_data = self._last_key_data if key is self._last_key else self._write_key(key)
        self._put(key_data, self._written(value, timestamp))

    def exchange(
        self, keys: Sequence[K], values: Sequence[V | None], times: Sequence[int]
    ) -> list[V | None]:
        """Do what `put_value` does for each record; return the value that each has replaced."""
        if None in keys:
            null_key(self.name)
        data = list(map(self._write_key, keys))
        wanted = list(dict.fromkeys(data))
        content = dict(zip(wanted, self._store.get_many(wanted), strict=True))
        written, read, replaced = self._written, self._read_value, list[V | None]()
        for key, value, time in zip(data, values, times, strict=True):
            old = content[key]
            replaced.append(None if old is None else read(old[TIME_BYTES:]))
            content[key] = written(value, time)
        if content:
            self._put_many(content)
        return replaced

    def put_values(
        self, keys: Sequence[K], values: Sequence[V | None], times: Sequence[int]
    ) -> None:
        """Do what `put_value` does for each record."""
        if None in keys:
            null_key(self.name)
        rows = zip(map(self._write_key, keys), values, times, strict=True)
        content = {key: self._written(value, time) for key, value, time in rows}
        if content:
            self._put_many(content)

    def _written(self, value: V | None, timestamp: int) -> bytes | None:
        """Return a value and its time as bytes; `None` for no value."""
        if value is None:
            return None
        check_value_time(self.name, timestamp)
        data: bytes | None = self._write_value(value)
        return None if data is None else pack_signed_time(timestamp) + data

    def put_all(
        self,
        entries: Mapping[K, ValueAndTimestamp[V] | None]
        | Iterable[tuple[K, ValueAndTimestamp[V] | None]],
    ) -> None:
        """Set several values, as `put` does."""
        for key, value in pairs_of(self.name, entries):
            self.put(key, value)


def value_and_time(data: bytes | None) -> tuple[bytes, int] | None:
    """Return the bytes of a value, and its time, of the bytes of both; `None` of `None`."""
    if data is None:
        return None
    return data[TIME_BYTES:], signed_time(data)


@dataclass(frozen=True, slots=True)
class TimestampedSerde(Serde[ValueAndTimestamp[V]]):
    """A serde for values with their times."""

    of_value: Serde[V]
    """The serde of the values alone."""


def timestamped(serde: Serde[V]) -> TimestampedSerde[V]:
    """Return the serde for values with their times."""
    write, read = serde.serialize, serde.deserialize

    def serialize(value: ValueAndTimestamp[V]) -> bytes:
        return pack_signed_time(value[1]) + write(value[0])

    def deserialize(data: bytes) -> ValueAndTimestamp[V]:
        return ValueAndTimestamp(read(data[TIME_BYTES:]), signed_time(data))

    return TimestampedSerde(f"timestamped {serde.name}", serialize, deserialize, serde)


def pairs_of(store: str, entries: Mapping[K, V] | Iterable[tuple[K, V]]) -> Iterable[tuple[K, V]]:
    """Return keys and values; reading an item that is not a pair raises `StateStoreError`."""
    if isinstance(entries, Mapping):
        return entries.items()
    return entries if isinstance(entries, ItemsView) else _checked(store, entries)


def _checked(store: str, pairs: Iterable[tuple[K, V]]) -> Iterator[tuple[K, V]]:
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise StateStoreError(
                f'the store "{store}" takes a mapping, or pairs of a key and a value, '
                f"not a {type(pair).__name__}"
            )
        yield pair[0], pair[1]


def warn_of_empty_range(store: str) -> None:
    """Log that a range of keys ends before it begins."""
    logger.warning(
        "range of keys is empty: its begin comes after its end in the order of serialized keys, "
        "in which negative numbers sort after positive ones",
        store=store,
    )
