"""Session stores, as a processor sees them: a value per key and session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.stores.api import check_bounds, check_time, null_key
from kafka_pipeline.streams.stores.bytes_store import SEGMENT_BYTES, Entry
from kafka_pipeline.streams.stores.iterators import StoreIterator
from kafka_pipeline.streams.stores.layout import (
    MAX_TIME,
    SESSION_BYTES,
    session_end,
    session_key,
    session_start,
)
from kafka_pipeline.streams.stores.segments import SegmentedStore, read_entries
from kafka_pipeline.streams.windowed import Window, Windowed

K = TypeVar("K")
V = TypeVar("V")


class SessionStore(SegmentedStore[K, V]):
    """Values of keys in sessions: windows whose start and end are the times of records.

    A session expires `retention_ms` after its end, by stream time: the largest end that was ever
    put. Sessions of one key come in the order of their ends; sessions of several keys come in the
    order of time segment, then key, then end.
    """

    entry_time = "session"

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Set the value of a session; `None` removes it.

        A session that has expired is dropped and counted in `dropped`.
        """
        key = self._stored(session)
        if not self._is_late(session.window.end):
            self._store.put(key, None if value is None else self._write(value))

    def remove(self, session: Windowed[K]) -> None:
        """Remove a session; it is not an error if the session does not exist or has expired."""
        key = self._stored(session)
        if session.window.end >= self.live_from:
            self._store.put(key, None)

    def fetch_session(self, key: K, start: int, end: int) -> V | None:
        """Return the value of one session, or `None`."""
        if key is None:
            null_key(self.name)
        check_bounds(self.name, start, end)
        if not self.live_from <= end <= self._store.max_timestamp or start < 0 or start > end:
            return None
        data = self._store.get(session_key(self._write_key(key), start, end))
        return None if data is None else self._read(data)

    def is_expired(self, window: Window) -> bool:
        """Return whether a session has expired, if there ever was one."""
        return window.end < self.live_from

    def fetch(self, key: K) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the sessions of a key, the oldest first."""
        return self.find_sessions(key, 0, MAX_TIME)

    def backward_fetch(self, key: K) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the sessions of a key, the newest first."""
        return self.backward_find_sessions(key, 0, MAX_TIME)

    def fetch_range(
        self, key_from: K | None, key_to: K | None
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the sessions of a range of keys, both ends included; `None` = no end."""
        return self.find_sessions_in_range(key_from, key_to, 0, MAX_TIME)

    def backward_fetch_range(
        self, key_from: K | None, key_to: K | None
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the result of `fetch_range` in the opposite order."""
        return self.backward_find_sessions_in_range(key_from, key_to, 0, MAX_TIME)

    def find_sessions(
        self, key: K, earliest_end: int, latest_start: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return a key's sessions with `end >= earliest_end` and `start <= latest_start`."""
        return self._find(key, earliest_end, latest_start, reverse=False)

    def find_sessions_list(
        self, key: K, earliest_end: int, latest_start: int
    ) -> list[tuple[Windowed[K], V]]:
        """Return what `find_sessions` returns, as a list: faster if all of it is needed."""
        if key is None:
            null_key(self.name)
        check_bounds(self.name, earliest_end, latest_start)
        data, read = self._write_key(key), self._read
        return [
            (Windowed(key, Window(start, session_end(stored))), read(value))
            for stored, value in self._live_entries_of_key(data, earliest_end, MAX_TIME)
            if stored[SEGMENT_BYTES:-SESSION_BYTES] == data
            and (start := session_start(stored)) <= latest_start
        ]

    def backward_find_sessions(
        self, key: K, earliest_end: int, latest_start: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the result of `find_sessions` in the opposite order."""
        return self._find(key, earliest_end, latest_start, reverse=True)

    def has_expired(self, key: K, earliest_end: int, latest_start: int) -> bool:
        """Whether a session of a key has expired that `find_sessions` would have returned.

        It is known for as long as expired sessions linger.
        """
        if earliest_end >= self.live_from:
            return False
        data, first, last = self._write_key(key), max(earliest_end, 0), self.live_from - 1
        return any(
            first <= session_end(stored) <= last
            and session_start(stored) <= latest_start
            and stored[SEGMENT_BYTES:-SESSION_BYTES] == data
            for stored, _ in self._entries_of_key(data, first, last)
        )

    def find_sessions_in_range(
        self, key_from: K | None, key_to: K | None, earliest_end: int, latest_start: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Do what `find_sessions` does, for a range of keys, both ends included."""
        low, high = self._key_bounds(key_from, key_to)
        return self._find_range(low, high, (earliest_end, MAX_TIME), latest_start, reverse=False)

    def backward_find_sessions_in_range(
        self, key_from: K | None, key_to: K | None, earliest_end: int, latest_start: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the result of `find_sessions_in_range` in the opposite order."""
        low, high = self._key_bounds(key_from, key_to)
        return self._find_range(low, high, (earliest_end, MAX_TIME), latest_start, reverse=True)

    def find_sessions_by_end(
        self, earliest_end: int, latest_end: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the sessions of all keys that end between two times, both included."""
        return self._find_range(b"", None, (earliest_end, latest_end), MAX_TIME, reverse=False)

    def _stored(self, session: Windowed[K]) -> bytes:
        if not (isinstance(session, Windowed) and isinstance(session.window, Window)):
            raise StateStoreError(
                f'the store "{self.name}" takes a Windowed(key, Window(start, end)), '
                f"not a {type(session).__name__}"
            )
        if session.key is None:
            null_key(self.name)
        start, end = session.window
        check_time(self.name, start)
        check_time(self.name, end)
        if start > end:
            raise StateStoreError(f'the store "{self.name}" has a session end before its start')
        return session_key(self._write_key(session.key), start, end)

    def _find(
        self, key: K, earliest_end: int, latest_start: int, reverse: bool
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        if key is None:
            null_key(self.name)
        check_bounds(self.name, earliest_end, latest_start)
        data = self._write_key(key)
        live_from = max(earliest_end, self.live_from)
        value_of = self._read

        def read(entries: Iterator[Entry]) -> Iterator[tuple[Windowed[K], V]]:
            for stored, value in entries:
                start, end = session_start(stored), session_end(stored)
                if end >= live_from and start <= latest_start and stored[:-SESSION_BYTES] == data:
                    yield Windowed(key, Window(start, end)), value_of(value)

        return read_entries(self._scan_of_key(data, live_from, MAX_TIME, reverse), read)

    def _find_range(
        self,
        low: bytes,
        high: bytes | None,
        ends: tuple[int, int],
        latest_start: int,
        reverse: bool,
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        check_bounds(self.name, *ends, latest_start)
        live_from, latest_end = max(ends[0], self.live_from), ends[1]
        key_of, value_of = self._read_key, self._read

        def read(entries: Iterator[Entry]) -> Iterator[tuple[Windowed[K], V]]:
            for stored, value in entries:
                key = stored[:-SESSION_BYTES]
                start, end = session_start(stored), session_end(stored)
                if not live_from <= end <= latest_end or start > latest_start:
                    continue
                if low <= key and (high is None or key <= high):
                    yield Windowed(key_of(key), Window(start, end)), value_of(value)

        return read_entries(self._scan_of_range(low, high, live_from, latest_end, reverse), read)
