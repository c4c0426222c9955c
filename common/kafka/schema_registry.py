"""Converts keys and values by schemas from a Confluent schema registry.

Needs the extra `schemaregistry`, which is imported only when a function here is called. The bytes
are in the format of Confluent's serializers: a zero, the schema's id in four bytes, the data.

The first write of a serializer asks the registry for the id of its schema; the first read of an id
asks for its schema. Both make up to three attempts of 5 s. All other calls need no registry.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple

from kafka_pipeline.common import json_text
from kafka_pipeline.common.config.registry_settings import MOCK, RegistrySettings
from kafka_pipeline.common.errors import ConfigError, PipelineError, UnavailableError
from kafka_pipeline.common.kafka.misfit import MisfitError

_EXTRA = "kafka-pipeline[schemaregistry]"
_CLIENT = {"timeout": 5, "max.retries": 2, "retries.wait.ms": 100, "retries.max.wait.ms": 1000}
_PASSING = {408, 425, 429}
_NO_PATH = "HTTP 404 Not Found"
"""What Confluent's registry says of paths that it does not have."""
_NO_ERROR_CODE = -1
_mocks: dict[str, Any] = {}
"""The registries in the memory of this process, by URL, as in Confluent's Java clients."""
_shared: dict[str, tuple[object, Any]] = {}
"""The clients of this process for Avro, by their settings, each with the `_versions` of its files.
They keep schemas by their ids."""


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """The address of a schema registry, and how to use it.

    `settings` are further settings of Confluent's `SchemaRegistryClient`, such as
    `{"basic.auth.user.info": "user:password"}` or `ssl.ca.location`. With `register=False`, schemas
    are only looked up: one that is not registered raises `ConfigError`.
    """

    url: str
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    register: bool = True

    @classmethod
    def of(cls, settings: RegistrySettings, *, register: bool) -> SchemaRegistry:
        """Return the registry of a config.yaml. One in memory registers every schema."""
        found: dict[str, Any] = {"timeout": settings.timeout_ms / 1000}
        if settings.user:
            found["basic.auth.user.info"] = f"{settings.user}:{settings.password}"
        for name, file in (
            ("ssl.ca.location", settings.ca_file),
            ("ssl.certificate.location", settings.cert_file),
            ("ssl.key.location", settings.key_file),
        ):
            if file is not None:
                found[name] = str(file)
        if settings.key_password:
            found["ssl.key.password"] = settings.key_password
        return cls(settings.url, found, register or settings.is_mock)


class SerdeFunctions(NamedTuple):
    """Functions for both directions; neither accepts `None`.

    They raise `ValueError`, without payload, for data that cannot be converted, `UnavailableError`
    while the registry does not answer, and `ConfigError` if it refuses: the schema is not
    compatible with the former ones, is not registered, or access is not granted.
    """

    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]


class BatchFunctions(NamedTuple):
    """What converts many values at once. They raise any exception where each is to be converted."""

    serialize_all: Callable[[Sequence[Any]], list[bytes]]
    deserialize_all: Callable[[Sequence[bytes]], list[Any]]


def avro(
    registry: SchemaRegistry,
    subject: str,
    schema: str | None,
    version: int = 0,
    *,
    as_json: bool = False,
) -> SerdeFunctions:
    """Write dicts and other values by an Avro schema, given in JSON; read data of any version.

    Reading converts data that another version of the schema has written to this one. Without a
    schema, that `version` of the subject takes its place. Without both, the subject's latest one
    writes, and data is read as it was written. With `as_json`, values are those of Avro's JSON
    encoding, see `avro_json`.
    """
    with _extra_needed():
        from kafka_pipeline.common.kafka.avro_codec import AvroReader, AvroWriter
        from kafka_pipeline.common.kafka.avro_json import AvroJsonReader, AvroJsonWriter
    client = shared_client(registry)
    with _schema_of(subject, "Avro"):
        writes, reads = (AvroJsonWriter, AvroJsonReader) if as_json else (AvroWriter, AvroReader)
        writer = writes(client, subject, schema, version, register=registry.register)
        reader = reads(client, subject, schema, version)
    return _guarded(registry, subject, writer, reader)


