"""Finds the late records of a query, and counts them or sends them on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import GroupingSpec, WindowSpec
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams import clocks
from kafka_pipeline.streams.dsl.window_aggregates import late_headers
from kafka_pipeline.streams.dsl.windows import CalendarWindows, SessionWindows
from kafka_pipeline.streams.event_time.step_time import NO_TIME, SENT_ON, late_reason
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, Record, items_of
from kafka_pipeline.streams.sql.columns import moments_at
from kafka_pipeline.streams.sql.group_codec import Times, spans
from kafka_pipeline.streams.sql.state_shape import OPEN_FROM, PERIOD
from kafka_pipeline.streams.sql.state_stores import windows_of
from kafka_pipeline.streams.windowed import Window


def committed_time(context: ProcessorContext) -> int:
    """Return the time of a step that has no store: it is committed with the offsets."""
    return context.stream_time if context.task_time.follows_records else NO_TIME


def late_by(batch: Batch, context: ProcessorContext, now: int | None = None) -> Times:
    """Return the time by which each record of a batch may be late.

    `now` is the time of the step before them, by default the committed one.
    """
    return clocks.late_by(
        items_of(batch.timestamps),
        batch.clocks,
        committed_time(context) if now is None else now,
        follows_records=context.task_time.follows_records,
    )


class LateRecords:
    """Counts late records, or sends them on."""

    def __init__(self, late_to: str | None, context: ProcessorContext) -> None:
        """`late_to` is the child that gets them, if one does."""
        # For the headers of late records.
        self._name = TaskId.parse(context.task_id).processor
        self._late_to = late_to
        self._context = context

    def take(self, batch: Batch, index: int, window: Window, late_by: int, closes_at: int) -> None:
        """Take a late record of a window, which closes at `closes_at`.

        `late_by` is the stream time that made it late.
        """
        own = (batch.clocks or batch.timestamps)[index]
        follows_records = self._context.task_time.follows_records
        reason = late_reason(own, closes_at, follows_records=follows_records)
        if self._late_to is None:
            self._context.drop(reason)
            return
        self._context.drop(SENT_ON[reason])
        given = () if batch.headers is None else batch.headers[index] or ()
        headers = [*given, *late_headers(self._name, window, late_by)]
        record = Record(batch.keys[index], batch.values[index], batch.timestamps[index], headers)
        self._context.forward(record, self._late_to)

    def take_session(
        self, batch: Batch, index: int, sessions: SessionWindows, late_by: int
    ) -> None:
        """Take a record that is late even for a session of its own."""
        time = batch.timestamps[index]
        window = Window(time, time + sessions.gap_ms)
        self.take(batch, index, window, late_by, window.end + sessions.grace_ms + 1)


class QueryWindows:
    """Finds the windows that have closed for records, as the DSL does, record by record."""

    def __init__(self, late: LateRecords, grouping: GroupingSpec) -> None:
        self._late = late
        self._windows = windows_of(grouping)
        self._start_ms = grouping.window.start_ms if isinstance(grouping.window, WindowSpec) else 0

    def columns(self, batch: Batch, times: Times, late_by: Times) -> dict[str, pa.Array]:
        """Return `OPEN_FROM` of records with these times, and `PERIOD` with a calendar.

        Takes the late ones. `late_by` holds for each record the time that may make it late.
        """
        windows, found = self._windows, dict[str, pa.Array]()
        if isinstance(windows, CalendarWindows):
            oldest, ends = spans(windows.calendar, times)
            first_open, _ = spans(windows.calendar, late_by - windows.grace_ms)
            newest, step_ms = oldest, 1
            period = [moments_at(oldest), moments_at(ends)]
            found[PERIOD] = pa.StructArray.from_arrays(period, ["start", "end"])
        else:
            first_open, step_ms = late_by + windows.first_open(0), windows.advance_ms
            newest = times - (times - self._start_ms) % step_ms
            oldest = newest - (windows.size_ms - 1 - (times - newest)) // step_ms * step_ms
        late = np.flatnonzero(np.maximum(oldest, 0) < np.minimum(first_open, newest + 1))
        for index in late.tolist():
            for start in range(int(oldest[index]), int(newest[index]) + 1, step_ms):
                if 0 <= start < first_open[index]:
                    window = Window(start, windows.end(start))
                    closes_at = window.end + windows.grace_ms
                    self._late.take(batch, index, window, int(late_by[index]), closes_at)
        # Stores have no windows that begin before 1970.
        return {OPEN_FROM: moments_at(np.maximum(first_open, 0)), **found}
