"""Aggregates in sliding windows (KIP-450)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka_pipeline.streams.dsl.aggregates import NULL_KEY_OR_VALUE
from kafka_pipeline.streams.dsl.change import Change
from kafka_pipeline.streams.dsl.closing import Closing
from kafka_pipeline.streams.dsl.time_windows import newest_start
from kafka_pipeline.streams.dsl.window_aggregates import WindowAggregator, WindowedAggregate
from kafka_pipeline.streams.dsl.windows import SlidingWindows
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.processor import Processor
from kafka_pipeline.streams.record import Record
from kafka_pipeline.streams.stores import ValueAndTimestamp, Window, Windowed, WindowStore

Aggregate = ValueAndTimestamp[Any]


class SlidingWindowAggregator(WindowAggregator, Processor):
    """Adds each record to the windows that it is in, and makes the windows that it begins or ends.

    A record at time t ends the window [t - difference, t], and for each record at a time s that is
    not the last, there is a window [s + 1, s + 1 + difference], unless it is empty. Windows that
    would begin before 0 are one: [0, difference]. Null keys and values are dropped.
    """

    def __init__(self, aggregate: WindowedAggregate, windows: SlidingWindows) -> None:
        super().__init__(aggregate)
        assert aggregate.serdes is not None, "AggregateWindows sets them"
        self._difference_ms = windows.difference_ms
        self._delay_ms = windows.grace_ms
        ahead_ms = (windows.difference_ms + windows.grace_ms) // 8
        self._closing = Closing(self._ending, aggregate.serdes.key, ahead_ms)

    def open_store(self, store: WindowStore[Any, Any]) -> None:
        self._store = store

    def process(self, record: Record) -> None:
        if record.key is None or record.value is None:
            self.context.drop(NULL_KEY_OR_VALUE)
            return
        at, timestamp = self.see(record), record.timestamp
        if timestamp + self._difference_ms < at - self._delay_ms:
            window = Window(timestamp, timestamp + self._difference_ms)
            self.late(record, window, at, self.time.clock)
        elif timestamp < self._difference_ms:
            self._process_early(record, at)
        else:
            self._process(record, at)

    def _process(self, record: Record, at: int) -> None:
        key, timestamp, difference_ms = record.key, record.timestamp, self._difference_ms
        first = max(0, timestamp - 2 * difference_ms)
        windows = self._store.fetch_list(key, first, timestamp + 1)[::-1]
        before: Aggregate | None = None
        """The aggregate of the last window that ended before the record."""
        without: Aggregate | None = None
        """The aggregate of the newest window around the record, without the record."""
        previous: int | None = None
        """The time of the record before this one."""
        ends_window = False
        for start, aggregate in windows:
            end = start + difference_ms
            if start > timestamp:
                continue
            if end < timestamp:
                before, previous = aggregate, aggregate.timestamp
                break
            if end > timestamp:
                without = without or self._store.fetch_window(key, start)
            self._add(record, start, aggregate, at)
            if end == timestamp:
                ends_window = True
                if aggregate.timestamp >= timestamp:
                    return  # A record at this time came before, and made all windows.
                previous = aggregate.timestamp
        starts = {start for start, _ in windows}
        earliest = timestamp - difference_ms
        if previous is not None and previous + 1 not in starts and previous + 1 >= earliest:
            self._add(record, previous + 1, None, at)
        if not ends_window:
            is_near = previous is not None and previous >= earliest
            self._add(record, earliest, before if is_near else None, at)
        if timestamp + 1 not in starts:
            self._begin_after(record, without)

    def _process_early(self, record: Record, at: int) -> None:
        """Process a record whose window would begin before time 0."""
        key, timestamp = record.key, record.timestamp
        windows = self._store.fetch_list(key, 0, timestamp + 1)
        first: Aggregate | None = None
        without: Aggregate | None = None
        for start, aggregate in windows:
            if start == 0:
                first = aggregate
            elif start <= timestamp:
                without = self._store.fetch_window(key, start)
                self._add(record, start, aggregate, at)
        if without is None and first is not None:
            without = self._store.fetch_window(key, 0)
        starts = {start for start, _ in windows}
        if timestamp + 1 not in starts:
            self._begin_after(record, without)
        if first is not None and first.timestamp < timestamp and first.timestamp + 1 not in starts:
            self._add(record, first.timestamp + 1, None, at)
        self._add(record, 0, first, at)

    def _begin_after(self, record: Record, without: Aggregate | None) -> None:
        """Make the window that begins after the record, if later records are in it."""
        if without is not None and without.timestamp > record.timestamp:
            self._put(record, record.timestamp + 1, without.value, None, without.timestamp)

    def _add(self, record: Record, start: int, aggregate: Aggregate | None, at: int) -> None:
        """Add a record to a window; `aggregate` is what to begin with, `None` is nothing."""
        end = start + self._difference_ms
        if end < at - self._delay_ms:
            self.late(record, Window(start, end), at, self.time.clock)
            return
        key, timestamp = record.key, record.timestamp
        found = self._store.fetch_window(key, start) if self.sends_old else None
        old = None if found is None else found.value
        if aggregate is None:
            new = self.functions.first(key, record.value)
        else:
            new = self.functions.adder(key, record.value, aggregate.value)
            timestamp = max(timestamp, aggregate.timestamp)
        self._put(record, start, new, old, timestamp)

    def _put(self, record: Record, start: int, new: Any, old: Any, timestamp: int) -> None:
        key = record.key
        try:
            stored = None if new is None else ValueAndTimestamp(new, timestamp)
            self._store.put(key, stored, start)
        except SerializationError as error:
            raise self.unwritable(error) from error
        windowed = Windowed(key, Window(start, start + self._difference_ms))
        if self.closes:
            self._closing.add(windowed)
        else:
            self.forward(Record(windowed, Change(new, old), timestamp, record.headers))

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
