"""Queries that group records: these become rows of groups and buffers, which are merged and kept.

Where the records of a group have one key, `WholeAggregation` does both. Elsewhere,
`RowsOfGroups` sends rows through an internal topic to `MergedRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.specs import GROUPS_TOPIC, CalendarSpec, GroupingSpec, WindowSpec
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.dsl.stateless import NULL_KEY, selected
from kafka_pipeline.streams.dsl.window_aggregates import late_headers
from kafka_pipeline.streams.dsl.windows import CalendarWindows, SessionWindows, TimeWindows
from kafka_pipeline.streams.event_time.clocks import late_by
from kafka_pipeline.streams.event_time.step_time import (
    EXPIRED,
    EXPIRED_AFTER_IDLE,
    NO_TIME,
    SENT_ON,
    FollowsTime,
    StepTime,
)
from kafka_pipeline.streams.processor import BatchProcessor, ProcessorContext, RecordRejectedError
from kafka_pipeline.streams.punctuation import PunctuationType
from kafka_pipeline.streams.record import Batch, Record, items_of
from kafka_pipeline.streams.sql.columns import MOMENT, table_of
from kafka_pipeline.streams.sql.group_codec import GroupCodec, Groups
from kafka_pipeline.streams.sql.kept_groups import KeptShape, KeptTable, KeptWindows
from kafka_pipeline.streams.sql.kept_sessions import KeptSessions
from kafka_pipeline.streams.sql.periods import spans
from kafka_pipeline.streams.sql.planned_groups import require_as_planned
from kafka_pipeline.streams.sql.processor import run_carefully
from kafka_pipeline.streams.sql.spec import QuerySpec
from kafka_pipeline.streams.sql.state_shape import OPEN_FROM, ORDER, PERIOD, Aggregation
from kafka_pipeline.streams.sql.state_stores import windows_of
from kafka_pipeline.streams.sql.topic_tables import Lookup
from kafka_pipeline.streams.windowed import Window as DslWindow

_Times = npt.NDArray[np.int64]


class LateRecords:
    """Counts late records, or sends them on."""

    def __init__(self, grouping: GroupingSpec, context: ProcessorContext) -> None:
        # For the headers of late records.
        self._name = TaskId.parse(context.task_id).processor
        self._late_to = grouping.late_to
        self._context = context

    def take_session(
        self, batch: Batch, index: int, sessions: SessionWindows, late_by: int
    ) -> None:
        """Take a record that comes too late for a session of its own."""
        time = batch.timestamps[index]
        window = DslWindow(time, time + sessions.gap_ms)
        self.take(batch, index, window, late_by, window.end + sessions.grace_ms + 1)

    def take(
        self, batch: Batch, index: int, window: DslWindow, late_by: int, closes_at: int
    ) -> None:
        """Take a record that comes too late for a window, which closes at `closes_at`.

        `late_by` is the time by which it is late.
        """
        own = (batch.clocks or batch.timestamps)[index]
        is_behind = self._context.task_time.follows_records or own >= closes_at
        reason = EXPIRED if is_behind else EXPIRED_AFTER_IDLE
        if self._late_to is None:
            self._context.drop(reason)
            return
        self._context.drop(SENT_ON[reason])
        given = () if batch.headers is None else batch.headers[index] or ()
        headers = [*given, *late_headers(self._name, window, int(late_by))]
        record = Record(batch.keys[index], batch.values[index], batch.timestamps[index], headers)
        self._context.forward(record, self._late_to)


class OpenWindows:
    """Finds the windows that have closed for records, as the DSL does, record by record."""

    def __init__(self, late: LateRecords, grouping: GroupingSpec) -> None:
        assert isinstance(grouping.window, WindowSpec)
        self._late = late
        windows = windows_of(grouping)
        assert isinstance(windows, TimeWindows)
        self._windows = windows
        self._start_ms = grouping.window.start_ms

    def columns(self, batch: Batch, times: _Times, late_by: _Times) -> dict[str, pa.Array]:
        """Return `OPEN_FROM` of records with these times; count or send on what is late.

        `late_by` has the time that each of them may be late by.
        """
        windows = self._windows
        first_open = late_by + windows.first_open(0)
        newest = (times - self._start_ms) // windows.advance_ms * windows.advance_ms
        newest += self._start_ms
        steps = (windows.size_ms - 1 - (times - newest)) // windows.advance_ms
        oldest = newest - steps * windows.advance_ms
        late = np.flatnonzero(np.maximum(oldest, 0) < np.minimum(first_open, newest + 1))
        for index in late.tolist():
            for start in range(int(oldest[index]), int(newest[index]) + 1, windows.advance_ms):
                if 0 <= start < first_open[index]:
                    window = DslWindow(start, start + windows.size_ms)
                    closes_at = start + windows.delay_ms
                    self._late.take(batch, index, window, late_by[index], closes_at)
        # Stores have no windows that begin before 1970.
        return {OPEN_FROM: _moments(np.maximum(first_open, 0))}


class OpenPeriods:
    """Does the same for the periods of a calendar, and finds those of records."""

    def __init__(self, late: LateRecords, grouping: GroupingSpec) -> None:
        windows = windows_of(grouping)
        assert isinstance(windows, CalendarWindows)
        self._late = late
        self._calendar, self._grace_ms = windows.calendar, windows.grace_ms

    def columns(self, batch: Batch, times: _Times, late_by: _Times) -> dict[str, pa.Array]:
        """Return `OPEN_FROM` and `PERIOD` of records; see `OpenWindows`."""
        starts, ends = spans(self._calendar, times)
        first_open, _ = spans(self._calendar, late_by - self._grace_ms)
        for index in np.flatnonzero(starts < first_open).tolist():
            window = DslWindow(int(starts[index]), int(ends[index]))
            self._late.take(batch, index, window, late_by[index], window.end + self._grace_ms)
        period = pa.StructArray.from_arrays([_moments(starts), _moments(ends)], ["start", "end"])
        return {OPEN_FROM: _moments(first_open), PERIOD: period}


def _moments(times_ms: _Times) -> pa.Array:
    return pa.array(times_ms * 1000).cast(MOMENT)


class Aggregating(BatchProcessor):
    """The base of the processors of a query with GROUP BY."""

    def __init__(
        self,
        spec: QuerySpec,
        grouping: GroupingSpec,
        results: Sequence[str],
        open_query: Callable[[QuerySpec], Aggregation],
    ) -> None:
        """`results` are the children that get results, if another one gets late records."""
        self.spec = spec
        self.grouping = grouping
        self.results = results if grouping.late_to is not None else (None,)
        self.open = open_query

    def init(self, context: ProcessorContext) -> None:
        """Prepare the query. Raises `QueryError` if it cannot be run."""
        self.context = context
        self.partition = TaskId.parse(context.task_id).partition
        self.query = self.open(self.spec)
        self.shape = self.query.shape
        require_as_planned(self.shape, self.grouping, self.spec.function)
        self.late = LateRecords(self.grouping, context)

    def close(self) -> None:
        """Close the query."""
        self.query.close()

    def forward(self, batches: Sequence[Batch]) -> None:
        """Forward results."""
        for batch in batches:
            for child in self.results:
                self.context.forward(batch, child)


class FromRecords(Aggregating):
    """The base of processors that turn records into rows of groups and buffers."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._lookup = Lookup(self.spec, self.query, context)

    def process(self, batch: Batch) -> None:
        """Do all for the records before the first that is not text, and reject that one."""
        columns = [name for name in self.query.columns if name not in (OPEN_FROM, PERIOD, ORDER)]
        table, wrong = table_of(
            batch, self.partition, columns, self.spec.format, is_lenient=self.spec.is_lenient
        )
        size = len(table)
        if size:
            self.process_table(batch.head(size), table)
        if wrong:
            raise RecordRejectedError(wrong, batch, size)

    def process_table(self, batch: Batch, table: pa.Table) -> None:
        """Do all for a batch, whose `table` has the columns that the query needs."""
        raise NotImplementedError

    def rows(self, batch: Batch, table: pa.Table) -> pa.Table:
        """Return the rows of a batch. Raises as `run_carefully` does."""
        run = partial(self.query.partial, lookups=self._lookup.rows(batch))
        return run_carefully(run, table, is_alone=len(batch) == 1)

    def now(self) -> int:
        """Return the time of the step before the batch."""
        raise NotImplementedError

    def late_by(self, batch: Batch) -> _Times:
        """Return the time by which each record of a batch may be late."""
        return late_by(
            items_of(batch.timestamps),
            batch.clocks,
            self.now(),
            follows_records=self.context.task_time.follows_records,
        )

    @property
    def stream_time(self) -> int:
        """The time of a step that keeps nothing, -1 if the records do not move it."""
        # It is committed with the offsets, so no store is needed.
        follows_records = self.context.task_time.follows_records
        return self.context.stream_time if follows_records else NO_TIME


