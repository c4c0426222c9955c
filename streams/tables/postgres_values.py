"""The values of tables in PostgreSQL: their types, how COPY gets them, and which are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from kafka_pipeline.streams.tables.columns import TIMESTAMP

MOST_NAME_BYTES = 63
"""PostgreSQL cuts longer names off."""

MOST_KEY_BYTES = 2_500
"""Less than a row of a B-tree index may have: a third of a page of 8 KB."""

_TYPES: Mapping[pa.DataType, str] = {
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.bool_(): "boolean",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
    TIMESTAMP: "timestamp with time zone",
    pa.timestamp("us"): "timestamp without time zone",
}
_NESTED = "jsonb"
_OPTIONS = csv.WriteOptions(include_header=False, quoting_style="all_valid")
_HAS_NUL = "it has the character NUL"


_json = msgspec.json.Encoder(decimal_format="number").encode
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""NUL in JSON, but not a backslash before `u0000`."""


def type_of(type_: pa.DataType) -> str:
    """Return the name of a type as `format_type` gives it."""
    if pa.types.is_decimal(type_):
        return f"numeric({type_.precision},{type_.scale})"
    return _NESTED if pa.types.is_nested(type_) else _TYPES[type_]


def name_problem(names: Iterable[str]) -> str | None:
    """Return which name PostgreSQL would cut off; `None` if it takes all."""
    for name in names:
        if len(name.encode()) > MOST_NAME_BYTES:
            return f'"{name}" has more than the {MOST_NAME_BYTES} bytes of a name in PostgreSQL'
    return None


def quoted(name: str) -> str:
    """Return a name as statements have it."""
    return '"' + name.replace('"', '""') + '"'


def described_columns(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Yield the definitions of columns."""
    for field in fields:
        rule = "" if field.nullable else " NOT NULL"
        yield f"{quoted(field.name)} {type_of(field.type)}{rule}"


def as_csv(rows: pa.RecordBatch) -> memoryview:
    """Return rows in the CSV of COPY: what has a value is in quotes, and a null is nothing."""
    columns = [_as_text(column) for column in rows.columns]
    written = pa.BufferOutputStream()
    csv.write_csv(pa.RecordBatch.from_arrays(columns, names=rows.schema.names), written, _OPTIONS)
    return memoryview(written.getvalue())


def _as_text(column: pa.Array) -> pa.Array:
    """Return bytes in hexadecimal, nested values as JSON, and other columns as they are."""
    if pa.types.is_binary(column.type):
        found = (None if value is None else f"\\x{value.hex()}" for value in column.to_pylist())
    elif pa.types.is_nested(column.type):
        values = map(_plain, column)
        found = (None if value is None else _json(value).decode() for value in values)
    else:
        return column
    return pa.array(found, pa.string())


def _plain(value: pa.Scalar) -> Any:
    return value.as_py(maps_as_pydicts="strict")


def first_misfit(rows: pa.RecordBatch, key: Sequence[str]) -> tuple[int, str]:
    """Return the index of the first row that PostgreSQL refuses, and why; see `Table.misfit`."""
    found = len(rows), ""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_string(field.type):
            wrong = pc.match_substring(column, "\0")
        elif pa.types.is_nested(field.type):
            texts = (_json(_plain(value)) for value in column)
            wrong = pa.array((_NUL.search(text) is not None for text in texts), pa.bool_())
        else:
            continue
        index = pc.index(wrong, pa.scalar(True)).as_py()
        if 0 <= index < found[0]:
            found = index, f'the value does not fit column "{field.name}": {_HAS_NUL}'
    too_long = _first_long_key(rows, key)
    if too_long < found[0]:
        found = too_long, f"the key has more than {MOST_KEY_BYTES} bytes, the most of an index"
    return found


def _first_long_key(rows: pa.RecordBatch, key: Sequence[str]) -> int:
    """Return the index of the first row whose key an index cannot have; the end if all can."""
    texts = [rows.column(name) for name in key]
    sizes = [
        pc.binary_length(column)
        for column in texts
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    ]
    if not sizes:
        return len(rows)
    total = sizes[0]
    for size in sizes[1:]:
        total = pc.add(total, size)
    index: int = pc.index(pc.greater(total, MOST_KEY_BYTES), pa.scalar(True)).as_py()
    return index if index >= 0 else len(rows)
