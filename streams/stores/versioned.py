"""Versioned key-value stores, as a processor sees them: values with their history (KIP-889)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores.api import (
    PUT_RETURN_CODE_NOT_PUT,
    PUT_RETURN_CODE_VALID_TO_UNDEFINED,
    SerializedVersion,
    VersionedRecord,
    check_bounds,
    check_time,
    null_key,
)
from kafka_pipeline.streams.stores.bytes_store import StoreBytes
from kafka_pipeline.streams.stores.expiring import Expiring
from kafka_pipeline.streams.stores.iterators import StoreIterator
from kafka_pipeline.streams.stores.layout import (
    MAX_TIME,
    TIME_BYTES,
    pack_time,
    version_key,
    version_time,
)

K = TypeVar("K")
V = TypeVar("V")

_DELETED = b"\x00"
_VALUE = b"\x01"


class VersionedKeyValueStore(Expiring, Generic[K, V]):
    """The versions of each key; a version is valid from its timestamp until the next one's.

    History goes back `history_retention_ms` from stream time, the largest timestamp that was ever
    put. Versions that stopped being valid before that are not returned, and versions with older
    timestamps are not put; the latest version of a key never expires. A deletion is a version
    without a value.
    """

    def __init__(
        self,
        name: str,
        store: StoreBytes,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        history_retention_ms: int,
    ) -> None:
        """Show the bytes of `store` as versions."""
        self.name = name
        self.history_retention_ms = history_retention_ms
        self._store = store
        self._sweep_from = b""
        self._write_key = key_serde.serialize
        self._write, self._read = value_serde.serialize, value_serde.deserialize

    def put(self, key: K, value: V | None, timestamp: int) -> int:
        """Put a version, or replace the one with the same timestamp; `None` deletes from then on.

        Returns the timestamp of the next version, until which this one is valid, or
        `PUT_RETURN_CODE_VALID_TO_UNDEFINED` if it is the latest. A version that is older than the
        history is dropped and counted in `dropped`: returns `PUT_RETURN_CODE_NOT_PUT`.
        """
        if key is None:
            null_key(self.name)
        check_time(self.name, timestamp)
        if timestamp < self._history_from:
            self.dropped += 1
            return PUT_RETURN_CODE_NOT_PUT
        data = self._write_key(key)
        valid_to = self._next_time(data, timestamp)
        written = None if value is None else self._write(value)
        stored = _DELETED if written is None else _VALUE + written
        self._store.put(version_key(data, timestamp), stored)
        if self._history_from >= 0:
            self._forget(data)
            self._sweep()
        return PUT_RETURN_CODE_VALID_TO_UNDEFINED if valid_to is None else valid_to

    def delete(self, key: K, timestamp: int) -> VersionedRecord[V] | None:
        """Delete `key` from `timestamp` on; return the version valid at that time, if any."""
        check_time(self.name, timestamp)
        former = None if timestamp < self._history_from else self.get(key, timestamp)
        self.put(key, None, timestamp)
        return former

    def get(self, key: K, as_of: int | None = None) -> VersionedRecord[V] | None:
        """Return the latest version, or the one that was valid at the time `as_of`, or `None`.

        For a time before the history, returns `None`, unless the latest version was valid then.
        """
        if key is None:
            null_key(self.name)
        if as_of is not None:
            check_bounds(self.name, as_of)
        data = self._write_key(key)
        time_to = MAX_TIME if as_of is None else min(as_of, MAX_TIME)
        with self._versions(data, 0, time_to, reverse=True) as versions:
            timestamp, stored = next(versions, (0, _DELETED))
        if stored == _DELETED:
            return None
        valid_to = None if as_of is None else self._next_time(data, timestamp)
        if valid_to is not None and time_to < self._history_from:
            return None
        return VersionedRecord(self._read(stored[1:]), timestamp, valid_to)

    def get_versions(
        self, key: K, time_from: int = 0, time_to: int = MAX_TIME
    ) -> StoreIterator[VersionedRecord[V]]:
        """Return the versions valid between two times, both included, oldest first (KIP-968)."""
        if key is None:
            null_key(self.name)
        check_bounds(self.name, time_from, time_to)
        data, history_from = self._write_key(key), self._history_from
        with self._versions(data, 0, min(time_to, MAX_TIME)) as versions:
            found = list(versions)
        ends: list[int | None] = [timestamp for timestamp, _ in found[1:]]
        ends.append(self._next_time(data, found[-1][0]) if found else None)
        records = [
            VersionedRecord(self._read(stored[1:]), timestamp, valid_to)
            for (timestamp, stored), valid_to in zip(found, ends, strict=False)
            if stored != _DELETED
            and (
                valid_to is None
                or (valid_to > max(time_from, history_from) and time_to >= history_from)
            )
        ]
        return StoreIterator(iter(records))

    def get_serialized(self, key: bytes, time_from: int, time_to: int) -> list[SerializedVersion]:
        """Return what `get` finds under a serialized key between two times, both included.

        For the engine.
        """
        if time_to < 0:
            return []
        history_from, found = self._history_from, list[SerializedVersion]()
        end = self._next_time(key, time_to)
        with self._versions(key, 0, time_to, reverse=True) as versions:
            for time, stored in versions:
                # Before the history, only the latest version is found.
                start = time if end is None else max(time, history_from)
                is_seen = start <= time_to and (end is None or end > max(time_from, start))
                if stored != _DELETED and is_seen:
                    found.append(SerializedVersion(stored[1:], time, start, end))
                if time <= time_from:
                    break
                end = time
        return found[::-1]

    @property
    def _history_from(self) -> int:
        """The first time for which versions can be read and put."""
        return self._store.expiry_time - self.history_retention_ms

    def _versions(
        self, key: bytes, time_from: int, time_to: int, reverse: bool = False
    ) -> StoreIterator[tuple[int, bytes]]:
        """Return times and stored values of a key's versions between two times, both included.

        There are none after the largest timestamp, and a scan further on would meet other keys that
        begin with this one.
        """
        time_to = min(time_to, self._store.max_timestamp)
        if time_to < time_from:
            return StoreIterator(iter(()))
        scan = self._store.scan(key + pack_time(time_from), key + pack_time(time_to + 1), reverse)

        def read() -> Iterator[tuple[int, bytes]]:
            for stored, value in scan:
                if stored[:-TIME_BYTES] == key:
                    yield version_time(stored), value

        return StoreIterator(read(), (scan,))

    def _next_time(self, key: bytes, timestamp: int) -> int | None:
        with self._versions(key, timestamp + 1, MAX_TIME) as versions:
            return next((time for time, _ in versions), None)

    def _forget(self, key: bytes) -> None:
        """Delete the versions of a key that stopped being valid before the history.

        A deletion goes too once it has no older version to end.
        """
        with self._versions(key, 0, self._history_from) as versions:
            old = list(versions)
        if old and old[-1][1] != _DELETED:
            old.pop()
        for timestamp, _ in old:
            self._store.put(version_key(key, timestamp), None)

    def _sweep(self) -> None:
        """Expire the history of keys that are no longer put, too: one version per put."""
        with self._store.scan(self._sweep_from, None) as entries:
            stored = next((key for key, _ in entries), None)
        if stored is None:
            self._sweep_from = b""
            return
        self._sweep_from = stored + b"\x00"
        if version_time(stored) <= self._history_from:
            self._forget(stored[:-TIME_BYTES])
