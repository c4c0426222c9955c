"""Turns the records of the two inputs of a join into rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.streams.dsl.stateless import selected
from kafka_pipeline.streams.engine.mixed import MixedBatch
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.columns import table_of
from kafka_pipeline.streams.sql.join_shape import RECORD, SIDES, PreparedJoin
from kafka_pipeline.streams.sql.processor import run_carefully
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.spec import QuerySpec

Mask = npt.NDArray[np.bool_]
"""Says for each record of a batch whether something holds."""


class Row(NamedTuple):
    """A new row: the index of its record in the batch, its side, and its bytes."""

    record: int
    side: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SideTables:
    """The records of a batch before `stop`, as a table for each side.

    `wrong` is the reason to reject the record at `stop`, or "".
    """

    tables: Sequence[pa.Table]
    stop: int
    wrong: str

    @property
    def is_one(self) -> bool:
        """Whether one record alone is to blame for a failure of Spark."""
        return len({at for table in self.tables for at in table[RECORD].to_pylist()}) == 1


class JoinRecords:
    """Turns records into rows, for one task. The rows of a join with itself are on both sides."""

    def __init__(
        self, spec: QuerySpec, query: PreparedJoin, partition: int, right_topic: str | None
    ) -> None:
        """`right_topic` is the topic of the right input; `None` if both inputs are the same."""
        self._spec = spec
        self._query = query
        self._partition = partition
        self._right_topic = right_topic

    def sides(self, batch: Batch) -> tuple[Mask, Mask]:
        """Return the records of the left side, and those of the right side."""
        if self._right_topic is None:
            return np.ones(len(batch), np.bool_), np.ones(len(batch), np.bool_)
        assert isinstance(batch, MixedBatch), "a task with two inputs puts them in order"
        is_right = np.array([topic == self._right_topic for topic in batch.topics], np.bool_)
        return ~is_right, is_right

    def tables(self, batch: Batch, chosen: tuple[Mask, Mask]) -> SideTables:
        """Return the chosen records of each side, up to the first that is not as its format says.

        `RECORD` has the index of each in the batch.
        """
        places, tables, stop, wrong = [], [], len(batch), ""
        needs = zip(chosen, self._query.columns, self._query.fields, strict=True)
        for is_chosen, columns, fields in needs:
            indexes = np.flatnonzero(is_chosen)
            needed = [name for name in columns if name != RECORD] or ["timestamp"]
            table, problem = table_of(
                selected(batch, is_chosen.tolist()),
                self._partition,
                needed,
                self._spec.format,
                fields,
                is_lenient=self._spec.is_lenient,
            )
            if problem and indexes[len(table)] < stop:
                stop, wrong = int(indexes[len(table)]), problem
            places.append(indexes[: len(table)])
            tables.append(table.append_column(RECORD, pa.array(indexes[: len(table)])))
        cut = [
            table.slice(0, int(np.searchsorted(indexes, stop)))
            for table, indexes in zip(tables, places, strict=True)
        ]
        return SideTables(cut, stop, wrong)

    def rows(self, found: SideTables) -> list[pa.Table]:
        """Return the rows of each side, with `RECORD`. Raises as `run_carefully` does."""
        calls = (self._query.left, self._query.right)
        return [
            run_carefully(call, table, is_alone=found.is_one) if len(table) else table.slice(0, 0)
            for call, table in zip(calls, found.tables, strict=True)
        ]


def rows_in_order(tables: Sequence[pa.Table], codecs: Sequence[RowCodec]) -> list[Row]:
    """Return the rows of both sides as bytes, in the order of their records."""
    rows: list[Row] = []
    for side, (table, codec) in enumerate(zip(tables, codecs, strict=True)):
        if len(table):
            data = codec.encode(table)
            rows += map(Row, table[RECORD].to_pylist(), [side] * len(data), data)
    rows.sort(key=lambda row: row.record)
    return rows


def chosen(sides: tuple[Mask, Mask], is_taken: Mask) -> tuple[Mask, Mask]:
    """Return the records of each side that are taken."""
    left, right = sides
    return left & is_taken, right & is_taken


def kept_by(sides: tuple[Mask, Mask], keeps: Sequence[str]) -> Mask:
    """Return the records that a side takes which also has results without a partner."""
    kept = [is_on & (side in keeps) for side, is_on in zip(SIDES, sides, strict=True)]
    return kept[0] | kept[1]
