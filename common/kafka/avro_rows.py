"""Avro as rows: JSON whose values have the forms of `avro_values`, as queries read and write them.

Needs the extra `schemaregistry`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any

import msgspec
from fastavro import schemaless_reader

from kafka_pipeline.common import json_text
from kafka_pipeline.common.arrow_json import FEWEST_RECORDS
from kafka_pipeline.common.kafka.avro_batches import AvroBatches, UnsureError, batches_of
from kafka_pipeline.common.kafka.avro_codec import FRAME_BYTES, AvroReader, AvroWriter, Written
from kafka_pipeline.common.kafka.avro_defaults import as_stored, with_values
from kafka_pipeline.common.kafka.avro_row_types import RowReader, row_reader
from kafka_pipeline.common.kafka.avro_values import (
    UnfitError,
    reader_of,
    without_logical_types,
    writer_of,
)
from kafka_pipeline.common.kafka.misfit import MisfitError

_encode = msgspec.json.Encoder(decimal_format="number").encode


class AvroRowReader(AvroReader):
    """Reads records as the bytes of a JSON object.

    Of a key that `is_key`, a value that is not a record is its own text, as in keys of queries.
    """

    _decode = staticmethod(partial(schemaless_reader, return_named_type=True))
    _prepared = staticmethod(as_stored)

    def __init__(
        self,
        client: Any,
        subject: str,
        schema: str | None,
        version: int = 0,
        *,
        is_key: bool = False,
    ) -> None:
        super().__init__(client, subject, schema, version)
        self._is_key = is_key
        self._batches: dict[bytes, AvroBatches | None] = {}

    def __call__(self, data: bytes) -> bytes:
        value = super().__call__(data)
        if self._is_key and isinstance(value, str | bytes):
            return value.encode() if isinstance(value, str) else value
        if not (self._is_key or isinstance(value, dict)):
            raise MisfitError("they are not a record, and only a record has columns")
        return _encode(value)

    def read_all(self, records: Sequence[bytes]) -> list[bytes]:
        """Return the rows of records, none of which is null.

        Raises any exception where they have to be read one by one.
        """
        if self._is_key or len(records) < FEWEST_RECORDS:
            raise UnsureError
        size = FRAME_BYTES[records[0][0]]
        frame = records[0][:size]
        if not all(map(methodcaller("startswith", frame), records)):
            raise UnsureError
        if frame not in self._batches:
            written = self._written[frame]  # none yet: the registry is asked for the first record
            is_same = written.reader is None
            self._batches[frame] = batches_of(self._schema_of(written)) if is_same else None
        batches = self._batches[frame]
        if batches is None:
            raise UnsureError
        return batches.read(list(map(itemgetter(slice(size, None)), records)))

    def _find(self, frame: bytes) -> Written:
        found = super()._find(frame)
        try:
            convert = reader_of(self._schema_of(found))
        except UnfitError as error:
            raise MisfitError(f"they cannot be a row: {error}") from None

        def row(value: Any) -> Any:
            try:
                return convert(value)
            except UnfitError as error:
                raise MisfitError(f"they cannot be a row: {error}") from None

        return found._replace(convert=row)


class AvroRowWriter(AvroWriter):
    """Writes records, given as the bytes of a JSON object."""

    _reader: RowReader | None
    _batches: AvroBatches | None

    def __call__(self, value: bytes) -> bytes:
        frame, schema, name = self._found or self._find()
        if self._reader is not None:
            try:
                row = self._reader.read(value)
            except (msgspec.MsgspecError, ValueError, TypeError):
                pass  # what is wrong, if anything, is found below
            else:
                if self._reader.is_checked:
                    return self._write(frame, schema, name, row)
                return super().__call__(row)
        try:
            row = self._convert(json_text.decode_exactly(value.decode()))
        except UnfitError as error:
            raise MisfitError(f"it does not fit {name}: {error}") from None
        return super().__call__(row)

    def write_all(self, rows: Sequence[bytes]) -> list[bytes]:
        """Return the records of rows, none of which is null.

        Raises any exception where they have to be written one by one.
        """
        if self._found is None or self._batches is None or len(rows) < FEWEST_RECORDS:
            raise UnsureError
        frame, _, _ = self._found
        return list(map(frame.__add__, self._batches.write(rows)))

    def _prepared(self, schema: Any) -> Any:
        try:
            self._batches = batches_of(schema)
            self._convert = writer_of(schema)
            self._reader = row_reader(schema)
        except UnfitError as error:
            raise MisfitError(f"no row fits the schema: {error}") from None
        return with_values(without_logical_types(schema))
