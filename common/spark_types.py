"""Types of Spark as `StructType.json()` writes them, for code that does not import Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

JsonForm = Literal[
    "null",
    "boolean",
    "number",
    "fraction",
    "text",
    "bytes",
    "date",
    "moment",
    "local moment",
    "struct",
    "array",
    "map",
    "any",
]
"""What the values of a type are in the JSON of a row. Bytes, dates and moments are text there.

A fraction is a number that is written with decimal places, even if they are zero.
"""

OF_RECORDS = ("key", "timestamp", "headers")
"""The columns of a result that are parts of the record, and not fields of its value."""

_FORMS: Mapping[str, JsonForm] = {
    "void": "null",
    "boolean": "boolean",
    "byte": "number",
    "short": "number",
    "integer": "number",
    "long": "number",
    "float": "fraction",
    "double": "fraction",
    "binary": "bytes",
    "date": "date",
    "timestamp": "moment",
    "timestamp_ntz": "local moment",
    "variant": "any",
}
_WORDS = {
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INT",
    "long": "BIGINT",
}


def columns_of_result(struct: str) -> dict[str, Any]:
    """Return the fields of a result's values by name, as `{"type": …, "nullable": …}`.

    `struct` is the JSON of the result's type.
    """
    fields = json.loads(struct)["fields"]
    return {each["name"]: each for each in fields if each["name"].lower() not in OF_RECORDS}


def form_of(type_: Any) -> JsonForm:
    """Return what the values of a type are in JSON."""
    if isinstance(type_, Mapping):
        found: JsonForm = type_["type"] if type_["type"] in ("struct", "array", "map") else "any"
        return found
    if type_.startswith("decimal"):
        return "number" if type_.endswith(",0)") else "fraction"
    # Others, such as char(3) and intervals, are text.
    return _FORMS.get(type_, "text")


def in_words(type_: Any) -> str:
    """Return a type as DDL has it."""
    if not isinstance(type_, Mapping):
        name, bracket, sizes = type_.partition("(")
        return f"{_WORDS.get(name, name.upper())}{bracket}{sizes.replace(',', ', ')}"
    match type_["type"]:
        case "array":
            return f"ARRAY<{in_words(type_['elementType'])}>"
        case "map":
            return f"MAP<{in_words(type_['keyType'])}, {in_words(type_['valueType'])}>"
        case "struct":
            fields = (f"{each['name']}: {in_words(each['type'])}" for each in type_["fields"])
            return f"STRUCT<{', '.join(fields)}>"
    return str(type_["type"])
