"""Reads records with JSON values into the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.tables.columns import Columns

_MISFITS = (ValueError, TypeError, OverflowError)
"""What Arrow raises for values that do not fit a type; its own errors are among them."""


class RowReader:
    """Reads JSON objects as rows with given columns; further fields are ignored.

    If the columns have a key, a null value is the deletion of the row that the record's key names.
    """

    def __init__(self, columns: Columns, partition: int) -> None:
        """`partition` is that of all records."""
        self._columns = columns
        self._partition = partition
        self._decode = msgspec.json.Decoder(columns.row).decode
        key_row = columns.key_row
        self._decode_key = None if key_row is None else msgspec.json.Decoder(key_row).decode

    def read(self, batch: Batch) -> tuple[pa.RecordBatch, str]:
        """Return `of_changes` for the records before the first that does not fit, and the reason.

        The reason, a sentence without values of records, is empty if all fit.
        """
        values, reason = self._decoded(batch)
        try:
            of_values = pa.array(values, self._columns.of_values)
        except _MISFITS:
            end, reason = self._first_misfit(values)
            of_values = pa.array(values[:end], self._columns.of_values)
        of_records, wrong = self._of_records(batch.head(len(of_values)))
        size = len(of_records[0]) if of_records else len(of_values)
        arrays = [*of_values[:size].flatten(), *of_records]
        schema = self._columns.of_changes
        if self._columns.key:
            arrays.append(pa.array([value is None for value in batch.values[:size]], pa.bool_()))
        return pa.RecordBatch.from_arrays(arrays, schema=schema), wrong or reason

    def _decoded(self, batch: Batch) -> tuple[list[Any], str]:
        decode = self._decode
        values: list[Any] = []
        for key, value in zip(batch.keys, batch.values, strict=True):
            what = "value"
            try:
                if value is not None:
                    values.append(decode(value))
                    continue
                what = "key"
                if not self._columns.key:
                    return values, "the value is null"
                values.append(self._deletion(key))
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                return values, f"the {what} does not fit the schema of the table: {error}"
        return values, ""

    def _deletion(self, key: bytes | None) -> dict[str, Any]:
        """Return the row with only the columns of the key, as far as JSON has them."""
        if self._decode_key is None:
            return {}
        found: Any = self._decode_key(b"" if key is None else key)
        return found if isinstance(found, dict) else {self._columns.key[0]: found}

    def _first_misfit(self, values: Sequence[Any]) -> tuple[int, str]:
        for index, value in enumerate(values):
            for field in self._columns.of_values.fields:
                try:
                    pa.array([value.get(field.name)], field.type)
                except _MISFITS:
                    return index, f'the value does not fit column "{field.name}", {field.type}'
        raise AssertionError("each value fits, but all together do not")

    def _of_records(self, batch: Batch) -> tuple[list[pa.Array], str]:
        """Return the columns of parts of records, up to the first key that does not fit."""
        size, reason = len(batch), ""
        for field in self._columns.of_records:
            if field.type == pa.string():
                size, reason = _text_keys(batch.keys, nullable=field.nullable)
        batch = batch.head(size)
        made = [self._of_record(field.type, batch) for field in self._columns.of_records]
        return made, reason

    def _of_record(self, type_: pa.DataType, batch: Batch) -> pa.Array:
        """Return the part of records that has this type."""
        if type_ == pa.string():
            return pa.array(batch.keys, pa.binary()).cast(type_)
        if type_ == pa.int32():
            return pa.array([self._partition] * len(batch), type_)
        if type_ == pa.int64():
            return pa.array(batch.offsets, type_)
        return pa.array(items_of(batch.timestamps), pa.timestamp("ms", "UTC")).cast(type_)


def _text_keys(keys: Sequence[bytes | None], *, nullable: bool) -> tuple[int, str]:
    """Return the index of the first key that does not fit, and what is wrong with it."""
    for index, key in enumerate(keys):
        if key is None and not nullable:
            return index, "the key is null"
        try:
            if key is not None:
                key.decode()
        except UnicodeDecodeError:
            return index, "the key is not UTF-8"
    return len(keys), ""
