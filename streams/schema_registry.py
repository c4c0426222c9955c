"""Serdes with schemas that a Confluent schema registry keeps.

    registry = SchemaRegistry("http://localhost:8081")
    orders = avro(registry, "orders-value", '{"type": "record", "name": "Order", ...}')

They need the extra `schemaregistry`. A serde does not know the topic, so the subject is named; by
Confluent's convention it is `<topic>-key` or `<topic>-value`. Null stays null, as for all serdes.

The functions here raise `UnavailableError` where the extra is not installed, and `ConfigError` for
a schema or settings that cannot be. The serdes raise `SerializationError` for what does not fit
the schema; `UnavailableError` while the registry does not answer, and `ConfigError` where it
refuses, so that no record is skipped for a fault that is not its own.
"""

from __future__ import annotations

from typing import Any

from common.kafka import schema_registry
from common.kafka.schema_registry import Functions, SchemaRegistry
from streams.errors import SerializationError
from streams.serdes import Serde

__all__ = ["SchemaRegistry", "avro", "json_schema", "protobuf"]


def avro(registry: SchemaRegistry, subject: str, schema: str) -> Serde[Any]:
    """Return a serde by an Avro schema, in JSON; records are dicts.

    Reading turns what was written by another version of the schema into this one.
    """
    return _serde("avro", subject, schema_registry.avro(registry, subject, schema))


def json_schema(registry: SchemaRegistry, subject: str, schema: str) -> Serde[Any]:
    """Return a serde that writes JSON and checks it by a JSON schema, in both directions."""
    return _serde("json_schema", subject, schema_registry.json_schema(registry, subject, schema))


def protobuf(registry: SchemaRegistry, subject: str, message_type: type[Any]) -> Serde[Any]:
    """Return a serde for the messages of a class that protoc generated."""
    return _serde("protobuf", subject, schema_registry.protobuf(registry, subject, message_type))


def _serde(kind: str, subject: str, functions: Functions) -> Serde[Any]:
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
