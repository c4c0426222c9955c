"""`type: sql` with a join of two inputs: records become rows, which meet the stored rows.

Spark turns the records of a batch into rows, and pairs of rows into results. In an outer join, it
also computes the result of each new row without a partner. That is stored until a partner arrives,
or sent once partners would be late. So an error in SELECT rejects the record of the row, not the
record that advances time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import structs

from kafka_pipeline.common.pipelines.specs import JoinSpec
from kafka_pipeline.streams.clocks import clocks_by_time, late_by
from kafka_pipeline.streams.dsl.stateless import NULL_KEY
from kafka_pipeline.streams.engine.mixed import MixedBatch
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.event_time.step_time import FollowsTime
from kafka_pipeline.streams.processor import ProcessorContext, RecordRejectedError
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.columns import HEADERS, batch_of, completed
from kafka_pipeline.streams.sql.group_codec import Times
from kafka_pipeline.streams.sql.join_records import (
    JoinRecords,
    Mask,
    SideTables,
    chosen,
    kept_by,
    rows_in_order,
)
from kafka_pipeline.streams.sql.join_shape import MATCHES, PAIR, PreparedJoin
from kafka_pipeline.streams.sql.join_state import JoinState, Pairs, WaitingRow
from kafka_pipeline.streams.sql.late_records import LateRecords
from kafka_pipeline.streams.sql.processor import QueryProcessor, run_carefully
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from kafka_pipeline.streams.sql.state_stores import reach_of
from kafka_pipeline.streams.sql.topic_tables import TopicTableLookup
from kafka_pipeline.streams.windowed import Window

_RESULTS = pa.schema(
    [
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("headers", HEADERS),
    ]
)
"""The types of results, with all that a query may give."""

_RESULTS_OF_PAIRS = _RESULTS.append(pa.field(PAIR, pa.int64()))

_RELEASED, _PAIRED, _ALONE, _KEYLESS = range(4)
"""The order of the results that come with a record. The first and the third were held back."""


def require_join_as_planned(found: JoinSpec, join: JoinSpec) -> None:
    """Raise `QueryError` if Spark reads a query in another way than its text was read."""
    same = structs.replace(join, grace_ms=found.grace_ms, late_to=found.late_to)
    if join.regular is not None and found.regular is not None:
        kept = structs.replace(found.regular, ttl_ms=join.regular.ttl_ms, stage=join.regular.stage)
        found = structs.replace(found, regular=kept)
    if found != same:
        raise QueryError(
            f"for Spark, the query joins {_said(found)}, and its text was read as {_said(join)}: "
            "write the join as in docs/reference/sql_joins.md"
        )


def _said(join: JoinSpec) -> str:
    kept = " and ".join(join.keeps) or "no side"
    bounds = f"from {-join.before_ms} to {join.after_ms} ms"
    if join.regular is not None:
        bounds = f"as a {join.regular.only} join" if join.regular.only else "without bounds of time"
    return f"{join.left} with {join.right} {bounds} and keeps {kept}"


@dataclass(frozen=True, slots=True)
class _Taken:
    """What is known of the records of a batch.

    `now` is stream time at each record, and `late_by` the time that decides whether it is late.
    `late` and `keyless` are the indexes of records that are left out.
    """

    found: SideTables
    now: Times
    late_by: Times
    late: list[int]
    keyless: list[int]


class _Result(NamedTuple):
    """The place of a result in the output: its record, and its place among the results of that."""

    record: int
    phase: int
    due: int
    side: int
    number: int

    @property
    def is_held(self) -> bool:
        """Whether it is of a row that has waited for a partner."""
        return self.phase in (_RELEASED, _ALONE)


class JoinProcessor(QueryProcessor[PreparedJoin], FollowsTime):
    """Joins the records of two inputs.

    Late records are counted or sent on, and not looked at any further. Records without a key have
    no partner: they are dropped, unless their side has results without one.
    """

    def __init__(
        self,
        spec: QuerySpec,
        join: JoinSpec,
        right_topic: str,
        results: Sequence[str],
        open_query: Callable[[QuerySpec], PreparedJoin],
    ) -> None:
        """`results` are the children that get results, if another one gets late records."""
        super().__init__(spec, open_query, results if join.late_to is not None else (None,))
        self._join = join
        self._right_topic = right_topic
        self._codec = RowCodec(_RESULTS)

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._records = JoinRecords(self.spec, self.query, self.partition, self._right_topic)
        self._shape = self.query.shape
        require_join_as_planned(self._shape.join, self._join)
        self._lookup = TopicTableLookup(self.spec, self.query, context)
        self._state = JoinState(self._shape, self._join, context)
        self._late = LateRecords(self._join.late_to, context)

    def process(self, batch: Batch) -> None:
        """Process the records before the first malformed one, and reject that one."""
        assert isinstance(batch, MixedBatch)
        sides = self._records.sides(batch)
        taken = self._taken(batch, sides)
        if taken.found.stop:
            self._leave_out(batch, sides[1], taken)
            self._lookup.rows(batch)
            self._process(batch, taken)
        if taken.found.wrong:
            raise RecordRejectedError(taken.found.wrong, batch, taken.found.stop)

    # Records to rows

    def _taken(self, batch: MixedBatch, sides: tuple[Mask, Mask]) -> _Taken:
        times = np.asarray(batch.timestamps, np.int64)
        known = self._state.now
        follows_records = self.context.task_time.follows_records
        now = np.full(len(times), known)
        if follows_records:
            now = np.maximum.accumulate(np.maximum(times, known))
        late_at = late_by(times, batch.clocks, known, follows_records=follows_records)
        is_late = times + self._join.grace_ms < late_at
        has_key = np.array([key is not None for key in batch.keys], np.bool_)
        is_dropped = ~(has_key | kept_by(sides, self._join.keeps))
        found = self._records.tables(batch, chosen(sides, ~(is_late | is_dropped)))
        late = np.flatnonzero(is_late[: found.stop]).tolist()
        keyless = np.flatnonzero((~is_late & is_dropped)[: found.stop]).tolist()
        return _Taken(found, now, late_at, late, keyless)

    def _leave_out(self, batch: MixedBatch, is_right: Mask, taken: _Taken) -> None:
        for _ in taken.keyless:
            self.context.drop(NULL_KEY)
        for index in taken.late:
            older, younger = reach_of(self._join, int(is_right[index]))
            time = batch.timestamps[index]
            window = Window(max(time - older, 0), time + younger)
            closes_at = time + self._join.grace_ms + 1
            self._late.take(batch, index, window, int(taken.late_by[index]), closes_at)

    def _process(self, batch: MixedBatch, taken: _Taken) -> None:
        found = taken.found
        rows = rows_in_order(found, self._records.rows(found), self._state.codecs)
        now = int(taken.now[found.stop - 1])
        pairs = self._state.pair(rows, batch.keys, batch.timestamps, now)
        results = self._results_of(pairs, is_alone=found.is_one)
        if not self._join.keeps:
            self.forward(batch_of(results))
            return
        alone = [key is None for key in batch.keys]
        order = self._ordered(pairs, results, taken.now[: found.stop], alone)
        if order:
            self.forward(self._in_order(batch, order))

    # Pairs to results

    def _results_of(self, pairs: Pairs, *, is_alone: bool) -> pa.Table:
        """Return the results of pairs and of rows alone, with their `PAIR`."""
        if not len(pairs):
            return _RESULTS_OF_PAIRS.empty_table()
        table = pairs.table(self._shape, self._state.codecs)
        if self._shape.is_checked:
            matches = run_carefully(self.query.matches, table, is_alone=is_alone)[MATCHES]
            is_pair = [
                left is not None and right is not None
                for left, right in zip(pairs.left, pairs.right, strict=True)
            ]
            fits = np.asarray(matches.fill_null(False)) | ~np.asarray(is_pair)
            pairs.drop(np.flatnonzero(~fits).tolist())
            table = table.filter(pa.array(fits))
        results = run_carefully(self.query.results, table, is_alone=is_alone)
        if results["timestamp"].null_count:
            raise StreamsError("the query gives a record whose timestamp is null")
        return results

    def _ordered(
        self, pairs: Pairs, results: pa.Table, now: Times, keyless: Sequence[bool]
    ) -> list[tuple[_Result, bytes]]:
        """Return the results to send now, in order; store those of waiting rows."""
        results = completed(results, _RESULTS_OF_PAIRS)
        encoded = self._codec.encode(results)
        matched = {row for pair in pairs.matched() for row in pair}
        self._state.found_partners([*matched])
        order: list[tuple[_Result, bytes]] = []
        waiting: dict[WaitingRow, list[bytes]] = {}
        for pair, data in zip(results[PAIR].to_pylist(), encoded, strict=True):
            record, alone = pairs.records[pair], pairs.alone(pair)
            if alone is None:
                order.append((_Result(record, _PAIRED, 0, 0, pair), data))
            elif keyless[record]:
                order.append((_Result(record, _KEYLESS, *alone), data))
            elif alone not in matched:
                end = alone.due + self._join.grace_ms
                if end < now[-1]:
                    at = max(record, int(np.searchsorted(now, end, "right")))
                    phase = _ALONE if at == record else _RELEASED
                    order.append((_Result(at, phase, *alone), data))
                else:
                    waiting.setdefault(alone, []).append(data)
        self._state.wait(waiting)
        for released, items in self._state.released(int(now[-1])):
            at = int(np.searchsorted(now, released.due + self._join.grace_ms, "right"))
            order += [
                (_Result(at, _RELEASED, *released), item) for item in items if item is not None
            ]
        order.sort(key=lambda result: result[0])
        return order

    def _in_order(self, batch: Batch, order: Sequence[tuple[_Result, bytes]]) -> Batch:
        """Return results of a batch; those that were held back have their own times as clocks."""
        found = batch_of(self._codec.decode([data for _, data in order]))
        clocks = clocks_by_time(batch, found.timestamps)
        if clocks is not None:
            found.clocks = [
                time if result.is_held else clock
                for (result, _), time, clock in zip(order, found.timestamps, clocks, strict=True)
            ]
        return found

    def time_passed(self, time: int) -> None:
        now = time - self.context.hold_ms
        if now <= self._state.now:
            return
        self._state.move(now)
        if not self._join.keeps:
            return
        items = [item for _, found in self._state.released(now) for item in found]
        results = self._codec.decode([item for item in items if item is not None])
        self.forward(batch_of(results))
