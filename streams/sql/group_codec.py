"""Groups with their buffers as bytes, for stores and for the topic between two processors."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.common.calendars import Calendar
from kafka_pipeline.streams.sql.periods import Times, spans
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.streams.sql.state_shape import Periods, Sessions, StateShape, Window

_HEAD = struct.Struct(">8sq")


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups as bytes, in columns of one length.

    `keys` have the grouping columns but for the window and the order, and `starts` the starts of
    the windows in ms, or 0 without a window.
    """

    keys: Sequence[bytes]
    starts: Sequence[int]
    buffers: Sequence[bytes]

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
        )


class GroupCodec:
    """Encodes the rows of a query, which have groups and buffers."""

    def __init__(self, shape: StateShape) -> None:
        """Raise `QueryError` for a column whose type has no encoding."""
        self._shape = shape
        self._window = shape.window
        self._calendar: Calendar | None = None
        if isinstance(shape.window, Periods):
            self._calendar = Calendar(shape.window.period, shape.window.zone)
        try:
            self._keys = RowCodec(shape.keys)
            self._buffers = RowCodec(shape.buffers)
        except TypeError as error:
            raise QueryError(f"its state cannot be kept: {error}") from error
        self._mark = hashlib.sha256(shape.content.encode()).digest()[:8]

    def encode(self, rows: pa.Table) -> Groups:
        """Return rows as bytes."""
        return Groups(self._keys.encode(rows), self._starts(rows), self._buffers.encode(rows))

    def decode(self, groups: Groups) -> pa.Table:
        """Return what `encode` got. Raises `ValueError` for bytes that it has not made.

        A session is that of a record alone.
        """
        columns = dict(zip(self._keys.schema.names, self._keys.decode(groups.keys), strict=True))
        columns |= zip(
            self._buffers.schema.names, self._buffers.decode(groups.buffers), strict=True
        )
        rows, window = self._shape.rows, self._window
        if window is not None:
            starts = np.asarray(groups.starts, np.int64)
            columns[window.column] = self._windows(starts * 1000, self._ends(starts))
        if isinstance(window, Sessions):
            columns[window.order] = pa.array(np.zeros(len(groups.keys), np.int64))
        return pa.Table.from_arrays([columns[name] for name in rows.names], schema=rows)

    def in_sessions(self, rows: pa.Table, starts: Sequence[int], lasts: Sequence[int]) -> pa.Table:
        """Return rows to be merged, each in the session with these first and last times in ms."""
        window = self._window
        assert isinstance(window, Sessions)
        begins, ends = (np.asarray(times, np.int64) * 1000 for times in (starts, lasts))
        columns = {
            window.column: self._windows(begins, ends + window.gap_us),
            window.order: pa.array(np.zeros(len(rows), np.int64)),
        }
        for name, column in columns.items():
            rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)
        return rows

    def lasts(self, rows: pa.Table) -> list[int]:
        """Return the time of the last record of each session, in ms."""
        window = self._window
        assert isinstance(window, Sessions)
        ends = np.asarray(pc.struct_field(rows[window.column], [1]).cast(pa.int64()))
        return ((ends - window.gap_us) // 1000).tolist()  # type: ignore[no-any-return]

    def values(self, groups: Groups) -> list[bytes]:
        """Return the values of the groups' records in a topic, whose keys are `groups.keys`."""
        return [
            _HEAD.pack(self._mark, start) + buffers
            for start, buffers in zip(groups.starts, groups.buffers, strict=True)
        ]

    def of_records(self, keys: Sequence[bytes], values: Sequence[bytes]) -> Groups:
        """Return the groups of records. Raises `ValueError` if another query has made one."""
        if any(value[:8] != self._mark or len(value) < _HEAD.size for value in values):
            raise ValueError("these are rows of a query that kept something else")
        starts = [_HEAD.unpack_from(value)[1] for value in values]
        return Groups(keys, starts, [value[_HEAD.size :] for value in values])

    def _starts(self, rows: pa.Table) -> list[int]:
        if self._window is None:
            return [0] * len(rows)
        starts = pc.struct_field(rows[self._window.column], [0]).cast(pa.int64())
        return (np.asarray(starts) // 1000).tolist()  # type: ignore[no-any-return]

    def _ends(self, starts: Times) -> Times:
        """Return the ends in µs of windows with these starts in ms."""
        if self._calendar is not None:
            return spans(self._calendar, starts)[1] * 1000
        match self._window:
            case Sessions(gap_us=size_us) | Window(size_us=size_us):
                return starts * 1000 + size_us
        raise AssertionError("there is a window")

    def _windows(self, starts: Times, ends: Times) -> pa.Array:
        """Return windows with these times in µs."""
        assert self._window is not None
        type_ = self._shape.groups.field(self._window.column).type
        fields = [type_.field(index) for index in range(2)]
        arrays = [
            pa.array(times).cast(field.type)
            for times, field in zip((starts, ends), fields, strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, fields=fields)
