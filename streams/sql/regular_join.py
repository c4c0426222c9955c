"""`type: sql` with a join of two inputs without bounds of time.

Spark turns the records of a batch into rows, and pairs of rows into results. A row without a
partner has its results at once. When its first partner comes, they are deleted by their keys,
unless new results with these keys replace them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import JoinSpec
from kafka_pipeline.streams.clocks import Times
from kafka_pipeline.streams.dsl.stateless import NULL_KEY, selected
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.event_time.step_time import FollowsTime
from kafka_pipeline.streams.processor import ProcessorContext, RecordRejectedError
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.sql.changing_join import ChangingJoin
from kafka_pipeline.streams.sql.changing_sides import ChangingSides
from kafka_pipeline.streams.sql.columns import batch_of
from kafka_pipeline.streams.sql.join_processor import require_join_as_planned
from kafka_pipeline.streams.sql.join_records import (
    JoinRecords,
    Mask,
    Origin,
    Row,
    SideTables,
    chosen,
    kept_by,
    order_of,
    rows_in_order,
)
from kafka_pipeline.streams.sql.join_results import JoinResults
from kafka_pipeline.streams.sql.join_shape import PAIR, SIDES, PreparedJoin
from kafka_pipeline.streams.sql.late_records import LateRecords
from kafka_pipeline.streams.sql.meeting_keys import MeetingKeys
from kafka_pipeline.streams.sql.processor import QueryProcessor
from kafka_pipeline.streams.sql.regular_join_state import (
    JoinEntry,
    KeptRow,
    Meeting,
    RegularJoinState,
)
from kafka_pipeline.streams.sql.result_rows import ResultRows
from kafka_pipeline.streams.sql.spec import QuerySpec
from kafka_pipeline.streams.sql.topic_tables import TopicTableLookup
from kafka_pipeline.streams.windowed import Window


@dataclass(frozen=True, slots=True)
class Taken:
    """The records of a `batch` before the first malformed one, as `rows` of each side.

    Those that are `chosen` of each side are neither late nor dropped.
    """

    batch: Batch | None
    rows: Sequence[pa.Table]
    found: SideTables
    chosen: tuple[Mask, Mask]

    @property
    def is_one(self) -> bool:
        """Whether one record alone is to blame for a failure of Spark."""
        return self.found.is_one

    def reject(self, batch: Batch) -> None:
        """Raise `RecordRejectedError` if there is a malformed record in the batch."""
        if self.found.wrong:
            raise RecordRejectedError(self.found.wrong, batch, self.found.stop)


class RegularJoin(QueryProcessor[PreparedJoin]):
    """The base of the processors of a regular join, at any stage."""

    def __init__(
        self,
        spec: QuerySpec,
        join: JoinSpec,
        right_topic: str | None,
        results: Sequence[str],
        open_query: Callable[[QuerySpec], PreparedJoin],
    ) -> None:
        """`right_topic` is that of the right input, `None` if both inputs are the same.

        `results` are the children that get results, if another one gets late records.
        """
        super().__init__(spec, open_query, results if join.late_to is not None else (None,))
        assert join.regular is not None, "it has no bounds of time"
        self.join, self.ttl_ms, self.stage = join, join.regular.ttl_ms, join.regular.stage
        self._right_topic = right_topic

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.shape = self.query.shape
        require_join_as_planned(self.shape.join, self.join)
        self.records = JoinRecords(self.spec, self.query, self.partition, self._right_topic)
        self.lookup = TopicTableLookup(self.spec, self.query, context)
        self.late = LateRecords(self.join.late_to, context)
        self._sides: ChangingSides | None = None
        if self.join.changing and self.stage != "pairs":
            self._sides = ChangingSides(self.records, self.join, context)

    def take(self, batch: Batch, late_at: Times | None) -> Taken:
        """Turn the records before the first malformed one into rows; leave some of them out.

        `late_at` is the time by which each record is late, if any is. Raises as `run_carefully`.
        """
        sides = self.records.sides(batch)
        is_late = self.is_late(batch, late_at)
        is_dropped = self.is_dropped(batch, sides)
        if self._sides is not None:
            is_dropped |= self._sides.keyless(batch, sides)
        taken = chosen(sides, ~(is_late | is_dropped))
        found = self.records.tables(batch, taken)
        if not found.stop:
            return Taken(None, (), found, taken)
        if late_at is not None:
            self._take_late(batch, is_late[: found.stop], late_at)
        for _ in range(int((is_dropped & ~is_late)[: found.stop].sum())):
            self.context.drop(NULL_KEY)
        before = batch.head(found.stop)
        self.lookup.rows(before)
        if self._sides is not None:
            found, taken = self._sides.with_lost(batch, taken, found)
        return Taken(before, self.records.rows(found), found, taken)

    def keep(self, taken: Taken) -> None:
        """Keep the records of sides that change, once all is done for them."""
        if self._sides is not None and taken.batch is not None:
            self._sides.keep(taken.batch, taken.chosen)

    def is_dropped(self, batch: Batch, sides: tuple[Mask, Mask]) -> Mask:
        """Return the records that can have no result, as they have no key."""
        has_key = np.array([key is not None for key in batch.keys], np.bool_)
        return ~(has_key | kept_by(sides, self.join.keeps))

    def is_late(self, batch: Batch, late_at: Times | None) -> Mask:
        """Return the records that come after the time for which rows are kept."""
        if late_at is None or self.ttl_ms is None:
            return np.zeros(len(batch), np.bool_)
        return np.asarray(np.asarray(items_of(batch.timestamps)) + self.ttl_ms < late_at)

    def _take_late(self, batch: Batch, is_late: Mask, late_at: Times) -> None:
        for index in np.flatnonzero(is_late).tolist():
            assert self.ttl_ms is not None, "rows are not kept forever"
            time = batch.timestamps[index]
            window = Window(time, time + self.ttl_ms)
            self.late.take(batch, index, window, int(late_at[index]), window.end + 1)


class JoinsRows(RegularJoin, FollowsTime):
    """The base of the processors that keep rows and join them."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._results_of = JoinResults(self.query)
        self._changing: ChangingJoin | None = None
        if self.join.changing:
            self._changing = ChangingJoin(self.shape, self.join, self._results_of, context)
            self.state: RegularJoinState = self._changing.state
        else:
            self.state = RegularJoinState(self.shape, self.join, context)

    def time_passed(self, time: int) -> None:
        self.state.move(time)

    def join_rows(
        self, batch: Batch, rows: Sequence[Row], keys: Sequence[bytes | None], *, is_alone: bool
    ) -> None:
        """Do all for the new rows of a batch, which meet others by these keys, one for each."""
        if self._changing is not None:
            self.forward(self._changing.results(batch, rows, keys, is_alone=is_alone))
            return
        meeting = self.state.meet(rows, batch, keys)
        candidates = self._results_of.matching(meeting.candidates, is_alone=is_alone)
        matched = self._find_first_partners(candidates)
        entries = self._entries(meeting, candidates, matched, batch.timestamps)
        results = self._results_of.of(entries, is_alone=is_alone)
        found: Batch
        if results is not None and pa.types.is_timestamp(results["timestamp"].type):
            found = self._rows_of_next_stage(entries, results, batch, is_alone=is_alone)
        else:
            found = self._with_deletions(entries, results, matched, batch.timestamps)
        self.state.keep(meeting, matched, batch)
        self.forward(found)

    def _find_first_partners(self, candidates: Sequence[JoinEntry]) -> list[KeptRow]:
        """Return the rows whose first partner comes now, and say so in `partner_at`."""
        matched: list[KeptRow] = []
        if not self.state.follows_partners:
            return matched
        for each in candidates:
            for row in (each.left, each.right):
                if row is not None and row.sent is not None and row.partner_at is None:
                    row.partner_at = each.record
                    matched.append(row)
        return matched

    def _entries(
        self,
        meeting: Meeting,
        candidates: Sequence[JoinEntry],
        matched: Sequence[KeptRow],
        times: Sequence[int],
    ) -> Sequence[JoinEntry]:
        """Return what has results, in the order of records.

        A row has its result without a partner computed even if its partner comes in the same batch:
        otherwise, whether it is rejected would depend on how batches are cut.
        """
        assert self.join.regular is not None
        only, alone = self.join.regular.only, list[JoinEntry]()
        if only == "semi":
            alone += [
                JoinEntry.of_row(row, row.partner_at, times[row.partner_at])
                for row in matched
                if row.partner_at is not None
            ]
        if self.join.keeps:
            alone += [
                JoinEntry.of_row(row, row.record, row.time)
                for row in meeting.rows
                if row.record is not None and row.sent is not None and row.partner_at != row.record
            ]
        pairs = candidates if only is None else ()
        return sorted([*pairs, *alone], key=lambda entry: entry.record) if alone else pairs

    def _rows_of_next_stage(
        self, entries: Sequence[JoinEntry], results: pa.Table, batch: Batch, *, is_alone: bool
    ) -> ResultRows:
        assert batch.offsets is not None, "its records were read from a topic"
        records = np.array([entry.record for entry in entries], np.int64)[np.asarray(results[PAIR])]
        read_at = np.asarray(batch.offsets, np.int64)[records]
        return ResultRows.of_table(results, self.partition, records, read_at, is_alone=is_alone)

    def _with_deletions(
        self,
        entries: Sequence[JoinEntry],
        results: pa.Table | None,
        matched: Sequence[KeptRow],
        times: Sequence[int],
    ) -> Batch:
        """Return what is sent: results, and in front of them the deletions of former ones.

        Records in rows without a partner which keys were sent. `times` are those of all records.
        """
        found, given = Batch([], [], []), list[JoinEntry]()
        if results is not None:
            found = batch_of(results.drop_columns([PAIR]))
        if not self.join.keeps:
            return found
        if results is not None:
            given = [entries[number] for number in results[PAIR].to_pylist()]
        for entry, key in zip(given, found.keys, strict=True):
            _require_key(entry, key)
        is_sent = [not entry.is_replaced for entry in given]
        found, given = selected(found, is_sent), [*compress(given, is_sent)]
        new_keys = set[tuple[int, bytes | None]]()
        for entry, key in zip(given, found.keys, strict=True):
            new_keys.add((entry.record, key))
            row = entry.alone
            if row is None or row.key is None:
                continue
            assert row.sent is not None, "its side has results without a partner"
            if key not in row.sent:
                row.sent.append(key)
        deleted = {
            (row.partner_at, key): max(row.time, times[row.partner_at])
            for row in matched
            if row.partner_at is not None
            for key in row.sent or ()
            if (row.partner_at, key) not in new_keys
        }
        return _with_deleted(deleted, found, [entry.record for entry in given])