def avro_rows(
    registry: SchemaRegistry,
    subject: str,
    schema: str | None,
    version: int = 0,
    *,
    is_key: bool = False,
) -> tuple[SerdeFunctions, BatchFunctions]:
    """Write and read records as the bytes of JSON objects, whose values are as in `avro_values`.

    Else as `avro`. A key that `is_key` may be something else than a record.
    """
    with _extra_needed():
        from kafka_pipeline.common.kafka.avro_rows import AvroRowReader, AvroRowWriter
    client = shared_client(registry)
    with _schema_of(subject, "Avro"):
        writer = AvroRowWriter(client, subject, schema, version, register=registry.register)
        reader = AvroRowReader(client, subject, schema, version, is_key=is_key)
    functions = _guarded(registry, subject, writer, reader)
    return functions, BatchFunctions(writer.write_all, reader.read_all)


def avro_schema(registry: SchemaRegistry, subject: str, version: int) -> tuple[int, Any]:
    """Return the latest version of a subject, or that `version`, and its schema as fastavro has it.

    Raises `UnavailableError` if the registry does not answer, and `ConfigError` if it refuses.
    """
    with _extra_needed():
        from kafka_pipeline.common.kafka.avro_codec import parsed
    client = shared_client(registry)
    try:
        found = client.get_version(subject, version or "latest")
        if (found.schema.schema_type or "AVRO") == "AVRO":
            return found.version, parsed(found.schema, client)
    except Exception as error:
        raise registry_error(registry, subject, error) or error from error
    raise ConfigError(f"subject {subject} has a schema in {found.schema.schema_type}, not Avro")


def parsed_avro(text: str) -> Any:
    """Return a schema as fastavro has it. Raises `ValueError` for one that is none."""
    with _extra_needed():
        from kafka_pipeline.common.kafka.avro_codec import parse_text
    try:
        return parse_text(text)
    except Exception as error:
        raise ValueError(f"it is no Avro schema: {error}") from None


def register_first(registry: SchemaRegistry, subject: str, schema: str) -> int:
    """Register an Avro schema, given in JSON, as the first one of a subject; return its id.

    Raises `ConfigError` if the subject has a schema or the registry refuses, and `UnavailableError`
    if it does not answer.
    """
    with _extra_needed():
        from confluent_kafka.schema_registry import Schema
    client = shared_client(registry)
    try:
        latest = client.get_version(subject, "latest")
    except Exception as error:
        if getattr(error, "http_status_code", None) != 404:
            raise registry_error(registry, subject, error) or error from error
    else:
        raise ConfigError(f'subject "{subject}" already has a schema, of version {latest.version}')
    try:
        return int(client.register_schema(subject, Schema(schema, "AVRO")))
    except Exception as error:
        raise registry_error(registry, subject, error) or error from error


def register_in_memory(registry: SchemaRegistry, subject: str, kind: str, schema: str) -> None:
    """Register a schema of Avro or JSON if the registry is one in memory; else do nothing.

    Raises `ConfigError` if the registry refuses.
    """
    if not registry.url.startswith(MOCK):
        return
    with _extra_needed():
        from confluent_kafka.schema_registry import Schema
    language = "JSON" if kind == "json_schema" else "AVRO"
    try:
        client_of(registry).register_schema(subject, Schema(schema, language))
    except Exception as error:
        raise registry_error(registry, subject, error) or error from error


def avro_of_columns(name: str, columns: Mapping[str, Any]) -> Any:
    """Return an Avro schema for the columns of a query, see `avro_results.schema_of`.

    Raises `ConfigError` for columns that Avro does not have.
    """
    with _extra_needed():
        from kafka_pipeline.common.kafka.avro_results import schema_of
    try:
        return schema_of(name, columns)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def avro_columns(schema: Any, field: str) -> str:
    """Return the columns of a record, or of the record in a field, as DDL of Spark.

    Raises `ValueError` for a schema without columns.
    """
    with _extra_needed():
        from kafka_pipeline.common.kafka.avro_values import columns_of, ddl
    return ddl(columns_of(schema, field))


