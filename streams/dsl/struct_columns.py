"""Dicts whose fields are columns, and how they become JSON without becoming dicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.columns import Column, UnsuitableError

_ESCAPED = r'["\\\x00-\x1f]'
"""The characters that JSON cannot have in a string as they are."""


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
        parts: list[Any] = []
        separator = "{"
        for name, column in self._columns.items():
            parts += [pa.scalar(f"{separator}{_text(name)}:"), _json(column)]
            separator = ","
        return pc.binary_join_element_wise(*parts, pa.scalar("}"), "")


def _json(column: Column) -> pa.Array:
    """Return items as JSON."""
    if isinstance(column, StructColumn):
        return column.json()
    try:
        array = column.array
    except UnsuitableError:
        return _by_item(column)
    if array.type == pa.int64():
        written = array.cast(pa.string())
    elif array.type == pa.bool_():
        written = pc.if_else(array, "true", "false")
    elif array.type == pa.null():
        written = array.cast(pa.string())
    elif array.type == pa.string():
        if pc.any(pc.match_substring_regex(array, _ESCAPED)).as_py():
            return _by_item(column)
        quote = pa.scalar('"')
        written = pc.binary_join_element_wise(quote, array, quote, "")
    else:
        return _by_item(column)
    return written.fill_null("null")


def _by_item(column: Column) -> pa.Array:
    write = serdes.json.serialize
    return pa.array([write(item) for item in column.to_pylist()], pa.binary()).cast(pa.string())


def _text(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
