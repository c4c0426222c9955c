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

from streams.sql.row_codec import RowCodec
from streams.sql.spec import QueryError
from streams.sql.state_shape import StateShape, Window

_HEAD = struct.Struct(">8sq")


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups as bytes, in columns of one length.

    `keys` have the grouping columns but for the window, and `starts` the starts of the windows in
    ms, or 0 without a window.
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
        others = [f for f in shape.groups if self._window is None or f.name != self._window.column]
        try:
            self._keys = RowCodec(pa.schema(others))
            self._buffers = RowCodec(shape.buffers)
        except TypeError as error:
            raise QueryError(f"its state cannot be kept: {error}") from error
        self._mark = hashlib.sha256(shape.content.encode()).digest()[:8]

    def encode(self, rows: pa.Table) -> Groups:
        """Return rows as bytes."""
        return Groups(self._keys.encode(rows), self._starts(rows), self._buffers.encode(rows))

    def decode(self, groups: Groups) -> pa.Table:
        """Return what `encode` got. Raises `ValueError` for bytes that it has not made."""
        columns = dict(zip(self._keys.schema.names, self._keys.decode(groups.keys), strict=True))
        columns |= zip(
            self._buffers.schema.names, self._buffers.decode(groups.buffers), strict=True
        )
        if self._window is not None:
            columns[self._window.column] = self._windows(groups.starts, self._window)
        rows = self._shape.rows
        return pa.Table.from_arrays([columns[name] for name in rows.names], schema=rows)

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

    def _windows(self, starts: Sequence[int], window: Window) -> pa.Array:
        type_ = self._shape.groups.field(window.column).type
        begins = np.asarray(starts, np.int64) * 1000
        ends = begins + window.size_us
        fields = [type_.field(index) for index in range(2)]
        arrays = [
            pa.array(times).cast(field.type)
            for times, field in zip((begins, ends), fields, strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, fields=fields)