def json_schema(
    registry: SchemaRegistry, subject: str, schema: str | None, *, as_json: bool = False
) -> SerdeFunctions:
    """Write dicts and other values as JSON that a JSON schema allows; read such JSON.

    Without a schema, the subject's latest one writes, and data is read by the one that wrote it.
    With `as_json`, numbers with a fraction are a `Decimal`, and keep their digits.
    """
    with _extra_needed():
        from kafka_pipeline.common.kafka.json_schema_codec import JsonSchemaReader, JsonSchemaWriter
    client = client_of(registry)
    with _schema_of(subject, "JSON"):
        settings = _writing(registry, subject, by_latest=schema is None)
        writer = JsonSchemaWriter(schema, client, settings)
        reader = JsonSchemaReader(schema, client, _reading(subject))
    functions = _in_context(subject, writer, reader)
    return _guarded(registry, subject, *(_with_digits(functions) if as_json else functions))


def protobuf(
    registry: SchemaRegistry, subject: str, message_type: type[Any], *, as_json: bool = False
) -> SerdeFunctions:
    """Write and read messages of a class that protoc generated.

    Its schema is registered if the registry says so; otherwise the subject's latest one is used.
    With `as_json`, values are those of Protobuf's JSON mapping, with the names of the fields.
    """
    with _extra_needed():
        from confluent_kafka.schema_registry.protobuf import (
            ProtobufDeserializer,
            ProtobufSerializer,
        )
    client = client_of(registry)
    with _schema_of(subject, "Protobuf"):
        settings = _writing(registry, subject, by_latest=not registry.register)
        writer = ProtobufSerializer(message_type, client, settings)
        reader = ProtobufDeserializer(message_type, _reading(subject), client)
    functions = _of_one_type(_in_context(subject, writer, reader), reader, subject, message_type)
    return _guarded(
        registry, subject, *(_as_messages(functions, message_type) if as_json else functions)
    )


@contextmanager
def _extra_needed() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f'serdes with a schema registry need more packages: pip install "{_EXTRA}"'
        ) from error


