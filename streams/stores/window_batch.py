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
        self._recent = recent
        self._store = store
        self.entries, self.read_until = recent.follow()
        """Entries by key that are later than a time, and the last one for which the store is read.
        """
        self.stream_time = store.stream_time
        """The stream time of the store, with what was put."""
        self._live_from = store.live_from
        self._retention_ms = store.retention_ms
        self._expires_by_puts = store.expires_by_puts
        self._wanted: dict[bytes, list[tuple[int, int]]] = {}
        self._read: dict[bytes, list[TimeAndBytes]] = {}
        """What was read of each key, and what was put up to `read_until`."""
        self.changes: Changes = {}
        """What was put, with its keys in the store."""
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
        found = between(self.entries.get(key, ()), first, last)
        if first > self.read_until:
            return found
        return [*between(self._read.get(key, ()), first, last), *found]

    def put_one_serialized(self, key: bytes, time: int, value: bytes) -> None:
        """Add a value; what has expired is dropped and counted, as in `WindowStore.put`."""
        if time < self._live_from:
            self._store.dropped += 1
            return
        if time > self.stream_time:
            self.stream_time = time
            if self._expires_by_puts:
                self._live_from = time - self._retention_ms + 1
        if time > self.read_until:
            entries = self.entries.get(key)
            number = 0
            if entries is None:
                self.entries[key] = [(time, value)]
            elif entries[-1][0] < time:
                entries.append((time, value))
            else:
                number = insert(entries, time, value)
            self.changes[window_key(key, time, number)] = value
            return
        self._older.append((key, time, value))
        insert(self._read.setdefault(key, []), time, value)

    def reaches(self, first: int, time: int) -> bool:
        """Return whether something from `first` on is read or expires with records up to `time`."""
        live_from = self._live_from
        if self._expires_by_puts:
            live_from = max(live_from, time - self._retention_ms + 1)
        return first <= self.read_until or first < live_from

    def end(self) -> None:
        """Write what was put."""
        changes = self.changes
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
        self._store.put_serialized(changes, self.stream_time)
        self._recent.grow(size)


Found = tuple[int, int, bytes]
"""The place of a record, and the time and the value of one that it has met."""


def meet(
    sides: Sequence[WindowBatch],
    records: Sequence[tuple[int, bytes, int, bytes]],
    before_ms: Sequence[int],
    after_ms: Sequence[int],
) -> list[Found]:
    """Have each record look up those of the other side in its window, and then add it to its own.

    Records have a side, which is 0 or 1, a key, a time and a value. `before_ms` and `after_ms` are
    how far the windows of the records of each side reach. The results are those of
    `fetch_serialized` and `put_one_serialized` for one record after the other.
    """
    found: list[Found] = []
    times = [time for _, _, time, _ in records]
    earliest, latest = min(times, default=0), max(times, default=0)
    if any(side.reaches(earliest - max(*before_ms, 0), latest) for side in sides):
        for place, (number, key, time, value) in enumerate(records):
            first, last = time - before_ms[number], time + after_ms[number]
            for each in sides[1 - number].fetch_serialized(key, first, last):
                found.append((place, *each))
            sides[number].put_one_serialized(key, time, value)
        return found
    entries = [side.entries for side in sides]
    changes = [side.changes for side in sides]
    for place, (number, key, time, value) in enumerate(records):
        others = entries[1 - number].get(key)
        if others is not None:
            for other_time, other in between(
                others, time - before_ms[number], time + after_ms[number]
            ):
                found.append((place, other_time, other))
        own = entries[number].get(key)
        duplicates = 0
        if own is None:
            entries[number][key] = [(time, value)]
        elif own[-1][0] < time:
            own.append((time, value))
        else:
            duplicates = insert(own, time, value)
        changes[number][window_key(key, time, duplicates)] = value
    for number, side in enumerate(sides):
        own_times = [time for each, _, time, _ in records if each == number]
        side.stream_time = max([side.stream_time, *own_times])
    return found


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
