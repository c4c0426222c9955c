"""The columns that column expressions read and make: Python's items, an Arrow array, or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.common.arrow_json import json_of, json_of_each, objects_of
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.record import LazyColumn

_NULL = type(None)
_TYPES: Mapping[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}
"""The types that have columns. Values of all others are passed on, and computed by row."""


class UnsuitableError(Exception):
    """The kernels of Arrow cannot be used, or may give something else than the way by row."""


class Column(LazyColumn):
    """A column of items, an Arrow array of a type that converts without loss, or both."""

    def __init__(
        self, items: Sequence[Any] | None = None, array: pa.Array | None = None, size: int = 0
    ) -> None:
        """A column that is made otherwise gives its `size` only, and overrides `to_pylist`."""
        self._items = items
        self._array = array
        self._fields: dict[str, Column] = {}
        if items is not None:
            size = len(items)
        elif array is not None:
            size = len(array)
        self._size = size

    def __len__(self) -> int:
        return self._size

    def to_pylist(self) -> list[Any]:
        items = self._items
        if items is None:
            assert self._array is not None
            items = self._array.to_pylist()
        self._items = items if isinstance(items, list) else list(items)
        return self._items

    @property
    def array(self) -> pa.Array:
        """The items as an Arrow array. Raises `UnsuitableError` if they are not of one type."""
        if self._array is None:
            self._array = array_of(self.to_pylist())
        return self._array

    @property
    def is_null(self) -> Sequence[bool]:
        """For each item, whether it is null."""
        if self._items is None and self._array is not None:
            return self._array.is_null().to_pylist()  # type: ignore[no-any-return]
        return [item is None for item in self.to_pylist()]

    def field(self, name: str) -> Column:
        """Return a field of items that are dicts. Raises `UnsuitableError` if one is not."""
        found = self._fields.get(name)
        if found is None:
            found = self._fields[name] = self._make_field(name)
        return found

    def _make_field(self, name: str) -> Column:
        if self._array is not None and pa.types.is_struct(self._array.type):
            return Column(array=pc.struct_field(self._array, name))
        items = self.to_pylist()
        kinds = set(map(type, items))
        if kinds == {dict}:
            return Column([item.get(name) for item in items])
        if not kinds <= {dict, _NULL}:
            raise UnsuitableError
        return Column([None if item is None else item.get(name) for item in items])

    def selected(self, kept: Sequence[bool]) -> Column:
        items = None if self._items is None else list(compress(self._items, kept))
        array = None if self._array is None else self._array.filter(pa.array(kept, pa.bool_()))
        return Column(items, array)


def array_of(items: Sequence[Any]) -> pa.Array:
    """Return items as an Arrow array.

    Raises `UnsuitableError` unless all have the same type and fit it: an int has 64 bits, and a
    string has no lone surrogate.
    """
    kinds = set(map(type, items))
    kinds.discard(_NULL)
    if not kinds:
        return pa.array(items, pa.null())
    found = _TYPES.get(kinds.pop())
    if found is None or kinds:
        raise UnsuitableError
    try:
        return pa.array(items, found)
    except (OverflowError, UnicodeEncodeError, pa.ArrowException) as error:
        raise UnsuitableError from error


def column_of(items: Sequence[Any]) -> Column:
    """Return the column of a batch as a column for expressions."""
    if isinstance(items, Column):
        return items
    if isinstance(items, pa.ChunkedArray):
        items = items.combine_chunks()
    to_list = getattr(items, "to_pylist", None) or getattr(items, "tolist", None)
    return Column(to_list() if to_list else items)


class StructColumn(Column):
    """Dicts whose fields are columns."""

    def __init__(self, fields: Mapping[str, Column], size: int) -> None:
        super().__init__(size=size)
        self._columns = fields

    def to_pylist(self) -> list[Any]:
        if self._items is None:
            names = list(self._columns)
            rows = zip(*(column.to_pylist() for column in self._columns.values()), strict=True)
            self._items = [dict(zip(names, row, strict=True)) for row in rows]
        return super().to_pylist()

    @property
    def is_null(self) -> Sequence[bool]:
        return [False] * len(self)

    def _make_field(self, name: str) -> Column:
        found = self._columns.get(name)
        return Column([None] * len(self)) if found is None else found

    def selected(self, kept: Sequence[bool]) -> Column:
        fields = {name: column.selected(kept) for name, column in self._columns.items()}
        return StructColumn(fields, sum(kept))

    def converted(self, convert: Callable[[Any], Any]) -> list[Any]:
        if convert is serdes.json.serialize and self._items is None:
            return self.json().cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
        return super().converted(convert)

    def json(self) -> pa.Array:
        """Return the items as `serdes.json` writes them. Raises `SerializationError`."""
        return objects_of({name: _json(column) for name, column in self._columns.items()})


def _json(column: Column) -> pa.Array:
    """Return items as JSON."""
    if isinstance(column, StructColumn):
        return column.json()
    write = serdes.json.serialize
    try:
        array = column.array
    except UnsuitableError:
        return json_of_each(column.to_pylist(), write)
    return json_of(array, write)
