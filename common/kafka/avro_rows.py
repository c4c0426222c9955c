"""Avro as rows: JSON whose values have the forms of `avro_values`, as queries read and write them.

Needs the extra `schemaregistry`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from fastavro import schemaless_reader

from kafka_pipeline.common import json_text
from kafka_pipeline.common.kafka.avro_codec import AvroReader, AvroWriter, Written
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
    _prepared = staticmethod(without_logical_types)

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

    def __call__(self, data: bytes) -> bytes:
        """See `AvroReader`."""
        value = super().__call__(data)
        if self._is_key and isinstance(value, str | bytes):
            return value.encode() if isinstance(value, str) else value
        if not (self._is_key or isinstance(value, dict)):
            raise MisfitError("they are not a record, and only a record has columns")
        return _encode(value)

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

    def __call__(self, value: bytes) -> bytes:
        """See `AvroWriter`."""
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

    def _prepared(self, schema: Any) -> Any:
        try:
            self._convert = writer_of(schema)
            self._reader = row_reader(schema)
        except UnfitError as error:
            raise MisfitError(f"no row fits the schema: {error}") from None
        return without_logical_types(schema)
