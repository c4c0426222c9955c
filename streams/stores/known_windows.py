"""A window store for a step that reads and writes a few windows of each key again and again."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_pipeline.streams.stores.bytes_store import Changes
from kafka_pipeline.streams.stores.caches import EntryCache
from kafka_pipeline.streams.stores.layout import MAX_TIME, window_key

if TYPE_CHECKING:
    from kafka_pipeline.streams.stores.window import WindowStore


class KeyWindows:
    """The windows of one key; `KnownWindows.of_key` returns it."""

    __slots__ = ("_key", "_values", "_windows", "since", "starts")

    def __init__(self, windows: KnownWindows, key: bytes, since: int, starts: list[int]) -> None:
        self._windows = windows
        self._key = key
        self.since = since
        """All windows that start at this time or later are known, unless they have expired."""
        self.starts = starts
        """The starts of the known windows, in order."""
        self._values: dict[int, bytes | None] = {}

    def between(self, first: int, last: int) -> Sequence[int]:
        """Return the starts of the windows that start between two times, both included.

        `first` is that of `of_key`, or later.
        """
        starts, live_from = self.starts, self._windows.live_from
        low = bisect_left(starts, first if first > live_from else live_from)
        return starts[low : bisect_right(starts, last, low)]

    def has(self, start: int) -> bool:
        """Return whether there is a window that has not expired."""
        return start >= self._windows.live_from and self._place(start) is not None

    def get(self, start: int) -> bytes:
        """Return the value of a window that there is, as `between` or `has` say."""
        value = self._values.get(start)
        if value is None:
            value = self._windows.read(window_key(self._key, start))
            assert value is not None, "what has a start is in the store"
            self._values[start] = value
        return value

    def put(self, start: int, value: bytes | None) -> None:
        """Do what `put` of the store does, for bytes; `KnownWindows.write` writes it."""
        windows, starts = self._windows, self.starts
        if start < windows.live_from:
            windows.refuse()
            return
        if start > windows.stream_time:
            windows.advance(start)
        windows.changes[window_key(self._key, start)] = value
        if value is None:
            if (place := self._place(start)) is not None:
                del starts[place]
        elif not starts or starts[-1] < start:
            starts.append(start)
        elif self._values.get(start) is None and self._place(start) is None:
            insort(starts, start)
        self._values[start] = value

    def load(self, first: int, found: Sequence[tuple[int, bytes]]) -> None:
        """Take in all windows in the store that start at `first` or later."""
        self.since = first
        known = self._values
        self._values = {**dict(found), **known}
        self.starts = sorted(start for start, each in self._values.items() if each is not None)

    def _place(self, start: int) -> int | None:
        place = bisect_left(self.starts, start)
        return place if place < len(self.starts) and self.starts[place] == start else None


class KnownWindows:
    """Does what `fetch_serialized` and `put` of the store do, with fewer reads and writes.

    It keeps in memory when the windows of a key start, within the budget that the stores of the
    process share, so that most records need no search in the store. What is put is written by
    `write`. One record or several come between `begin` and `end`:

        known.begin()
        windows = known.of_key(key, 0)
        for start in windows.between(0, 10):
            windows.put(start, changed(windows.get(start)))
        known.end()
    """

    def __init__(self, store: WindowStore[Any, Any]) -> None:
        """Show a store without duplicates."""
        self._store = store
        self.read = store.get_serialized
        self._cached = EntryCache(store.cache_budget)
        """For each key: since when all of its windows are known, and their starts."""
        self._open: dict[bytes, KeyWindows] = {}
        """The windows in use; unlike the cache, other threads leave it alone."""
        self.changes: Changes = {}
        """What `KeyWindows` have put since the last `write`."""
        self._generation = store.generation
        self._writes = store.writes
        self.live_from = 0
        """The first start of a window that has not expired."""
        self.stream_time = 0
        """The largest start that was ever put."""

    def begin(self) -> None:
        """Take in what others have done to the store since `end`, or the engine has undone."""
        store = self._store
        if store.generation != self._generation or store.writes != self._writes:
            self._cached.clear()
            self._generation, self._writes = store.generation, store.writes
        self._open, self.changes = {}, {}
        store.expire()
        self.stream_time = store.stream_time
        self._retention_ms = store.retention_ms
        self._expires_by_puts = store.expires_by_puts
        self.live_from = store.live_from

    def of_key(self, key: bytes, first: int) -> KeyWindows:
        """Return the windows of a key, known from the start `first` on."""
        found = self._open.get(key)
        if found is None:
            since, starts = MAX_TIME + 1, list[int]()
            cached = self._cached.entries.get(key)
            if cached is not None:
                since, *starts = array("Q", cached)
            found = self._open[key] = KeyWindows(self, key, since, starts)
        if first < found.since:
            found.load(first, self._store.fetch_serialized(key, first, MAX_TIME))
        return found

    def refuse(self) -> None:
        """Count a window that has expired."""
        self._store.dropped += 1

    def advance(self, start: int) -> None:
        """Go on to the start of a window that is put."""
        self.stream_time = start
        if self._expires_by_puts:
            self.live_from = max(0, start - self._retention_ms + 1)

    def write(self) -> None:
        """Write what was put."""
        if self.changes:
            changes, self.changes = self.changes, {}
            self._store.put_serialized(changes, self.stream_time)
            self._writes += 1

    def end(self) -> None:
        """Write what was put, and remember the starts of the windows in use."""
        self.write()
        live_from = self.live_from
        starts_of: dict[bytes, bytes | None] = {}
        for key, each in self._open.items():
            starts = each.starts
            if starts and starts[0] < live_from:
                del starts[: bisect_left(starts, live_from)]
            starts_of[key] = array("Q", (each.since, *starts)).tobytes()
        self._cached.add(starts_of)
        self._open = {}
