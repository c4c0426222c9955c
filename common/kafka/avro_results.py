"""Compares the columns of a query's result with an Avro schema, and derives a schema from them.

Columns are `spark_types.columns_of_result`; schemas are as in `avro_values`, whose writer decides
what fits. Needs the extra `schemaregistry`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka_pipeline.common.kafka.avro_types import base_type, members_of, named_in, resolved_type
from kafka_pipeline.common.kafka.avro_values import (
    UnfitError,
    is_decimal,
    logical_type,
    member_name,
)
from kafka_pipeline.common.spark_types import JsonForm, form_of, in_words
from kafka_pipeline.common.suggest import did_you_mean

_NUMBERS: Sequence[JsonForm] = ("number", "fraction")
_FORMS: Mapping[str, Sequence[JsonForm]] = {
    "boolean": ("boolean",),
    "int": _NUMBERS,
    "long": _NUMBERS,
    "float": _NUMBERS,
    "double": _NUMBERS,
    "string": ("text", "date", "moment", "local moment"),
    "enum": ("text",),
    "bytes": ("bytes",),
    "fixed": ("bytes",),
    "decimal": _NUMBERS,
    "uuid": ("text",),
    "date": ("date", "text"),
    "time": ("text",),
    "timestamp": ("moment", "local moment", "date", "text"),
    "local-timestamp": ("moment", "local moment", "date", "text"),
}
"""The forms of columns that may be written as an Avro type. Which values fit shows at each one."""


def misfits(schema: Any, columns: Mapping[str, Any]) -> list[str]:
    """Return why no result could be written by a schema: a sentence for each column or field.

    A column is reported if no value of its type can be written. Values that do not fit, such as a
    BIGINT beyond an `int`, are found when they are written, and so is a null in a column that may
    have one.
    """
    named = named_in(schema)
    record = resolved_type(schema, named)
    if base_type(record) != "record":
        return [f"the schema is {base_type(record)}, and only a record has columns"]
    return [*_of_record(record, columns, named, "")]


def _of_record(
    record: Mapping[str, Any], columns: Mapping[str, Any], named: Mapping[str, Any], path: str
) -> Iterator[str]:
    fields = {each["name"]: each for each in record["fields"]}
    for name, column in columns.items():
        if name not in fields:
            yield (
                f'column "{path}{name}" is not a field of the schema'
                f"{did_you_mean(name, fields.keys() - columns.keys())}"
            )
        else:
            yield from _of_value(fields[name]["type"], column["type"], named, path + name)
    for name, field in fields.items():
        if name not in columns and "default" not in field:
            yield f'field "{path}{name}" has no column and no default'


def _of_value(schema: Any, type_: Any, named: Mapping[str, Any], path: str) -> Iterator[str]:
    schema, form = resolved_type(schema, named), form_of(type_)
    if form == "any":
        return
    if isinstance(schema, list):
        members = members_of(schema)
        if form == "null" and len(members) < len(schema):
            return
        if len(members) == 1:
            yield from _of_value(members[0], type_, named, path)
        elif members:
            yield from _of_union(members, type_, named, path)
        return
    base = base_type(schema)
    match base, form:
        case "null", _:
            return
        case _, "null":
            yield f'column "{path}" is always null, which the schema does not allow'
        case "record", "struct":
            fields = {each["name"]: each for each in type_["fields"]}
            yield from _of_record(schema, fields, named, f"{path}.")
        case "record", "map":
            return  # both are objects in JSON: which names there are shows at each value
        case "map", "struct":
            for field in type_["fields"]:
                inner = f"{path}.{field['name']}"
                yield from _of_value(schema["values"], field["type"], named, inner)
        case "array", "array":
            yield from _of_value(schema["items"], type_["elementType"], named, path)
        case "map", "map":
            yield from _of_value(schema["values"], type_["valueType"], named, path)
        case _:
            name = _name(schema)
            if form not in _FORMS.get(name.partition("-m")[0], ()):
                yield _differs(path, type_, name)


def _of_union(
    members: Sequence[Any], type_: Any, named: Mapping[str, Any], path: str
) -> Iterator[str]:
    known = {member_name(each, named): each for each in members}
    if form_of(type_) not in ("struct", "map"):
        yield _differs(path, type_, f"a union: a STRUCT with a field of {', '.join(known)}")
        return
    for field in type_.get("fields", ()):
        if field["name"] in known:
            inner = f"{path}.{field['name']}"
            yield from _of_value(["null", known[field["name"]]], field["type"], named, inner)
        elif form_of(field["type"]) != "null":
            yield f'column "{path}.{field["name"]}" is not one of the union: {", ".join(known)}'


def _name(schema: Any) -> str:
    """Return an Avro type as `_FORMS` and messages have it, with the unit of a time."""
    if isinstance(schema, Mapping):
        if is_decimal(schema):
            return "decimal"
        if schema.get("logicalType") == "uuid" and base_type(schema) in (
            "bytes",
            "fixed",
            "string",
        ):
            return "uuid"
        # Nanoseconds are written as the number that they are.
        if (
            base_type(schema) in ("int", "long")
            and logical_type(schema)
            and "nanos" not in str(schema["logicalType"])
        ):
            return str(schema["logicalType"])
    return base_type(schema)


def _differs(path: str, type_: Any, wanted: str) -> str:
    return f'column "{path}" is {in_words(type_)}, and the schema has {wanted}'


# From columns to a schema

_SIMPLE = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TEXT = re.compile(r"(var)?char\(\d+\)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def schema_of(name: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that loses nothing of a result with these columns, as JSON values.

    What may be null is a union with null, whose default is null. The record is called `name`, with
    `_` for characters that names must not have, and a STRUCT in it `<record>_<column>`. Raises
    `UnfitError` for a column whose type or name Avro does not have.
    """
    return _record_of(re.sub(r"[^A-Za-z0-9_]|^(?=[0-9])", "_", name), columns, ())


