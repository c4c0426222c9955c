"""Avro as JSON, by the encoding of the Avro specification, which Kafka's Avro consoles use too.

A value of a union is an object such as `{"string": "x"}`, or null. Bytes are text whose characters
are the bytes, and logical types are what they are stored as: a `timestamp-millis` is a number.

Needs the extra `schemaregistry`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from io import StringIO
from typing import Any

from fastavro import json_writer, schemaless_reader

from kafka_pipeline.common import json_text
from kafka_pipeline.common.kafka.avro_codec import AvroReader, AvroWriter, Written
from kafka_pipeline.common.kafka.avro_defaults import with_values
from kafka_pipeline.common.kafka.avro_types import base_type, label_of, named_in, resolved_type
from kafka_pipeline.common.kafka.avro_values import without_logical_types
from kafka_pipeline.common.kafka.misfit import MisfitError


def _as_json(schema: Any, value: Any) -> Any:
    text = StringIO()
    json_writer(text, schema, [value])
    return json.loads(text.getvalue())


class AvroJsonReader(AvroReader):
    """Reads data as values of JSON."""

    _decode = staticmethod(partial(schemaless_reader, return_named_type=True))
    _prepared = staticmethod(lambda schema: with_values(without_logical_types(schema)))

    def __call__(self, data: bytes) -> Any:
        """See `AvroReader`."""
        value = super().__call__(data)
        return value.decode("latin-1") if isinstance(value, bytes) else value

    def _find(self, frame: bytes) -> Written:
        found = super()._find(frame)
        plain = without_logical_types(self._schema_of(found))
        return found._replace(convert=partial(_as_json, plain))


class AvroJsonWriter(AvroWriter):
    """Writes values of JSON; numbers may be a `Decimal`."""

    def __call__(self, value: Any) -> bytes:
        """See `AvroWriter`."""
        _, schema, name = self._found or self._find()
        try:
            plain = json_text.decode(json_text.dumps(value))
            return super().__call__(_from_json(plain, schema, named_in(schema), ""))
        except MisfitError:
            raise
        except ValueError as error:
            raise MisfitError(f"it does not fit {name}: {error}") from None


def _from_json(given: Any, schema: Any, named: Mapping[str, Any], path: str) -> Any:
    """Return the value that fastavro writes; raise `ValueError` if it cannot be told.

    What has another type than its schema is left to fastavro, which names the field.
    """
    schema = resolved_type(schema, named)
    match base_type(schema), given:
        case "union", None:
            return None
        case "union", _:
            types = {label_of(each, named): each for each in schema}
            if not isinstance(given, dict) or len(given) != 1 or not given.keys() <= types.keys():
                known = " or ".join(f'{{"{each}": …}}' for each in types if each != "null")
                null = " or null" if "null" in types else ""
                raise ValueError(f"{_place(path)} is a union: write {known}{null}")
            ((label, inner),) = given.items()
            return label, _from_json(inner, types[label], named, path)
        case "record", dict():
            fields = {field["name"]: field["type"] for field in schema["fields"]}
            if unknown := sorted(given.keys() - fields):
                raise ValueError(f'{_place(path)} has no field "{unknown[0]}" in the schema')
            return {
                name: _from_json(value, fields[name], named, f"{path}.{name}".lstrip("."))
                for name, value in given.items()
            }
        case "array", list():
            return [_from_json(each, schema["items"], named, path) for each in given]
        case "map", dict():
            return {
                name: _from_json(value, schema["values"], named, path)
                for name, value in given.items()
            }
        case (("bytes" | "fixed"), str()):
            return given.encode("latin-1")
    return given


def _place(path: str) -> str:
    return f'field "{path}"' if path else "it"
