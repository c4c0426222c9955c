"""Aggregates in sliding windows (KIP-450)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any

from kafka_pipeline.streams.dsl.aggregates import NULL_KEY_OR_VALUE, without_nulls
from kafka_pipeline.streams.dsl.change import Change, ChangeColumn
from kafka_pipeline.streams.dsl.closing import Closing
from kafka_pipeline.streams.dsl.stateless import times_each
from kafka_pipeline.streams.dsl.time_windows import newest_start
from kafka_pipeline.streams.dsl.window_aggregates import WindowAggregator, WindowedAggregate
from kafka_pipeline.streams.dsl.windows import SlidingWindows
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.record import Batch, Record, items_of
from kafka_pipeline.streams.stores import Window, Windowed, WindowStore
from kafka_pipeline.streams.stores.known_windows import KeyWindows, KnownWindows
from kafka_pipeline.streams.stores.layout import TIME_BYTES, pack_signed_time, signed_time

Update = tuple[int, Any, Any, int]
"""The start of a window, its aggregate, the one before if that is sent on, and its timestamp."""


@dataclass(slots=True)
class _Arrival:
    """A record on its way to the windows of its key; `emit` gets each one that it changes."""

    record: Record
    at: int
    """The time by which the record may be late."""
    clock: int
    first_open: int
    """The first start of a window that has not closed."""
    windows: KeyWindows
    emit: Callable[[Update], None]


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
        self._known = KnownWindows(store)

    def process(self, batch: Batch) -> None:
        if self.closes:
            # Windows may close ahead of each record.
            self.process_each(batch)
            return
        batch = without_nulls(batch, self.context)
        if not len(batch):
            return
        keys, times = items_of(batch.keys), items_of(batch.timestamps)
        late_by = self.time.late_by(batch).tolist()
        written = list(map(self._written, keys))
        updates, ends = list[Update](), [0]
        self._known.begin()
        rows = zip(batch.records(), written, late_by, batch.clocks or times, strict=True)
        for record, key, at, clock in rows:
            self._update(record, key, at, clock, updates.append)
            ends.append(len(updates))
        self._known.end()
        self.see_time(max(times))
        if not updates:
            return
        counts = [end - start for start, end in pairwise(ends)]
        starts, new, old, changed_at = zip(*updates, strict=True)
        last_times = map(self._difference_ms.__add__, starts)
        spans = map(tuple.__new__, repeat(Window), zip(starts, last_times, strict=True))
        windowed = zip(times_each(keys, counts), spans, strict=True)
        results = Batch(
            list(map(tuple.__new__, repeat(Windowed), windowed)),
            ChangeColumn(new, old),
            list(changed_at),
            None if batch.headers is None else times_each(batch.headers, counts),
            None,
            None if batch.clocks is None else times_each(batch.clocks, counts),
        )
        self.context.forward(results, self.aggregate.results)

    def process_record(self, record: Record) -> None:
        if record.key is None or record.value is None:
            self.context.drop(NULL_KEY_OR_VALUE)
            return
        at, key = self.see(record), self._written(record.key)
        self._known.begin()

        def emit(update: Update) -> None:
            self._known.write()
            start, new, old, time = update
            windowed = Windowed(record.key, Window(start, start + self._difference_ms))
            if self.closes:
                self._closing.add(windowed)
            else:
                self.forward(Record(windowed, Change(new, old), time, record.headers))

        self._update(record, key, at, self.time.clock, emit)
        self._known.end()

    def _written(self, key: Any) -> bytes:
        try:
            return self._write_key(key)
        except SerializationError as error:
            raise self.unwritable(error) from error

    def _update(
        self, record: Record, key: bytes, at: int, clock: int, emit: Callable[[Update], None]
    ) -> None:
        """Add a record to the windows of its key, which is given as bytes, too."""
        timestamp, difference_ms = record.timestamp, self._difference_ms
        first_open = at - self._delay_ms - difference_ms
        if timestamp < first_open:
            self.late(record, Window(timestamp, timestamp + difference_ms), at, clock)
            return
        windows = self._known.of_key(key, max(0, timestamp - 2 * difference_ms))
        arrival = _Arrival(record, at, clock, first_open, windows, emit)
        if timestamp < difference_ms:
            self._update_early(arrival)
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
                before, previous = found, signed_time(found)
                break
            if start > earliest:
                without = without or found
            self._add(arrival, start, found)
            if start == earliest:
                ends_window = True
                previous = signed_time(found)
                if previous >= timestamp:
                    return  # A record at this time came before, and made all windows.
        if previous is not None and previous + 1 >= earliest and previous + 1 not in starts:
            self._add(arrival, previous + 1, None)
        if not ends_window:
            is_near = previous is not None and previous >= earliest
            self._add(arrival, earliest, before if is_near else None)
        if timestamp + 1 not in starts:
            self._begin_after(arrival, without)

    def _update_early(self, arrival: _Arrival) -> None:
        """Do what `_update` does, for a record whose window would begin before time 0."""
        windows, timestamp = arrival.windows, arrival.record.timestamp
        starts = windows.between(0, timestamp + 1)
        first: bytes | None = None
        without: bytes | None = None
        for start in starts:
            if start == 0:
                first = windows.get(0)
            elif start <= timestamp:
                without = windows.get(start)
                self._add(arrival, start, without)
        if timestamp + 1 not in starts:
            self._begin_after(arrival, without or first)
        if first is not None:
            previous = signed_time(first)
            if previous < timestamp and previous + 1 not in starts:
                self._add(arrival, previous + 1, None)
        self._add(arrival, 0, first)

    def _begin_after(self, arrival: _Arrival, without: bytes | None) -> None:
        """Make the window that begins after the record, if later records are in it."""
        if without is not None and (time := signed_time(without)) > arrival.record.timestamp:
            aggregate = self._read(without[TIME_BYTES:])
            self._put(arrival, arrival.record.timestamp + 1, aggregate, None, time)

    def _add(self, arrival: _Arrival, start: int, found: bytes | None) -> None:
        """Add a record to a window; `found` is the aggregate to begin with, `None` is nothing."""
        record = arrival.record
        if start < arrival.first_open:
            span = Window(start, start + self._difference_ms)
            self.late(record, span, arrival.at, arrival.clock)
            return
        time, old = record.timestamp, None
        if found is None:
            new = self.functions.first(record.key, record.value)
        else:
            new = self.functions.adder(record.key, record.value, self._read(found[TIME_BYTES:]))
            if (former := signed_time(found)) > time:
                time = former
        if self.sends_old and arrival.windows.has(start):
            old = self._read(arrival.windows.get(start)[TIME_BYTES:])
        self._put(arrival, start, new, old, time)

    def _put(self, arrival: _Arrival, start: int, new: Any, old: Any, time: int) -> None:
        try:
            stored = None if new is None else pack_signed_time(time) + self._write(new)
        except SerializationError as error:
            raise self.unwritable(error) from error
        arrival.windows.put(start, stored)
        arrival.emit((start, new, old, time))

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
