"""Aggregates in tumbling and calendar windows, and what they share with hopping windows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import compress
from operator import add
from typing import Any

from kafka_pipeline.streams.dsl.aggregate_functions import Fold
from kafka_pipeline.streams.dsl.change import Change, ChangeColumn
from kafka_pipeline.streams.dsl.stateless import NULL_KEY, selected, with_keys
from kafka_pipeline.streams.dsl.table_values import Found
from kafka_pipeline.streams.dsl.window_aggregates import WindowAggregator, WindowedAggregate
from kafka_pipeline.streams.dsl.windows import CalendarWindows, TimeWindows
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.record import Batch, Record, items_of
from kafka_pipeline.streams.stores import ValueAndTimestamp, Window, Windowed, WindowStore
from kafka_pipeline.streams.stores.layout import window_key


class TimeWindowAggregator(WindowAggregator, EitherWay):
    """Adds each record to the windows that its time is in. Null keys are dropped."""

    def __init__(
        self, aggregate: WindowedAggregate, windows: TimeWindows | CalendarWindows
    ) -> None:
        super().__init__(aggregate)
        self._windows = windows
        self._end = windows.end
        assert aggregate.serdes is not None, "AggregateWindows sets them"
        self._write_key = aggregate.serdes.key.serialize
        self._fold = Fold(self.functions, aggregate.serdes.value, self.sends_old)

    def open_store(self, store: WindowStore[Any, Any]) -> None:
        self._store = store

    def process(self, batch: Batch) -> None:
        batch = with_keys(batch, self.context)
        late_by = self.time.late_by(batch).tolist()
        size = len(late_by)
        nows = self.time.moves(batch) if self.closes and self.time.follows_records else []
        start = 0
        while start < size:
            stop = (
                bisect_left(nows, self._windows.next_close(self.time.closed), start)
                if nows
                else size
            )
            if stop > start:
                self.add(batch.part(start, stop), late_by[start:stop])
            if stop < size:
                # Windows close ahead of this record.
                self.process_each(batch.part(stop, stop + 1))
            start = stop + 1

    def add(self, batch: Batch, late_by: Sequence[int]) -> None:
        """Add records with keys; no window closes meanwhile. `late_by` is as in `StepTime`."""
        latest = max(items_of(batch.timestamps))
        written = self.written(items_of(batch.keys))
        starts: Sequence[int] = self._windows.start_of_each(items_of(batch.timestamps))
        if min(starts) < self._windows.first_open(max(late_by)):
            batch, written, starts = self._without_late(batch, written, starts, late_by)
        keys, values, times = map(items_of, (batch.keys, batch.values, batch.timestamps))
        windows = {start: Window(start, self._end(start)) for start in set(starts)}
        ends = {start: window_key(b"", start) for start in windows}
        places = list(map(add, written, map(ends.__getitem__, starts)))
        try:
            found = self._store.get_all_serialized(list(dict.fromkeys(places)))
            records = zip(keys, values, times, strict=True)
            folded = self._fold.add(places, records, found)
        except SerializationError as error:
            raise self.unwritable(error) from error
        self._store.put_serialized(folded.changes, max(starts, default=None))
        self.see_time(latest)
        if not self.closes:
            windowed = list(map(Windowed, keys, map(windows.__getitem__, starts)))
            changes = ChangeColumn(folded.new, folded.old)
            clocks = batch.clocks
            results = Batch(windowed, changes, folded.times, batch.headers, None, clocks)
            self.context.forward(results, self.aggregate.results)

    def written(self, keys: Sequence[Any]) -> Sequence[bytes]:
        """Return keys as bytes."""
        try:
            return list(map(self._write_key, keys))
        except SerializationError as error:
            raise self.unwritable(error) from error

    def _without_late(
        self,
        batch: Batch,
        written: Sequence[bytes],
        starts: Sequence[int],
        late_by: Sequence[int],
    ) -> tuple[Batch, Sequence[bytes], Sequence[int]]:
        clocks = batch.clocks or batch.timestamps
        is_open = self._windows.are_open(starts, late_by)
        columns = zip(batch.records(), starts, late_by, clocks, is_open, strict=True)
        for record, start, at, clock, stays in columns:
            if not stays:
                self.late(record, Window(start, self._end(start)), at, clock)
        still_open = list(compress(starts, is_open))
        return selected(batch, is_open), list(compress(written, is_open)), still_open

    def process_record(self, record: Record) -> None:
        if record.key is None:
            self.context.drop(NULL_KEY)
            return
        at = self.see(record)
        first_open = self._windows.first_open(at)
        for start in self._windows.starts(record.timestamp):
            if start >= first_open:
                self._update(record, start)
            else:
                self.late(record, Window(start, self._end(start)), at, self.time.clock)

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
            windowed = Windowed(key, Window(start, self._end(start)))
            self.forward(Record(windowed, Change(new, old), timestamp, record.headers))

    def closed_windows(self, closed: int, now: int) -> Sequence[tuple[Windowed[Any], Any, int]]:
        first, last = self._windows.closing(closed, now)
        if last < first or self._windows.starts(last)[-1] < first:
            return ()
        with self._store.fetch_all(first, last) as found:
            windows = [(windowed, value, timestamp) for windowed, (value, timestamp) in found]
        windows.sort(key=lambda each: each[0].window.start)
        if not windows:
            self.time.close(now)  # there is no need to look again
        return windows

    def all_closed_at(self, closed: int) -> int | None:
        last = newest_start(self._store, self._windows.closing(closed, closed)[0])
        return None if last is None else self._end(last) + self._windows.grace_ms


def newest_start(store: WindowStore[Any, Any], first: int) -> int | None:
    """Return the largest start of a window, of those that start at `first` or later."""
    with store.fetch_all(first, 2**63 - 1) as found:
        return max((window.start for (_, window), _ in found), default=None)


def look_up_window(store: WindowStore[Any, Any], key: Windowed[Any]) -> Found:
    """Return the aggregate of a window and its time, or `None`."""
    return store.fetch_window(key.key, key.window.start)
