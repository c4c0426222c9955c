"""Window stores, as a processor sees them: a value per key and window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from kafka_pipeline.common.calendars import Calendar
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores.api import check_bounds, check_time, null_key
from kafka_pipeline.streams.stores.bytes_store import SEGMENT_BYTES, Changes, Entry, StoreBytes
from kafka_pipeline.streams.stores.caches import CacheBudget
from kafka_pipeline.streams.stores.iterators import StoreIterator
from kafka_pipeline.streams.stores.layout import MAX_TIME, WINDOW_BYTES, window_key, window_start
from kafka_pipeline.streams.stores.segments import SegmentedStore, read_entries
from kafka_pipeline.streams.windowed import Window, Windowed

K = TypeVar("K")
V = TypeVar("V")


class WindowStore(SegmentedStore[K, V]):
    """Values of keys in windows; with `retain_duplicates`, several per window.

    An entry expires `retention_ms` after the start of its window, by stream time: the largest
    start that was ever put. Bounds of time are starts of windows, both included. Entries of one
    key come in the order of time; entries of several keys come in the order of time segment, then
    key, then time.
    """

    entry_time = "window"

    def __init__(
        self,
        name: str,
        store: StoreBytes,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        retention_ms: int,
        window_size_ms: int,
        retain_duplicates: bool = False,
        calendar: Calendar | None = None,
    ) -> None:
        """Show the bytes of `store` as windows: of this size, or periods of a calendar."""
        super().__init__(name, store, key_serde, value_serde, retention_ms)
        self._window_size_ms = window_size_ms
        self._calendar = calendar
        self.retain_duplicates = retain_duplicates
        self.get_serialized = store.get
        """Returns the value of a window that has not expired, as bytes; for the built-in types."""
        self.writes = 0
        """How often windows were set: a step that remembers windows sees that others write, too."""

    @property
    def cache_budget(self) -> CacheBudget:
        """The memory that caches of what is in the store share with others."""
        return self._bytes.caches

    def expect_no_reads(self) -> None:
        """Cache nothing that is put: the caller remembers it; for the built-in types."""
        self._store.expect_no_reads()

    def window(self, start: int) -> Window:
        """Return the window with this start."""
        if self._calendar is None:
            return Window(start, start + self._window_size_ms)
        return Window(start, self._calendar.span(start)[1])

    def put(self, key: K, value: V | None, window_start: int) -> None:
        """Set the value of a window; `None` deletes it, but does nothing with `retain_duplicates`.

        A window that has expired is dropped and counted in `dropped`.
        """
        if key is None:
            null_key(self.name)
        check_time(self.name, window_start)
        if self._is_late(window_start):
            return
        self.writes += 1
        data = self._write_key(key)
        if not self.retain_duplicates:
            written = None if value is None else self._write(value)
            self._store.put(window_key(data, window_start), written)
        elif value is not None:
            self._put_duplicate(data, window_start, self._write(value))

    def put_one_serialized(
        self, key: bytes, window_start: int, value: bytes, number: int | None = None
    ) -> bool:
        """Do what `put` does with duplicates, for bytes; for the built-in types.

        `number` is that of the duplicate, if the caller knows it. Returns whether it was put.
        """
        check_time(self.name, window_start)
        if self._is_late(window_start):
            return False
        if number is None:
            self._put_duplicate(key, window_start, value)
        else:
            self._store.put(window_key(key, window_start, number), value)
        return True

    def _put_duplicate(self, key: bytes, start: int, value: bytes) -> None:
        number = 0
        # Nothing is ever deleted before it expires, so the first one is there if any is.
        first = window_key(key, start)
        if start <= self._store.max_timestamp and self._store.get(first) is not None:
            number = self.next_number(key, start)
        self._store.put(window_key(key, start, number), value)

    def fetch_window(self, key: K, window_start: int) -> V | None:
        """Return the value of one window, or `None`; of duplicates, the one put last."""
        if key is None:
            null_key(self.name)
        if self.retain_duplicates:
            with self.backward_fetch(key, window_start, window_start) as found:
                return next((value for _, value in found), None)
        check_bounds(self.name, window_start)
        if not self.live_from <= window_start <= self._store.max_timestamp:
            return None
        data = self._store.get(window_key(self._write_key(key), window_start))
        return None if data is None else self._read(data)

    def get_all_serialized(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of windows that have not expired, as bytes; for the built-in types.

        Keys are those of `window_key`; there are no duplicates.
        """
        return self._store.get_many(keys)

    def put_serialized(self, changes: Changes, latest: int | None = None) -> None:
        """Set the values of windows that have not expired, as bytes; for the built-in types.

        The caller must not use the dict afterwards. `latest` is the stream time after it, if that
        is known.
        """
        self.expire()
        self.writes += 1
        self._store.put_many(changes, latest)

    def is_expired(self, window: Window) -> bool:
        """Return whether a window has expired, if there ever was one."""
        return window.start < self.live_from

    def fetch(self, key: K, time_from: int, time_to: int) -> StoreIterator[tuple[int, V]]:
        """Return starts and values of the windows of a key, the oldest first."""
        return self._fetch(key, time_from, time_to, reverse=False)

    def fetch_list(self, key: K, time_from: int, time_to: int) -> list[tuple[int, V]]:
        """Return what `fetch` returns, as a list: faster if all of it is needed."""
        if key is None:
            null_key(self.name)
        check_bounds(self.name, time_from, time_to)
        read = self._read
        found = self.fetch_serialized(self._write_key(key), time_from, time_to)
        return [(start, read(value)) for start, value in found]

    def fetch_serialized(self, key: bytes, time_from: int, time_to: int) -> list[tuple[int, bytes]]:
        """Do what `fetch_list` does, for bytes and any bounds; for the built-in types."""
        key_end = len(key) + SEGMENT_BYTES
        size = key_end + WINDOW_BYTES
        return [
            (int.from_bytes(stored[key_end:-4], "big"), value)
            for stored, value in self._live_entries_of_key(key, time_from, time_to)
            if len(stored) == size and stored[SEGMENT_BYTES:key_end] == key
        ]

    def fetch_numbered(
        self, key: bytes, time_from: int = 0, time_to: int = MAX_TIME
    ) -> list[tuple[int, int, bytes]]:
        """Return start, number and value of the duplicates of a key, within any bounds of time.

        For the built-in types.
        """
        key_end = len(key) + SEGMENT_BYTES
        size = key_end + WINDOW_BYTES
        return [
            (int.from_bytes(stored[key_end:-4], "big"), int.from_bytes(stored[-4:], "big"), value)
            for stored, value in self._live_entries_of_key(key, time_from, time_to)
            if len(stored) == size and stored[SEGMENT_BYTES:key_end] == key
        ]

    def backward_fetch(self, key: K, time_from: int, time_to: int) -> StoreIterator[tuple[int, V]]:
        """Return starts and values of the windows of a key, the newest first."""
        return self._fetch(key, time_from, time_to, reverse=True)

    def fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: int, time_to: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the windows of a range of keys, both ends included; `None` = no end."""
        return self._fetch_range(key_from, key_to, time_from, time_to, reverse=False)

    def backward_fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: int, time_to: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the result of `fetch_range` in the opposite order."""
        return self._fetch_range(key_from, key_to, time_from, time_to, reverse=True)

    def fetch_all(self, time_from: int, time_to: int) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the windows of all keys in a range of times."""
        return self._fetch_range(None, None, time_from, time_to, reverse=False)

    def backward_fetch_all(
        self, time_from: int, time_to: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the result of `fetch_all` in the opposite order."""
        return self._fetch_range(None, None, time_from, time_to, reverse=True)

    def all(self) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return all windows that have not expired."""
        return self.fetch_all(0, MAX_TIME)

    def backward_all(self) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the result of `all` in the opposite order."""
        return self.backward_fetch_all(0, MAX_TIME)

    def _fetch(
        self, key: K, time_from: int, time_to: int, reverse: bool
    ) -> StoreIterator[tuple[int, V]]:
        if key is None:
            null_key(self.name)
        check_bounds(self.name, time_from, time_to)
        data = self._write_key(key)
        live_from = max(time_from, self.live_from)
        value_of = self._read

        def read(entries: Iterator[Entry]) -> Iterator[tuple[int, V]]:
            for stored, value in entries:
                start = window_start(stored)
                if live_from <= start <= time_to and stored[:-WINDOW_BYTES] == data:
                    yield start, value_of(value)

        return read_entries(self._scan_of_key(data, live_from, time_to, reverse), read)

    def _fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: int, time_to: int, reverse: bool
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        check_bounds(self.name, time_from, time_to)
        low, high = self._key_bounds(key_from, key_to)
        live_from, window_of = max(time_from, self.live_from), self.window
        key_of, value_of = self._read_key, self._read

        def read(entries: Iterator[Entry]) -> Iterator[tuple[Windowed[K], V]]:
            for stored, value in entries:
                key, start = stored[:-WINDOW_BYTES], window_start(stored)
                if live_from <= start <= time_to and low <= key and (high is None or key <= high):
                    yield Windowed(key_of(key), window_of(start)), value_of(value)

        return read_entries(self._scan_of_range(low, high, live_from, time_to, reverse), read)

    def next_number(self, key: bytes, start: int) -> int:
        """Return the number of the next duplicate: one more than the last one."""
        size = SEGMENT_BYTES + len(key) + WINDOW_BYTES
        found = self._entries_of_key(key, start, start)
        numbers = [int.from_bytes(each[-4:], "big") for each, _ in found if len(each) == size]
        return max(numbers, default=-1) + 1
