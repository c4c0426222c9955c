"""Compares the columns of a query's result with those of a table, which reads them as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kafka_pipeline.common.spark_types import JsonForm, form_of, in_words
from kafka_pipeline.common.suggest import did_you_mean

_FORMS: Sequence[tuple[Any, Sequence[JsonForm]]] = (
    (pa.types.is_boolean, ("boolean",)),
    (pa.types.is_integer, ("number",)),
    (pa.types.is_floating, ("number", "fraction")),
    (pa.types.is_decimal, ("number", "fraction", "text")),
    (pa.types.is_string, ("text", "date", "moment", "local moment")),
    (pa.types.is_binary, ("bytes",)),
    (pa.types.is_date, ("date", "text")),
)
"""The forms of columns that may be written as an Arrow type. Which values fit shows at each one."""


def misfits(row: pa.StructType, columns: Mapping[str, Any]) -> list[str]:
    """Return why no result could be a row of a table: a sentence for each column.

    `columns` is `spark_types.columns_of_result`. A column is reported if no value of its type can
    be written, or if it is missing or always null where the table says NOT NULL.
    """
    return [*_of_struct(row, columns, "")]


def _of_struct(row: pa.StructType, columns: Mapping[str, Any], path: str) -> Iterator[str]:
    unread = columns.keys() - set(row.names)
    for field in row.fields:
        name = path + field.name
        if field.name in columns:
            yield from _of_value(field, columns[field.name]["type"], name)
        elif not field.nullable:
            yield f'column "{name}" is NOT NULL, and missing{did_you_mean(field.name, unread)}'


def _of_value(field: pa.Field, type_: Any, path: str) -> Iterator[str]:
    wanted, form = field.type, form_of(type_)
    match form:
        case "any":
            return
        case "null":
            if not field.nullable:
                yield f'column "{path}" is NOT NULL, and always null'
        case "struct" if pa.types.is_struct(wanted):
            fields = {each["name"]: each for each in type_["fields"]}
            yield from _of_struct(wanted, fields, f"{path}.")
        case "array" if pa.types.is_list(wanted):
            yield from _of_value(wanted.value_field, type_["elementType"], path)
        case "map" if pa.types.is_map(wanted):
            yield from _of_value(wanted.item_field, type_["valueType"], path)
        case "struct" if pa.types.is_map(wanted):
            for each in type_["fields"]:
                yield from _of_value(wanted.item_field, each["type"], f"{path}.{each['name']}")
        case "map" if pa.types.is_struct(wanted):
            return  # both are objects in JSON: which names there are shows at each value
        case _ if form not in _forms(wanted):
            yield f'column "{path}" is {in_words(type_)}, and the table has {_in_words(wanted)}'


def _forms(wanted: pa.DataType) -> Sequence[JsonForm]:
    if pa.types.is_timestamp(wanted):
        return ("moment" if wanted.tz else "local moment", "text")
    return next((forms for is_type, forms in _FORMS if is_type(wanted)), ())


def _in_words(type_: pa.DataType) -> str:
    """Return a type as DDL has it, as far as messages need it."""
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP" if type_.tz else "TIMESTAMP_NTZ"
    names = {
        pa.int8(): "TINYINT",
        pa.int16(): "SMALLINT",
        pa.int32(): "INT",
        pa.int64(): "BIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
        pa.bool_(): "BOOLEAN",
        pa.string(): "STRING",
        pa.binary(): "BINARY",
        pa.date32(): "DATE",
    }
    nested = "STRUCT" if pa.types.is_struct(type_) else "MAP" if pa.types.is_map(type_) else "ARRAY"
    return names.get(type_, nested)
