"""The rows of a query with `OVER (…)` as they are kept, and as they go through a topic."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from kafka_pipeline.streams.sql.over_shape import ORIGIN, OverShape
from kafka_pipeline.streams.sql.row_codec import RowCodec

_ORIGIN = struct.Struct(">qiq")
_MARK_BYTES = 8
_DIGITS = re.compile(r"decimal\(\d+,")


class Row(NamedTuple):
    """A row of a group, in the order of frames: by time in ms, source partition and offset.

    `data` has all three, and the row as bytes. Rows of one record follow the order of their bytes.
    `is_given` says that the row has had its result in another task, which has become part of this
    one. It is stored as the bits of the partition in reverse, which make that negative.
    """

    time: int
    partition: int
    offset: int
    data: bytes
    is_given: bool = False

    @classmethod
    def of(cls, data: bytes) -> Row:
        """Read a row as it is stored."""
        time, partition, offset = _ORIGIN.unpack_from(data)
        if partition >= 0:
            return cls(time, partition, offset, data)
        data = _ORIGIN.pack(time, ~partition, offset) + data[_ORIGIN.size :]
        return cls(time, ~partition, offset, data, is_given=True)

    @property
    def columns(self) -> bytes:
        """The columns of the row, as bytes."""
        return self.data[_ORIGIN.size :]


def marked_until(time: int, data: bytes) -> bytes:
    """Return the data of a row, which is marked as given if it is of before a time in ms."""
    row = Row.of(data)
    if row.is_given or row.time >= time:
        return data
    return _ORIGIN.pack(row.time, ~row.partition, row.offset) + row.columns


class RowsCodec:
    """Makes rows as they are stored of what Spark gives, and records of an internal topic."""

    def __init__(self, shape: OverShape) -> None:
        self._groups = RowCodec(shape.groups)
        self._rows = RowCodec(shape.rows)
        # A decimal with more digits has the same bytes.
        content = _DIGITS.sub("decimal(", repr([*shape.columns]))
        self._mark = hashlib.sha256(content.encode()).digest()[:_MARK_BYTES]

    def encode(self, rows: pa.Table) -> tuple[list[bytes], list[bytes]]:
        """Return the group and the data of each row of a query, which has its `ORIGIN`."""
        time, partition, offset = (rows[name] for name in ORIGIN)
        milliseconds = time.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
        origins = zip(
            *(each.to_pylist() for each in (milliseconds, partition, offset)), strict=True
        )
        data = zip(origins, self._rows.encode(rows), strict=True)
        return self._groups.encode(rows), [_ORIGIN.pack(*at) + columns for at, columns in data]

    def decode(self, rows: Sequence[Row]) -> pa.Table:
        """Return the columns of rows."""
        return self._rows.decode([row.columns for row in rows])

    def marked(self, data: Sequence[bytes]) -> list[bytes]:
        """Return the data of rows as values of the topic, which say what rows have."""
        return [self._mark + each for each in data]

    def unmarked(self, values: Sequence[bytes]) -> list[bytes]:
        """Return what `marked` got. Raises `ValueError` for rows of another query."""
        if any(value[:_MARK_BYTES] != self._mark for value in values):
            raise ValueError("its rows have other columns")
        return [value[_MARK_BYTES:] for value in values]
