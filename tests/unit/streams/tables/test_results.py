"""What is said of a query's columns and a table's, compared with what the table can read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_pipeline.common.spark_types import columns_of_result
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.tables.columns import columns_of
from kafka_pipeline.streams.tables.results import misfits
from kafka_pipeline.streams.tables.rows import RowReader
from tests.result_columns import COLUMNS

TYPES = (
    *("TINYINT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)", "STRING", "BOOLEAN", "BINARY"),
    *("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "ARRAY<INT>", "MAP<STRING, INT>", "STRUCT<x: INT>"),
    *("INT NOT NULL", "STRUCT<x: INT NOT NULL>"),
)
UNDECIDED = {("string", "BINARY"), ("binary", "STRING")}
"""Base64 passes for bytes, and bytes for text: that is an accident."""


def is_read(ddl: str, value: Any) -> bool:
    text = json.dumps({"f": value}, default=float).encode()
    _, reason = RowReader(columns_of(ddl, {}), 0).read(Batch([b"k"], [text], [0], offsets=[0]))
    return reason == ""


@pytest.mark.parametrize("wanted", TYPES)
def test_column_is_refused_if_none_of_its_values_can_be_read(wanted: str) -> None:
    ddl = f"f {wanted}"
    for type_, samples in COLUMNS:
        refused = misfits(columns_of(ddl, {}).of_values, {"f": {"type": type_}})
        if (type_ if isinstance(type_, str) else "", wanted) in UNDECIDED:
            assert refused
        else:
            read = [each for each in samples if is_read(ddl, each)]
            assert bool(refused) is not bool(read), (type_, refused, read)


def test_every_column_that_does_not_fit_is_named() -> None:
    row = columns_of(
        "id BIGINT NOT NULL, day DATE, at TIMESTAMP, price DECIMAL(9, 2), who STRUCT<x: INT NOT "
        "NULL>, more ARRAY<TINYINT>, other STRING",
        {},
    ).of_values
    result = (
        '{"fields": [{"name": "key", "type": "string"}, {"name": "ID", "type": "long"}, '
        '{"name": "day", "type": "timestamp"}, {"name": "at", "type": "timestamp_ntz"}, '
        '{"name": "price", "type": "boolean"}, {"name": "who", "type": {"type": "struct", '
        '"fields": [{"name": "x", "type": "void"}]}}, {"name": "more", "type": {"type": "array", '
        '"elementType": "string"}}]}'
    )
    assert misfits(row, columns_of_result(result)) == [
        'column "id" is NOT NULL, and missing, did you mean "ID"?',
        'column "day" is TIMESTAMP, and the table has DATE',
        'column "at" is TIMESTAMP_NTZ, and the table has TIMESTAMP',
        'column "price" is BOOLEAN, and the table has DECIMAL(9, 2)',
        'column "who.x" is NOT NULL, and always null',
        'column "more" is STRING, and the table has TINYINT',
    ]
