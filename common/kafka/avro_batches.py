"""Batches of Avro as the rows of queries, and back, a column at a time.

For records of plain fields, which may be null. `avro_rows` does the same record by record, and
decides where the result here might be another one. Needs the extra `schemaregistry`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyruhvro import deserialize_array, serialize_record_batch

from kafka_pipeline.common.arrow_json import (
    RowsWithColumns,
    joined_objects,
    json_of,
    json_of_each,
    objects_of,
    read_objects,
)
from kafka_pipeline.common.kafka.avro_losses import loss_finder
from kafka_pipeline.common.kafka.avro_types import base_type, named_in, not_null, resolved_type
from kafka_pipeline.common.kafka.avro_values import item_reader, time_writer, writer_of
from kafka_pipeline.common.kafka.connect_values import Convert

_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}
"""What pyruhvro makes of types. Others it does not know at all, or not in unions."""

_encode = msgspec.json.Encoder(decimal_format="number").encode


class UnsureError(Exception):
    """The records of a batch have to be looked at one by one."""


class _Field(NamedTuple):
    name: str
    schema: Any
    """The type as the schema has it."""
    type: Any
    """The type of values that are not null."""
    may_be_null: bool
    """Whether a null in a row, or none, is a null in the record."""

    @property
    def column(self) -> pa.Field:
        return pa.field(self.name, _TYPES[base_type(self.type)], isinstance(self.schema, list))

    @property
    def in_rows(self) -> pa.DataType:
        """The type as which Arrow reads values in rows."""
        if self.writer is not None:
            return pa.string()
        found = self.column.type
        return pa.float64() if pa.types.is_floating(found) else found

    @property
    def writer(self) -> Convert | None:
        """What makes a value of the text of a row; `None` if a row has no text."""
        if not isinstance(self.type, dict):
            return None
        if self.column.type == pa.string():
            loss = loss_finder(self.type)
            return None if loss is None else partial(_without_loss, loss)
        return None if time_writer(self.type) is None else writer_of(self.type)


class AvroBatches:
    """Reads and writes batches of records by one schema."""

    def __init__(self, fields: Sequence[_Field]) -> None:
        """See `batches_of`."""
        self._schema = pa.schema([field.column for field in fields])
        self._text = json.dumps(_schema_of(fields))
        self._readers = [item_reader(field.type) for field in fields]
        self._writers = [(field, field.writer) for field in fields]
        self._rows = pa.schema([pa.field(field.name, field.in_rows) for field in fields])

    def read(self, records: Sequence[bytes]) -> RowsWithColumns:
        """Return the rows of records. Raises any exception where it is not sure."""
        batch = deserialize_array(records, self._text)
        # It does not notice bytes after a record, or an int that is too large.
        if self._written(batch) != records:
            raise UnsureError
        batch.validate(full=True)
        texts, same = {}, {}
        columns = zip(batch.column_names, batch.columns, self._readers, strict=True)
        for name, column, convert in columns:
            if convert is None:
                texts[name] = json_of(column, _encode)
            else:
                texts[name] = json_of_each(_converted(column, convert), _encode)
            if convert is None or column.type == pa.float64():
                same[name] = column
        return RowsWithColumns(objects_of(texts).cast(pa.binary()).to_pylist(), same)

    def write(self, rows: Sequence[bytes]) -> list[bytes]:
        """Return the records of rows. Raises any exception where it is not sure."""
        table = rows.whole(self._rows) if isinstance(rows, RowsWithColumns) else None
        if table is None:
            joined = joined_objects(rows)
            if joined is None:
                raise UnsureError
            table = read_objects(joined, self._rows, others="error")
        table.validate(full=True)  # half of a surrogate pair makes a string that is not UTF-8
        if len(table) != len(rows):
            raise UnsureError
        columns = [
            _column(table[field.name].combine_chunks(), field, convert)
            for field, convert in self._writers
        ]
        return self._written(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _written(self, batch: pa.RecordBatch) -> list[bytes]:
        (found,) = serialize_record_batch(batch, self._text, 1)
        return found.to_pylist()  # type: ignore[no-any-return]


def _column(items: pa.Array, field: _Field, convert: Convert | None) -> pa.Array:
    if items.null_count and not field.may_be_null:
        raise UnsureError
    if convert is not None:
        return pa.array(_converted(items, convert), field.column.type)
    column = items.cast(field.column.type)
    if pa.types.is_floating(column.type):
        _require_plain(column.drop_null().to_numpy())
    return column


def _without_loss(loss: Callable[[Any], str], value: Any) -> Any:
    """Return a value; raises `UnsureError` for one with a loss, such as text that is not a UUID."""
    if loss(value):
        raise UnsureError
    return value


def _converted(items: pa.Array, convert: Convert) -> list[Any]:
    return [None if item is None else convert(item) for item in items.to_pylist()]


def _require_plain(numbers: npt.NDArray[np.floating[Any]]) -> None:
    """Raise `UnsureError` for numbers that were too large for their type, and for `-0`."""
    if not np.isfinite(numbers).all() or np.signbit(numbers[numbers == 0]).any():
        raise UnsureError


def batches_of(schema: Any) -> AvroBatches | None:
    """Return what reads and writes records by a schema, as `parsed` returns it.

    `None` for a schema that is not of plain fields.
    """
    named = named_in(schema)
    record = resolved_type(schema, named)
    if base_type(record) != "record" or not record["fields"]:
        return None
    fields = []
    for field in record["fields"]:
        schema = field["type"]
        type_ = resolved_type(not_null(schema), named)
        is_plain = type_ is not None and base_type(type_) in _TYPES
        if not is_plain or (isinstance(schema, list) and len(schema) != 2):
            return None
        may_be_null = "default" in field and field["default"] is None
        fields.append(_Field(field["name"], schema, type_, may_be_null))
    return AvroBatches(fields)


def _schema_of(fields: Sequence[_Field]) -> Any:
    """Return a schema without logical types, which are converted here."""
    inner = []
    for field in fields:
        is_union = isinstance(field.schema, list)
        type_ = list(map(base_type, field.schema)) if is_union else base_type(field.schema)
        inner.append({"name": field.name, "type": type_})
    return {"type": "record", "name": "Row", "fields": inner}
