"""`type: sql` with `OVER (…)`: records become rows, which get results once event time has passed.

Spark turns the records of a batch into rows, and rows that are due into results, together with the
rows in their frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import OverSpec
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.dsl.stateless import NULL_KEY, selected
from kafka_pipeline.streams.engine.mixed import MixedProcessor
from kafka_pipeline.streams.event_time.step_time import FollowsTime
from kafka_pipeline.streams.processor import ProcessorContext, RecordRejectedError
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.sql.columns import batch_of, table_of
from kafka_pipeline.streams.sql.late_records import LateRecords
from kafka_pipeline.streams.sql.over_failures import possible_results
from kafka_pipeline.streams.sql.over_shape import (
    ORIGIN,
    PLACE,
    PreparedOver,
    require_over_as_planned,
)
from kafka_pipeline.streams.sql.over_state import OverState
from kafka_pipeline.streams.sql.processor import run_carefully
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from kafka_pipeline.streams.sql.topic_tables import TopicTableLookup
from kafka_pipeline.streams.windowed import Window

RESULT_FAILED = "result failed"
"""The reason by which rows are counted whose results cannot be computed."""

_NO_RECORDS = Batch([], [], [])


class OverProcessor(MixedProcessor, FollowsTime):
    """Gives each record a result that depends on the records before it, in the order of time.

    Late records are counted or sent on, and not looked at any further. Records without a key are
    dropped, since they are spread over all partitions.
    """

    def __init__(
        self,
        spec: QuerySpec,
        over: OverSpec,
        results: Sequence[str],
        open_query: Callable[[QuerySpec], PreparedOver],
        *,
        leaves_out: bool,
    ) -> None:
        """`results` are the children that get results, if another one gets late records.

        A row without a possible result is counted if the processor `leaves_out` such rows.
        Otherwise, it rejects the record that moves time on.
        """
        self._spec = spec
        self._over = over
        self._results = results if over.late_to is not None else (None,)
        self._open = open_query
        self._leaves_out = leaves_out

    def init(self, context: ProcessorContext) -> None:
        """Prepare the query. Raises `QueryError` if it cannot be run."""
        self.context = context
        self._partition = TaskId.parse(context.task_id).partition
        self._query = self._open(self._spec)
        require_over_as_planned(self._query.shape, self._over)
        self._lookup = TopicTableLookup(self._spec, self._query, context)
        self._state = OverState(self._query.shape, self._over, context)
        self._late = LateRecords(self._over.late_to, context)

    def process(self, batch: Batch) -> None:
        """Process the records before the first malformed one, and reject that one."""
        times = np.asarray(items_of(batch.timestamps), np.int64)
        late_by = np.asarray(self._state.time.late_by(batch), np.int64)
        is_late = (times + self._over.grace_ms < late_by) | (times < self._state.given_until)
        has_key = np.array([key is not None for key in batch.keys], np.bool_)
        is_taken = ~is_late & has_key
        chosen = np.flatnonzero(is_taken)
        table, wrong = table_of(
            selected(batch, is_taken.tolist()),
            self._partition,
            self._query.columns,
            self._spec.format,
            self._query.fields,
            is_lenient=self._spec.is_lenient,
        )
        stop = int(chosen[len(table)]) if wrong else len(batch)
        if stop:
            self._lookup.rows(batch.head(stop))
            self._process(table, int(times[:stop].max()), is_alone=stop == 1)
            for index in np.flatnonzero(is_late[:stop]).tolist():
                self._take_late(batch, index, int(late_by[index]))
            for _ in range(int((~is_late & ~has_key)[:stop].sum())):
                self.context.drop(NULL_KEY)
        if wrong:
            raise RecordRejectedError(wrong, batch, stop)

    def close(self) -> None:
        """Close the query."""
        self._query.close()

    def time_passed(self, time: int) -> None:
        now = self._state.time.after_hold(time)
        if now > self._state.time.now:
            self._lookup.rows(_NO_RECORDS)
            self._forward(self._state.pass_time(now), is_alone=True)

    def _process(self, table: pa.Table, time: int, *, is_alone: bool) -> None:
        rows = run_carefully(self._query.rows, table, is_alone=is_alone)
        origins = rows.select(ORIGIN)
        milliseconds = origins["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
        origins = origins.set_column(0, "timestamp", milliseconds)
        self._forward(self._state.add(rows, origins, time), is_alone=is_alone)

    def _take_late(self, batch: Batch, index: int, late_by: int) -> None:
        time = batch.timestamps[index]
        window = Window(max(time - self._over.range_ms, 0), time)
        self._late.take(batch, index, window, late_by, time + self._over.grace_ms + 1)

    def _forward(self, rows: pa.Table, *, is_alone: bool) -> None:
        """Forward the results of rows that are due, in order."""
        if not len(rows):
            return
        if is_alone and self._leaves_out:
            results, failed = possible_results(self._results_of, rows, self._query.shape)
            for _ in range(failed):
                self.context.drop(RESULT_FAILED)
        else:
            results = run_carefully(self._results_of, rows, is_alone=is_alone)
        order = np.argsort(np.asarray(results[PLACE]), kind="stable")
        found = batch_of(results.take(pa.array(order)).drop_columns([PLACE]))
        if len(found):
            for child in self._results:
                self.context.forward(found, child)

    def _results_of(self, rows: pa.Table) -> pa.Table:
        results = self._query.results(rows)
        if results["timestamp"].null_count:
            raise QueryError("the query gives a record whose timestamp is null")
        return results
