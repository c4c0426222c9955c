"""Groups with their buffers as bytes, for stores and for the topic between two processors."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.common.calendars import Calendar
from kafka_pipeline.common.pipelines.specs import CalendarSpec, SessionSpec, WindowSpec
from kafka_pipeline.streams.sql.columns import moments_at, times_at, with_items
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.streams.sql.state_shape import StateShape, row_mark

Times = npt.NDArray[np.int64]

Converted = Callable[[Sequence[bytes], Sequence[bytes]], Sequence[bytes]]
"""Makes buffers of other layouts those of the query; see `KeptLayouts.converted`."""

_HEAD = struct.Struct(">8sq")
_SIZE = struct.Struct(">I")
"""The size of distinct values, which come before it at the end of a record's value."""

_MOST_LIMIT = 20_000
"""The largest limit of best rows that rows of a former query are recognised with."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups as bytes, in columns of one length.

    `keys` have the grouping columns but for the window and the order, and `starts` the starts of
    the windows in ms, or 0 without a window. `values` are the distinct values of rows of a batch;
    there are none of groups in a store. `buffers` are empty where only the groups matter.
    """

    keys: Sequence[bytes]
    starts: Sequence[int]
    buffers: Sequence[bytes] = ()
    values: Sequence[bytes] = ()

    @property
    def ids(self) -> list[tuple[bytes, int]]:
        """What distinguishes each group from the others."""
        return list(zip(self.keys, self.starts, strict=True))

    def only(self, kept: Collection[bool]) -> Groups:
        """Return the groups for which `kept` is true, in order."""
        return Groups(
            list(compress(self.keys, kept)),
            list(compress(self.starts, kept)),
            list(compress(self.buffers, kept)),
            list(compress(self.values, kept)),
        )


