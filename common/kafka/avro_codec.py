"""Reads and writes Avro by the schemas of a registry, framed as Confluent's serializers do.

Needs the extra `schemaregistry`. Each schema is parsed once. Confluent's own classes expand it
again for each record, and their errors do not name the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from io import BytesIO
from typing import Any, Literal, NamedTuple
from uuid import UUID

from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.common.avro import parse_schema_with_repo
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError
from fastavro.validation import ValidationError, validate

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.avro_defaults import has_shared_default, with_values
from kafka_pipeline.common.kafka.avro_losses import loss_finder
from kafka_pipeline.common.kafka.avro_types import (
    base_type,
    label_of,
    named_types,
    not_null,
    resolved_type,
)
from kafka_pipeline.common.kafka.misfit import MisfitError

FRAME_BYTES = {0: 5, 1: 17}
"""The bytes before the data, by the first one: with the schema's id, or its GUID."""
_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What else reads a type, by the Avro specification."""


class Written(NamedTuple):
    """How data of one schema is read; `reader` is `None` if it is read as it was written.

    What was read goes through `convert`, if that is given. With `is_shared`, it may have parts in
    common with other values.
    """

    schema: Schema
    writer: Any
    reader: Any
    is_plain: bool
    is_shared: bool = False
    convert: Callable[[Any], Any] | None = None


class AvroReader:
    """Reads data by the schema that wrote it, and converts it to another one if that is given."""

    _decode: Callable[[BytesIO, Any, Any], Any] = staticmethod(schemaless_reader)
    _prepared: Callable[[Any], Any] = staticmethod(with_values)
    """Returns the schema that `_decode` gets."""

    def __init__(self, client: Any, subject: str, schema: str | None, version: int = 0) -> None:
        """Prepare; raises an exception of fastavro or `ValueError` for an invalid schema.

        With a `version`, data is converted to that version of the subject.
        """
        self._client = client
        self._subject = subject
        self._version = version
        self._schema = None if schema is None else Schema(schema, "AVRO")
        self._reader = None if self._schema is None else parsed(self._schema, client)
        self._written: dict[bytes, Written] = {}

    def __call__(self, data: bytes) -> Any:
        """Return the value of `data`, whose first byte is 0 or 1.

        Raises `MisfitError`, `ConfigError` and errors of the registry's client.
        """
        start = FRAME_BYTES[data[0]]
        frame = data[:start]
        written = self._written.get(frame)
        if written is None:
            written = self._written[frame] = self._find(frame)
        if written.is_plain:
            return data[start:]
        stream = BytesIO(data)
        stream.seek(start)
        try:
            value = self._decode(stream, written.writer, written.reader)
            if stream.tell() != len(data):
                raise MisfitError(
                    "they do not fit the schema that wrote them, "
                    f"{self._wrote(frame, written)}: more bytes follow"
                )
            if written.is_shared:
                value = deepcopy(value)
            return value if written.convert is None else written.convert(value)
        except MisfitError:
            raise
        except Exception as error:
            raise MisfitError(self._problem(frame, written, error)) from None

    def _find(self, frame: bytes) -> Written:
        if len(frame) < FRAME_BYTES[frame[0]]:
            raise MisfitError("they do not fit the schema, as they end before its id does")
        if frame[0]:
            schema = self._client.get_schema_by_guid(str(UUID(bytes=frame[1:])))
        else:
            schema = self._client.get_schema(int.from_bytes(frame[1:]), self._subject)
        if (schema.schema_type or "AVRO") != "AVRO":
            raise MisfitError(f"they have the id of a schema in {schema.schema_type}, not Avro")
        _require_no_rules(schema, self._subject)
        writer = parsed(schema, self._client)
        if self._version and self._schema is None:
            self._schema = self._client.get_version(self._subject, self._version).schema
            self._reader = parsed(self._schema, self._client)
        reader = None if self._reader == writer else self._reader
        written = Written(schema, writer, reader, _is_plain(writer))
        if reader is None:
            return written._replace(writer=self._prepared(writer))
        if fault := unseen_mismatch(writer, reader):
            raise MisfitError(self._other_version(frame, written, fault))
        return written._replace(
            writer=self._prepared(writer),
            reader=self._prepared(reader),
            is_shared=has_shared_default(reader),
        )

    def _schema_of(self, written: Written) -> Any:
        """Return the schema of what is read, as `parsed` returns it."""
        return parsed(written.schema, self._client) if written.reader is None else self._reader

    def _problem(self, frame: bytes, written: Written, error: Exception) -> str:
        """Say which versions do not fit, and in which field."""
        if written.reader is not None:
            fault = mismatch(written.writer, written.reader)
            if not fault and isinstance(error, SchemaResolutionError):
                fault = "it lacks a symbol of an enum, a type of a union, or null"
            if fault:
                return self._other_version(frame, written, fault)
        wrote = self._wrote(frame, written)
        return f"they do not fit the schema that wrote them, {wrote}: {type(error).__name__}"

    def _other_version(self, frame: bytes, written: Written, fault: str) -> str:
        version = _version(self._client, self._subject, self._schema)
        reads = f"version {version}" if version else "the schema of the pipeline"
        wrote = self._wrote(frame, written)
        return f"they do not fit the schema: {wrote} wrote them, {reads} reads them: {fault}"

    def _wrote(self, frame: bytes, written: Written) -> str:
        id_ = UUID(bytes=frame[1:]) if frame[0] else int.from_bytes(frame[1:])
        version = _version(self._client, self._subject, written.schema)
        return f"version {version} (id {id_})" if version else f"id {id_}"


class AvroWriter:
    """Writes values by the given schema, or else by a subject's latest one."""

    def _prepared(self, schema: Any) -> Any:
        """Return the schema that fastavro gets."""
        return with_values(schema)

    def __init__(
        self, client: Any, subject: str, schema: str | None, version: int = 0, *, register: bool
    ) -> None:
        """Prepare; raises an exception of fastavro or `ValueError` for an invalid schema.

        With a `version`, that one of the subject writes in place of the latest one.
        """
        self._client = client
        self._subject = subject
        self._version: int | Literal["latest"] = version or "latest"
        self._schema = None if schema is None else Schema(schema, "AVRO")
        self._given = None if self._schema is None else parsed(self._schema, client)
        self._register = register
        self._found: tuple[bytes, Any, str] | None = None
        self._loss: Callable[[Any], str] | None = None

    def __call__(self, value: Any) -> bytes:
        """Return the data of a value; asks the registry at the first call.

        Raises `MisfitError`, `ConfigError` and errors of the registry's client.
        """
        frame, schema, name = self._found or self._find()
        if _is_plain(schema):
            if not isinstance(value, bytes):
                raise MisfitError(f"it does not fit {name}: it is a {_kind(value)}, not bytes")
            return frame + value
        if self._loss is not None and (loss := self._loss(value)):
            raise MisfitError(f"it does not fit {name}: {loss}")
        return self._write(frame, schema, name, value)

    def _write(self, frame: bytes, schema: Any, name: str, value: Any) -> bytes:
        stream = BytesIO()
        stream.write(frame)
        try:
            schemaless_writer(stream, schema, value)
        except Exception as error:
            fault = _fault(value, schema) or type(error).__name__
            raise MisfitError(f"it does not fit {name}: {fault}") from None
        return stream.getvalue()

    def _find(self) -> tuple[bytes, Any, str]:
        """Ask for the bytes before the data, the schema, and its name in errors; keep them."""
        client, subject = self._client, self._subject
        if self._schema is None:
            found = client.get_version(subject, self._version)
        elif self._register:
            found = client.register_schema_full_response(subject, self._schema)
        else:
            found = client.lookup_schema(subject, self._schema)
        if (found.schema.schema_type or "AVRO") != "AVRO":
            raise ConfigError(f"subject {subject} has a schema in {found.schema.schema_type}")
        _require_no_rules(found.schema, subject)
        schema = parsed(found.schema, client) if self._given is None else self._given
        self._loss = loss_finder(schema)
        version = f"version {found.version} (id {found.schema_id})"
        name = f"the schema, {version if found.version else f'id {found.schema_id}'}"
        self._found = b"\0" + found.schema_id.to_bytes(4), self._prepared(schema), name
        return self._found


