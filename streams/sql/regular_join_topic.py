"""A regular join by columns: its rows go through a topic, where those that may meet are together.

The key of a row there has the columns that must be equal. Its value begins with a mark, which says
what rows of its query have, and with its side. A row that is taken out has the time that it had.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from itertools import compress

import numpy as np
import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import JOIN_TOPIC
from kafka_pipeline.streams.clocks import Times
from kafka_pipeline.streams.dsl.stateless import NULL_KEY
from kafka_pipeline.streams.event_time.step_time import late_reason
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.join_records import Mask, Origin, Row, order_of
from kafka_pipeline.streams.sql.join_shape import SIDES, JoinShape
from kafka_pipeline.streams.sql.late_records import late_by
from kafka_pipeline.streams.sql.meeting_keys import may_meet
from kafka_pipeline.streams.sql.processor import other_rows
from kafka_pipeline.streams.sql.regular_join import JoinsRows, RegularJoin, Taken
from kafka_pipeline.streams.sql.row_codec import RowCodec

_MARK_BYTES = 8
_HEAD_BYTES = _MARK_BYTES + 1
_MEETS = 2
"""Added to the side of a row that may have a partner: no column that must be equal is null."""
_IS_LOST = 4
"""Added to the side of a row that is taken out. The time (ms) that it had follows."""
_TIME_BYTES = 8

_DIGITS = re.compile(r"decimal\(\d+,")


class JoinTopicCodec:
    """Makes records of the rows of a query, and rows of records."""

    def __init__(self, shape: JoinShape) -> None:
        self._keys = RowCodec(shape.equal)
        self._rows = tuple(RowCodec(rows) for rows in shape.rows)
        # A decimal with more digits has the same bytes.
        content = _DIGITS.sub("decimal(", json.dumps(json.loads(shape.content)))
        self._mark = hashlib.sha256(content.encode()).digest()[:_MARK_BYTES]

    def records(
        self, side: int, rows: pa.Table, meets: Mask, origins: Sequence[Origin]
    ) -> tuple[list[bytes], list[bytes]]:
        """Return the keys and values of a side's rows; `meets` says which may have a partner."""
        data, values = self._rows[side].encode(rows), list[bytes]()
        for may, each, origin in zip(meets.tolist(), data, origins, strict=True):
            head, time = side + _MEETS * may, b""
            if origin.lost_at is not None:
                head, time = head + _IS_LOST, origin.lost_at.to_bytes(_TIME_BYTES, "big")
            values.append(self._mark + bytes([head]) + time + each)
        return self._keys.encode(rows), values

    def rows(
        self, keys: Sequence[bytes], values: Sequence[bytes]
    ) -> tuple[list[Row], list[bytes | None]]:
        """Return the rows of records, and the key under which each meets others, if it does.

        Raises `ValueError` for records of another query.
        """
        if not all(value.startswith(self._mark) for value in values):
            raise ValueError("its rows have other columns")
        heads = [value[_MARK_BYTES] for value in values]
        meets = [key if head & _MEETS else None for key, head in zip(keys, heads, strict=True)]
        return [_row(*each) for each in zip(range(len(values)), heads, values, strict=True)], meets


def _row(record: int, head: int, value: bytes) -> Row:
    side, lost_at, start = head % _MEETS, None, _HEAD_BYTES
    if head & _IS_LOST:
        start += _TIME_BYTES
        lost_at = int.from_bytes(value[_HEAD_BYTES:start], "big")
    return Row(record, side, value[start:], lost_at)


class JoinRowsProcessor(RegularJoin):
    """Turns records into rows, and sends them to where they meet, at the stage `rows`.

    Rows that can have no partner, as a column is null, are dropped, unless their side has results
    without one.
    """

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._codec = JoinTopicCodec(self.shape)

    def is_dropped(self, batch: Batch, sides: tuple[Mask, Mask]) -> Mask:
        return np.zeros(len(batch), np.bool_)

    def process(self, batch: Batch) -> None:
        """Process the records before the first malformed one, and reject that one."""
        taken = self.take(batch, self._late_by(batch))
        if taken.batch is not None:
            self._send(taken.batch, taken)
            self.keep(taken)
        taken.reject(batch)

    def _late_by(self, batch: Batch) -> Times | None:
        return None if self.ttl_ms is None else late_by(batch, self.context)

    def _send(self, batch: Batch, taken: Taken) -> None:
        found: list[tuple[Origin, bytes, bytes]] = []
        for side, rows in enumerate(taken.rows):
            if not len(rows):
                continue
            meets, origins = may_meet(rows, self.shape.equal.names), taken.found.origins(rows)
            if SIDES[side] not in self.join.keeps:
                for origin in compress(origins, ~meets):
                    if origin.lost_at is None:
                        self.context.drop(NULL_KEY)
                rows, origins = rows.filter(pa.array(meets)), [*compress(origins, meets)]
                meets = meets[meets]
            found += zip(origins, *self._codec.records(side, rows, meets, origins), strict=True)
        if not found:
            return
        found.sort(key=lambda each: order_of(each[0]))
        of_rows, keys, values = zip(*found, strict=True)
        times, clocks = batch.timestamps, batch.clocks
        sent = Batch(keys, values, [times[origin.record] for origin in of_rows])
        if clocks is not None:
            sent.clocks = [clocks[origin.record] for origin in of_rows]
        self.context.forward(sent, JOIN_TOPIC)


class JoinedRowsProcessor(JoinsRows):
    """Joins the rows that a `JoinRowsProcessor` sends, at the stage `pairs`.

    A row that is late here is counted; its record is not known any more. One that is taken out is
    never late: if it is not there any more, nothing happens.
    """

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._codec = JoinTopicCodec(self.shape)

    def process(self, batch: Batch) -> None:
        """Join rows. Raises `ConfigError` for rows of another query."""
        try:
            rows, keys = self._codec.rows(batch.keys, batch.values)
        except ValueError as error:
            raise other_rows(JOIN_TOPIC, error) from error
        is_new = np.array([row.lost_at is None for row in rows], np.bool_)
        is_late = self.is_late(batch, self.state.late_by(batch)) & is_new
        for index in np.flatnonzero(is_late).tolist():
            assert self.ttl_ms is not None, "rows are not kept forever"
            own = (batch.clocks or batch.timestamps)[index]
            follows_records = self.context.task_time.follows_records
            closes_at = batch.timestamps[index] + self.ttl_ms + 1
            self.context.drop(late_reason(own, closes_at, follows_records=follows_records))
        in_time = [row for row in rows if not is_late[row.record]]
        self.lookup.rows(batch)
        their_keys = [keys[row.record] for row in in_time]
        self.join_rows(batch, in_time, their_keys, is_alone=len(batch) == 1)
