"""A window store with duplicates while a batch of records looks entries up and adds others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka_pipeline.streams.stores.bytes_store import Changes
from kafka_pipeline.streams.stores.caches import ENTRY_BYTES
from kafka_pipeline.streams.stores.layout import window_key
from kafka_pipeline.streams.stores.recent_windows import (
    RecentWindows,
    TimeAndBytes,
    between,
    insert,
)


class WindowBatch:
    """Does what `fetch_serialized` and `put_one_serialized` of the store do, one after the other.

    It reads each range of times once that is not in memory, however many records look there, and
    writes what was put at the end. What a record may look up must be expected first:

        batch = WindowBatch(recent)
        batch.expect(key, 0, 10)
        batch.load()
        batch.fetch_serialized(key, 0, 10)
        batch.put_one_serialized(key, 5, value)
        batch.end()

    If a record fails, the engine must undo the writes to the store.
    """

    def __init__(self, recent: RecentWindows) -> None:
        """Begin with what is in the store, which nobody else may change before `end`."""
        store = recent.store
        store.expire()
        recent.follow()
        self._recent = recent
        self._entries = recent.entries
        self._store = store
        self.read_until = recent.complete_after
        """The last time at which entries must be read from the store."""
        self._stream_time = store.stream_time
        self._live_from = store.live_from
        self._retention_ms = store.retention_ms
        self._expires_by_puts = store.expires_by_puts
        self._wanted: dict[bytes, list[tuple[int, int]]] = {}
        self._read: dict[bytes, list[TimeAndBytes]] = {}
        """What was read of each key, and what was put up to `read_until`."""
        self._changes: Changes = {}
        self._older: list[tuple[bytes, int, bytes]] = []
        """What was put at times at which the store may have entries that are not in memory."""

    def expect(self, key: bytes, first: int, last: int) -> None:
        """Note that a record may look up this range of times, both included."""
        if first <= self.read_until and last >= self._live_from:
            self._wanted.setdefault(key, []).append((first, min(last, self.read_until)))

    def load(self) -> None:
        """Read what is expected."""
        for key in sorted(self._wanted):
            found: list[TimeAndBytes] = []
            for first, last in _joined(self._wanted[key]):
                found += self._store.fetch_serialized(key, first, last)
            if found:
                self._read[key] = found

    def fetch_serialized(self, key: bytes, first: int, last: int) -> Sequence[TimeAndBytes]:
        """Return times and values of a key, in an expected range of times."""
        if first < self._live_from:
            first = self._live_from
        entries = self._entries.get(key)
        if first > self.read_until:
            return () if entries is None else between(entries, first, last)
        return [
            *between(self._read.get(key, ()), first, last),
            *between(entries or (), first, last),
        ]

    def put_one_serialized(self, key: bytes, time: int, value: bytes) -> None:
        """Add a value; what has expired is dropped and counted, as in `WindowStore.put`."""
        if time < self._live_from:
            self._store.dropped += 1
            return
        if time > self._stream_time:
            self._stream_time = time
            if self._expires_by_puts:
                self._live_from = time - self._retention_ms + 1
        if time > self.read_until:
            entries = self._entries.get(key)
            number = 0
            if entries is None:
                self._entries[key] = [(time, value)]
            elif entries[-1][0] < time:
                entries.append((time, value))
            else:
                number = insert(entries, time, value)
            self._changes[window_key(key, time, number)] = value
            return
        self._older.append((key, time, value))
        insert(self._read.setdefault(key, []), time, value)

    def end(self) -> None:
        """Write what was put."""
        changes = self._changes
        size = sum(map(len, changes)) + sum(map(len, filter(None, changes.values())))
        size += ENTRY_BYTES * len(changes)
        places = list(dict.fromkeys((key, time) for key, time, _ in self._older))
        firsts = self._store.get_all_serialized([window_key(*place) for place in places])
        numbers = {
            place: 0 if first is None else self._store.next_number(*place)
            for place, first in zip(places, firsts, strict=True)
        }
        for key, time, value in self._older:
            number = numbers[key, time]
            numbers[key, time] = number + 1
            changes[window_key(key, time, number)] = value
        self._store.put_serialized(changes, self._stream_time)
        self._recent.grow(size)


def _joined(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield ranges of times in order, those that meet or overlap as one."""
    ranges.sort()
    first, last = ranges[0]
    for begin, end in ranges:
        if begin > last + 1:
            yield first, last
            first = begin
        last = max(last, end)
    yield first, last
