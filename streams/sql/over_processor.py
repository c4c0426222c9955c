"""`type: sql` with `OVER (…)`: records become rows, which get results once event time has passed.

Spark turns the records of a batch into rows, and rows that are due into results, together with the
rows in their frames.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import OVER_TOPIC, OverSpec
from kafka_pipeline.streams.clocks import Times, clocks_by_time
from kafka_pipeline.streams.dsl.stateless import NULL_KEY, selected
from kafka_pipeline.streams.event_time.step_time import FollowsTime
from kafka_pipeline.streams.processor import ProcessorContext, RecordRejectedError
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.sql.columns import batch_of
from kafka_pipeline.streams.sql.join_records import Mask
from kafka_pipeline.streams.sql.late_records import LateRecords, late_by
from kafka_pipeline.streams.sql.over_failures import possible_results
from kafka_pipeline.streams.sql.over_rows import Row, RowsCodec
from kafka_pipeline.streams.sql.over_shape import PLACE, PreparedOver, require_over_as_planned
from kafka_pipeline.streams.sql.over_state import OverState
from kafka_pipeline.streams.sql.processor import QueryProcessor, other_rows, run_carefully
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from kafka_pipeline.streams.sql.topic_tables import TopicTableLookup
from kafka_pipeline.streams.windowed import Window

RESULT_FAILED = "result failed"
"""The reason by which rows are counted whose results cannot be computed."""

_NO_RECORDS = Batch([], [], [])


class OverStageProcessor(QueryProcessor[PreparedOver]):
    """The base of the processors of a query with `OVER (…)`, at any stage.

    Late records are counted or sent on, and not looked at any further.
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
        super().__init__(spec, open_query, results if over.late_to is not None else (None,))
        self.over = over
        self._leaves_out = leaves_out

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        require_over_as_planned(self.query.shape, self.over)
        self.lookup = TopicTableLookup(self.spec, self.query, context)
        self.late = LateRecords(self.over.late_to, context)
        self.codec = RowsCodec(self.query.shape)

    def is_late(self, batch: Batch, late_by: Times) -> Mask:
        """Return the records that are late by these times."""
        times = np.asarray(items_of(batch.timestamps), np.int64)
        return np.asarray(times + self.over.grace_ms < late_by, np.bool_)

    def closes_at(self, time: int) -> int:
        """Return the stream time from which a record of a time is late."""
        return time + self.over.grace_ms + 1

    def take(self, batch: Batch, late_by: Times, is_late: Mask, is_dropped: Mask) -> None:
        """Have `process_rows` process the records before the first malformed one; reject that one.

        Late ones, and those without a key that are dropped, are left out. `late_by` is the time by
        which each record may be late.
        """
        is_taken = ~is_late & ~is_dropped
        chosen = np.flatnonzero(is_taken)
        taken = selected(batch, is_taken.tolist())
        table, wrong = self.read(taken, self.query.columns, self.query.fields)
        stop = int(chosen[len(table)]) if wrong else len(batch)
        if stop:
            before = batch.head(stop)
            self.lookup.rows(before)
            rows = run_carefully(self.query.rows, table, is_alone=stop == 1)
            self.process_rows(before, *self.codec.encode(rows))
            for index in np.flatnonzero(is_late[:stop]).tolist():
                time = batch.timestamps[index]
                window = Window(max(time - self.over.range_ms, 0), time)
                late = int(late_by[index])
                self.late.take(batch, index, window, late, self.closes_at(time))
            for _ in range(int((is_dropped & ~is_late)[:stop].sum())):
                self.context.drop(NULL_KEY)
        if wrong:
            raise RecordRejectedError(wrong, batch, stop)

    @abstractmethod
    def process_rows(self, batch: Batch, groups: Sequence[bytes], rows: Sequence[bytes]) -> None:
        """Process the rows of a batch, each with its group."""