class GroupCodec:
    """Encodes the rows of a query, which have groups and buffers."""

    def __init__(self, shape: StateShape) -> None:
        """Raise `QueryError` for a column whose type has no encoding."""
        self._shape = shape
        try:
            self._keys = RowCodec(shape.keys)
            self._buffers = RowCodec(shape.buffers)
            self._values = RowCodec(shape.values)
        except TypeError as error:
            raise QueryError(f"its state cannot be kept: {error}") from error
        none = pa.table({each.name: empty_lists(1, each.type) for each in shape.values})
        self._none = self._values.encode(none)[0] if shape.values else b""
        self._mark = row_mark(json.loads(shape.content))
        self._marks = {self._mark}
        """The marks of rows that were found to be of this query, with any limit of best rows."""

    def groups(self, rows: pa.Table) -> Groups:
        """Return the groups of rows as bytes, without what the rows have of them."""
        return Groups(self._keys.encode(rows), self._starts(rows))

    def encode(self, rows: pa.Table) -> Groups:
        """Return rows as bytes."""
        return replace(self.groups(rows), buffers=self._buffers.encode(rows))

    def encode_with_values(self, rows: pa.Table) -> Groups:
        """Return rows of a batch as bytes."""
        return replace(self.encode(rows), values=self._values.encode(rows))

    def decode(self, groups: Groups) -> pa.Table:
        """Return what was encoded. Raises `ValueError` for bytes that the codec has not made.

        Without values, the lists of these are empty. A session is that of a record alone.
        """
        columns = dict(zip(self._keys.schema.names, self._keys.decode(groups.keys), strict=True))
        columns |= zip(
            self._buffers.schema.names, self._buffers.decode(groups.buffers), strict=True
        )
        shape, rows = self._shape, self._shape.rows
        if groups.values:
            columns |= zip(shape.values.names, self._values.decode(groups.values), strict=True)
        else:
            columns |= {
                each.name: empty_lists(len(groups.keys), each.type) for each in shape.values
            }
        if shape.window is not None:
            starts = np.asarray(groups.starts, np.int64)
            columns[shape.window_column] = self._windows(starts, self._ends(starts))
        if shape.order_column:
            columns[shape.order_column] = pa.array(np.zeros(len(groups.keys), np.int64))
        return pa.Table.from_arrays([columns[name] for name in rows.names], schema=rows)

    def in_sessions(self, rows: pa.Table, starts: Sequence[int], lasts: Sequence[int]) -> pa.Table:
        """Return rows to be merged, each in the session with these first and last times in ms."""
        begins, ends = (np.asarray(times, np.int64) for times in (starts, lasts))
        columns = {
            self._shape.window_column: self._windows(begins, self._ends(ends)),
            self._shape.order_column: pa.array(np.zeros(len(rows), np.int64)),
        }
        for name, column in columns.items():
            rows = with_items(rows, name, column)
        return rows

    def lasts(self, rows: pa.Table) -> list[int]:
        """Return the time of the last record of each session, in ms."""
        assert isinstance(self._shape.window, SessionSpec)
        ends = times_at(pc.struct_field(rows[self._shape.window_column], [1]))
        lasts: list[int] = (ends - self._shape.window.gap_ms).tolist()
        return lasts

    def values(self, groups: Groups) -> list[bytes]:
        """Return the values of the groups' records in a topic, whose keys are `groups.keys`."""
        found = [
            _HEAD.pack(self._mark, start) + buffers
            for start, buffers in zip(groups.starts, groups.buffers, strict=True)
        ]
        if not self._shape.values:
            return found
        return [
            value + values + _SIZE.pack(len(values))
            for value, values in zip(found, groups.values, strict=True)
        ]

    def of_records(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        tags: Mapping[bytes, bytes],
        marks_of_distinct: Collection[bytes],
        converted: Converted,
    ) -> Groups:
        """Return the groups of records. Raises `ValueError` if another query has made one.

        A query that differs by the limit of its best rows is not another one, nor is one whose
        layout has a tag, by the mark of its rows; those are converted. Rows with one of the
        `marks_of_distinct` have distinct values.
        """
        marks = {value[:8] for value in values}
        if any(len(value) < _HEAD.size for value in values) or not all(
            map(self._is_known, marks - self._marks - tags.keys())
        ):
            raise ValueError("these are rows of a query that kept something else")
        starts = [_HEAD.unpack_from(value)[1] for value in values]
        own = tags[self._mark]
        of_values = [tags.get(value[:8], own) for value in values]
        found = [self._split(value, marks_of_distinct) for value in values]
        buffers = converted(of_values, [each for each, _ in found])
        return Groups(keys, starts, buffers, [each for _, each in found] if self._none else ())

    def _split(self, value: bytes, marks_of_distinct: Collection[bytes]) -> tuple[bytes, bytes]:
        """Return the buffers in the value of a record, and the distinct values."""
        if value[:8] not in marks_of_distinct:
            return value[_HEAD.size :], self._none
        end = len(value) - _SIZE.size
        start = end - _SIZE.unpack_from(value, end)[0]
        return value[_HEAD.size : start], value[start:end]

    def _is_known(self, mark: bytes) -> bool:
        """Whether rows with this mark were made with another limit."""
        if not self._shape.best:
            return False
        content = json.loads(self._shape.content)
        order = content["best"][1:]
        for limit in range(1, _MOST_LIMIT + 1):
            content["best"] = [limit, *order]
            if row_mark(content) == mark:
                self._marks.add(mark)
                return True
        return False

    def _starts(self, rows: pa.Table) -> list[int]:
        if self._shape.window is None:
            return [0] * len(rows)
        starts: list[int] = times_at(pc.struct_field(rows[self._shape.window_column], [0])).tolist()
        return starts

    def _ends(self, starts: Times) -> Times:
        """Return the ends of windows with these starts; those of sessions of one record."""
        match self._shape.window:
            case CalendarSpec(period=period, zone=zone):
                return spans(Calendar(period, zone), starts)[1]
            case SessionSpec(gap_ms=size_ms) | WindowSpec(size_ms=size_ms):
                return starts + size_ms
        raise AssertionError("there is a window")

    def _windows(self, starts: Times, ends: Times) -> pa.Array:
        """Return windows with these times in ms."""
        type_ = self._shape.groups.field(self._shape.window_column).type
        fields = [type_.field(index) for index in range(2)]
        arrays = [
            moments_at(times, field.type)
            for times, field in zip((starts, ends), fields, strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, fields=fields)


def empty_lists(size: int, type_: pa.DataType) -> pa.Array:
    """Return a column of empty lists."""
    offsets = pa.array(np.zeros(size + 1, np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array([], type_.value_type), type_)


def spans(calendar: Calendar, times_ms: Times) -> tuple[Times, Times]:
    """Return the starts and the ends in ms of the periods that times are in; see `Calendar.span`.

    That takes a call for each period, not for each time.
    """
    times = np.maximum(times_ms, 0)
    ordered, found, at = np.sort(times), [], 0
    while at < len(ordered):
        found.append(calendar.span(int(ordered[at])))
        at = int(np.searchsorted(ordered, found[-1][1]))
    starts, ends = np.array(found, np.int64).reshape(-1, 2).T
    periods = np.searchsorted(starts, times, "right") - 1
    return starts[periods], ends[periods]
