"""Rows of JSON with their columns, and what is noticed in JSON before Arrow reads it."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.arrow_json import (
    RowsWithColumns,
    has_escapes,
    joined_objects,
    json_of,
    objects_of,
)

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64())])
A, B = pa.array([1, None]), pa.array(["x", "y"])
C = pa.array(['{"c":3}', '{"c":null}'])
ROWS = [b'{"a":1,"b":"x","c":3}', b'{"a":null,"b":"y","c":null}']


def test_the_rest_of_the_fields_is_read() -> None:
    found = RowsWithColumns(ROWS, {"a": A, "b": B}, [C]).whole(SCHEMA)
    assert found is not None
    assert found.to_pylist() == [json.loads(row) for row in ROWS]


@pytest.mark.parametrize(
    "rows",
    [
        RowsWithColumns(ROWS, {"a": A, "b": B}),
        RowsWithColumns(ROWS, {"a": A.cast(pa.int32()), "b": B}, [C]),
        RowsWithColumns(ROWS, {"a": A, "b": B, "d": B}, [C]),
        RowsWithColumns(ROWS, {"a": A, "b": B}, [pa.array(['{"c":NaN}', "{}"])]),
        RowsWithColumns(ROWS, {"a": A, "b": B}, [pa.array(["{}", "{}"])]),
    ],
    ids=["missing", "other type", "another", "not finite", "all missing"],
)
def test_fields_that_are_missing_or_different_are_noticed(rows: RowsWithColumns) -> None:
    assert rows.whole(SCHEMA) is None


def test_fields_of_the_rest_that_the_schema_lacks_are_refused() -> None:
    rows = RowsWithColumns(ROWS, {"a": A, "b": B}, [pa.array(['{"d":3}', "{}"])])
    with pytest.raises(pa.ArrowInvalid, match="unexpected field"):
        rows.whole(SCHEMA)


def test_only_columns_that_are_there_are_selected() -> None:
    rows = RowsWithColumns(ROWS, {"a": A, "b": B}, [C])
    found = rows.table(SCHEMA.remove(2))
    assert found is not None
    assert found.to_pydict() == {"a": [1, None], "b": ["x", "y"]}
    assert rows.table(SCHEMA) is None


@given(st.lists(st.none() | st.text(max_size=4), min_size=1), st.integers(0, 2))
def test_characters_to_escape_are_found_and_written(texts: list[str | None], start: int) -> None:
    column = pa.array(texts, pa.string()).slice(start)
    special = {chr(number) for number in range(32)} | {'"', "\\"}
    assert has_escapes(column) == any(special & {*(text or "")} for text in texts[start:])
    written = json_of(column, lambda item: json.dumps(item, ensure_ascii=False).encode())
    objects = objects_of({"f": written}).to_pylist()
    assert [json.loads(each)["f"] for each in objects] == texts[start:]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "Inf", "-Inf"])
@pytest.mark.parametrize("before", [":", ": ", ":\n", ":[", ":[1,", ":[1,\t"])
def test_numbers_that_are_not_finite_are_left_to_python(before: str, number: str) -> None:
    after = "]" if "[" in before else ""
    assert joined_objects([f'{{"f"{before}{number}{after}}}'.encode()]) is None


@pytest.mark.parametrize("text", ["NaN", "a NaNcy", "INFINITY", "N", "I", "Infinity"])
def test_such_words_in_strings_are_no_numbers(text: str) -> None:
    assert joined_objects([json.dumps({"f": text.replace(" ", "")}).encode()]) is not None