def mismatch(writer: Any, reader: Any) -> str:
    """Say in which field data of one schema cannot be read by another one; "" if none is found.

    Both are as fastavro's `parse_schema` returns them. What depends on the data is not found: which
    symbols it has, whether it is null, and which types of a union.
    """
    return next(_Comparing(writer, reader).faults(writer, reader), "")


def unseen_mismatch(writer: Any, reader: Any) -> str:
    """Say which field would be read as another value; "" if none is found.

    Readers do not find that out: they would take 1.50 for 150, and one type for another one of the
    same name.
    """
    comparing = _Comparing(writer, reader)
    for _ in comparing.faults(writer, reader):
        pass
    return next(iter(comparing.unseen), "")


class _Comparing:
    """Compares a schema that has written data with one that is to read it."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._written, self._read = named_types(writer), named_types(reader)
        self._seen: set[tuple[str, str]] = set()
        self.unseen: list[str] = []

    def faults(self, writer: Any, reader: Any, path: str = "") -> Iterator[str]:
        """Yield what is wrong, with the field's `path`; keep what is not seen in `unseen`."""
        writer = resolved_type(writer, self._written)
        reader = resolved_type(reader, self._read)
        match base_type(writer), base_type(reader):
            case ("union", _) | (_, "union"):
                one, other = not_null(writer), not_null(reader)
                if one is not None and other is not None:
                    yield from self.faults(one, other, path)
                else:
                    yield from self._of_unions(writer, reader, path)
            case "record", "record" if not _has_name_of(writer, reader):
                yield _differ(writer, reader, path)
            case "record", "record":
                yield from self._of_records(writer, reader, path)
            case ("array", "array") | ("map", "map"):
                inner = "items" if "items" in writer else "values"
                yield from self.faults(writer[inner], reader[inner], path)
            case one, other if one != other and other not in _PROMOTED.get(one, ()):
                yield _differ(writer, reader, path)
            case ("enum", _) | ("fixed", _) if not _has_name_of(writer, reader):
                yield _differ(writer, reader, path)
            case ("fixed", _) if writer["size"] != reader["size"]:
                yield _differ(writer, reader, path)
            case _ if _unit(writer) != _unit(reader) and _unit(writer) and _unit(reader):
                self.unseen.append(_differ(writer, reader, path))
                yield self.unseen[-1]

    def _of_unions(self, writer: Any, reader: Any, path: str) -> Iterator[str]:
        """Yield what readers do not see. Which of the types is used, only data shows."""
        writers, readers = (each if isinstance(each, list) else [each] for each in (writer, reader))
        same = {label_of(each, self._read): each for each in readers}
        names = [label.rpartition(".")[2] for label in same]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            # fastavro does not look at their namespaces, and takes the first one.
            place = f'field "{path}"' if path else "the value"
            self.unseen.append(f"{place} is a union of several types with the name {twice}")
            yield self.unseen[-1]
        before, seen = len(self.unseen), set(self._seen)
        for one in writers:
            label = label_of(one, self._written)
            wider = (same[name] for name in _PROMOTED.get(label, ()) if name in same)
            other = same.get(label) or next(wider, None)
            for _ in () if other is None else self.faults(one, other, path):
                pass
        self._seen = seen
        yield from self.unseen[before:]

    def _of_records(self, writer: Any, reader: Any, path: str) -> Iterator[str]:
        names = (writer["name"], reader["name"])
        if names in self._seen:
            return
        self._seen.add(names)
        fields = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            place = f"{path}.{field['name']}".lstrip(".")
            known = (field["name"], *field.get("aliases", ()))
            there = next((fields[name] for name in known if name in fields), None)
            if there is not None:
                yield from self.faults(there["type"], field["type"], place)
            elif "default" not in field:
                yield f'field "{place}" is missing, and has no default'