class RegularJoinProcessor(JoinsRows):
    """Joins records by their keys, and perhaps by columns too, at the stage `whole`.

    Records without a key have no partner, and rows with a null in such a column neither: they are
    dropped, unless their side has results without one.
    """

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._keys = MeetingKeys(self.shape)

    def process(self, batch: Batch) -> None:
        """Process the records before the first malformed one, and reject that one."""
        taken = self.take(batch, self.state.late_by(batch))
        if taken.batch is not None:
            self._join(taken.batch, taken)
        taken.reject(batch)

    def _join(self, batch: Batch, taken: Taken) -> None:
        rows = rows_in_order(taken.found, taken.rows, self.state.codecs)
        keys = self._keys_in_order(taken, batch.keys)
        has_results = [
            key is not None or SIDES[row.side] in self.join.keeps
            for row, key in zip(rows, keys, strict=True)
        ]
        for row, has in zip(rows, has_results, strict=True):
            if not has and row.lost_at is None:
                self.context.drop(NULL_KEY)
        rows, keys = [*compress(rows, has_results)], [*compress(keys, has_results)]
        self.join_rows(batch, rows, keys, is_alone=taken.is_one)
        self.keep(taken)

    def _keys_in_order(self, taken: Taken, keys: Sequence[bytes | None]) -> list[bytes | None]:
        """Return the key of each row, in the order of `rows_in_order`."""
        found: list[tuple[Origin, bytes | None]] = []
        for table in taken.rows:
            origins = taken.found.origins(table)
            own = [keys[origin.record] for origin in origins]
            found += zip(origins, self._keys.of(table, own) if own else [], strict=True)
        found.sort(key=lambda each: order_of(each[0]))
        return [key for _, key in found]