@contextmanager
def _schema_of(subject: str, language: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ConfigError(
            f"the schema of subject {subject} is no {language} schema: {error}"
        ) from error


def client_of(registry: SchemaRegistry) -> Any:
    """Return a new client; that of a registry in memory is always the same. Raises ConfigError."""
    with _extra_needed():
        from confluent_kafka.schema_registry import SchemaRegistryClient
    if registry.url in _mocks:
        return _mocks[registry.url]
    try:
        settings = {"url": registry.url, **_CLIENT, **registry.settings}
        client = SchemaRegistryClient.new_client(settings)
        if registry.url.startswith(MOCK):
            return _mocks.setdefault(registry.url, client)
        client._rest_client.session.event_hooks = {"response": [_require_registry]}
        return client
    except (ImportError, TypeError, ValueError, OSError) as error:
        # An ImportError if a variable such as ALL_PROXY names a SOCKS proxy.
        raise ConfigError(f"the settings of the schema registry are wrong: {error}") from error


def _require_registry(response: Any) -> None:
    """Raise an error of httpx for what a registry does not answer: a login page, a proxy's 404.

    Otherwise, a record would be blamed, or its schema would count as missing.
    """
    from confluent_kafka.schema_registry.common._httpx_compat import httpx

    if not response.is_success and response.status_code != 404:
        return
    response.read()
    try:
        is_answer = isinstance(response.json(), dict)
    except ValueError:
        is_answer = False
    if not is_answer:
        status = f"HTTP status {response.status_code}, without JSON"
        raise httpx.DecodingError(status, request=response.request)


def shared_client(registry: SchemaRegistry) -> Any:
    """Return the client of this process for a registry; it is made when it is first needed.

    It asks for the latest version of a subject each time. It has read the files of its certificates
    for good, so another one is made once these were replaced. Raises ConfigError.
    """
    name = repr((registry.url, sorted(registry.settings.items())))
    versions = _versions(registry)
    found, client = _shared.get(name, (None, None))
    if found != versions:
        client = client_of(registry)
        _shared[name] = versions, client
    return client


def _versions(registry: SchemaRegistry) -> list[tuple[int, int]]:
    """Return what tells the files of certificates from those that replace them."""
    found = []
    for name, file in registry.settings.items():
        if name.endswith(".location"):
            with suppress(OSError):  # `client_of` says what is wrong with it
                stat = os.stat(file)
                found.append((stat.st_ino, stat.st_mtime_ns))
    return found


def _writing(registry: SchemaRegistry, subject: str, *, by_latest: bool) -> dict[str, Any]:
    """Return the settings of what writes by the subject's latest schema, or by its own one."""
    return {
        "auto.register.schemas": registry.register and not by_latest,
        "use.latest.version": by_latest,
        **_reading(subject),
    }


def _reading(subject: str) -> dict[str, Any]:
    """Set the subject: by default it is derived from the topic, which serdes do not know."""
    return {"subject.name.strategy": lambda context, record_name: subject}


def _in_context(
    subject: str, writer: Callable[[Any, Any], Any], reader: Callable[[Any, Any], Any]
) -> SerdeFunctions:
    """Return Confluent's serializers as functions of one argument."""
    from confluent_kafka.serialization import MessageField, SerializationContext

    context = SerializationContext(subject, MessageField.VALUE)
    return SerdeFunctions(lambda value: writer(value, context), lambda data: reader(data, context))


def _with_digits(functions: SerdeFunctions) -> SerdeFunctions:
    """Check JSON with floats, as JSON schemas need them, and keep all digits of numbers."""
    from kafka_pipeline.common.kafka.avro_codec import FRAME_BYTES

    def serialize(value: Any) -> bytes:
        text = json_text.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return functions.serialize(json_text.decode(text))[: FRAME_BYTES[0]] + text.encode()

    def deserialize(data: bytes) -> Any:
        functions.deserialize(data)
        return json_text.decode_exactly(data[FRAME_BYTES[data[0]] :].decode())

    return SerdeFunctions(serialize, deserialize)


def _of_one_type(
    functions: SerdeFunctions, reader: Any, subject: str, message_type: type[Any]
) -> SerdeFunctions:
    """Refuse messages of other types in the same file, which Confluent's class takes for its own.

    Packages may differ. A message that lacks a required field is refused too.
    """
    from confluent_kafka.schema_registry.serde import SchemaId

    names: dict[bytes, str] = {}
    wanted = _name_in_package(message_type.DESCRIPTOR)

    def deserialize(data: bytes) -> Any:
        message = functions.deserialize(data)
        frame = SchemaId("PROTOBUF")
        start = data[: frame.from_bytes(BytesIO(data)).tell()]
        if start not in names:
            schema = reader._get_writer_schema(frame, subject, fmt="serialized")
            file, pool = reader._get_parsed_schema(schema)
            file = pool.FindFileByName(file.name)
            names[start] = _name_in_package(
                reader._get_message_desc(pool, file, frame.message_indexes)
            )
        if names[start] != wanted:
            raise MisfitError(f"they are a message {names[start]}, not {wanted}")
        if not message.IsInitialized():
            raise MisfitError(f"they lack a required field of {wanted}")
        return message

    return SerdeFunctions(functions.serialize, deserialize)


def _name_in_package(message: Any) -> str:
    name: str = message.full_name
    return name.removeprefix(f"{message.file.package}.")


def _as_messages(functions: SerdeFunctions, message_type: type[Any]) -> SerdeFunctions:
    """Convert JSON to messages and back; a field that the class does not know is refused."""
    from google.protobuf import json_format  # type: ignore[import-untyped,unused-ignore]

    def serialize(value: Any) -> bytes:
        try:
            message = json_format.Parse(json_text.dumps(value), message_type())
        except json_format.ParseError as error:
            raise MisfitError(f"it does not fit {message_type.__name__}: {error}") from None
        return functions.serialize(message)

    def deserialize(data: bytes) -> Any:
        message = functions.deserialize(data)
        known = message_type()
        known.CopyFrom(message)
        known.DiscardUnknownFields()
        if known.ByteSize() != message.ByteSize():
            raise MisfitError(f"they have fields that {message_type.__name__} does not know")
        return json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )

    return SerdeFunctions(serialize, deserialize)


