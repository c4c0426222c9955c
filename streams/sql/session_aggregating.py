"""`type: sql` with sessions: what `aggregating.py` does, one record after the other.

Which session a record belongs to, and whether it is late, depends on the sessions that are open at
that moment. So rows are those of single times, and not those of whole batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.common.specs import GROUPS_TOPIC
from kafka_pipeline.streams.event_time.step_time import SPLIT_SESSION
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.sql.aggregating import FromRecords, Keeping, OfKeys, rows_of_records
from kafka_pipeline.streams.sql.group_codec import GroupCodec, Groups
from kafka_pipeline.streams.sql.kept_sessions import KeptSessions
from kafka_pipeline.streams.sql.session_merging import RecordOrder
from kafka_pipeline.streams.sql.state_shape import ORDER
from kafka_pipeline.streams.sql.state_stores import sessions_of

_Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a batch in the order of its records, also as bytes.

    `indexes` are the places of the records in the batch: that of the first of some. `late_by` has
    the time that each row may be late by.
    """

    rows: pa.Table
    groups: Groups
    indexes: _Times
    late_by: _Times


class _FromRecordsInSessions(FromRecords):
    """Turns records into rows of groups, times and buffers."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.codec = GroupCodec(self.shape)

    def in_order(
        self, batch: Batch, table: pa.Table, times: _Times, is_taken: npt.NDArray[np.bool_]
    ) -> _Rows:
        """Return the rows of the records that are taken."""
        follows_records = self.context.task_time.follows_records
        order = RecordOrder.of(times, batch.clocks, self.now(), follows_records=follows_records)
        table = table.append_column(ORDER, pa.array(order.order)).filter(pa.array(is_taken))
        rows = self.rows(batch, table)
        indexes = np.asarray(rows[self.shape.order_column])
        windows = rows[self.shape.window_column]
        starts = np.asarray(pc.struct_field(windows, [0]).cast(pa.int64())) // 1000
        sorting = np.lexsort((starts, indexes))
        rows, starts, indexes = rows.take(sorting), starts[sorting], indexes[sorting]
        return _Rows(rows, self.codec.encode(rows), indexes, order.late_by(indexes, starts))


class _KeepingSessions(Keeping):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.kept = KeptSessions(self.shape, context, self.grouping)

    @property
    def windowed(self) -> KeptSessions:
        return self.kept


class WholeSessions(_KeepingSessions, _FromRecordsInSessions, OfKeys):
    """Keeps the sessions of records whose key is one of the grouping columns.

    As in the DSL, whether a record is late is judged by the session that it would be in.
    """

    def process_table(self, batch: Batch, table: pa.Table) -> None:
        times = np.asarray(items_of(batch.timestamps), np.int64)
        found = self.in_order(batch, table, times, np.full(len(times), True))
        placed = self.kept.place(found.groups, found.late_by)
        sessions = sessions_of(self.grouping)
        late_by = dict(zip(found.indexes.tolist(), found.late_by.tolist(), strict=True))
        for index in dict.fromkeys(found.indexes[placed.late].tolist()):
            self.late.take_session(batch, index, sessions, late_by[index])
        for _ in dict.fromkeys(found.indexes[placed.split].tolist()):
            self.context.drop(SPLIT_SESSION)
        self.kept_shape.keep()
        merge = partial(self.merge, is_alone=len(batch) == 1)
        self.forward(self.kept.add(found.rows, placed, merge, int(times.max())))

    def now(self) -> int:
        return self.kept.time.now


class RowsOfSessions(_FromRecordsInSessions):
    """Sends rows to the topic where those of a group meet, in the order of the records.

    The sessions are not known here. So a record is late if it is for a session of its own.
    """

    def process_table(self, batch: Batch, table: pa.Table) -> None:
        times = np.asarray(items_of(batch.timestamps), np.int64)
        sessions = sessions_of(self.grouping)
        late_by = self.late_by(batch)
        is_late = times + sessions.gap_ms + sessions.grace_ms < late_by
        for index in np.flatnonzero(is_late).tolist():
            self.late.take_session(batch, index, sessions, int(late_by[index]))
        found = self.in_order(batch, table, times, ~is_late)
        if len(found.rows):
            groups = found.groups
            self.context.forward(
                Batch(groups.keys, self.codec.values(groups), groups.starts), GROUPS_TOPIC
            )

    def now(self) -> int:
        return self.stream_time


class MergedSessions(_KeepingSessions):
    """Keeps the sessions of the rows that `RowsOfSessions` sends.

    A row that is late here is counted once: its records are not known any more.
    """

    def process(self, batch: Batch) -> None:
        """Merge the rows. Raises `ConfigError` if they are those of another query."""
        rows, groups = rows_of_records(self.kept.codec, batch)
        times = np.asarray(items_of(batch.timestamps), np.int64)
        placed = self.kept.place(groups, self.kept.time.late_by(batch))
        delay_ms = self.kept.delay_ms
        for row in placed.late:
            own = (batch.clocks or batch.timestamps)[row]
            reason = self.kept.time.late_reason(own, groups.starts[row] + delay_ms + 1)
            self.context.drop(reason)
        for _ in placed.split:
            self.context.drop(SPLIT_SESSION)
        self.kept_shape.keep()
        merge = partial(self.merge, is_alone=len(batch) == 1)
        self.forward(self.kept.add(rows, placed, merge, int(times.max())))