class OverRowsProcessor(OverStageProcessor):
    """Turns records into rows, and sends them to where those of a group meet, at the stage `rows`.

    A record is late by the clock of its own partition.
    """

    def process(self, batch: Batch) -> None:
        """Process the records before the first malformed one, and reject that one."""
        late = late_by(batch, self.context)
        self.take(batch, late, self.is_late(batch, late), np.zeros(len(batch), np.bool_))

    def process_rows(self, batch: Batch, groups: Sequence[bytes], rows: Sequence[bytes]) -> None:
        if not rows:
            return
        times = [Row.of(each).time for each in rows]
        clocks = clocks_by_time(batch, times)
        sent = Batch([*groups], [*self.codec.marked(rows)], times, clocks=clocks)
        self.context.forward(sent, OVER_TOPIC)


class OverFrames(OverStageProcessor, FollowsTime):
    """The base of the processors that keep rows, and give results once they are due."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.state = OverState(self.query.shape, self.over, context)

    def is_late(self, batch: Batch, late_by: Times) -> Mask:
        """See `OverStageProcessor`: rows of some time may have had their results already."""
        times = np.asarray(items_of(batch.timestamps), np.int64)
        return super().is_late(batch, late_by) | (times < self.state.given_until)

    def time_passed(self, time: int) -> None:
        now = self.state.time.after_hold(time)
        if now > self.state.time.now:
            self.lookup.rows(_NO_RECORDS)
            self._forward(self.state.pass_time(now), is_alone=True)

    def process_rows(self, batch: Batch, groups: Sequence[bytes], rows: Sequence[bytes]) -> None:
        time = max(items_of(batch.timestamps))
        self._forward(self.state.add(groups, rows, time), is_alone=len(batch) == 1)

    def _forward(self, rows: pa.Table, *, is_alone: bool) -> None:
        """Forward the results of rows that are due, in order."""
        if not len(rows):
            return
        if is_alone and self._leaves_out:
            results, failed = possible_results(self._results_of, rows, self.query.shape)
            for _ in range(failed):
                self.context.drop(RESULT_FAILED)
        else:
            results = run_carefully(self._results_of, rows, is_alone=is_alone)
        order = np.argsort(np.asarray(results[PLACE]), kind="stable")
        self.forward(batch_of(results.take(pa.array(order)).drop_columns([PLACE])), held=True)

    def _results_of(self, rows: pa.Table) -> pa.Table:
        results = self.query.results(rows)
        if results["timestamp"].null_count:
            raise QueryError("the query gives a record whose timestamp is null")
        return results


class OverProcessor(OverFrames):
    """Gives each record a result that depends on the records before it, at the stage `whole`.

    Records without a key are dropped, since they are spread over all partitions.
    """

    def process(self, batch: Batch) -> None:
        """Process the records before the first malformed one, and reject that one."""
        late = np.asarray(self.state.time.late_by(batch), np.int64)
        has_no_key = np.array([key is None for key in batch.keys], np.bool_)
        self.take(batch, late, self.is_late(batch, late), has_no_key)


class OverFramesProcessor(OverFrames):
    """Gives the results of rows that an `OverRowsProcessor` sends, at the stage `frames`.

    A row that is late here is counted; its record is not known any more.
    """

    def process(self, batch: Batch) -> None:
        """Keep rows, and give results. Raises `ConfigError` for rows of another query."""
        try:
            rows = self.codec.unmarked([each or b"" for each in batch.values])
        except ValueError as error:
            raise other_rows(OVER_TOPIC, error) from error
        is_late = self.is_late(batch, np.asarray(self.state.time.late_by(batch), np.int64))
        for index in np.flatnonzero(is_late).tolist():
            own = (batch.clocks or batch.timestamps)[index]
            closes_at = self.closes_at(batch.timestamps[index])
            self.context.drop(self.state.time.late_reason(own, closes_at))
        in_time = np.flatnonzero(~is_late).tolist()
        groups = [batch.keys[index] or b"" for index in in_time]
        self.lookup.rows(batch)
        self.process_rows(batch, groups, [rows[index] for index in in_time])
