"""The columns of tables, from a DDL schema."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_pipeline.streams.tables.columns import ColumnsError, columns_of

TYPES = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "DECIMAL": pa.decimal128(10, 0),
    "DECIMAL(5)": pa.decimal128(5, 0),
    "DECIMAL(38, 38)": pa.decimal128(38, 38),
    "ARRAY<INT>": pa.list_(pa.int32()),
    "MAP<STRING, DOUBLE>": pa.map_(pa.string(), pa.float64()),
    "STRUCT<x: INT, y: ARRAY<STRING>>": pa.struct(
        [("x", pa.int32()), ("y", pa.list_(pa.string()))]
    ),
}


@pytest.mark.parametrize(("text", "type_"), TYPES.items())
def test_a_type_of_spark_has_its_type_of_arrow(text: str, type_: pa.DataType) -> None:
    assert columns_of(f"x {text}", {}).schema == pa.schema([("x", type_)])


def test_a_column_may_refuse_nulls() -> None:
    schema = columns_of("x INT NOT NULL, y STRUCT<z: INT NOT NULL>", {}).schema
    inner = pa.struct([pa.field("z", pa.int32(), nullable=False)])
    assert schema == pa.schema([pa.field("x", pa.int32(), nullable=False), pa.field("y", inner)])


def test_parts_of_records_follow_the_columns_of_values() -> None:
    columns = columns_of("x INT", {"offset": "o", "key": "k", "timestamp": "t", "partition": "p"})
    assert columns.schema == pa.schema(
        [
            pa.field("x", pa.int32()),
            pa.field("k", pa.string()),
            pa.field("t", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("p", pa.int32(), nullable=False),
            pa.field("o", pa.int64(), nullable=False),
        ]
    )


@pytest.mark.parametrize(
    ("ddl", "reason"),
    [
        ("", "it has no columns"),
        ("x", '"x" is not a column with a type'),
        ("x: INT", '"x" is not a column with a type'),
        ("x INT, PRIMARY KEY (x)", '"PRIMARY KEY (x)" is not a column with a type'),
        ("x INT) USING y --", "it is not a list of columns and types"),
        ("x INT; DROP TABLE t", "it is not a list of columns and types"),
        ("x INT, X INT", 'column "X" is given twice'),
        ("x STRUCT<y: INT, Y: INT>", 'column "Y" is given twice'),
        ("x INT DEFAULT 3", 'column "x" has more than a type and NOT NULL'),
        ("`x``y` INT", 'column "x`y" has a character that tables cannot have'),
        ("`x y` INT", 'column "x y" has a character that tables cannot have'),
        ("x VARCHAR(3)", 'the type of column "x" is not one that tables have'),
        ("x INTERVAL", 'the type of column "x" is not one that tables have'),
        ("x ARRAY", 'the type of column "x" is not one that tables have'),
        ("x DECIMAL(39, 0)", 'the type of column "x" is not one that tables have'),
        ("x MAP<INT, INT>", 'column "x": keys of a MAP are of the type STRING, as in JSON'),
    ],
)
def test_another_schema_is_refused_in_words(ddl: str, reason: str) -> None:
    with pytest.raises(ColumnsError) as caught:
        columns_of(ddl, {})
    assert str(caught.value) == reason


def test_a_column_of_records_needs_a_name_of_its_own() -> None:
    with pytest.raises(ColumnsError, match='column "X" is given twice'):
        columns_of("x INT", {"key": "X"})
