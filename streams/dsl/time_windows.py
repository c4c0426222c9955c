"""Aggregates in tumbling and hopping windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streams.dsl.change import Change
from streams.dsl.table_values import Found
from streams.dsl.window_aggregates import NULL_KEY, WindowAggregator, WindowedAggregate
from streams.dsl.windows import TimeWindows
from streams.errors import SerializationError
from streams.record import Record
from streams.stores import ValueAndTimestamp, Window, Windowed, WindowStore


class TimeWindowAggregator(WindowAggregator):
    """Adds each record to the windows that its time is in. Null keys are dropped."""

    def __init__(self, aggregate: WindowedAggregate, windows: TimeWindows) -> None:
        super().__init__(aggregate)
        self._windows = windows
        self._size_ms = windows.size_ms
        self._grace_ms = windows.grace_ms

    def open_store(self, store: WindowStore[Any, Any]) -> None:
        self._store = store

    def process(self, record: Record) -> None:
        if record.key is None:
            self.context.drop(NULL_KEY)
            return
        now = self.see(record)
        first_open = now - self._grace_ms - self._size_ms + 1
        for start in self._windows.starts(record.timestamp):
            if start >= first_open:
                self._update(record, start)
            else:
                self.late(record, Window(start, start + self._size_ms), now)

    def _update(self, record: Record, start: int) -> None:
        key, timestamp, store = record.key, record.timestamp, self._store
        found = store.fetch_window(key, start)
        old = None
        if found is None:
            new = self.functions.first(key, record.value)
        else:
            if self.sends_old:
                old = store.fetch_window(key, start).value  # type: ignore[union-attr]
            new = self.functions.adder(key, record.value, found.value)
            timestamp = max(timestamp, found.timestamp)
        try:
            store.put(key, None if new is None else ValueAndTimestamp(new, timestamp), start)
        except SerializationError as error:
            raise self.unwritable(error) from error
        if not self.closes:
            windowed = Windowed(key, Window(start, start + self._size_ms))
            self.forward(Record(windowed, Change(new, old), timestamp, record.headers))

    def _bounds(self, closed: int, now: int) -> tuple[int, int]:
        """Return the first and last start of windows that closed after `closed` until `now`."""
        delay_ms = self._size_ms + self._grace_ms
        return max(0, closed - delay_ms + 1), now - delay_ms

    def closed_windows(self, closed: int, now: int) -> Sequence[tuple[Windowed[Any], Any, int]]:
        first, last = self._bounds(closed, now)
        if last < 0 or last // self._windows.advance_ms * self._windows.advance_ms < first:
            return ()
        with self._store.fetch_all(first, last) as found:
            windows = [(windowed, value, timestamp) for windowed, (value, timestamp) in found]
        windows.sort(key=lambda each: each[0].window.start)
        return windows

    def all_closed_at(self, closed: int) -> int | None:
        last = newest_start(self._store, self._bounds(closed, closed)[0])
        return None if last is None else last + self._size_ms + self._grace_ms


def newest_start(store: WindowStore[Any, Any], first: int) -> int | None:
    """Return the largest start of a window, of those that start at `first` or later."""
    with store.fetch_all(first, 2**63 - 1) as found:
        return max((window.start for (_, window), _ in found), default=None)


def look_up_window(store: WindowStore[Any, Any], key: Windowed[Any]) -> Found:
    """Return the aggregate of a window and its time, or `None`."""
    return store.fetch_window(key.key, key.window.start)
