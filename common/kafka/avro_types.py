"""Types of Avro, in schemas as fastavro's `parse_schema` returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def not_null(schema: Any) -> Any:
    """Return the only type of a schema that is not null, `None` if it is a union of several."""
    if not isinstance(schema, list):
        return None if schema == "null" else schema
    others = members_of(schema)
    return others[0] if len(others) == 1 else None


def named_types(schema: Any) -> Mapping[str, Any]:
    """Return the types of a schema that it may give by their names."""
    found, waiting = dict[str, Any](), [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            if "name" in each:
                found[each["name"]] = each
            waiting += [each.get("type"), each.get("items"), each.get("values")]
            waiting += [field["type"] for field in each.get("fields", ())]
    return found


def resolved_type(schema: Any, names: Mapping[str, Any]) -> Any:
    """Return the definition of a type that is given by its name."""
    return names.get(schema, schema) if isinstance(schema, str) else schema


def base_type(schema: Any) -> str:
    """Return a type without its logical type and name, such as `record` or `union`."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)


def named_in(schema: Any) -> Mapping[str, Any]:
    """Return the types of a schema that have a name, by that."""
    given = schema.get("__named_schemas", {}) if isinstance(schema, dict) else {}
    return {**given, **named_types(schema)}


def members_of(schema: Sequence[Any]) -> list[Any]:
    """Return the types of a union but null."""
    return [each for each in schema if base_type(each) != "null"]


def label_of(schema: Any, named: Mapping[str, Any]) -> str:
    """Return the name by which fastavro knows a type of a union."""
    schema = resolved_type(schema, named)
    return str(schema.get("name", schema["type"])) if isinstance(schema, dict) else str(schema)
