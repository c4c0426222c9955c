"""Turns rows of Arrow columns into bytes, one value a row, and back; vectorised over all rows.

Equal rows give equal bytes, whatever batch they are in, so that bytes can be the keys of groups.
The columns follow each other. A column gives a byte per item, which is 1 unless the item is null,
and then

- numbers, times and decimals: their little-endian bytes, zeros for a null
- booleans: one byte
- strings and binary: the lengths of all items (4 bytes each), then all their bytes
- lists and maps: the numbers of items (4 bytes each), then the items as a column
- structs: their fields as columns

A row has one item of each column; a list has its own items. The bytes depend on the types only, not
on the form in which Spark holds rows. Doubles keep their bits: Spark gives groups one NaN and one
zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.streams.sql.columns import binary_items

_LENGTH = np.dtype("<u4")
_NOTHING = pa.scalar(b"", pa.binary())


class RowCodec:
    """Encodes rows with these columns."""

    def __init__(self, schema: pa.Schema) -> None:
        """Raise `TypeError` that names a column whose type has no encoding."""
        for field in schema:
            _require_known(field.type, field.name)
        self.schema = schema

    def encode(self, table: pa.Table) -> list[bytes]:
        """Return the bytes of each row; the columns of the schema are taken by their names."""
        size = len(table)
        if not size or not len(self.schema):
            return [b""] * size
        parts = _Parts(size)
        for field in self.schema:
            column = table[field.name].combine_chunks()
            parts.add(column.cast(field.type) if column.type != field.type else column, parts.rows)
        return parts.joined()

    def decode(self, rows: Sequence[bytes]) -> pa.Table:
        """Return what `encode` got. Raises `ValueError` for bytes that it has not made."""
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        reader = _Reader(np.frombuffer(b"".join(rows), np.uint8), offsets)
        ones = np.ones(len(rows), np.int64)
        columns = [reader.take(field.type, ones) for field in self.schema]
        reader.require_end()
        return pa.Table.from_arrays(columns, schema=self.schema)


def _require_known(type_: pa.DataType, name: str) -> None:
    if pa.types.is_struct(type_) or pa.types.is_list(type_) or pa.types.is_map(type_):
        for child in range(type_.num_fields):
            _require_known(type_.field(child).type, name)
    elif not (_is_text(type_) or pa.types.is_null(type_) or pa.types.is_boolean(type_)):
        try:
            known = type_.bit_width % 8 == 0 and not pa.types.is_dictionary(type_)
        except ValueError:
            known = False
        if not known:
            raise TypeError(f"{name}: values of the type {type_} have no encoding")


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


class _Parts:
    """The parts of rows: for each, its bytes, and where those of each row end."""

    def __init__(self, size: int) -> None:
        self.rows = np.arange(size + 1)
        """Where the items of columns end that have one for each row."""
        self._fixed: list[np.ndarray] = []
        self._parts: list[pa.Array] = []

    def add(self, column: pa.Array, ends: np.ndarray) -> None:
        """Add a column of items; row n has the items `ends[n]` to `ends[n + 1]`."""
        type_ = column.type
        valid = _validity(column)
        self._append(valid.view(np.uint8).reshape(-1, 1), ends)
        if pa.types.is_null(type_):
            return
        if pa.types.is_struct(type_):
            for index in range(type_.num_fields):
                # Fields of a null struct may have any value: `flatten` makes them null too.
                self.add(column.flatten()[index], ends)
        elif pa.types.is_list(type_) or pa.types.is_map(type_):
            lengths = _lengths(column, valid)
            self._append(lengths.astype(_LENGTH).view(np.uint8).reshape(-1, 4), ends)
            stops = _stops(lengths)
            self.add(_items_of(column), stops[ends])
        elif _is_text(type_):
            self._add_text(column, ends)
        else:
            self._append(_fixed_bytes(column, valid), ends)

    def joined(self) -> list[bytes]:
        """Return the bytes of each row."""
        self._flush()
        if len(self._parts) == 1:
            joined = self._parts[0]
        else:
            joined = pc.binary_join_element_wise(*self._parts, _NOTHING)
        return binary_items(pa.chunked_array([joined]))  # type: ignore[return-value]

    def _add_text(self, column: pa.Array, ends: np.ndarray) -> None:
        if column.null_count:
            column = column.fill_null("" if pa.types.is_string(column.type) else b"")
        offsets = _offsets(column)
        lengths = offsets[1:] - offsets[:-1]
        self._append(lengths.astype(_LENGTH).view(np.uint8).reshape(-1, 4), ends)
        self._flush()
        self._parts.append(_binary(column.buffers()[2] or b"", offsets[ends]))

    def _append(self, items: np.ndarray, ends: np.ndarray) -> None:
        """Append items of a fixed width; `items` has one row of bytes for each."""
        if ends is self.rows:
            self._fixed.append(items)
            return
        self._flush()
        self._parts.append(_binary(items, ends * items.shape[1]))

    def _flush(self) -> None:
        """Make one part of the columns that have the same width in all rows."""
        if not self._fixed:
            return
        matrix = np.concatenate(self._fixed, axis=1)
        self._fixed = []
        self._parts.append(_binary(matrix, self.rows * matrix.shape[1]))


def _binary(data: Any, ends: np.ndarray) -> pa.Array:
    """Return binary items of a buffer; item n has the bytes `ends[n]` to `ends[n + 1]`."""
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def _validity(column: pa.Array) -> np.ndarray:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _stops(lengths: np.ndarray) -> np.ndarray:
    stops = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=stops[1:])
    return stops


def _offsets(column: pa.Array) -> np.ndarray:
    """Return where the items of strings and lists begin, and where the last one ends."""
    if not len(column):
        return np.zeros(1, np.int64)
    ends = np.frombuffer(column.buffers()[1], np.int32)
    return ends[column.offset : column.offset + len(column) + 1].astype(np.int64)


def _lengths(column: pa.Array, valid: np.ndarray) -> np.ndarray:
    return np.where(valid, np.diff(_offsets(column)), 0)


def _items_of(column: pa.Array) -> pa.Array:
    """Return the items of all lists; those of maps are structs of key and value."""
    if pa.types.is_map(column.type):
        fields = [*column.type.field(0).type]
        entries = pa.StructArray.from_arrays([column.keys, column.items], fields=fields)
        buffers = column.buffers()[:2]
        type_ = pa.list_(entries.type)
        column = pa.Array.from_buffers(
            type_, len(column), buffers, offset=column.offset, children=[entries]
        )
    return column.flatten()


def _fixed_bytes(column: pa.Array, valid: np.ndarray) -> np.ndarray:
    """Return one row of bytes for each item; zeros for a null."""
    if pa.types.is_boolean(column.type):
        items = column.fill_null(False).to_numpy(zero_copy_only=False)
        return np.asarray(items, np.bool_).view(np.uint8).reshape(-1, 1)
    width = column.type.bit_width // 8
    data = np.frombuffer(column.buffers()[1] or b"", np.uint8)
    start = column.offset * width
    items = data[start : start + len(column) * width].reshape(-1, width)
    return items if valid.all() else np.where(valid[:, None], items, np.uint8(0))


class _Reader:
    """Reads columns from rows of bytes, all rows at a time; keeps the place in each row."""

    def __init__(self, data: np.ndarray, offsets: np.ndarray) -> None:
        self._data = data
        self._at = offsets[:-1].copy()
        self._ends = offsets[1:]

    def require_end(self) -> None:
        """Raise `ValueError` unless all bytes of all rows were read."""
        if not np.array_equal(self._at, self._ends):
            raise ValueError("the bytes of a row are not those of this query's columns")

    def take(self, type_: pa.DataType, counts: np.ndarray) -> pa.Array:
        """Return the next `counts[n]` items of each row n, as one column."""
        size = int(counts.sum())
        valid = self._bytes(counts, 1).view(np.bool_)
        if pa.types.is_null(type_):
            return pa.nulls(size)
        mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        if pa.types.is_struct(type_):
            fields = [self.take(type_.field(i).type, counts) for i in range(type_.num_fields)]
            if not fields:
                return pa.Array.from_buffers(type_, size, [mask])
            return pa.Array.from_buffers(type_, size, [mask], children=fields)
        if pa.types.is_boolean(type_):
            bits = np.packbits(self._bytes(counts, 1), bitorder="little")
            return pa.Array.from_buffers(type_, size, [mask, pa.py_buffer(bits)])
        if not (_is_text(type_) or pa.types.is_list(type_) or pa.types.is_map(type_)):
            data = self._bytes(counts, type_.bit_width // 8)
            return pa.Array.from_buffers(type_, size, [mask, pa.py_buffer(data)])
        stops = _stops(self._bytes(counts, 4).view(_LENGTH).astype(np.int64))
        ends = pa.py_buffer(stops.astype(np.int32))
        row_stops = stops[_stops(counts)]
        lengths = np.diff(row_stops)
        if _is_text(type_):
            data = self._bytes(lengths, 1)
            return pa.Array.from_buffers(type_, size, [mask, ends, pa.py_buffer(data)])
        children = [self.take(type_.field(0).type, lengths)]
        return pa.Array.from_buffers(type_, size, [mask, ends], children=children)

    def _bytes(self, counts: np.ndarray, width: int) -> np.ndarray:
        """Return the bytes of the next `counts[n]` items of `width` bytes in each row n."""
        lengths = counts * width
        at = self._at
        self._at = at + lengths
        if (self._at > self._ends).any():
            raise ValueError("the bytes of a row are too short for this query's columns")
        if not len(lengths):
            return np.zeros(0, np.uint8)
        first = int(lengths[0])
        if first and (lengths == first).all():
            return self._data[at[:, None] + np.arange(first)].reshape(-1)
        stops = _stops(lengths)
        taken: np.ndarray = self._data[np.arange(stops[-1]) + np.repeat(at - stops[:-1], lengths)]
        return taken