def _record_of(name: str, columns: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    fields = []
    for column, found in columns.items():
        at = (*path, column)
        if _NAME.fullmatch(column) is None:
            raise UnfitError("Avro has no such name: rename it with AS", at)
        type_ = _type_of(found["type"], f"{name}_{column}", at)
        is_nullable = found.get("nullable", True)
        field = {"name": column, "type": ["null", type_] if is_nullable else type_}
        fields.append({**field, "default": None} if is_nullable else field)
    return {"type": "record", "name": name, "fields": fields}


def _type_of(type_: Any, name: str, path: Sequence[str]) -> Any:
    if isinstance(type_, Mapping):
        match type_["type"]:
            case "array":
                item = _type_of(type_["elementType"], name, path)
                return {"type": "array", "items": _or_null(item, type_.get("containsNull", True))}
            case "map" if form_of(type_["keyType"]) == "text":
                value = _type_of(type_["valueType"], name, path)
                has_nulls = type_.get("valueContainsNull", True)
                return {"type": "map", "values": _or_null(value, has_nulls)}
            case "struct":
                fields = {each["name"]: each for each in type_["fields"]}
                return _record_of(name, fields, path)
    elif found := _DECIMAL.fullmatch(type_):
        sizes = {"precision": int(found[1]), "scale": int(found[2])}
        return {"type": "bytes", "logicalType": "decimal", **sizes}
    elif _TEXT.fullmatch(type_):
        return "string"
    elif type_ in _SIMPLE:
        return _SIMPLE[type_]
    wrong = "it is always null" if type_ == "void" else f"Avro has no {in_words(type_)}"
    raise UnfitError(f"{wrong}: give it another type with CAST", path)


def _or_null(type_: Any, is_nullable: bool) -> Any:
    return ["null", type_] if is_nullable else type_
