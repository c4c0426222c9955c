"""The keys of processors that Spark runs, `type: sql` and `type: dataframe`, in pipeline.yaml."""

from __future__ import annotations

import re
from typing import Any

from common.fields import Fields
from common.processors import ProcessorType
from common.yaml_positions import Map, Problems, Scalar, describe, plain
from streams.engine.user_code import form_problem
from streams.sql.spec import FORMATS

_KEYS = ("format", "schema", "tables")
KEYS = {
    ProcessorType.SQL: ("query", *_KEYS),
    ProcessorType.DATAFRAME: ("function", *_KEYS),
}
_TABLE_KEYS = ("format", "path", "schema", "options", "refresh_interval")
_INTERVAL = re.compile(r"([1-9][0-9]*)\s*(s|sec|min|h)")
_SECONDS = {"s": 1, "sec": 1, "min": 60, "h": 3600}
_VIEW = "input"


def read_spark(type_: ProcessorType, fields: Fields, problems: Problems) -> dict[str, Any]:
    """Return the options of a processor that Spark runs, as JSON values."""
    options: dict[str, Any] = {"format": fields.choice("format", FORMATS, default="string")}
    if type_ is ProcessorType.SQL:
        options["query"] = fields.text("query", about="a SELECT over the view input")
    options["schema"] = fields.text("schema", default="")
    is_json = options["format"] == "json"
    if is_json and fields.get("schema") is None:
        about = 'the columns of the values, such as "name STRING, price DOUBLE"'
        fields.require("schema", about)
    elif not is_json and fields.get("schema") is not None:
        problems.add(fields.at("schema"), "schema belongs to format: json")
    options["tables"] = read_tables(fields, problems)
    return options


def read_function(fields: Fields, problems: Problems) -> str:
    """Return the reference to the function of a `type: dataframe`, or "" if it is wrong."""
    reference = fields.text("function", about="package.module:function")
    wrong = form_problem(reference) if reference else None
    if wrong:
        problems.add(fields.at("function"), wrong)
        return ""
    return reference


def read_tables(fields: Fields, problems: Problems) -> dict[str, dict[str, Any]]:
    """Return the lookup tables by their names: format, path, schema, options and `refresh_s`."""
    tables: dict[str, dict[str, Any]] = {}
    for pair in fields.pairs("tables"):
        if not pair.key.isidentifier() or pair.key.lower() == _VIEW:
            problems.add(pair.at, f'"{pair.key}" cannot be the name of a table')
        if not isinstance(pair.value, Map):
            problems.add(
                pair.value, f"a table must be a map with format, got {describe(pair.value)}"
            )
            continue
        table = Fields(pair.value.pairs, problems, at=pair.value, known=_TABLE_KEYS)
        tables[pair.key] = {
            "format": table.text("format", about="a source of Spark, such as parquet or csv"),
            "path": table.text("path", default=""),
            "schema": table.text("schema", default=""),
            "options": _options(table, problems),
            "refresh_s": _interval(table, problems),
        }
    return tables


def _options(table: Fields, problems: Problems) -> dict[str, str]:
    options = {}
    for pair in table.pairs("options"):
        if not isinstance(pair.value, Scalar) or pair.value.value is None:
            problems.add(pair.value, f"option {pair.key} must be one value")
            continue
        value = plain(pair.value)
        options[pair.key] = str(value).lower() if isinstance(value, bool) else str(value)
    return options


def _interval(table: Fields, problems: Problems) -> int:
    """Return the refresh interval in seconds; 0 if the table is read only once."""
    text = table.text("refresh_interval", default="")
    if not text:
        return 0
    found = _INTERVAL.fullmatch(text)
    if found is None:
        problems.add(
            table.at("refresh_interval"),
            f'refresh_interval must be a time such as "30 s", "10 min" or "1 h", got "{text}"',
        )
        return 0
    return int(found[1]) * _SECONDS[found[2]]
