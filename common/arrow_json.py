"""JSON objects and Arrow columns: many records at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

FEWEST_RECORDS = 32
"""For fewer records, Arrow's reader is not worth it."""

_MOST_BYTES = 2**30
_DEEPEST = 400
"""Python's decoder nests deeper than this."""

_NOT_FINITE = re.compile(rb"[\s:,\[-](?:NaN|Inf)")
_BEFORE_VALUE = np.isin(np.arange(256), list(b" \t\n\r\v\f:,[-"))
"""For each byte, whether it may come before a number."""

_first_byte, _last_byte = itemgetter(0), itemgetter(-1)


def joined_objects(raw: Sequence[bytes | None]) -> bytes | None:
    """Return records as one stream, in which each is one object or none is complete.

    `None` if it is not sure that Arrow reads them as Python does.
    """
    records: Sequence[Any] = raw
    if None in raw:
        records = [b"{}" if item is None else item for item in raw]
    # An object that begins within a record ends there: after a last `}` that does not end it, there
    # is no place for the `{` of the next record. So there are as many objects as records only if
    # each record is one.
    try:
        ends = set(map(_first_byte, records)), set(map(_last_byte, records))
    except IndexError:
        return None
    if ends != ({ord("{")}, {ord("}")}):
        return None
    joined = b"\n".join(records)
    if len(joined) > _MOST_BYTES or _may_be_not_finite(joined):
        return None
    if max(map(len, records)) > 2 * _DEEPEST and any(map(_may_be_deep, records)):
        return None
    try:
        joined.decode()
    except UnicodeDecodeError:
        return None
    return joined


def _may_be_not_finite(joined: bytes) -> bool:
    """Whether a number may be NaN or infinite; these words are rarely after a comma in strings."""
    data = np.frombuffer(joined, np.uint8)
    before = data[np.flatnonzero((data[1:] == ord("N")) | (data[1:] == ord("I")))]
    return bool(_BEFORE_VALUE[before].any()) and _NOT_FINITE.search(joined) is not None


def _may_be_deep(record: bytes) -> bool:
    return record.count(b"{") + record.count(b"[") > _DEEPEST


def read_objects(joined: bytes, schema: pa.Schema, *, others: str = "ignore") -> pa.Table:
    """Return the fields of `joined_objects` that a schema has as columns; all may be null.

    `others` says what becomes of other fields: "ignore" or "error". Raises `pa.ArrowException`.
    """
    return pyarrow.json.read_json(
        pa.BufferReader(joined),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(joined) + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior=others
        ),
    )


class RowsWithColumns(list[Any]):
    """JSON objects, and those of their fields that are there as Arrow columns.

    `rest` has the others, if any: a column of JSON objects with some of them, or several columns.
    """

    def __init__(
        self,
        rows: Iterable[bytes | None],
        columns: Mapping[str, pa.Array],
        rest: Sequence[pa.Array] = (),
    ) -> None:
        super().__init__(rows)
        self._columns = columns
        self._rest = rest

    def table(self, schema: pa.Schema) -> pa.Table | None:
        """Return these fields, which may be null; `None` if not all are there, of these types."""
        return _selected(self._columns, schema)

    def whole(self, schema: pa.Schema) -> pa.Table | None:
        """Return all fields, which may be null; `None` if one is of another type, or not here.

        Raises `pa.ArrowException`.
        """
        columns = dict(self._columns)
        for objects in self._rest:
            others = pa.schema([field for field in schema if field.name not in columns])
            joined = joined_objects(objects.cast(pa.binary()).to_pylist())
            if joined is None:
                return None
            found = read_objects(joined, others, others="error")
            columns |= {
                name: column.combine_chunks()
                for name, column in zip(found.column_names, found.columns, strict=True)
                if column.null_count < len(column)
            }
        return _selected(columns, schema) if len(columns) == len(schema) else None


def _selected(columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table | None:
    found = [columns.get(name) for name in schema.names]
    given = zip(found, schema.types, strict=True)
    if any(column is None or column.type != type_ for column, type_ in given):
        return None
    return pa.Table.from_arrays(found, schema=schema)


def objects_of(fields: Mapping[str, pa.Array]) -> pa.Array:
    """Return JSON objects, as text, whose fields are given as JSON, as text."""
    parts: list[Any] = []
    separator = "{"
    for name, texts in fields.items():
        parts += [pa.scalar(f"{separator}{json.dumps(name, ensure_ascii=False)}:"), texts]
        separator = ","
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), "")


def json_of(array: pa.Array, write: Callable[[Any], bytes]) -> pa.Array:
    """Return items as JSON, as text; `write` makes what Arrow cannot make."""
    type_ = array.type
    if pa.types.is_integer(type_) or pa.types.is_null(type_):
        written = array.cast(pa.string())
    elif pa.types.is_boolean(type_):
        written = pc.if_else(array, "true", "false")
    elif pa.types.is_string(type_) and not has_escapes(array):
        quote = pa.scalar('"')
        written = pc.binary_join_element_wise(quote, array, quote, "")
    else:
        return json_of_each(array.to_pylist(), write)
    return written.fill_null("null")


def has_escapes(array: pa.StringArray) -> bool:
    """Whether JSON cannot have one of these strings as it is: most columns have none."""
    _, ends, data = array.buffers()
    if data is None or not len(array):
        return False
    offsets = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1]
    found = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return bool(((found < ord(" ")) | (found == ord('"')) | (found == ord("\\"))).any())


def json_of_each(items: Sequence[Any], write: Callable[[Any], bytes]) -> pa.Array:
    """Return items as JSON, as text, one by one."""
    return pa.array(list(map(write, items)), pa.binary()).cast(pa.string())
