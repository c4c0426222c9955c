"""A window store for a step that reads and writes a few windows of each key again and again."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_pipeline.streams.stores.bytes_store import Changes
from kafka_pipeline.streams.stores.caches import ENTRY_BYTES
from kafka_pipeline.streams.stores.layout import MAX_TIME, pack_window
from kafka_pipeline.streams.stores.remembered_keys import RememberedKeys

if TYPE_CHECKING:
    from kafka_pipeline.streams.stores.window import WindowStore


_WINDOW_BYTES = 150
"""About how much a window takes in addition to the bytes of its value."""


class KeyWindows:
    """The windows of one key; `KnownWindows.of_key` returns it."""

    __slots__ = ("_key", "_values", "_windows", "since", "starts")

    def __init__(self, windows: KnownWindows, key: bytes) -> None:
        self._windows = windows
        self._key = key
        self.since = MAX_TIME + 1
        """All windows that start at this time or later are known, unless they have expired."""
        self.starts: list[int] = []
        """The starts of the known windows, in order."""
        self._values: dict[int, bytes | None] = {}
        """Their values, and `None` for windows that were deleted."""

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
        value = self._values[start]
        assert value is not None, "what was deleted has no start"
        return value

    def put(self, start: int, value: bytes | None) -> None:
        """Do what `put` of the store does, for bytes; `KnownWindows.write` writes it."""
        windows, starts = self._windows, self.starts
        if start < windows.live_from:
            windows.refuse()
            return
        if start > windows.stream_time:
            windows.advance(start)
        windows.changes[self._key + pack_window(start, 0)] = value
        values = self._values
        former = values.get(start)
        if former is not None:
            windows.grown -= len(former)
            if value is None:
                del starts[bisect_left(starts, start)]
        else:
            if start not in values:
                windows.grown += _WINDOW_BYTES
            if value is not None:
                if not starts or starts[-1] < start:
                    starts.append(start)
                else:
                    insort(starts, start)
        if value is not None:
            windows.grown += len(value)
        values[start] = value

    def load(self, first: int, found: Sequence[tuple[int, bytes]]) -> None:
        """Take in all windows in the store that start at `first` or later."""
        self.since = first
        known = self._values
        self._values = {**dict(found), **known}
        self.starts = sorted(start for start, each in self._values.items() if each is not None)

    def forget_expired(self) -> None:
        """Forget the windows that have expired, if these are more than the others."""
        starts, live_from = self.starts, self._windows.live_from
        if starts and starts[len(starts) // 2] < live_from:
            del starts[: bisect_left(starts, live_from)]
            self._windows.grown -= self.measure()
            live = [(start, each) for start, each in self._values.items() if start >= live_from]
            self._values = dict(live)
            self._windows.grown += self.measure()

    def measure(self) -> int:
        """Return about how many bytes the windows take."""
        values = list(self._values.values())
        return _WINDOW_BYTES * len(values) + sum(map(len, filter(None, values)))

    def _place(self, start: int) -> int | None:
        place = bisect_left(self.starts, start)
        return place if place < len(self.starts) and self.starts[place] == start else None


class KnownWindows(RememberedKeys[KeyWindows]):
    """Does what `fetch_serialized` and `put` of the store do, with fewer reads and writes.

    It keeps the windows of each key in memory, within the budget that the stores of the process
    share, so that most records need nothing from the store. What is put is written by `write`. One
    record or several come between `begin` and `end`:

        known.begin()
        windows = known.of_key(key, 0)
        for start in windows.between(0, 10):
            windows.put(start, changed(windows.get(start)))
        known.end()
    """

    def __init__(self, store: WindowStore[Any, Any]) -> None:
        """Show a store without duplicates."""
        super().__init__(store)
        self.changes: Changes = {}
        """What `KeyWindows` have put since the last `write`."""
        self.live_from = 0
        """The first start of a window that has not expired."""
        self.stream_time = 0
        """The largest start that was ever put."""
        self.grown = 0
        """About how many more bytes this takes since the last `end`."""

    def begin(self) -> None:
        """Take in what others have done to the store since `end`, or the engine has undone."""
        self._begin_use()
        store, self.changes = self._store, {}
        self._writes = store.writes
        store.expire()
        self.stream_time = store.stream_time
        self._retention_ms = store.retention_ms
        self._expires_by_puts = store.expires_by_puts
        self.live_from = store.live_from

    def of_key(self, key: bytes, first: int) -> KeyWindows:
        """Return the windows of a key, known from the start `first` on."""
        found = self._keys.get(key)
        if found is None:
            found = self._keys[key] = KeyWindows(self, key)
            self.grow(ENTRY_BYTES + len(key))
        else:
            found.forget_expired()
        if first < found.since:
            found.load(first, self._store.fetch_serialized(key, first, MAX_TIME))
            self.grow(found.measure())
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
        """Write what was put."""
        self.write()
        self.grow(self.grown)
        self.grown = 0
        self._as_of = self._store.generation, self._writes

    def _size_of(self, key: bytes, known: KeyWindows) -> int:
        return ENTRY_BYTES + len(key) + known.measure()
