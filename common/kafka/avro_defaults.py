"""Defaults of Avro schemas as the values that fastavro writes and reads, rather than those of JSON.

fastavro takes defaults as they are: bytes are text whose characters are the bytes, and a date is a
number. It also gives the same list to each record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastavro.read import LOGICAL_READERS

from kafka_pipeline.common.kafka.avro_types import (
    base_type,
    label_of,
    members_of,
    named_in,
    resolved_type,
)
from kafka_pipeline.common.kafka.avro_values import without_logical_types

_NEED_LABELS = ("record", "enum", "fixed", "bytes")


def with_values(schema: Any) -> Any:
    """Return a schema, as fastavro's `parse_schema` has it, with defaults as values."""
    return _with_values(schema, named_in(schema), with_labels=False)


def as_stored(schema: Any) -> Any:
    """Return a schema by which fastavro reads values as they are stored, without logical types.

    With `return_named_type`, a value in a union is given with the name of its type if that has
    one. Its default is such a pair, too.
    """
    plain = without_logical_types(schema)
    return _with_definitions(_with_values(plain, named_in(plain), with_labels=True))


def _with_definitions(schema: Any) -> Any:
    """Define the types in unions there, as fastavro 1.13 does not look names up when it reads them.

    One version may define a type where the other one only names it.
    """
    waiting, unions, named = [schema], list[list[Any]](), named_in(schema)
    if isinstance(schema, dict):
        waiting += schema.get("__named_schemas", {}).values()
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            unions.append(each)
            waiting += each
        elif isinstance(each, dict):
            waiting += [each.get("type"), each.get("items"), each.get("values")]
            waiting += [field["type"] for field in each.get("fields", ())]
    for union in unions:
        union[:] = [resolved_type(each, named) for each in union]
    return schema


def has_shared_default(schema: Any) -> bool:
    """Whether a default is a list or a dict, which all records have in common."""
    if isinstance(schema, list):
        return any(map(has_shared_default, schema))
    if not isinstance(schema, dict):
        return False
    is_shared = isinstance(schema.get("default"), list | dict)
    return is_shared or any(map(has_shared_default, schema.values()))


def _with_values(schema: Any, named: Mapping[str, Any], *, with_labels: bool) -> Any:
    if isinstance(schema, list):
        return [_with_values(each, named, with_labels=with_labels) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        name: each if name == "default" else _with_values(each, named, with_labels=with_labels)
        for name, each in schema.items()
    }
    for field, given in zip(found.get("fields", ()), schema.get("fields", ()), strict=True):
        if "default" in given:
            field["default"] = _value(given["default"], given["type"], named, with_labels)
    return found


def _value(default: Any, schema: Any, named: Mapping[str, Any], with_labels: bool) -> Any:
    if isinstance(schema, list):
        # The default of a union is of its first type, and may be null whichever that is.
        if default is None:
            return None
        first = resolved_type(members_of(schema)[0], named)
        value = _value(default, first, named, with_labels)
        is_pair = with_labels and base_type(first) in _NEED_LABELS
        return (label_of(first, named), value) if is_pair else value
    schema = resolved_type(schema, named)
    match base_type(schema), default:
        case "record", dict():
            given = {
                each["name"]: each["default"] for each in schema["fields"] if "default" in each
            }
            types = {each["name"]: each["type"] for each in schema["fields"]}
            return {
                name: _value(each, types[name], named, with_labels)
                for name, each in {**given, **default}.items()
                if name in types
            }
        case "array", list():
            return [_value(each, schema["items"], named, with_labels) for each in default]
        case "map", dict():
            values = schema["values"]
            return {
                name: _value(each, values, named, with_labels) for name, each in default.items()
            }
        case ("bytes" | "fixed") as base, str():
            return _logical(base, schema, default.encode("latin-1"))
        case (("float" | "double"), int()):
            return float(default)
        case base, _:
            return _logical(base, schema, default)


def _logical(base: str, schema: Any, value: Any) -> Any:
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    read = LOGICAL_READERS.get(f"{base}-{logical}")
    return value if read is None else read(value, schema, None)
