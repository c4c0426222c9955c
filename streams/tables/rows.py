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
    """Reads JSON objects as rows with given columns; further fields are ignored."""

    def __init__(self, columns: Columns, partition: int) -> None:
        """`partition` is that of all records."""
        self._columns = columns
        self._partition = partition
        self._decode = msgspec.json.Decoder(columns.row).decode

    def read(self, batch: Batch) -> tuple[pa.RecordBatch, str]:
        """Return the rows of the records before the first that does not fit, and the reason.

        The reason, a sentence without values of records, is empty if all fit.
        """
        values, reason = self._decoded(batch.values)
        try:
            of_values = pa.array(values, self._columns.of_values)
        except _MISFITS:
            end, reason = self._first_misfit(values)
            of_values = pa.array(values[:end], self._columns.of_values)
        of_records, wrong = self._of_records(batch.head(len(of_values)))
        size = len(of_records[0]) if of_records else len(of_values)
        arrays = [*of_values[:size].flatten(), *of_records]
        return pa.RecordBatch.from_arrays(arrays, schema=self._columns.schema), wrong or reason

    def _decoded(self, column: Sequence[bytes | None]) -> tuple[list[Any], str]:
        decode = self._decode
        values: list[Any] = []
        for value in column:
            if value is None:
                return values, "the value is null"
            try:
                values.append(decode(value))
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                return values, f"the value does not fit the schema of the table: {error}"
        return values, ""

    def _first_misfit(self, values: Sequence[Any]) -> tuple[int, str]:
        for index, value in enumerate(values):
            for field in self._columns.of_values.fields:
                try:
                    pa.array([value.get(field.name)], field.type)
                except _MISFITS:
                    return index, f'the value does not fit column "{field.name}", {field.type}'
        raise AssertionError("each value fits, but all together do not")

    def _of_records(self, batch: Batch) -> tuple[list[pa.Array], str]:
        """Return the columns of parts of records, up to the first key that is not UTF-8."""
        size, reason = len(batch), ""
        if any(field.type == pa.string() for field in self._columns.of_records):
            size, reason = _text_keys(batch.keys)
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


def _text_keys(keys: Sequence[bytes | None]) -> tuple[int, str]:
    """Return the index of the first key that is not UTF-8, and what is wrong with it."""
    for index, key in enumerate(keys):
        try:
            if key is not None:
                key.decode()
        except UnicodeDecodeError:
            return index, "the key is not UTF-8"
    return len(keys), ""
