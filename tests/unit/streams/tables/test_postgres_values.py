"""Values of every type on their way into PostgreSQL and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.streams.tables.columns import Columns, columns_of
from kafka_pipeline.streams.tables.postgres import PostgresTable
from kafka_pipeline.streams.tables.postgres_values import first_misfit
from tests.postgres import PASSWORD, USER, Database

TEXTS = ["", " ", "a", '"', '""', ",", "\n", "\r\n", "\\", "\\.", "a\n\\.\nb", "\\N", "NULL", "é😀"]
VALUES: Mapping[str, list[Any]] = {
    "TINYINT": [-128, 127],
    "SMALLINT": [-(2**15), 2**15 - 1],
    "INT": [-(2**31), 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "FLOAT": [0.1, -3.4028234663852886e38, 1e-45],
    "DOUBLE": [0.1, -1.7976931348623157e308, 5e-324, -0.0],
    "DECIMAL(38, 38)": [Decimal("0." + "1" * 38), Decimal("-1e-38")],
    "DECIMAL(38, 0)": [Decimal("9" * 38), Decimal("-1")],
    "DECIMAL(10, 2)": [Decimal("1.10"), Decimal("0.00")],
    "STRING": TEXTS,
    "BINARY": [b"", b"\0\\x", bytes(range(256))],
    "BOOLEAN": [True, False],
    "DATE": [date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31)],
    "TIMESTAMP": [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 1, UTC),
    ],
    "TIMESTAMP_NTZ": [datetime(1, 1, 1), datetime(2026, 3, 1, 1, 2, 3, 4)],
}


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_values_of_each_type_come_back_as_they_were(database: Database, mode: str) -> None:
    names = [f"c{number}" for number in range(len(VALUES))]
    size = max(map(len, VALUES.values()))
    ddl = ", ".join(f"{name} {type_}" for name, type_ in zip(names, VALUES, strict=True))
    columns = columns_of(f"n INT NOT NULL, {ddl}", {})
    if mode == "upsert":
        columns = columns.keyed(["n"])
    padded = [[*each, *[None] * (size - len(each))] for each in VALUES.values()]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*padded, strict=True)]
    given = [{"n": n, "__deleted": False, **row} for n, row in enumerate([*rows, {}])]
    table = postgres_table(database, columns)
    batch = pa.RecordBatch.from_pylist(given, columns.of_changes)
    assert table.misfit(batch) == (len(given), "")
    table.write([batch], 1, None)
    found = database.run("SELECT * FROM t ORDER BY n")
    wanted = batch.select(["n", *names]).to_pylist()
    # A `real` comes back as the shortest text that means it.
    real = names[[*VALUES].index("FLOAT")]
    got = [dict(zip(["n", *names], row, strict=True)) for row in found]
    for row in got:
        row[real] = pa.scalar(row[real], pa.float32()).as_py()
    assert got == wanted
    assert postgres_table(database, columns).position() == 1


NESTED: Mapping[str, tuple[str, list[Any]]] = {
    "ints": ("ARRAY<BIGINT>", [[], [1, None, -(2**63)]]),
    "texts": ("MAP<STRING, STRING>", [{}, {text: text for text in TEXTS}, {"a": None}]),
    "deep": (
        "STRUCT<a: STRUCT<b: ARRAY<MAP<STRING, DECIMAL(38, 10)>>>, raw: BINARY, day: DATE, "
        "at: TIMESTAMP, local: TIMESTAMP_NTZ, real: DOUBLE, yes: BOOLEAN>",
        [
            {
                "a": {"b": [{"x": Decimal("1234567890123456789.0123456789")}]},
                "raw": b"\0\xff",
                "day": date(2026, 3, 1),
                "at": datetime(2026, 3, 1, 1, 2, 3, 4, UTC),
                "local": datetime(1, 1, 1),
                "real": 0.1,
                "yes": True,
            },
            {"a": None},
        ],
    ),
}


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_nested_values_are_json(database: Database, mode: str) -> None:
    ddl = ", ".join(f"{name} {type_}" for name, (type_, _) in NESTED.items())
    columns = columns_of(f"n INT NOT NULL, {ddl}", {})
    if mode == "upsert":
        columns = columns.keyed(["n"])
    given: list[dict[str, Any]] = [{"n": n, "__deleted": False} for n in range(4)]
    for name, (_, values) in NESTED.items():
        for row, value in zip(given, values, strict=False):
            row[name] = value
    table = postgres_table(database, columns)
    batch = pa.RecordBatch.from_pylist(given, columns.of_changes)
    assert table.misfit(batch) == (len(given), "")
    table.write([batch], 1, None)
    found = database.run("SELECT ints, texts, deep FROM t ORDER BY n")
    empty = dict.fromkeys(["a", "raw", "day", "at", "local", "real", "yes"])
    deep = {
        "a": {"b": [{"x": 1234567890123456789.0123456789}]},
        "raw": "AP8=",
        "day": "2026-03-01",
        "at": "2026-03-01T01:02:03.000004Z",
        "local": "0001-01-01T00:00:00",
        "real": 0.1,
        "yes": True,
    }
    assert found == [
        ([], {}, deep),
        ([1, None, -(2**63)], {text: text for text in TEXTS}, empty),
        (None, {"a": None}, None),
        (None, None, None),
    ]
    (digits,) = database.run("SELECT (deep #> '{a,b,0,x}')::text FROM t WHERE n = 0")
    assert digits == ("1234567890123456789.0123456789",)


def test_nested_values_that_jsonb_cannot_have_are_misfits() -> None:
    columns = columns_of("texts ARRAY<STRING>", {})
    given = [{"texts": ["\\u0000"]}, {"texts": ["\\u0000", "\\\0"]}]
    index, why = first_misfit(pa.RecordBatch.from_pylist(given, columns.schema), ())
    assert (index, why) == (1, 'the value does not fit column "texts": it has the character NUL')


def postgres_table(database: Database, columns: Columns) -> PostgresTable:
    spec = TableSinkSpec(
        format="postgres", url=database.url, table="t", user=USER, password=PASSWORD, schema=""
    )
    return PostgresTable(spec, columns, "a")