def _guarded(
    registry: SchemaRegistry,
    subject: str,
    writer: Callable[[Any], bytes],
    reader: Callable[[bytes], Any],
) -> SerdeFunctions:
    """Wrap functions for both directions in those whose errors say what is to blame."""

    def serialize(value: Any) -> bytes:
        try:
            return writer(value)
        except (ConfigError, MisfitError):
            raise
        except Exception as error:
            failure = registry_error(registry, subject, error)
            raise failure or ValueError(f"it does not fit the schema, {_kind(error)}") from None

    def deserialize(data: bytes) -> Any:
        if not data or data[0] > 1:
            raise ValueError("they do not begin with the id of a schema")
        try:
            return reader(data)
        except (ConfigError, MisfitError):
            raise
        except Exception as error:
            if _is_unknown_schema(error):
                raise ValueError("the schema registry has no schema with their id") from None
            failure = registry_error(registry, subject, error)
            raise failure or ValueError(f"they do not fit the schema, {_kind(error)}") from None

    return SerdeFunctions(serialize, deserialize)


def _is_unknown_schema(error: Exception) -> bool:
    """Whether a registry says so; with another message, it has no such path: the URL is wrong."""
    is_found_out = getattr(error, "http_status_code", None) == 404
    return is_found_out and getattr(error, "error_message", "") != _NO_PATH


def registry_error(
    registry: SchemaRegistry, subject: str, error: Exception
) -> PipelineError | None:
    """Return the error to raise if the registry is to blame, `None` if the record is."""
    from confluent_kafka.schema_registry.common._httpx_compat import httpx
    from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError
    from referencing.exceptions import Unresolvable

    address = f"the schema registry at {_without_password(registry.url)}"
    if isinstance(error, SchemaRegistryError):
        status = error.http_status_code
        if status in _PASSING or status >= 500:
            return UnavailableError(f"{address} cannot answer now: HTTP status {status}")
        words = error.error_message
        if error.error_code == _NO_ERROR_CODE:
            words = "its answer is not that of a registry"
        return ConfigError(
            f"{address} refuses what subject {subject} needs: {words} (HTTP status {status})"
        )
    if isinstance(error, Unresolvable):
        what = f'a schema of subject {subject} refers to "{error.ref}"'
        return ConfigError(f"{what}, which is not among its references in the registry")
    if isinstance(error, httpx.DecodingError):
        return UnavailableError(f"{address} does not answer as a registry does: {error}")
    if isinstance(error, httpx.HTTPError | OAuthTokenError):
        return UnavailableError(f"{address} does not answer: {type(error).__name__}")
    return None


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("//")
    return scheme + separator + rest.rpartition("@")[2]


def _kind(error: Exception) -> str:
    """Say what is wrong without the error's message, which may show the record."""
    cause = error.__context__
    rule = getattr(cause, "validator", None)
    if cause is None or not rule:
        return type(error).__name__
    # The path in the schema, not that in the record, whose keys may be data.
    path = [*cause.absolute_schema_path]  # type: ignore[attr-defined]
    field = [str(name) for before, name in pairwise(path) if before == "properties"]
    if rule == "required":
        given = cause.instance  # type: ignore[attr-defined]
        wanted = cause.validator_value  # type: ignore[attr-defined]
        field += [name for name in wanted if name not in given][:1]
    return f'which says "{rule}"' + (f' of field "{".".join(field)}"' if field else "")
