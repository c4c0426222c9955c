"""A regular join by columns: its rows go through a topic, where those that may meet are together.

The key of a row there has the columns that must be equal. Its value begins with a mark, which says
what rows of its query have, and with its side.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import JOIN_TOPIC
from kafka_pipeline.streams.clocks import Times
from kafka_pipeline.streams.dsl.stateless import NULL_KEY
from kafka_pipeline.streams.event_time.step_time import late_reason
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.join_records import Mask, Row
from kafka_pipeline.streams.sql.join_shape import RECORD, SIDES, JoinShape
from kafka_pipeline.streams.sql.late_records import late_by
from kafka_pipeline.streams.sql.meeting_keys import may_meet
from kafka_pipeline.streams.sql.processor import other_rows
from kafka_pipeline.streams.sql.regular_join import JoinsRows, RegularJoin
from kafka_pipeline.streams.sql.row_codec import RowCodec

_MARK_BYTES = 8
_HEAD_BYTES = _MARK_BYTES + 1
_MEETS = 2
"""Added to the side of a row that may have a partner: no column that must be equal is null."""

_DIGITS = re.compile(r"decimal\(\d+,")


class JoinTopicCodec:
    """Makes records of the rows of a query, and rows of records."""

    def __init__(self, shape: JoinShape) -> None:
        self._keys = RowCodec(shape.equal)
        self._rows = tuple(RowCodec(rows) for rows in shape.rows)
        # A decimal with more digits has the same bytes.
        content = _DIGITS.sub("decimal(", json.dumps(json.loads(shape.content)))
        self._mark = hashlib.sha256(content.encode()).digest()[:_MARK_BYTES]

    def records(self, side: int, rows: pa.Table, meets: Mask) -> tuple[list[bytes], list[bytes]]:
        """Return the keys and values of a side's rows; `meets` says which may have a partner."""
        heads = [self._mark + bytes([side]), self._mark + bytes([side + _MEETS])]
        data = self._rows[side].encode(rows)
        values = [heads[may] + each for may, each in zip(meets.tolist(), data, strict=True)]
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
        sides = [head % _MEETS for head in heads]
        data = [value[_HEAD_BYTES:] for value in values]
        meets = [key if head >= _MEETS else None for key, head in zip(keys, heads, strict=True)]
        return [*map(Row, range(len(values)), sides, data)], meets


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
            self._send(taken.batch, taken.rows)
        taken.reject(batch)

    def _late_by(self, batch: Batch) -> Times | None:
        return None if self.ttl_ms is None else late_by(batch, self.context)

    def _send(self, batch: Batch, sides: Sequence[pa.Table]) -> None:
        found: list[tuple[int, bytes, bytes]] = []
        for side, rows in enumerate(sides):
            if not len(rows):
                continue
            meets = may_meet(rows, self.shape.equal.names)
            if SIDES[side] not in self.join.keeps:
                for _ in range(int((~meets).sum())):
                    self.context.drop(NULL_KEY)
                rows, meets = rows.filter(pa.array(meets)), meets[meets]
            records = rows[RECORD].to_pylist()
            found += zip(records, *self._codec.records(side, rows, meets), strict=True)
        if not found:
            return
        found.sort(key=lambda each: each[0])
        places, keys, values = zip(*found, strict=True)
        times, clocks = batch.timestamps, batch.clocks
        sent = Batch(keys, values, [times[place] for place in places])
        if clocks is not None:
            sent.clocks = [clocks[place] for place in places]
        self.context.forward(sent, JOIN_TOPIC)


class JoinedRowsProcessor(JoinsRows):
    """Joins the rows that a `JoinRowsProcessor` sends, at the stage `pairs`.

    A row that is late here is counted; its record is not known any more.
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
        is_late = self.is_late(batch, self.state.late_by(batch))
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
