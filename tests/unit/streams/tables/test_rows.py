"""Rows of tables, from records with JSON values."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.tables.columns import columns_of
from kafka_pipeline.streams.tables.rows import RowReader

MISFIT = "the value does not fit"


def read(ddl: str, *values: bytes | None) -> tuple[list[Any], str]:
    rows, reason = RowReader(columns_of(ddl, {}), 0).read(batch(*values))
    return rows.to_pylist(), reason


def batch(*values: bytes | None, keys: list[bytes | None] | None = None) -> Batch:
    size = len(values)
    return Batch(keys or [b"k"] * size, values, [*range(size)], offsets=[*range(5, 5 + size)])


LATE = b'"9999-12-31T19:00:00-05:00"'
"""What is the year 10000 in UTC, which PyIceberg cannot write, and nobody read as a folder."""
FITS = [
    ("TINYINT", b"-128", -128),
    ("BIGINT", b"9223372036854775807", 2**63 - 1),
    ("DOUBLE", b"1", 1.0),
    ("FLOAT", b"0.5", 0.5),
    ("DECIMAL(4, 2)", b"1.10", Decimal("1.10")),
    ("DECIMAL(4, 2)", b'"12.3"', Decimal("12.30")),
    (
        "DECIMAL(38, 9)",
        b"12345678901234567890.123456789",
        Decimal("12345678901234567890.123456789"),
    ),
    ("STRING", '"é"'.encode(), "é"),
    ("BINARY", b'"aGk="', b"hi"),
    ("BOOLEAN", b"false", False),
    ("DATE", b'"2026-02-28"', date(2026, 2, 28)),
    ("TIMESTAMP", b'"2026-01-01T01:00:00.000001+01:00"', datetime(2026, 1, 1, 0, 0, 0, 1, UTC)),
    ("TIMESTAMP", b'"9999-12-31T18:59:59-05:00"', datetime(9999, 12, 31, 23, 59, 59, 0, UTC)),
    ("TIMESTAMP", b'"0001-01-01T00:00:00Z"', datetime(1, 1, 1, 0, 0, 0, 0, UTC)),
    ("TIMESTAMP_NTZ", b'"2026-01-01T01:00:00"', datetime(2026, 1, 1, 1)),
    ("ARRAY<INT>", b"[1, null]", [1, None]),
    ("STRUCT<y: INT>", b'{"y": 1, "z": 2}', {"y": 1}),
    ("MAP<STRING, INT>", b'{"a": 1}', [("a", 1)]),
    ("INT", b"null", None),
]
DOES_NOT_FIT = [
    ("TINYINT", b"128"),
    ("BIGINT", b"9223372036854775808"),
    ("INT", b"1.5"),
    ("INT", b'"1"'),
    ("INT", b"true"),
    ("DOUBLE", b'"1"'),
    ("DOUBLE", b"1e400"),
    ("DECIMAL(4, 2)", b"1.234"),
    ("DECIMAL(4, 2)", b"100"),
    ("DECIMAL(4, 2)", b'"NaN"'),
    ("STRING", b"1"),
    ("STRING", b'"\\ud800"'),
    ("BINARY", b'"?"'),
    ("DATE", b'"2026-02-30"'),
    ("TIMESTAMP", b'"2026-01-01T01:00:00"'),
    ("TIMESTAMP", b"0"),
    ("TIMESTAMP", LATE),
    ("TIMESTAMP", b'"0001-01-01T00:00:00+00:01"'),
    ("ARRAY<TIMESTAMP>", b"[null, " + LATE + b"]"),
    ("MAP<STRING, STRUCT<y: TIMESTAMP>>", b'{"a": null, "b": {"y": ' + LATE + b"}}"),
    ("TIMESTAMP_NTZ", b'"2026-01-01T01:00:00Z"'),
    ("ARRAY<TINYINT>", b"[1000]"),
    ("STRUCT<y: INT NOT NULL>", b"{}"),
    ("INT NOT NULL", b"null"),
]


@pytest.mark.parametrize(("type_", "text", "value"), FITS)
def test_a_value_that_fits_is_exact(type_: str, text: bytes, value: object) -> None:
    assert read(f"x {type_}", b'{"x": %s}' % text) == ([{"x": value}], "")


@pytest.mark.parametrize(("type_", "text"), DOES_NOT_FIT)
def test_a_value_that_does_not_fit_ends_the_rows(type_: str, text: bytes) -> None:
    good = b'{"x": null, "y": 1}' if "NOT NULL" not in type_ else None
    values = [good] if good else []
    rows, reason = read(f"x {type_}", *values, b'{"x": %s}' % text, b'{"x": null}')
    assert len(rows) == len(values)
    assert reason.startswith(MISFIT)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the value is null"),
        (b"", "the value does not fit the schema of the table: "),
        (b"[]", "the value does not fit the schema of the table: Expected `object`, got `array`"),
        (b"{} {}", "the value does not fit the schema of the table: "),
        (b'{"x": "\xff"}', "the value does not fit the schema of the table: "),
        (b'{"x": ' + b"[" * 100_000, "the value does not fit the schema of the table: "),
    ],
)
def test_a_value_that_is_not_an_object_ends_the_rows(value: bytes | None, reason: str) -> None:
    rows, found = read("x STRING", b"{}", value, b"{}")
    assert rows == [{"x": None}]
    assert found.startswith(reason)


def test_a_missing_field_is_null_unless_it_must_not_be() -> None:
    assert read("x INT, y INT", b'{"y": 1}') == ([{"x": None, "y": 1}], "")
    rows, reason = read("x INT NOT NULL", b"{}")
    assert rows == []
    assert reason.endswith("missing required field `x`")


def test_names_may_have_all_letters() -> None:
    rows, reason = read(
        "`größe` INT, s STRUCT<`a/ß`: INT>", '{"größe": 1, "s": {"a\\/\\u00df": 2}}'.encode()
    )
    assert (rows, reason) == ([{"größe": 1, "s": {"a/ß": 2}}], "")
    columns = columns_of("`größe` INT NOT NULL, n INT", {}).keyed(["größe"])
    rows, reason = RowReader(columns, 0).read(batch(None, keys=['{"größe": 1}'.encode()]))
    assert (rows.column("größe").to_pylist(), reason) == ([1], "")


def test_a_reason_has_no_value() -> None:
    for type_, text in DOES_NOT_FIT:
        _, reason = read(f"x {type_}", b'{"x": "4111111111111111"}')
        assert "4111" not in reason, (type_, text)


def test_parts_of_records_become_columns() -> None:
    parts = {"key": "k", "timestamp": "t", "partition": "p", "offset": "o"}
    reader = RowReader(columns_of("x INT", parts), 3)  # type: ignore[arg-type]
    rows, reason = reader.read(batch(b"{}", b"{}", keys=[None, "é".encode()]))
    first, second = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (0, 1))
    assert rows.to_pylist() == [
        {"x": None, "k": None, "t": first, "p": 3, "o": 5},
        {"x": None, "k": "é", "t": second, "p": 3, "o": 6},
    ]
    assert reason == ""


@pytest.mark.parametrize("time", [1_700_000_000_000_000, 1_700_000_000_000_000_000])
def test_a_timestamp_in_another_unit_ends_the_rows_if_there_is_a_column_for_it(time: int) -> None:
    given = replace(batch(b"{}", b"{}", b"{}"), timestamps=[1_700_000_000_000, time, 1])
    rows, reason = RowReader(columns_of("x INT", {"timestamp": "t"}), 0).read(given)
    assert (len(rows), reason) == (
        1,
        "the timestamp of the record is after the year 9999 in UTC",
    )
    rows, reason = RowReader(columns_of("x INT", {"offset": "o"}), 0).read(given)
    assert (len(rows), reason) == (3, "")


def test_a_time_that_is_out_of_range_is_named_as_such() -> None:
    _, reason = read("x INT, s STRUCT<at: TIMESTAMP>", b'{"s": {"at": ' + LATE + b"}}")
    assert reason == 'the value does not fit column "s": it is not in the years 1 to 9999 in UTC'


def test_a_key_that_is_not_utf8_ends_the_rows_if_there_is_a_column_for_it() -> None:
    keys: list[bytes | None] = [b"a", b"\xff", b"b"]
    given = batch(b"{}", b"{}", b"{}", keys=keys)
    rows, reason = RowReader(columns_of("x INT", {"key": "k"}), 0).read(given)
    assert (len(rows), reason) == (1, "the key is not UTF-8")
    rows, reason = RowReader(columns_of("x INT", {}), 0).read(given)
    assert (len(rows), reason) == (3, "")


def test_the_first_of_several_misfits_counts() -> None:
    given = batch(b"{}", b'{"x": 1.5}', b"{}", keys=[b"\xff", b"a", b"a"])
    rows, reason = RowReader(columns_of("x INT", {"key": "k"}), 0).read(given)
    assert (len(rows), reason) == (0, "the key is not UTF-8")
