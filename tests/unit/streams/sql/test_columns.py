"""Batches as Arrow tables, and back, without a Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.streams.errors import InvalidTimestampError, StreamsError
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.arrow_bytes import read, write
from kafka_pipeline.streams.sql.columns import (
    HEADERS,
    batch_of,
    binary_items,
    table_of,
)
from kafka_pipeline.streams.sql.spec import COLUMNS

BYTES = st.none() | st.binary(max_size=12)


def test_all_columns_of_records_are_there_if_they_are_wanted() -> None:
    batch = Batch(
        [b"k", None], [None, b"v"], [0, 1_500], [None, [("h", b"x"), ("h", None)]], [7, 9]
    )
    table, wrong = table_of(batch, 3, COLUMNS, "string")
    assert wrong == ""
    rows = table.to_pylist()
    assert [row["timestamp"].timestamp() for row in rows] == [0, 1.5]
    assert [(row["key"], row["value"]) for row in rows] == [("k", None), (None, "v")]
    assert [(row["partition"], row["offset"]) for row in rows] == [(3, 7), (3, 9)]
    assert rows[0]["headers"] is None
    assert rows[1]["headers"] == [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]


def test_columns_that_are_not_wanted_are_left_out() -> None:
    table, _ = table_of(Batch([b"k"], [b"v"], [1]), 0, ("timestamp",), "string")
    assert table.column_names == ["timestamp"]


@pytest.mark.parametrize("format_", ["string", "json"])
def test_records_in_front_of_one_that_is_no_text_are_in_the_table(format_: str) -> None:
    batch = Batch([b"a", b"b", b"c"], [b"{}", b"\xff", b"{}"], [1, 2, 3])
    table, wrong = table_of(batch, 0, ("key", "value"), format_)  # type: ignore[arg-type]
    assert table["value"].to_pylist() == ["{}"]
    assert wrong == "the value is not UTF-8"


@pytest.mark.parametrize(
    ("keys", "values", "size", "what"),
    [
        ([b"a", None, b"\xff"], [b"1", b"\xff", b"3"], 1, "value"),
        ([b"a", b"\xff", b"c"], [None, b"2", b"\xff"], 1, "key"),
        ([b"\xff", b"b", b"c"], [b"\xff", b"2", b"3"], 0, "key"),
        ([b"a", b"b", b"c"], [b"1", b"2", b"\xff"], 2, "value"),
    ],
)
def test_all_columns_end_in_front_of_the_first_record_that_is_no_text(
    keys: list[bytes | None], values: list[bytes | None], size: int, what: str
) -> None:
    columns = ("key", "value", "timestamp")
    table, wrong = table_of(Batch(keys, values, [1, 2, 3]), 0, columns, "string")
    rows = read(bytes(write(table))).to_pylist()
    texts = [
        (key and key.decode(), value and value.decode())
        for key, value in zip(keys[:size], values[:size], strict=True)
    ]
    assert [(row["key"], row["value"]) for row in rows] == texts
    assert wrong == f"the {what} is not UTF-8"


def test_bytes_that_are_no_text_are_fine_in_the_binary_format_and_where_nobody_reads_them() -> None:
    batch = Batch([b"\xff"], [b"\xfe"], [1])
    table, wrong = table_of(batch, 0, ("key", "value"), "binary")
    assert (table.to_pylist(), wrong) == ([{"key": b"\xff", "value": b"\xfe"}], "")
    assert table_of(batch, 0, ("offset",), "string")[1] == ""


@given(st.lists(BYTES), st.integers(0, 9), st.integers(0, 9))
def test_items_of_a_slice_are_its_own(items: list[bytes | None], start: int, count: int) -> None:
    column = pa.chunked_array([pa.array(items, pa.binary())]).slice(min(start, len(items)), count)
    assert binary_items(column) == column.to_pylist()


@given(st.lists(st.tuples(BYTES, BYTES, st.integers(0, 2**40)), min_size=1))
def test_what_goes_there_comes_back(rows: list[tuple[bytes | None, bytes | None, int]]) -> None:
    keys, values, times = (list(column) for column in zip(*rows, strict=True))
    table = pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(times, pa.int64()),
        }
    )
    cut = len(rows) // 2
    parts = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    batch = batch_of(read(bytes(write(parts))))
    assert (batch.keys, batch.values, batch.timestamps) == (keys, values, times)
    assert batch.headers is None


def test_output_without_keys_has_records_without_keys() -> None:
    table = pa.table({"value": pa.array([b"v"]), "timestamp": pa.array([5])})
    assert list(batch_of(table).keys) == [None]


def test_headers_that_a_query_gives_are_those_of_the_records() -> None:
    headers = pa.array([[{"key": "h", "value": b"x"}], None], HEADERS)
    table = pa.table(
        {"value": pa.array([b"v", b"w"]), "timestamp": pa.array([5, 6]), "headers": headers}
    )
    assert batch_of(table).headers == [[("h", b"x")], None]


def test_output_without_a_time_is_refused() -> None:
    table = pa.table({"value": pa.array([b"v"]), "timestamp": pa.array([None], pa.int64())})
    with pytest.raises(StreamsError, match="timestamp is null"):
        batch_of(table)


@pytest.mark.parametrize(
    ("timestamp", "advice"),
    [
        (1_732_280_000_000_000_000, "; it looks like nanoseconds, and must be in milliseconds"),
        (2**63 - 1, ""),
    ],
)
def test_a_time_that_no_timestamp_can_have_is_refused_in_words(timestamp: int, advice: str) -> None:
    batch = Batch([None, None], [b"a", b"b"], [1, timestamp])
    with pytest.raises(InvalidTimestampError) as caught:
        table_of(batch, 0, ["timestamp"], "string")
    last = f"is after the year 294246, the last one that a TIMESTAMP can have{advice}"
    assert str(caught.value) == f"the timestamp {timestamp} {last}"
    assert caught.value.shown == f"the timestamp of the record {last}"