def _require_key(entry: JoinEntry, key: bytes | None) -> None:
    """Raise `StreamsError` if a result may have to be deleted later and has no key."""
    row = entry.alone
    if key is None and row is not None and row.key is not None:
        raise StreamsError(
            "the query gives a row without a partner no key, so its result could not be "
            "deleted once a partner comes: let it give a key that is never null, such as "
            "coalesce(o.key, p.key) AS key"
        )


def _with_deleted(
    deleted: Mapping[tuple[int, bytes], int], found: Batch, records: Sequence[int]
) -> Batch:
    """Return results with deletions in front of those of the same record.

    `deleted` has the times of deletions, by record and key, and `records` those of the results.
    """
    if not deleted:
        return found
    order: list[tuple[int, bool, tuple[Any, Any, int, Any]]] = [
        (record, False, (key, None, time, None)) for (record, key), time in deleted.items()
    ]
    headers = found.headers or [None] * len(found)
    columns = zip(found.keys, found.values, found.timestamps, headers, strict=True)
    order += [(record, True, each) for record, each in zip(records, columns, strict=True)]
    order.sort(key=lambda each: each[:2])
    keys, values, times, all_headers = zip(*(each for _, _, each in order), strict=True)
    return Batch(keys, values, times, all_headers if found.headers else None)