def _unit(schema: Any) -> str:
    """Return what one is in numbers of a type, "" if that is not said."""
    logical = str(schema.get("logicalType", "")) if isinstance(schema, dict) else ""
    if logical == "decimal":
        return f"scale {schema.get('scale', 0)}"
    return logical if logical == "date" or "time" in logical else ""


def _has_name_of(writer: Any, reader: Any) -> bool:
    """Whether a type has the name of another one, or an alias, whatever their namespaces are."""
    name = writer["name"].rpartition(".")[2]
    known = (reader["name"].rpartition(".")[2], *reader.get("aliases", ()))
    return name in known or writer["name"] in known


def _differ(writer: Any, reader: Any, path: str) -> str:
    place = f'field "{path}"' if path else "the value"
    wrote, reads = _type_name(writer), _type_name(reader)
    if wrote == reads:
        wrote, reads = f"{wrote} in {base_type(writer)}", f"in {base_type(reader)}"
    return f"{place} is {wrote}, not {reads}"


def _type_name(schema: Any) -> str:
    """Return the name of a type for messages."""
    if isinstance(schema, list):
        return " or ".join(map(_type_name, schema))
    if not isinstance(schema, dict):
        return str(schema)
    if schema.get("logicalType") == "decimal":
        return f"decimal({schema.get('precision')}, {schema.get('scale', 0)})"
    if "logicalType" in schema:
        return str(schema["logicalType"])
    size = f" of {schema['size']} bytes" if "size" in schema else ""
    return f"{schema['type']} {schema['name']}{size}" if "name" in schema else str(schema["type"])


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _fault(value: Any, schema: Any) -> str:
    """Say which field of a value does not fit, without what it holds; "" if none is found."""
    try:
        validate(value, schema)
    except ValidationError as error:
        first = error.errors[0]
        wanted = [_type_name(each.schema) for each in error.errors if each.field == first.field]
        place = f'field "{first.field}"' if first.field else "it"
        kind = "null or missing" if first.datum is None else f"a {_kind(first.datum)}"
        return f"{place} is {kind}, not {' or '.join(wanted)}"
    except Exception:
        return ""
    return ""


