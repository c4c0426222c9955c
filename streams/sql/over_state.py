"""The state of a query with `OVER (…)`: the rows that are not due yet, and those in frames.

All times are in ms. A row is due once stream time exceeds its time by more than the grace period:
no later record can come before it then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import OverSpec
from kafka_pipeline.streams.dsl.packing import pack, unpack
from kafka_pipeline.streams.event_time.step_time import ENDS_MS, StepTime, times_store_name
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.sql.columns import moments
from kafka_pipeline.streams.sql.kept_shape import KeptShape
from kafka_pipeline.streams.sql.over_rows import Row, RowsCodec
from kafka_pipeline.streams.sql.over_shape import OverShape, over_change
from kafka_pipeline.streams.sql.state_stores import FORMER, OVER
from kafka_pipeline.streams.stores import KeyValueStore, WindowStore


class OverState:
    """The rows of a task. One thread at a time."""

    def __init__(self, shape: OverShape, over: OverSpec, context: ProcessorContext) -> None:
        """Raise `QueryError` if the state was kept for another query."""
        self._over = over
        self._rows_before = shape.rows_before
        self._schema = shape.given
        self._codec = RowsCodec(shape)
        self._rows: WindowStore[bytes, bytes] = context.get_state_store(OVER)
        self._former: KeyValueStore[bytes, bytes] | None = None
        if over.counts_rows:
            self._former = context.get_state_store(FORMER)
        self.time = StepTime(context, context.get_state_store(times_store_name(OVER)))
        content = shape.content_at(over.stage)
        self._shape = KeptShape(content, partial(over_change, over), context)
        self._rows.follow(self.time.now)

    @property
    def given_until(self) -> int:
        """The time before which rows have had their results, whatever the grace period is now."""
        return self.time.closed

    def add(self, groups: Sequence[bytes], rows: Sequence[bytes], time: int) -> pa.Table:
        """Keep rows, and return those that are due at a time, with the rows in their frames.

        `groups` has the group of each row. `time` is the largest one of the batch.
        """
        self._shape.keep()
        self.time.see(time)
        found: dict[bytes, list[Row]] = {}
        for group, data in zip(groups, rows, strict=True):
            found.setdefault(group, []).append(Row.of(data))
        if not self.time.follows_records:
            self._put(found, -1)
            return self._schema.empty_table()
        return self._go_on(self.time.now, found)

    def pass_time(self, time: int) -> pa.Table:
        """Go on to a time, as all inputs are known to be there; return what `add` returns."""
        self.time.move(time)
        return self._go_on(time, {})

    def _go_on(self, now: int, new: Mapping[bytes, Sequence[Row]]) -> pa.Table:
        released = self._released(now, new)
        self._rows.go_on(now - ENDS_MS)
        return released

    def _released(self, now: int, new: Mapping[bytes, Sequence[Row]]) -> pa.Table:
        """Return the rows that are due, with those in their frames; keep the `new` ones.

        What is read must be read before anything is put.
        """
        first, last = max(self.time.closed, 0), now - self._over.grace_ms - 1
        if last < first:
            self._put(new, -1)
            return self._schema.empty_table()
        self.time.close(last + 1)
        due: dict[bytes, list[Row]] = {}
        with self._rows.fetch_all(first, last) as kept:
            for (group, _), data in kept:
                row = Row.of(data)
                if not row.is_given:
                    due.setdefault(group, []).append(row)
        for group, rows in new.items():
            ready = [row for row in rows if row.time <= last]
            if ready:
                due.setdefault(group, []).extend(ready)
        for rows in due.values():
            rows.sort()
        frames = self._frames(due)
        self._keep_former(frames, due)
        self._put(new, last - self._over.range_ms)
        return self._columns(frames, due)

    def _frames(self, due: Mapping[bytes, Sequence[Row]]) -> dict[bytes, list[Row]]:
        """Return the rows before those that are due that their frames may reach, in order."""
        former = {}
        if self._former is not None:
            groups = [*due]
            values = zip(groups, self._former.get_all(groups), strict=True)
            former = {group: value for group, value in values if value is not None}
        found = {}
        for group, rows in due.items():
            until = rows[0].time
            since = max(until - self._over.range_ms, 0)
            kept = self._rows.fetch_list(group, since, until - 1) if since < until else ()
            by_time = sorted(Row.of(data) for _, data in kept)
            before = [Row.of(each) for each in unpack(former.get(group, b"")) if each is not None]
            # Some are in both, but not all since then if the frame by time was shorter before.
            known = {row.data for row in by_time}
            found[group] = sorted([*(row for row in before if row.data not in known), *by_time])
        return found

    def _keep_former(
        self, frames: Mapping[bytes, Sequence[Row]], due: Mapping[bytes, Sequence[Row]]
    ) -> None:
        if self._former is None:
            return
        for group, rows in due.items():
            last = [*frames[group], *rows][-self._rows_before :] if self._rows_before else []
            self._former.put(group, pack([row.data for row in last]))

    def _put(self, new: Mapping[bytes, Sequence[Row]], before: int) -> None:
        """Keep rows, but for those up to a time, which no later frame reaches."""
        for group, rows in new.items():
            for row in rows:
                if row.time > before:
                    self._rows.put(group, row.data, row.time)

    def _columns(
        self, frames: Mapping[bytes, Sequence[Row]], due: Mapping[bytes, Sequence[Row]]
    ) -> pa.Table:
        """Return rows as columns; those that are due have the order of their results."""
        rows = [
            (row, is_due)
            for group in due
            for is_due, found in ((False, frames[group]), (True, due[group]))
            for row in found
        ]
        rows.sort(key=lambda each: each[0])
        decoded = self._codec.decode([row for row, _ in rows])
        columns = [
            *decoded.columns,
            moments([row.time for row, _ in rows]),
            pa.array(np.arange(len(rows))),
            pa.array([is_due for _, is_due in rows], pa.bool_()),
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)
