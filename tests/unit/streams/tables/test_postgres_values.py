"""Values of every type on their way into PostgreSQL and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.streams.tables.columns import columns_of
from kafka_pipeline.streams.tables.postgres import PostgresTable
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
    spec = TableSinkSpec(
        format="postgres",
        url=database.url,
        table="t",
        user=USER,
        password=PASSWORD,
        schema="",
    )
    table = PostgresTable(spec, columns, "a")
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
    assert PostgresTable(spec, columns, "a").position() == 1