def parsed(schema: Schema, client: Any) -> Any:
    """Parse a schema together with those that it refers to, which the client is asked for.

    Raises exceptions of fastavro, `ValueError` and errors of the client.
    """
    text = schema.schema_str or ""
    if schema.references:
        return parse_schema_with_repo(text, _referenced(schema, client))
    return parse_text(text)


def parse_text(text: str) -> Any:
    """Parse a schema without references. Raises exceptions of fastavro and `ValueError`."""
    return parse_schema(json.loads(text))


def _referenced(schema: Schema, client: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in schema.references or ():
        other = client.get_version(each.subject, each.version, True).schema
        found |= _referenced(other, client)
        found[each.name or ""] = json.loads(other.schema_str)
    return found


def _is_plain(schema: Any) -> bool:
    """Whether values are the bytes after the id, without a length, as Confluent writes them."""
    return schema == "bytes" or (isinstance(schema, dict) and schema.get("type") == "bytes")


def _require_no_rules(schema: Schema, subject: str) -> None:
    """Raise ConfigError for rules of a data contract: records must not pass them by."""
    rules = schema.rule_set
    if rules is not None and (rules.domain_rules or rules.encoding_rules):
        names = [each.name for each in (*(rules.domain_rules or ()), *(rules.encoding_rules or ()))]
        raise ConfigError(
            f"the schema of subject {subject} has rules, which are not supported: "
            f"{', '.join(names)}"
        )


def _version(client: Any, subject: str, schema: Schema | None) -> int | None:
    """Return which version of a subject a schema is, `None` if the registry does not say."""
    try:
        found: int | None = client.lookup_schema(subject, schema).version
    except Exception:
        return None
    return found
