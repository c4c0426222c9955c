"""A window store with duplicates while a batch of records looks entries up and adds others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kafka_pipeline.streams.stores.bytes_store import Changes
from kafka_pipeline.streams.stores.layout import window_key

if TYPE_CHECKING:
    from kafka_pipeline.streams.stores.window import WindowStore

TimeAndBytes = tuple[int, bytes]


class WindowBatch:
    """Does what `fetch_serialized` and `put_one_serialized` of the store do, one after the other.

    It reads each range of times once, however many records look there, and writes what was put at
    the end. What a record may look up must be expected first:

        batch = WindowBatch(store)
        batch.expect(key, 0, 10)
        batch.load()
        batch.fetch_serialized(key, 0, 10)
        batch.put_one_serialized(key, 5, value)
        batch.end()
    """

    def __init__(self, store: WindowStore[Any, Any]) -> None:
        """Begin with what is in the store, which nobody else may change before `end`."""
        store.expire()
        self._store = store
        self.stored_until = self._stream_time = store.stream_time
        self._live_from = store.live_from
        self._retention_ms = store.retention_ms
        self._expires_by_puts = store.expires_by_puts
        self._wanted: dict[bytes, list[tuple[int, int]]] = {}
        self._entries: dict[bytes, list[TimeAndBytes]] = {}
        """Times and values of each key, in the order of the store."""
        self._changes: Changes = {}
        self._next_numbers: dict[bytes, int] = {}
        """The next number after each place that has several values."""
        self._older: list[tuple[bytes, int, bytes]] = []
        """What was put at times at which the store may have entries."""

    def expect(self, key: bytes, first: int, last: int) -> None:
        """Note that a record may look up this range of times, both included."""
        if first <= self.stored_until and last >= self._live_from:
            self._wanted.setdefault(key, []).append((first, last))

    def load(self) -> None:
        """Read what is expected."""
        for key in sorted(self._wanted):
            found: list[TimeAndBytes] = []
            for first, last in _joined(self._wanted[key]):
                found += self._store.fetch_serialized(key, first, last)
            if found:
                self._entries[key] = found

    def fetch_serialized(self, key: bytes, first: int, last: int) -> Sequence[TimeAndBytes]:
        """Return times and values of a key, in an expected range of times."""
        entries = self._entries.get(key)
        if entries is None:
            return ()
        if first < self._live_from:
            first = self._live_from
        start = bisect_left(entries, first, key=_time_of)
        return entries[start : bisect_right(entries, last, key=_time_of)]

    def put_one_serialized(self, key: bytes, time: int, value: bytes) -> None:
        """Add a value; what has expired is dropped and counted, as in `WindowStore.put`."""
        if time < self._live_from:
            self._store.dropped += 1
            return
        if time > self._stream_time:
            self._stream_time = time
            if self._expires_by_puts:
                self._live_from = time - self._retention_ms + 1
        if time <= self.stored_until:
            self._older.append((key, time, value))
        else:
            self._add(key, time, value, 0)
        entries = self._entries.setdefault(key, [])
        if not entries or entries[-1][0] <= time:
            entries.append((time, value))
        else:
            insort(entries, (time, value), key=_time_of)

    def end(self) -> None:
        """Write what was put."""
        places = list(dict.fromkeys((key, time) for key, time, _ in self._older))
        firsts = self._store.get_all_serialized([window_key(*place) for place in places])
        numbers = {
            place: 0 if first is None else self._store.next_number(*place)
            for place, first in zip(places, firsts, strict=True)
        }
        for key, time, value in self._older:
            self._add(key, time, value, numbers[key, time])
        self._store.put_serialized(self._changes)

    def _add(self, key: bytes, time: int, value: bytes, number: int) -> None:
        """Add a value with the first free number from `number` on, the same for a key and time."""
        place = window_key(key, time, number)
        if place in self._changes:
            number = self._next_numbers.get(place, number + 1)
            self._next_numbers[place] = number + 1
            place = window_key(key, time, number)
        self._changes[place] = value


def _time_of(entry: TimeAndBytes) -> int:
    return entry[0]


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
