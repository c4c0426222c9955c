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
    """A row of a record in the batch: the index of that, the side, and the bytes of the row.

    One that its record takes out has `lost_at`, the time (ms) of the former record that gave it.
    """

    record: int
    side: int
    data: bytes
    lost_at: int | None = None


class Origin(NamedTuple):
    """What a row in a table stems from: the index of a record, and `lost_at` as in `Row`."""

    record: int
    lost_at: int | None


@dataclass(frozen=True, slots=True)
class SideTables:
    """The records of a batch before `stop`, as a table for each side.

    `wrong` is the reason to reject the record at `stop`, or "". The former records that these
    replace follow in the tables: `RECORD` is `stop` for the first of `lost`, and so on.
    """

    tables: Sequence[pa.Table]
    stop: int
    wrong: str
    lost: Sequence[Origin] = ()

    def origins(self, table: pa.Table) -> list[Origin]:
        """Return what each row stems from, of a table with the `RECORD` of these tables."""
        return [
            Origin(at, None) if at < self.stop else self.lost[at - self.stop]
            for at in (table[RECORD].to_pylist() if len(table) else ())
        ]

    @property
    def is_one(self) -> bool:
        """Whether one record alone is to blame for a failure of Spark."""
        found = (each.record for table in self.tables for each in self.origins(table))
        return len(set(found)) == 1


class JoinRecords:
    """Turns records into rows, for one task. The rows of a join with itself are on both sides."""

    def __init__(
        self, spec: QuerySpec, query: PreparedJoin, partition: int, right_topic: str | None
    ) -> None:
        """`right_topic` is the topic of the right input; `None` if both inputs are the same.

        It is "" in a task that does not read it, as the topic has fewer partitions.
        """
        self._spec = spec
        self._query = query
        self._partition = partition
        self._right_topic = right_topic

    def sides(self, batch: Batch) -> tuple[Mask, Mask]:
        """Return the records of the left side, and those of the right side."""
        if self._right_topic is None:
            return np.ones(len(batch), np.bool_), np.ones(len(batch), np.bool_)
        if isinstance(batch, MixedBatch):
            is_right = np.array([topic == self._right_topic for topic in batch.topics], np.bool_)
        else:  # the task reads one input only
            is_right = np.full(len(batch), bool(self._right_topic))
        return ~is_right, is_right

    def tables(self, batch: Batch, chosen: tuple[Mask, Mask]) -> SideTables:
        """Return the chosen records of each side, up to the first that is not as its format says.

        `RECORD` has the index of each in the batch.
        """
        places, tables, stop, wrong = [], [], len(batch), ""
        for side, is_chosen in enumerate(chosen):
            indexes = np.flatnonzero(is_chosen)
            table, problem = self.read(side, selected(batch, is_chosen.tolist()))
            if problem and indexes[len(table)] < stop:
                stop, wrong = int(indexes[len(table)]), problem
            places.append(indexes[: len(table)])
            tables.append(table.append_column(RECORD, pa.array(indexes[: len(table)])))
        cut = [
            table.slice(0, int(np.searchsorted(indexes, stop)))
            for table, indexes in zip(tables, places, strict=True)
        ]
        return SideTables(cut, stop, wrong)

    def read(self, side: int, batch: Batch, *, as_fields: bool = True) -> tuple[pa.Table, str]:
        """Return records of a side as `table_of` does; unless `as_fields`, Spark reads JSON."""
        needed = [name for name in self._query.columns[side] if name != RECORD] or ["timestamp"]
        return table_of(
            batch,
            self._partition,
            needed,
            self._spec.format,
            self._query.fields[side] if as_fields else None,
            is_lenient=self._spec.is_lenient,
            decimals=self._spec.decimals,
        )

    def reads_time(self, side: int) -> bool:
        """Whether the rows of a side depend on the times of its records."""
        return "timestamp" in self._query.columns[side]

    @property
    def fields_of_json(self) -> tuple[Sequence[str], Sequence[str]]:
        """See `JoinShape`."""
        return self._query.shape.fields_of_json

    def rows(self, found: SideTables) -> list[pa.Table]:
        """Return the rows of each side, with `RECORD`. Raises as `run_carefully` does."""
        calls = (self._query.left, self._query.right)
        return [
            run_carefully(call, table, is_alone=found.is_one) if len(table) else table.slice(0, 0)
            for call, table in zip(calls, found.tables, strict=True)
        ]


def rows_in_order(
    found: SideTables, tables: Sequence[pa.Table], codecs: Sequence[RowCodec]
) -> list[Row]:
    """Return the rows of both sides as bytes, in the order of their records.

    Rows that a record takes out come before those that it gives.
    """
    rows: list[Row] = []
    for side, (table, codec) in enumerate(zip(tables, codecs, strict=True)):
        if len(table):
            both = zip(found.origins(table), codec.encode(table), strict=True)
            rows += [Row(origin.record, side, data, origin.lost_at) for origin, data in both]
    rows.sort(key=order_of)
    return rows


def order_of(row: Row | Origin) -> tuple[int, bool]:
    """Return the place of a row among those of a batch."""
    return row.record, row.lost_at is None


def chosen(sides: tuple[Mask, Mask], is_taken: Mask) -> tuple[Mask, Mask]:
    """Return the records of each side that are taken."""
    left, right = sides
    return left & is_taken, right & is_taken


def kept_by(sides: tuple[Mask, Mask], keeps: Sequence[str]) -> Mask:
    """Return the records that a side takes which also has results without a partner."""
    kept = [is_on & (side in keeps) for side, is_on in zip(SIDES, sides, strict=True)]
    return kept[0] | kept[1]
