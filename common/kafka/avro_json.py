"""Avro as JSON, by the encoding of the Avro specification, which Kafka's Avro consoles use too.

A value of a union is an object such as `{"string": "x"}`, or null. Bytes are text whose characters
are the bytes, and logical types are what they are stored as: a `timestamp-millis` is a number.

Needs the extra `schemaregistry`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import partial
from typing import Any

from fastavro import schemaless_reader

from kafka_pipeline.common import json_text
from kafka_pipeline.common.kafka.avro_codec import AvroReader, AvroWriter, Written
from kafka_pipeline.common.kafka.avro_defaults import as_stored
from kafka_pipeline.common.kafka.avro_losses import LIMITS
from kafka_pipeline.common.kafka.avro_types import base_type, label_of, named_in, resolved_type
from kafka_pipeline.common.kafka.avro_values import without_logical_types
from kafka_pipeline.common.kafka.misfit import MisfitError

_LABELS: Mapping[type, Sequence[str]] = {
    bool: ("boolean",),
    float: ("double", "float"),
    str: ("string",),
    bytes: ("bytes",),
    list: ("array",),
    dict: ("map",),
}
"""The types without a name that a value of a union may have. Those with one come with it."""


class AvroJsonReader(AvroReader):
    """Reads data as values of JSON."""

    _decode = staticmethod(partial(schemaless_reader, return_named_type=True))
    _prepared = staticmethod(as_stored)

    def __call__(self, data: bytes) -> Any:
        value = super().__call__(data)
        return value.decode("latin-1") if isinstance(value, bytes) else value

    def _find(self, frame: bytes) -> Written:
        found = super()._find(frame)
        schema = without_logical_types(self._schema_of(found))
        return found._replace(convert=partial(_to_json, schema=schema, named=named_in(schema)))


class AvroJsonWriter(AvroWriter):
    """Writes values of JSON; numbers may be a `Decimal`."""

    def __call__(self, value: Any) -> bytes:
        _, schema, name = self._found or self._find()
        try:
            plain = json_text.decode(json_text.dumps(value))
            return super().__call__(_from_json(plain, schema, named_in(schema), ""))
        except MisfitError:
            raise
        except ValueError as error:
            raise MisfitError(f"it does not fit {name}: {error}") from None


def _to_json(value: Any, schema: Any, named: Mapping[str, Any]) -> Any:
    """Return what fastavro has read, with the name of its type in each union."""
    schema = resolved_type(schema, named)
    match base_type(schema):
        case "union" if value is not None:
            types = {label_of(each, named): each for each in schema}
            label, inner = value if isinstance(value, tuple) else (_label(value, types), value)
            return {label: _to_json(inner, types[label], named)}
        case "record":
            return {
                field["name"]: _to_json(value[field["name"]], field["type"], named)
                for field in schema["fields"]
            }
        case "array":
            return [_to_json(each, schema["items"], named) for each in value]
        case "map":
            return {name: _to_json(each, schema["values"], named) for name, each in value.items()}
        case "bytes" | "fixed":
            return value.decode("latin-1")
    return value


def _label(value: Any, types: Container[str]) -> str:
    """Return the type of a value in a union."""
    if type(value) is int:
        is_small = -LIMITS["int"] <= value < LIMITS["int"] or "long" not in types
        return "int" if is_small and "int" in types else "long"
    return next(label for label in _LABELS[type(value)] if label in types)


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
