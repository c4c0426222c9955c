"""Rows whose fields msgspec reads and checks as their Avro schema says, without Python for each.

What it does not know, `avro_values.writer_of` converts, and decides about rows that msgspec does
not take. Needs the extra `schemaregistry`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kafka_pipeline.common.kafka.avro_losses import LIMITS
from kafka_pipeline.common.kafka.avro_types import (
    base_type,
    members_of,
    named_in,
    resolved_type,
)
from kafka_pipeline.common.kafka.avro_values import time_writer, writer_of

_PLAIN: Mapping[str, Any] = {
    "boolean": bool,
    "int": Annotated[int, Meta(ge=-LIMITS["int"], lt=LIMITS["int"])],
    "long": Annotated[int, Meta(ge=-LIMITS["long"], le=LIMITS["long"] - 1)],
    "float": Annotated[float, Meta(gt=-LIMITS["float"], lt=LIMITS["float"])],
    "double": float,
    "string": str,
}


class RowReader(NamedTuple):
    """How to read rows of a schema."""

    read: Callable[[bytes], dict[str, Any]]
    """Makes the value that fastavro writes of the bytes of a JSON object. Raises
    `msgspec.MsgspecError`, `ValueError` or `TypeError` for an object that may not fit."""
    is_checked: bool
    """Whether all values that `read` returns fit the schema, without a loss."""


class _OtherTypeError(Exception):
    """A type has values that msgspec would not check in the same way."""


def row_reader(schema: Any) -> RowReader | None:
    """Return how to read rows of a record's schema; `None` for another one."""
    named = named_in(schema)
    record = resolved_type(schema, named)
    if base_type(record) != "record":
        return None
    converts = {}
    types = {}
    for field in record["fields"]:
        name = field["name"]
        try:
            types[name] = _type(field["type"], named, (record["name"],))
        except _OtherTypeError:
            types[name] = Any
            converts[name] = writer_of(field["type"], named)
    decode = msgspec.json.Decoder(_struct(record, types), float_hook=Decimal).decode
    to_builtins, unchanged = msgspec.to_builtins, (Decimal,)

    def read(data: bytes) -> dict[str, Any]:
        row: dict[str, Any] = to_builtins(decode(data), builtin_types=unchanged)
        for name, convert in converts.items():
            if name in row:
                row[name] = convert(row[name])
        return row

    return RowReader(read, not converts)


def _struct(record: Any, types: Mapping[str, Any]) -> Any:
    """Return a class with these fields. fastavro writes the defaults of those that are missing."""
    fields: list[Any] = []
    for number, field in enumerate(record["fields"]):
        name = field["name"]
        if "default" in field:
            type_, default = types[name] | UnsetType, msgspec.field(name=name, default=UNSET)
        else:
            type_, default = types[name], msgspec.field(name=name)
        fields.append((f"field_{number}", type_, default))
    return msgspec.defstruct("Row", fields, forbid_unknown_fields=True, kw_only=True)


def _is_converted(schema: Mapping[str, Any]) -> bool:
    """Whether not all values of the plain type are values of the logical one."""
    return time_writer(schema) is not None or schema.get("logicalType") == "uuid"


def _type(schema: Any, named: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    schema = resolved_type(schema, named)
    match base_type(schema):
        case "union":
            members = members_of(schema)
            if len(members) != 1:
                raise _OtherTypeError
            type_ = _type(members[0], named, within)
            return type_ | None if len(schema) > 1 else type_
        case "enum":
            return Literal[tuple(schema["symbols"])]
        case "array":
            return list[_type(schema["items"], named, within)]  # type: ignore[misc]
        case "map":
            return dict[str, _type(schema["values"], named, within)]  # type: ignore[misc]
        case "record" if schema["name"] not in within:
            inner = (*within, schema["name"])
            types = {each["name"]: _type(each["type"], named, inner) for each in schema["fields"]}
            return _struct(schema, types)
        case base if base in _PLAIN and not (isinstance(schema, dict) and _is_converted(schema)):
            return _PLAIN[base]
    raise _OtherTypeError