class _FromRecordsInGroups(FromRecords):
    """Turns each batch into one row for each group."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._open: OpenWindows | OpenPeriods | None = None
        match self.grouping.window:
            case WindowSpec():
                self._open = OpenWindows(self.late, self.grouping)
            case CalendarSpec():
                self._open = OpenPeriods(self.late, self.grouping)

    def process_table(self, batch: Batch, table: pa.Table) -> None:
        times = np.asarray(items_of(batch.timestamps), np.int64)
        if self._open is not None:
            for name, column in self._open.columns(batch, times, self.late_by(batch)).items():
                table = table.append_column(name, column)
        rows = self.rows(batch, table)
        self.take(rows, int(times.max()), is_alone=len(batch) == 1)

    def take(self, rows: pa.Table, time: int, *, is_alone: bool) -> None:
        """Take the rows of a batch whose largest timestamp is `time`."""
        raise NotImplementedError


class Keeping(Aggregating, FollowsTime):
    """The base of processors that keep groups in stores."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.kept_shape = KeptShape(self.shape, self.grouping, context)
        self._seen_at_ms = context.current_system_time
        idle_ms = self.grouping.close_after_idle_ms
        if idle_ms is not None:
            context.schedule(idle_ms, PunctuationType.WALL_CLOCK_TIME, self._close_when_idle)

    @property
    def windowed(self) -> KeptWindows | KeptSessions | None:
        """What it keeps, if that has windows."""
        raise NotImplementedError

    def time_passed(self, time: int) -> None:
        kept = self.windowed
        if kept is not None and (now := kept.time.after_hold(time)) > kept.time.now:
            self._pass(kept, now)

    def _close_when_idle(self, now_ms: int) -> None:
        idle_ms, kept = self.grouping.close_after_idle_ms, self.windowed
        assert idle_ms is not None
        if kept is None or now_ms - self._seen_at_ms < idle_ms:
            return
        if (at := kept.all_closed_at) is not None:
            self._pass(kept, at)

    def _pass(self, kept: KeptWindows | KeptSessions, time: int) -> None:
        self.forward(kept.pass_time(time, partial(self.merge, is_alone=True)))

    def merge(self, rows: pa.Table, *, is_alone: bool) -> pa.Table:
        """Merge rows; see `Aggregation.merge`. Raises as `run_carefully` does."""
        self._seen_at_ms = self.context.current_system_time
        return run_carefully(self.query.merge, rows, is_alone=is_alone)


