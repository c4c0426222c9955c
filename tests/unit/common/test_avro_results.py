"""What is said of a query's columns and an Avro schema, compared with what can be written."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from kafka_pipeline.common.spark_types import columns_of_result
from tests.result_columns import COLUMNS
from tests.schema_registry import require_packages

require_packages()

import fastavro  # noqa: E402

from kafka_pipeline.common.kafka.avro_losses import loss_finder  # noqa: E402
from kafka_pipeline.common.kafka.avro_results import misfits, schema_of  # noqa: E402
from kafka_pipeline.common.kafka.avro_values import (  # noqa: E402
    UnfitError,
    without_logical_types,
    writer_of,
)

LONG, INT = "long", "int"
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
TYPES: dict[str, Any] = {
    **{name: name for name in ("boolean", "int", "long", "float", "double", "string", "bytes")},
    "enum": {"type": "enum", "name": "Kind", "symbols": ["a"]},
    "fixed": {"type": "fixed", "name": "Four", "size": 3},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "binary uuid": {"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"},
    "date": {"type": INT, "logicalType": "date"},
    "time": {"type": LONG, "logicalType": "time-micros"},
    "millis": {"type": LONG, "logicalType": "timestamp-millis"},
    "micros": {"type": LONG, "logicalType": "timestamp-micros"},
    "nanos": {"type": LONG, "logicalType": "timestamp-nanos"},
    "local": {"type": LONG, "logicalType": "local-timestamp-micros"},
    "array": {"type": "array", "items": "int"},
    "map": {"type": "map", "values": "int"},
    "record": INNER,
    "nullable": ["null", "int"],
    "union": ["null", "int", "string"],
}
UNDECIDED = {("string", "bytes"), ("string", "fixed"), ("binary", "string"), ("binary", "uuid")}
"""Base64 passes for bytes, and bytes for text: that is an accident."""


def with_field(type_: Any) -> Any:
    fields = [{"name": "f", "type": type_}]
    return fastavro.parse_schema({"type": "record", "name": "R", "fields": fields})


def is_written(schema: Any, value: Any) -> bool:
    try:
        row = writer_of(schema)(value)
        if (find := loss_finder(schema)) is not None and find(row):
            return False
        fastavro.schemaless_writer(io.BytesIO(), without_logical_types(schema), row)
    except (ValueError, TypeError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("name", TYPES)
def test_column_is_refused_if_none_of_its_values_can_be_written(name: str) -> None:
    schema = with_field(TYPES[name])
    for type_, samples in COLUMNS:
        refused = misfits(schema, {"f": {"type": type_, "nullable": True}})
        short = type_["type"] if isinstance(type_, dict) else type_
        if (short, name) not in UNDECIDED:
            written = [each for each in samples if is_written(schema, {"f": each})]
            assert bool(refused) is not bool(written), (type_, refused, written)
        else:
            assert refused


def test_every_column_and_field_that_does_not_fit_is_named() -> None:
    schema = fastavro.parse_schema(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "price", "type": ["null", TYPES["decimal"]]},
                {"name": "note", "type": "string", "default": ""},
                {"name": "inner", "type": INNER},
                {"name": "again", "type": ["null", "Inner"]},
                {"name": "either", "type": TYPES["union"]},
            ],
        }
    )
    result = (
        '{"type": "struct", "fields": [{"name": "key", "type": "string"}, {"name": "Timestamp", '
        '"type": "timestamp"}, {"name": "ID", "type": "long"}, {"name": "price", "type": "string"}'
        ', {"name": "inner", "type": "void"}, {"name": "again", "type": {"type": "struct", '
        '"fields": [{"name": "x", "type": "boolean"}, {"name": "z", "type": {"type": "array", '
        '"elementType": "decimal(3,1)"}}]}}, {"name": "either", "type": {"type": "struct", '
        '"fields": [{"name": "member_int", "type": "date"}, {"name": "o", "type": "long"}]}}]}'
    )
    assert misfits(schema, columns_of_result(result)) == [
        'column "ID" is not a field of the schema, did you mean "id"?',
        'column "price" is STRING, and the schema has decimal',
        'column "inner" is always null, which the schema does not allow',
        'column "again.x" is BOOLEAN, and the schema has int',
        'column "again.z" is not a field of the schema',
        'column "either.member_int" is DATE, and the schema has int',
        'column "either.o" is not one of the union: member_int, member_string',
        'field "id" has no column and no default',
    ]
    assert misfits("int", {}) == ["the schema is int, and only a record has columns"]


def test_derived_schema_takes_every_value_of_a_column() -> None:
    for type_, samples in COLUMNS[1:]:
        for nullable in (False, True):
            columns = {"f": {"type": type_, "nullable": nullable}}
            schema = fastavro.parse_schema(schema_of("of a-query", columns))
            assert misfits(schema, columns) == []
            for value in [*samples, None] if nullable else samples:
                assert is_written(schema, {"f": value}), (type_, value)
            assert is_written(schema, {"f": None}) is nullable


def test_derived_schema_says_what_the_columns_say() -> None:
    inner = {"type": "struct", "fields": [{"name": "d", "type": "decimal(38,9)", "nullable": True}]}
    items = {"type": "array", "elementType": inner, "containsNull": False}
    rates = {"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": True}
    found = schema_of("1.By-day", {
        "n": {"type": "long", "nullable": False},
        "items": {"type": items, "nullable": True},
        "rates": {"type": rates, "nullable": False},
    })  # fmt: skip
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}
    record = {
        "type": "record",
        "name": "_1_By_day_items",
        "fields": [{"name": "d", "type": ["null", decimal], "default": None}],
    }
    days = ["null", {"type": "int", "logicalType": "date"}]
    assert found == {
        "type": "record",
        "name": "_1_By_day",
        "fields": [
            {"name": "n", "type": "long"},
            {
                "name": "items",
                "type": ["null", {"type": "array", "items": record}],
                "default": None,
            },
            {"name": "rates", "type": {"type": "map", "values": days}},
        ],
    }


@pytest.mark.parametrize(
    ("name", "type_", "reason"),
    [
        ("nothing", "void", 'field "nothing": it is always null: give it another type with CAST'),
        ("long-name", "string", 'field "long-name": Avro has no such name: rename it with AS'),
        ("i", "interval day", 'field "i": Avro has no INTERVAL DAY: give it another'),
        ("m", {"type": "map", "keyType": "date", "valueType": "date"}, "Avro has no MAP<DATE, D"),
    ],
)
def test_columns_that_avro_does_not_have_are_named(name: str, type_: Any, reason: str) -> None:
    with pytest.raises(UnfitError, match=re.escape(reason)):
        schema_of("R", {name: {"type": type_}})
