"""Queries that group records: these become rows of groups and buffers, which are merged and kept.

Where the records of a group have one key, one processor does it all, at the stage `whole`.
Elsewhere, one at the stage `rows` sends the rows through an internal topic, where those of a group
meet, to one at the stage `groups`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import GROUPS_TOPIC, GroupingSpec
from kafka_pipeline.streams.dsl.stateless import NULL_KEY, selected
from kafka_pipeline.streams.event_time.step_time import FollowsTime, StepTime
from kafka_pipeline.streams.processor import ProcessorContext, RecordRejectedError
from kafka_pipeline.streams.punctuation import PunctuationType
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.sql.changelog import KeptChangelog
from kafka_pipeline.streams.sql.columns import times_at
from kafka_pipeline.streams.sql.declared_groups import require_as_planned
from kafka_pipeline.streams.sql.group_codec import GroupCodec, Groups, Times
from kafka_pipeline.streams.sql.kept_distinct import in_parts
from kafka_pipeline.streams.sql.kept_groups import KeptTable, KeptWindows
from kafka_pipeline.streams.sql.kept_layouts import KeptLayouts
from kafka_pipeline.streams.sql.kept_sessions import KeptSessions
from kafka_pipeline.streams.sql.late_records import (
    LateRecords,
    QueryWindows,
    committed_time,
    late_by,
)
from kafka_pipeline.streams.sql.processor import QueryProcessor, other_rows, run_carefully
from kafka_pipeline.streams.sql.result_rows import ResultRows
from kafka_pipeline.streams.sql.retraction import CHANGE, CHANGE_TIME
from kafka_pipeline.streams.sql.spec import QuerySpec
from kafka_pipeline.streams.sql.state_shape import (
    OPEN_FROM,
    ORDER,
    PERIOD,
    ROUTES,
    Merged,
    PreparedAggregation,
)
from kafka_pipeline.streams.sql.state_stores import windows_of
from kafka_pipeline.streams.sql.topic_tables import TopicTableLookup

_HIDDEN = (OPEN_FROM, PERIOD, ORDER, CHANGE, CHANGE_TIME)


class GroupProcessor(QueryProcessor[PreparedAggregation], FollowsTime):
    """The base of both processors of queries with GROUP BY, at any stage."""

    windowed: KeptWindows | KeptSessions | None = None
    """What it keeps, if that has windows."""

    def __init__(
        self,
        spec: QuerySpec,
        grouping: GroupingSpec,
        results: Sequence[str],
        open_query: Callable[[QuerySpec], PreparedAggregation],
    ) -> None:
        """`results` are the children that get results, if another one gets late records."""
        super().__init__(spec, open_query, results if grouping.late_to is not None else (None,))
        self.grouping = grouping
        self._wide: PreparedAggregation | None = None
        """The query with a larger limit of best rows, which a former one had."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.shape = self.query.shape
        require_as_planned(self.shape, self.grouping, self.spec.function)
        self.codec = GroupCodec(self.shape)
        self.late = LateRecords(self.grouping.late_to, context)
        self._changelog: KeptChangelog | None = None
        if self.grouping.stage != "groups":
            self._lookup = TopicTableLookup(self.spec, self.query, context)
            if self.spec.changelog:
                self._changelog = KeptChangelog(context)
        if self.grouping.stage == "rows":
            return
        self.layouts = KeptLayouts(self.shape, ROUTES[self.grouping.stage], context)
        self._seen_at_ms = context.current_system_time
        idle_ms = self.grouping.close_after_idle_ms
        if idle_ms is not None:
            context.schedule(idle_ms, PunctuationType.WALL_CLOCK_TIME, self._close_when_idle)
        self.open_stores()

    @abstractmethod
    def open_stores(self) -> None:
        """Take the stores of what is kept."""

    @abstractmethod
    def take_records(self, batch: Batch, table: pa.Table) -> None:
        """Do all for records, whose `table` has the columns that the query needs."""

    @abstractmethod
    def take_rows(self, batch: Batch, rows: pa.Table, groups: Groups) -> None:
        """Merge what a processor at the stage `rows` has sent: rows, also as bytes.

        One that is late here is counted once: its records are not known any more.
        """

    def process(self, batch: Batch) -> None:
        """Do all for the records before the first that is not text, and reject that one.

        Raises `ConfigError` for rows of another query.
        """
        match self.grouping.stage:
            case "groups":
                self.take_rows(batch, *self._rows_of_records(batch))
            case "rows" if self._changelog is None:
                self._process(batch)
            case _:
                self._process_keyed(batch)

    def close(self) -> None:
        super().close()
        if self._wide is not None:
            self._wide.close()

    def time_passed(self, time: int) -> None:
        kept = self.windowed
        if kept is not None and (now := kept.time.after_hold(time)) > kept.time.now:
            self._pass(kept, now)

    def rows(self, batch: Batch, table: pa.Table) -> pa.Table:
        """Return the rows of records. Raises as `run_carefully` does."""
        run = partial(self.query.partial, lookups=self._lookup.rows(batch))
        is_alone = batch.is_alone if isinstance(batch, ResultRows) else len(batch) == 1
        return run_carefully(run, table, is_alone=is_alone)

    def send(self, rows: Groups, times: Sequence[int]) -> None:
        """Send rows to the topic where those of a group meet."""
        self.context.forward(Batch(rows.keys, self.codec.values(rows), times), GROUPS_TOPIC)

    def keep(self, batch: Batch, add: Callable[..., list[Batch]], *rows: object) -> None:
        """Have a batch added to what is kept, and forward the results.

        `add` gets its `rows`, what merges rows, and the largest timestamp of the batch.
        """
        self.layouts.keep()
        merge = partial(self._merge, is_alone=len(batch) == 1)
        self._forward(add(*rows, merge, max(items_of(batch.timestamps))))

    def merge_wide(self, rows: pa.Table, size: int) -> Merged:
        """Merge rows of a former query, which had a larger limit of best rows.

        Takes seconds the first time. Raises `QueryError` and `SparkLostError`.
        """
        if self._wide is None or self._wide.shape.best < size:
            if self._wide is not None:
                self._wide.close()
            self._wide = self.open_query(replace(self.spec, least_best=size))
        return Merged.of(self._wide.shape, self._wide.merge(rows))

    @property
    def now(self) -> int:
        """The time of the step before the batch."""
        if self.windowed is not None:
            return self.windowed.time.now
        return committed_time(self.context)

    def late_by(self, batch: Batch) -> Times:
        """Return the time by which each record of a batch may be late."""
        return late_by(batch, self.context, self.now)

    def _process_keyed(self, batch: Batch) -> None:
        """Process records; drop those without a key, which are spread over all partitions."""
        has_key = [key is not None for key in batch.keys]
        if all(has_key):
            self._process(batch)
            return
        keyed = selected(batch, has_key)
        try:
            if len(keyed):
                self._process(keyed)
        except RecordRejectedError as error:
            index = [at for at, has in enumerate(has_key) if has][error.index]
            # The records after this one come again.
            self._drop_keyless(index - error.index)
            raise RecordRejectedError(error.reason, batch, index) from error
        self._drop_keyless(len(batch) - len(keyed))

    def _drop_keyless(self, count: int) -> None:
        for _ in range(count):
            self.context.drop(NULL_KEY)

    def _process(self, batch: Batch) -> None:
        table, wrong = self._read(batch)
        size = len(table)
        if size and self._changelog is None:
            self.take_records(batch.head(size), table)
        elif size and self._changelog is not None:
            self._take_changes(batch.head(size), table, self._changelog)
        if wrong:
            raise RecordRejectedError(wrong, batch, size)

    def _take_changes(self, batch: Batch, table: pa.Table, changelog: KeptChangelog) -> None:
        by_time = "timestamp" in self.query.columns
        fields = self.shape.fields_of_json
        changes, kept = changelog.changes(batch, table, self._read, by_time=by_time, fields=fields)
        if len(changes):
            self.take_records(batch, changes)
        changelog.keep(kept)

    def _read(self, batch: Batch, *, as_fields: bool = True) -> tuple[pa.Table, str]:
        """Return records as `table_of` does; unless `as_fields`, Spark is to read their JSON."""
        if isinstance(batch, ResultRows):
            return batch.table, ""
        # A table without columns would have no rows.
        columns = [name for name in self.query.columns if name not in _HIDDEN] or ["timestamp"]
        return self.read(batch, columns, self.query.fields if as_fields else None)

    def _rows_of_records(self, batch: Batch) -> tuple[pa.Table, Groups]:
        try:
            groups = self.codec.of_records(
                batch.keys,
                batch.values,
                self.layouts.tags,
                self.layouts.marks_of_distinct,
                self.layouts.converted,
            )
            return self.codec.decode(groups), groups
        except ValueError as error:
            raise other_rows(GROUPS_TOPIC, error) from error

    def _close_when_idle(self, now_ms: int) -> None:
        idle_ms, kept = self.grouping.close_after_idle_ms, self.windowed
        assert idle_ms is not None
        if kept is None or now_ms - self._seen_at_ms < idle_ms:
            return
        if (at := kept.all_closed_at) is not None:
            self._pass(kept, at)

    def _pass(self, kept: KeptWindows | KeptSessions, time: int) -> None:
        self._forward(kept.pass_time(time, partial(self._merge, is_alone=True)))

    def _merge(self, rows: pa.Table, *, is_alone: bool) -> pa.Table:
        self._seen_at_ms = self.context.current_system_time
        return run_carefully(self.query.merge, rows, is_alone=is_alone)

    def _forward(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self.forward(batch, held=self.grouping.emit == "on_close")


class WindowProcessor(GroupProcessor):
    """Groups without windows, or with windows other than sessions: a row for each in a batch."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        has_windows = self.grouping.window is not None
        self._open_windows = QueryWindows(self.late, self.grouping) if has_windows else None

    def open_stores(self) -> None:
        self._kept: KeptTable | KeptWindows
        if self.grouping.window is None:
            self._kept = KeptTable(
                self.shape,
                self.context,
                self.grouping,
                self.layouts,
                self.merge_wide,
            )
        else:
            self._kept = self.windowed = KeptWindows(
                self.shape,
                self.context,
                self.grouping,
                self.layouts,
                self.merge_wide,
            )

    def take_records(self, batch: Batch, table: pa.Table) -> None:
        times = np.asarray(items_of(batch.timestamps), np.int64)
        if self._open_windows is not None:
            columns = self._open_windows.columns(batch, times, self.late_by(batch))
            for name, column in columns.items():
                table = table.append_column(name, column)
        rows = self.rows(batch, table)
        if self.grouping.stage == "whole":
            self.keep(batch, self._kept.add, rows, self.codec.groups(rows))
        elif len(rows):
            self._send_in_order(rows, int(times.max()))

    def _send_in_order(self, rows: pa.Table, time: int) -> None:
        """Send the rows of a batch whose largest timestamp is `time`.

        A row has the largest timestamp of its records, and the rows of a batch come in the order of
        these. So no row is late behind the topic because of another one from here.
        """
        times = np.full(len(rows), max(time, 0))
        if self.shape.window is not None:
            times = times_at(rows[self.shape.last_time])
            order = np.argsort(times, kind="stable")
            rows, times = rows.take(order), times[order]
        if self.shape.values:
            rows, of_row = in_parts(rows, self.shape)
            times = times[of_row]
        self.send(self.codec.encode_with_values(rows), times.tolist())

    def take_rows(self, batch: Batch, rows: pa.Table, groups: Groups) -> None:
        if isinstance(self._kept, KeptWindows):
            is_open = self._is_open(groups, batch, self._kept.time)
            if not is_open.all():
                rows, groups = rows.filter(pa.array(is_open)), groups.only(is_open)
        self.keep(batch, self._kept.add, rows, groups)

    def _is_open(self, groups: Groups, batch: Batch, time: StepTime) -> npt.NDArray[np.bool_]:
        windows = windows_of(self.grouping)
        is_open = np.array(windows.are_open(groups.starts, time.late_by(batch).tolist()), np.bool_)
        own = batch.clocks or batch.timestamps
        for row in np.flatnonzero(~is_open).tolist():
            closes_at = windows.end(groups.starts[row]) + windows.grace_ms
            self.context.drop(time.late_reason(own[row], closes_at))
        return is_open
