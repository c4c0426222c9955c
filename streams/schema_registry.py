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

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka import schema_registry
from kafka_pipeline.common.kafka.schema_registry import SchemaRegistry, SerdeFunctions
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.serdes import Serde

__all__ = [
    "SchemaRegistry",
    "avro",
    "debezium",
    "debezium_changes",
    "debezium_key",
    "json_schema",
    "protobuf",
]


def avro(
    registry: SchemaRegistry,
    subject: str,
    schema: str | None = None,
    version: int = 0,
    *,
    as_json: bool = False,
) -> Serde[Any]:
    """Return a serde for an Avro schema, given in JSON; records are dicts.

    Reading converts data that was written with another version of the schema to this version.
    Without a schema, that `version` of the subject takes its place. Without both, the subject's
    latest one writes, and data is read as it was written. With `as_json`, values are those of
    Avro's JSON encoding, such as `{"string": "x"}` in a union.
    """
    functions = schema_registry.avro(registry, subject, schema, version, as_json=as_json)
    return _serde("avro", subject, functions)


def avro_rows(
    registry: SchemaRegistry,
    subject: str,
    schema: str | None = None,
    version: int = 0,
    *,
    is_key: bool = False,
) -> Serde[bytes]:
    """Return a serde for Avro whose records are rows of queries: bytes of JSON, see `avro_values`.

    A key that `is_key` and is text, a number or bytes is what a query sees as key.
    """
    functions, batches = schema_registry.avro_rows(
        registry, subject, schema, version, is_key=is_key
    )
    one = _serde("avro", subject, functions)
    return serdes.ColumnSerde(one.name, one.serialize, one.deserialize, *batches)


def row_schema(
    registry: SchemaRegistry | None, subject: str, schema: str, version: int, *, is_events: bool
) -> tuple[int, str]:
    """Return the version of the schema by which a query reads a topic, and the columns as DDL.

    That is the `schema` (version 0) or, of the subject, this `version` or, if it is 0, the latest.
    With `is_events`, the columns are those of the rows in its change events. Raises `ConfigError`
    and `UnavailableError` as the registry's answer is, and `ValueError` for a schema without
    columns.
    """
    if schema:
        found = 0, schema_registry.parsed_avro(schema)
    elif registry is None:
        raise ConfigError(
            "there is no registry: give its address in config.yaml, under schema_registry: "
            "{url: …}, or the source a file: value: {avro: {schema: …}}"
        )
    else:
        found = schema_registry.avro_schema(registry, subject, version)
    return found[0], schema_registry.avro_columns(found[1], "after" if is_events else "")


def debezium(registry: SchemaRegistry, subject: str) -> Serde[Any]:
    """Return `serdes.debezium` for change events in Avro, as Connect's AvroConverter writes them.

        orders = schema_registry.debezium(registry, "shop.public.orders-value")

    Decimals and times are as in JSON with a schema. This serde writes JSON, for stores, and reads
    it too.
    """
    return _of_events(serdes.debezium, registry, subject)


def debezium_changes(registry: SchemaRegistry, subject: str) -> Serde[Any]:
    """Return `serdes.debezium_changes` for change events in Avro; see `debezium`."""
    return _of_events(serdes.debezium_changes, registry, subject)


def debezium_key(registry: SchemaRegistry, subject: str) -> Serde[Any]:
    """Return `serdes.debezium_key` for keys in Avro; see `debezium`."""
    return _of_events(serdes.debezium_key, registry, subject)


def _of_events(of_json: Serde[Any], registry: SchemaRegistry, subject: str) -> Serde[Any]:
    of_avro = avro_rows(registry, subject, is_key=of_json is serdes.debezium_key)

    def deserialize(data: bytes) -> Any:
        is_avro = data[:1] in (b"\0", b"\1")
        return of_json.deserialize(of_avro.deserialize(data) if is_avro else data)

    return Serde(f"{of_json.name} in avro of {subject}", of_json.serialize, deserialize)


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


def register_in_memory(registry: SchemaRegistry, subject: str, kind: str, schema: str) -> None:
    """Register a schema of `avro` or `json_schema` if the registry is one in memory.

    Otherwise, nothing happens. Raises `ConfigError` if the registry refuses.
    """
    schema_registry.register_in_memory(registry, subject, kind, schema)
