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


def avro(registry: SchemaRegistry, subject: str, schema: str | None = None) -> Serde[Any]:
    """Return a serde for an Avro schema, given in JSON; records are dicts.

    Reading converts data that was written with another version of the schema to this version.
    Without a schema, the subject's latest one writes, and data is read as it was written.
    """
    return _serde("avro", subject, schema_registry.avro(registry, subject, schema))


def json_schema(registry: SchemaRegistry, subject: str, schema: str | None = None) -> Serde[Any]:
    """Return a serde for JSON that is checked against a JSON schema, in both directions.

    Without a schema, the subject's latest one writes, and data is read by the one that wrote it.
    """
    return _serde("json_schema", subject, schema_registry.json_schema(registry, subject, schema))


def protobuf(registry: SchemaRegistry, subject: str, message_type: type[Any]) -> Serde[Any]:
    """Return a serde for the messages of a class that protoc generated."""
    return _serde("protobuf", subject, schema_registry.protobuf(registry, subject, message_type))


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
