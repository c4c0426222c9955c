"""Queries with sessions: the work of `group_processor.py`, record by record.

The session of a record, and whether the record is late, depend on the sessions open at its time. So
there is a row for each time rather than for each batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.streams.event_time.step_time import SPLIT_SESSION
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.sql.columns import times_at
from kafka_pipeline.streams.sql.group_codec import Groups, Times
from kafka_pipeline.streams.sql.group_processor import GroupProcessor
from kafka_pipeline.streams.sql.kept_sessions import KeptSessions
from kafka_pipeline.streams.sql.session_merging import RecordOrder
from kafka_pipeline.streams.sql.state_shape import ORDER
from kafka_pipeline.streams.sql.state_stores import sessions_of


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a batch in the order of its records, also as bytes.

    `indexes` are positions in the batch; a row of several records has that of the first one.
    `late_by` holds for each row the time that decides whether it is late.
    """

    rows: pa.Table
    groups: Groups
    indexes: Times
    late_by: Times


class SessionProcessor(GroupProcessor):
    """Groups with sessions."""

    def open_stores(self) -> None:
        self._kept = self.windowed = KeptSessions(
            self.shape, self.context, self.grouping, self.layouts
        )

    def take_records(self, batch: Batch, table: pa.Table) -> None:
        times = np.asarray(items_of(batch.timestamps), np.int64)
        if self.grouping.stage == "whole":
            self._keep_records(batch, table, times)
        else:
            self._send_records(batch, table, times)

    def _keep_records(self, batch: Batch, table: pa.Table, times: Times) -> None:
        """Keep records that are in time for the session they would join, as the DSL does."""
        found = self._in_order(batch, table, times, np.full(len(times), True))
        placed = self._kept.place(found.groups, found.late_by)
        sessions = sessions_of(self.grouping)
        late_by = dict(zip(found.indexes.tolist(), found.late_by.tolist(), strict=True))
        for index in dict.fromkeys(found.indexes[placed.late].tolist()):
            self.late.take_session(batch, index, sessions, late_by[index])
        for _ in dict.fromkeys(found.indexes[placed.split].tolist()):
            self.context.drop(SPLIT_SESSION)
        self.keep(batch, self._kept.add, found.rows, placed)

    def _send_records(self, batch: Batch, table: pa.Table, times: Times) -> None:
        """Send records that are in time for a session of their own: others are unknown here."""
        sessions = sessions_of(self.grouping)
        late_by = self.late_by(batch)
        is_late = times + sessions.gap_ms + sessions.grace_ms < late_by
        for index in np.flatnonzero(is_late).tolist():
            self.late.take_session(batch, index, sessions, int(late_by[index]))
        groups = self._in_order(batch, table, times, ~is_late).groups
        if len(groups.keys):
            self.send(groups, groups.starts)

    def take_rows(self, batch: Batch, rows: pa.Table, groups: Groups) -> None:
        time = self._kept.time
        placed = self._kept.place(groups, time.late_by(batch))
        for row in placed.late:
            own = (batch.clocks or batch.timestamps)[row]
            closes_at = groups.starts[row] + self._kept.delay_ms + 1
            self.context.drop(time.late_reason(own, closes_at))
        for _ in placed.split:
            self.context.drop(SPLIT_SESSION)
        self.keep(batch, self._kept.add, rows, placed)

    def _in_order(
        self, batch: Batch, table: pa.Table, times: Times, is_taken: npt.NDArray[np.bool_]
    ) -> _Rows:
        """Return the rows of the chosen records."""
        follows_records = self.context.task_time.follows_records
        order = RecordOrder.of(times, batch.clocks, self.now, follows_records=follows_records)
        table = table.append_column(ORDER, pa.array(order.order)).filter(pa.array(is_taken))
        rows = self.rows(batch, table)
        indexes = np.asarray(rows[self.shape.order_column])
        windows = rows[self.shape.window_column]
        starts = times_at(pc.struct_field(windows, [0]))
        sorting = np.lexsort((starts, indexes))
        rows, starts, indexes = rows.take(sorting), starts[sorting], indexes[sorting]
        return _Rows(rows, self.codec.encode(rows), indexes, order.late_by(indexes, starts))
