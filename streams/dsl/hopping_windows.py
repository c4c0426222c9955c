"""Aggregates in hopping windows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

from kafka_pipeline.streams.dsl.change import ChangeColumn
from kafka_pipeline.streams.dsl.recent_hops import Hops, RecentHops
from kafka_pipeline.streams.dsl.stateless import selected, times_each
from kafka_pipeline.streams.dsl.time_windows import TimeWindowAggregator
from kafka_pipeline.streams.dsl.window_aggregates import WindowedAggregate
from kafka_pipeline.streams.dsl.windows import TimeWindows
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.stores import Window, Windowed, WindowStore
from kafka_pipeline.streams.stores.layout import window_key


class HoppingWindowAggregator(TimeWindowAggregator):
    """Adds each record to the windows that its time is in, of which there are usually several."""

    def __init__(self, aggregate: WindowedAggregate, windows: TimeWindows) -> None:
        super().__init__(aggregate, windows)
        self._hopping = windows

    def open_store(self, store: WindowStore[Any, Any]) -> None:
        super().open_store(store)
        assert self.aggregate.serdes is not None, "AggregateWindows sets them"
        self._recent = RecentHops(
            store,
            self.functions,
            self.aggregate.serdes.value,
            advance_ms=self._hopping.advance_ms,
            sends_old=self.sends_old,
        )

    def add(self, batch: Batch, late_by: Sequence[int]) -> None:
        latest = max(items_of(batch.timestamps))
        starts = list(map(self._hopping.starts, items_of(batch.timestamps)))
        first_open = self._hopping.first_open(max(late_by))
        if any(each.start < first_open for each in starts):
            batch, starts = self._open(batch, starts, late_by)
        made = {each: self._hops(each) for each in set(starts)}
        hops = list(map(made.__getitem__, starts))
        keys, values, times = map(items_of, (batch.keys, batch.values, batch.timestamps))
        records = zip(keys, values, times, strict=True)
        try:
            updates = self._recent.add(self.written(keys), records, hops)
        except SerializationError as error:
            raise self.unwritable(error) from error
        self.see_time(latest)
        if self.closes or not hops:
            return
        counts = [len(each.windows) for each in hops]
        spans = chain.from_iterable(each.windows for each in hops)
        windowed = map(
            tuple.__new__, repeat(Windowed), zip(times_each(keys, counts), spans, strict=True)
        )
        results = Batch(
            list(windowed),
            ChangeColumn(updates.new, updates.old),
            updates.times,
            None if batch.headers is None else times_each(batch.headers, counts),
            None,
            None if batch.clocks is None else times_each(batch.clocks, counts),
        )
        self.context.forward(results, self.aggregate.results)

    def _hops(self, starts: range) -> Hops:
        return Hops(
            starts[0],
            starts[-1],
            [Window(start, self._hopping.end(start)) for start in starts],
            [window_key(b"", start) for start in starts],
        )

    def _open(
        self, batch: Batch, starts: Sequence[range], late_by: Sequence[int]
    ) -> tuple[Batch, list[range]]:
        """Return the records that are not late for all of their windows, and the others of these.

        The windows that a record is late for are counted.
        """
        still_open = list[range]()
        columns = zip(
            batch.records(), starts, late_by, batch.clocks or batch.timestamps, strict=True
        )
        for record, each, at, clock in columns:
            first_open, late = self._hopping.first_open(at), 0
            while late < len(each) and each[late] < first_open:
                self.late(record, Window(each[late], self._hopping.end(each[late])), at, clock)
                late += 1
            still_open.append(each[late:])
        return selected(batch, list(map(bool, still_open))), list(filter(None, still_open))
