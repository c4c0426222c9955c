"""Defaults of Avro schemas as the values that fastavro writes and reads, rather than those of JSON.

fastavro takes defaults as they are: bytes are text whose characters are the bytes, and a date is a
number. It also gives the same list to each record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastavro.read import LOGICAL_READERS

from kafka_pipeline.common.kafka.avro_types import base_type, members_of, named_in, resolved_type


def with_values(schema: Any) -> Any:
    """Return a schema, as fastavro's `parse_schema` has it, with defaults as values."""
    return _with_values(schema, named_in(schema))


def has_shared_default(schema: Any) -> bool:
    """Whether a default is a list or a dict, which all records have in common."""
    if isinstance(schema, list):
        return any(map(has_shared_default, schema))
    if not isinstance(schema, dict):
        return False
    is_shared = isinstance(schema.get("default"), list | dict)
    return is_shared or any(map(has_shared_default, schema.values()))


def _with_values(schema: Any, named: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_with_values(each, named) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        name: each if name == "default" else _with_values(each, named)
        for name, each in schema.items()
    }
    for field, given in zip(found.get("fields", ()), schema.get("fields", ()), strict=True):
        if "default" in given:
            field["default"] = _value(given["default"], given["type"], named)
    return found


def _value(default: Any, schema: Any, named: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        # The default of a union is of its first type, and may be null whichever that is.
        others = members_of(schema)
        return None if default is None else _value(default, others[0], named)
    schema = resolved_type(schema, named)
    match base_type(schema), default:
        case "record", dict():
            given = {
                each["name"]: each["default"] for each in schema["fields"] if "default" in each
            }
            types = {each["name"]: each["type"] for each in schema["fields"]}
            return {
                name: _value(each, types[name], named)
                for name, each in {**given, **default}.items()
                if name in types
            }
        case "array", list():
            return [_value(each, schema["items"], named) for each in default]
        case "map", dict():
            return {name: _value(each, schema["values"], named) for name, each in default.items()}
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
