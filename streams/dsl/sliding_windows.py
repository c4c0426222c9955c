"""Aggregates in sliding windows (KIP-450)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams.dsl.aggregates import NULL_KEY_OR_VALUE, without_nulls
from kafka_pipeline.streams.dsl.change import Change
from kafka_pipeline.streams.dsl.closing import Closing
from kafka_pipeline.streams.dsl.time_windows import newest_start
from kafka_pipeline.streams.dsl.window_aggregates import WindowAggregator, WindowedAggregate
from kafka_pipeline.streams.dsl.windows import SlidingWindows
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.record import Batch, Record, items_of
from kafka_pipeline.streams.stores import Window, Windowed, WindowStore
from kafka_pipeline.streams.stores.key_value import value_and_time
from kafka_pipeline.streams.stores.layout import TIME_BYTES, pack_signed_time
from kafka_pipeline.streams.stores.recent_windows import KeyWindows, RecentWindows

Update = tuple[int, Any, Any, int]
"""The start of a window, its aggregate, the one before if that is sent on, and its timestamp."""


@dataclass(slots=True)
class _Arrival:
    """A record, the time by which it may be late, its clock, and the windows of its key."""

    record: Record
    at: int
    clock: int
    windows: KeyWindows


class SlidingWindowAggregator(WindowAggregator, EitherWay):
    """Adds each record to the windows that it is in, and makes the windows that it begins or ends.

    A record at time t ends the window [t - difference, t], and for each record at a time s that is
    not the last, there is a window [s + 1, s + 1 + difference], unless it is empty. Windows that
    would begin before 0 are one: [0, difference]. Null keys and values are dropped.
    """

    def __init__(self, aggregate: WindowedAggregate, windows: SlidingWindows) -> None:
        super().__init__(aggregate)
        assert aggregate.serdes is not None, "AggregateWindows sets them"
        key_serde, value_serde = aggregate.serdes.key, aggregate.serdes.value
        self._write_key = key_serde.serialize
        self._write, self._read = value_serde.serialize, value_serde.deserialize
        self._difference_ms = windows.difference_ms
        self._delay_ms = windows.grace_ms
        ahead_ms = (windows.difference_ms + windows.grace_ms) // 8
        self._closing = Closing(self._ending, key_serde, ahead_ms)

    def open_store(self, store: WindowStore[Any, Any]) -> None:
        self._store = store
        self._recent = RecentWindows(store)

    def process(self, batch: Batch) -> None:
        if self.closes:
            # Windows may close ahead of each record.
            self.process_each(batch)
            return
        batch = without_nulls(batch, self.context)
        if not len(batch):
            return
        times = items_of(batch.timestamps)
        late_by = self.time.late_by(batch).tolist()
        keys = list(map(self._written, items_of(batch.keys)))
        origins, result_times = list[int](), list[int]()
        windowed, changes = list[Any](), list[Any]()
        difference_ms = self._difference_ms
        self._recent.begin()
        rows = zip(batch.records(), keys, late_by, batch.clocks or times, strict=True)
        for origin, (record, key, at, clock) in enumerate(rows):
            for start, new, old, time in self._updates(record, key, at, clock):
                origins.append(origin)
                windowed.append(Windowed(record.key, Window(start, start + difference_ms)))
                changes.append(Change(new, old))
                result_times.append(time)
        self._recent.end()
        self.see_time(max(times))
        headers, clocks = batch.headers, batch.clocks
        results = Batch(
            windowed,
            changes,
            result_times,
            None if headers is None else [headers[origin] for origin in origins],
            None,
            None if clocks is None else [clocks[origin] for origin in origins],
        )
        self.context.forward(results, self.aggregate.results)

    def process_record(self, record: Record) -> None:
        if record.key is None or record.value is None:
            self.context.drop(NULL_KEY_OR_VALUE)
            return
        at, key = self.see(record), self._written(record.key)
        recent = self._recent
        recent.begin()
        for start, new, old, time in self._updates(record, key, at, self.time.clock):
            recent.write()
            windowed = Windowed(record.key, Window(start, start + self._difference_ms))
            if self.closes:
                self._closing.add(windowed)
            else:
                self.forward(Record(windowed, Change(new, old), time, record.headers))
        recent.end()

    def _written(self, key: Any) -> bytes:
        try:
            return self._write_key(key)
        except SerializationError as error:
            raise self.unwritable(error) from error

    def _updates(self, record: Record, key: bytes, at: int, clock: int) -> Iterator[Update]:
        """Yield each window that changes, once it has: `at` and `clock` are the record's.

        `key` is the record's as bytes.
        """
        timestamp, difference_ms = record.timestamp, self._difference_ms
        end = timestamp + difference_ms
        if end < at - self._delay_ms:
            self.late(record, Window(timestamp, end), at, clock)
            return
        windows = self._recent.of_key(key, max(0, timestamp - 2 * difference_ms))
        arrival = _Arrival(record, at, clock, windows)
        if timestamp < difference_ms:
            yield from self._early_updates(arrival)
            return
        earliest = timestamp - difference_ms
        starts = windows.between(max(0, earliest - difference_ms), timestamp + 1)
        before: bytes | None = None
        """The aggregate of the last window that ended before the record."""
        without: bytes | None = None
        """The aggregate of the newest window around the record, without the record."""
        previous: int | None = None
        """The time of the record before this one."""
        ends_window = False
        for start in reversed(starts):
            if start > timestamp:
                continue
            found = windows.get(start)
            if start < earliest:
                before, previous = found, _time_of(found)
                break
            if start > earliest:
                without = without or found
            yield from self._added(arrival, start, found)
            if start == earliest:
                ends_window = True
                previous = _time_of(found)
                if previous >= timestamp:
                    return  # A record at this time came before, and made all windows.
        if previous is not None and previous + 1 >= earliest and previous + 1 not in starts:
            yield from self._added(arrival, previous + 1, None)
        if not ends_window:
            is_near = previous is not None and previous >= earliest
            yield from self._added(arrival, earliest, before if is_near else None)
        if timestamp + 1 not in starts:
            yield from self._begun_after(arrival, without)

    def _early_updates(self, arrival: _Arrival) -> Iterator[Update]:
        """Do what `_updates` does, for a record whose window would begin before time 0."""
        windows, timestamp = arrival.windows, arrival.record.timestamp
        starts = windows.between(0, timestamp + 1)
        first: bytes | None = None
        without: bytes | None = None
        for start in starts:
            if start == 0:
                first = windows.get(0)
            elif start <= timestamp:
                without = windows.get(start)
                yield from self._added(arrival, start, without)
        if timestamp + 1 not in starts:
            yield from self._begun_after(arrival, without or first)
        if first is not None:
            previous = _time_of(first)
            if previous < timestamp and previous + 1 not in starts:
                yield from self._added(arrival, previous + 1, None)
        yield from self._added(arrival, 0, first)

    def _begun_after(self, arrival: _Arrival, without: bytes | None) -> Iterator[Update]:
        """Make the window that begins after the record, if later records are in it."""
        found = value_and_time(without)
        if found is not None and found[1] > arrival.record.timestamp:
            start = arrival.record.timestamp + 1
            yield self._put(arrival.windows, start, self._read(found[0]), None, found[1])

    def _added(self, arrival: _Arrival, start: int, found: bytes | None) -> Iterator[Update]:
        """Add a record to a window; `found` is the aggregate to begin with, `None` is nothing."""
        record, end = arrival.record, start + self._difference_ms
        if end < arrival.at - self._delay_ms:
            self.late(record, Window(start, end), arrival.at, arrival.clock)
            return
        entry, time = value_and_time(found), record.timestamp
        if entry is None:
            new = self.functions.first(record.key, record.value)
        else:
            new = self.functions.adder(record.key, record.value, self._read(entry[0]))
            time = max(time, entry[1])
        old = None
        if self.sends_old and arrival.windows.has(start):
            old = self._read(arrival.windows.get(start)[TIME_BYTES:])
        yield self._put(arrival.windows, start, new, old, time)

    def _put(self, windows: KeyWindows, start: int, new: Any, old: Any, time: int) -> Update:
        try:
            stored = None if new is None else pack_signed_time(time) + self._write(new)
        except SerializationError as error:
            raise self.unwritable(error) from error
        windows.put(start, stored)
        return start, new, old, time

    def forget(self) -> None:
        self._closing.forget()

    def closed_windows(self, closed: int, now: int) -> Iterator[tuple[Windowed[Any], Any, int]]:
        # The end of a window belongs to it, so it closes when the time is larger.
        for window in self._closing.due(closed - self._delay_ms, now - self._delay_ms - 1):
            found = self._store.fetch_window(window.key, window.window.start)
            if found is not None:
                yield window, found.value, found.timestamp

    def _ending(self, first: int, last: int) -> list[Windowed[Any]]:
        """Return the windows that end between two times, both included."""
        span = self._difference_ms
        with self._store.fetch_all(max(0, first - span), last - span) as found:
            return [
                Windowed(windowed.key, Window(windowed.window.start, windowed.window.start + span))
                for windowed, _ in found
            ]

    def all_closed_at(self, closed: int) -> int | None:
        last = newest_start(self._store, max(0, closed - self._delay_ms - self._difference_ms))
        return None if last is None else last + self._difference_ms + self._delay_ms + 1


def _time_of(stored: bytes) -> int:
    """Return the timestamp of an aggregate in the store."""
    return int.from_bytes(stored[:TIME_BYTES], "big", signed=True)