class _KeepingGroups(Keeping):
    """Keeps groups without windows, or with windows other than sessions."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._kept: KeptTable | KeptWindows
        if self.grouping.window is None:
            self._kept = KeptTable(self.shape, context)
        else:
            self._kept = KeptWindows(self.shape, context, self.grouping)

    @property
    def windowed(self) -> KeptWindows | None:
        return self._kept if isinstance(self._kept, KeptWindows) else None

    def keep(self, rows: pa.Table, groups: Groups, time: int, *, is_alone: bool) -> None:
        """Merge the rows of a batch into the state, and forward the results.

        `groups` are the rows as bytes, and `time` is the largest timestamp of the batch.
        """
        self.kept_shape.keep()
        merge = partial(self.merge, is_alone=is_alone)
        self.forward(self._kept.add(rows, groups, merge, time))


class OfKeys(FromRecords):
    """The base of processors of records whose key is one of the grouping columns.

    Records without a key are dropped: they are spread over all partitions.
    """

    def process(self, batch: Batch) -> None:
        has_key = [key is not None for key in batch.keys]
        if all(has_key):
            super().process(batch)
            return
        keyed = selected(batch, has_key)
        try:
            if len(keyed):
                super().process(keyed)
        except RecordRejectedError as error:
            index = [at for at, has in enumerate(has_key) if has][error.index]
            # The records after this one come again.
            self._drop(index - error.index)
            raise RecordRejectedError(error.reason, batch, index) from error
        self._drop(len(batch) - len(keyed))

    def _drop(self, count: int) -> None:
        for _ in range(count):
            self.context.drop(NULL_KEY)


class WholeAggregation(_KeepingGroups, _FromRecordsInGroups, OfKeys):
    """Keeps the groups of records whose key is one of the grouping columns."""

    def now(self) -> int:
        assert isinstance(self._kept, KeptWindows)
        return self._kept.time.now

    def take(self, rows: pa.Table, time: int, *, is_alone: bool) -> None:
        self.keep(rows, self._kept.codec.encode(rows), time, is_alone=is_alone)


class RowsOfGroups(_FromRecordsInGroups):
    """Sends the rows of each batch to the topic where those of a group meet.

    A row has the largest timestamp of its records, and the rows of a batch come in the order of
    these. So no row is late behind the topic because of another one from here.
    """

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._codec = GroupCodec(self.shape)

    def now(self) -> int:
        return self.stream_time

    def take(self, rows: pa.Table, time: int, *, is_alone: bool) -> None:
        if not len(rows):
            return
        times = np.full(len(rows), max(time, 0))
        if self.shape.window is not None:
            last = rows[self.shape.last_time].cast(pa.int64())
            times = np.asarray(last) // 1000
            order = np.argsort(times, kind="stable")
            rows, times = rows.take(order), times[order]
        groups = self._codec.encode(rows)
        values = self._codec.values(groups)
        self.context.forward(Batch(groups.keys, values, times.tolist()), GROUPS_TOPIC)


class MergedRows(_KeepingGroups):
    """Keeps the groups of the rows that `RowsOfGroups` sends.

    A row for a window that has closed here is counted once: its records are not known any more.
    """

    def process(self, batch: Batch) -> None:
        """Merge the rows. Raises `ConfigError` if they are those of another query."""
        rows, groups = rows_of_records(self._kept.codec, batch)
        times = np.asarray(batch.timestamps, np.int64)
        if isinstance(self._kept, KeptWindows):
            is_open = self._is_open(groups, batch, self._kept.time)
            if not is_open.all():
                rows, groups = rows.filter(pa.array(is_open)), groups.only(is_open)
        self.keep(rows, groups, int(times.max()), is_alone=len(batch) == 1)

    def _is_open(self, groups: Groups, batch: Batch, time: StepTime) -> npt.NDArray[np.bool_]:
        windows = windows_of(self.grouping)
        is_open = np.array(windows.are_open(groups.starts, time.late_by(batch).tolist()), np.bool_)
        own = batch.clocks or batch.timestamps
        for row in np.flatnonzero(~is_open).tolist():
            closes_at = windows.end(groups.starts[row]) + windows.grace_ms
            self.context.drop(time.late_reason(own[row], closes_at))
        return is_open


def rows_of_records(codec: GroupCodec, batch: Batch) -> tuple[pa.Table, Groups]:
    """Return the rows of records of the topic. Raises `ConfigError` if another query sent them."""
    try:
        groups = codec.of_records(batch.keys, batch.values)
        return codec.decode(groups), groups
    except ValueError as error:
        wrong = f"the topic {GROUPS_TOPIC} of the processor has other rows than those of its query"
        advice = "process them with the former query, or give the processor another id"
        raise ConfigError(f"{wrong} ({error}): {advice}", shown=f"{wrong}: {advice}") from error
