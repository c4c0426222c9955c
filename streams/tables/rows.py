"""Reads records with JSON values into the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.tables.columns import Columns

_MISFITS = (ValueError, TypeError, OverflowError)
"""What Arrow raises for values that do not fit a type; its own errors are among them."""
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
"""The first millisecond of the years 1 and 10000, in UTC. Times before and after that range make
tables unreadable: a Delta table in which they name folders, and each Iceberg table for PyIceberg.
They are read from text with a time zone in the years 1 and 9999, and are timestamps of records."""


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
            of_values = _array(values, self._columns.of_values)
        except _MISFITS:
            end, reason = self._first_misfit(values)
            of_values = _array(values[:end], self._columns.of_values)
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
                    _array([value.get(field.name)], field.type)
                except _WrongYearError as error:
                    return index, f'the value does not fit column "{field.name}": {error}'
                except _MISFITS:
                    return index, f'the value does not fit column "{field.name}", {field.type}'
        raise AssertionError("each value fits, but all together do not")

    def _of_records(self, batch: Batch) -> tuple[list[pa.Array], str]:
        """Return the columns of parts of records, up to the first key that does not fit."""
        size, reason = len(batch), ""
        for field in self._columns.of_records:
            found = len(batch), ""
            if field.type == pa.string():
                found = _text_keys(batch.keys, nullable=field.nullable)
            elif pa.types.is_timestamp(field.type):
                found = _times(batch.timestamps)
            if found[0] < size:
                size, reason = found
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


class _WrongYearError(ValueError):
    def __init__(self) -> None:
        super().__init__("it is not in the years 1 to 9999 in UTC")


def _array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return values as Arrow has them; raises one of `_MISFITS`."""
    array = pa.array(values, type_)
    for times in _moments(array):
        found = pc.min_max(times.cast(pa.int64()))
        first, last = found["min"].as_py(), found["max"].as_py()
        if first is not None and not _YEAR_1_MS * 1000 <= first <= last < _YEAR_10000_MS * 1000:
            raise _WrongYearError
    return array


def _moments(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the times with a time zone in an array, however deep in it they are."""
    if pa.types.is_timestamp(array.type):
        if array.type.tz:
            yield array
    elif pa.types.is_map(array.type):
        yield from _moments(array.items)
    elif pa.types.is_list(array.type):
        yield from _moments(array.flatten())
    elif pa.types.is_struct(array.type):
        for each in array.flatten():
            yield from _moments(each)


def _times(timestamps: Sequence[int]) -> tuple[int, str]:
    """Return the index of the first timestamp of a record that does not fit, and what is wrong."""
    times = items_of(timestamps)
    for index, each in enumerate(times if max(times, default=0) >= _YEAR_10000_MS else ()):
        if each >= _YEAR_10000_MS:
            return index, "the timestamp of the record is after the year 9999 in UTC"
    return len(times), ""


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
