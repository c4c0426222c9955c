"""Serdes whose schemas are in a Confluent schema registry.

    registry = SchemaRegistry("http://localhost:8081")
    orders = avro(registry, "orders-value", '{"type": "record", "name": "Order", ...}')

These serdes need the extra `schemaregistry`. A serde does not know the topic, so you name the
subject; by Confluent's convention, it is `<topic>-key` or `<topic>-value`. Null stays null, as for
all serdes.

The functions here raise `ConfigError` if the extra is not installed, and for an invalid schema or
invalid settings. The serdes raise `SerializationError` for data that does not fit the schema. They
raise `UnavailableError` while the registry does not answer, and `ConfigError` if it refuses, so
that no record is skipped for a fault that is not its own.
"""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.kafka import schema_registry
from kafka_pipeline.common.kafka.schema_registry import SchemaRegistry, SerdeFunctions
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.serdes import Serde

__all__ = ["SchemaRegistry", "avro", "json_schema", "protobuf"]


def avro(
    registry: SchemaRegistry, subject: str, schema: str | None = None, *, as_json: bool = False
) -> Serde[Any]:
    """Return a serde for an Avro schema, given in JSON; records are dicts.

    Reading converts data that was written with another version of the schema to this version.
    Without a schema, the subject's latest one writes, and data is read as it was written. With
    `as_json`, values are those of Avro's JSON encoding, such as `{"string": "x"}` in a union.
    """
    functions = schema_registry.avro(registry, subject, schema, as_json=as_json)
    return _serde("avro", subject, functions)


def json_schema(
    registry: SchemaRegistry, subject: str, schema: str | None = None, *, as_json: bool = False
) -> Serde[Any]:
    """Return a serde for JSON that is checked against a JSON schema, in both directions.

    Without a schema, the subject's latest one writes, and data is read by the one that wrote it.
    With `as_json`, numbers with a fraction are a `Decimal`, and keep their digits.
    """
    functions = schema_registry.json_schema(registry, subject, schema, as_json=as_json)
    return _serde("json_schema", subject, functions)


def protobuf(
    registry: SchemaRegistry, subject: str, message_type: type[Any], *, as_json: bool = False
) -> Serde[Any]:
    """Return a serde for the messages of a class that protoc generated.

    With `as_json`, values are those of Protobuf's JSON mapping, with the names of the fields.
    """
    functions = schema_registry.protobuf(registry, subject, message_type, as_json=as_json)
    return _serde("protobuf", subject, functions)


def _serde(kind: str, subject: str, functions: SerdeFunctions) -> Serde[Any]:
    name = f"{kind} of {subject}"
    write, read = functions

    def serialize(value: Any) -> bytes:
        try:
            return write(value)
        except ValueError as error:
            raise SerializationError(f"the serde {name} cannot write this: {error}") from None

    def deserialize(data: bytes) -> Any:
        try:
            return read(data)
        except ValueError as error:
            raise SerializationError(f"the serde {name} cannot read these bytes: {error}") from None

    return Serde(name, serialize, deserialize)
