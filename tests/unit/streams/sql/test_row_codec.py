"""Rows of Arrow columns as bytes, and back."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.streams.sql.row_codec import RowCodec

LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=5)),
    (pa.binary(), st.binary(max_size=5)),
    (pa.timestamp("us", tz="UTC"), st.datetimes().map(lambda t: t.replace(tzinfo=None))),
    (pa.date32(), st.dates()),
    (pa.decimal128(10, 2), st.integers(-(10**9), 10**9).map(lambda n: Decimal(n) / 100)),
    (pa.null(), st.none()),
]


def column_types() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    def nested(
        inner: st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]],
    ) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
        lists = inner.map(
            lambda each: (pa.list_(each[0]), st.lists(st.none() | each[1], max_size=3))
        )
        structs = st.tuples(inner, inner).map(
            lambda pair: (
                pa.struct([("a", pair[0][0]), ("b", pair[1][0])]),
                st.fixed_dictionaries({"a": st.none() | pair[0][1], "b": st.none() | pair[1][1]}),
            )
        )
        maps = inner.map(
            lambda each: (
                pa.map_(pa.string(), each[0]),
                st.lists(st.tuples(st.text(max_size=2), st.none() | each[1]), max_size=3),
            )
        )
        return lists | structs | maps

    return st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    columns = draw(st.lists(column_types(), min_size=1, max_size=3))
    size = draw(st.integers(0, 6))
    arrays = [
        pa.array([draw(st.none() | values) for _ in range(size)], type_)
        for type_, values in columns
    ]
    return pa.table({f"c{index}": array for index, array in enumerate(arrays)})


@given(tables(), st.data())
def test_rows_come_back_and_do_not_depend_on_their_batch(
    table: pa.Table, data: st.DataObject
) -> None:
    codec = RowCodec(table.schema)
    rows = codec.encode(table)
    back = codec.decode(rows)
    back.validate(full=True)
    assert back.to_pylist() == table.to_pylist()
    start = data.draw(st.integers(0, len(table)))
    assert codec.encode(table.slice(start)) == rows[start:]
    order = data.draw(st.permutations(range(len(table))))
    assert codec.encode(table.take(pa.array(order, pa.int64()))) == [rows[index] for index in order]


@given(st.lists(st.tuples(st.none() | st.text(max_size=2), st.none() | st.text(max_size=2))))
def test_different_rows_have_different_bytes(pairs: list[tuple[str | None, str | None]]) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    table = pa.Table.from_pylist([{"a": a, "b": b} for a, b in pairs], schema)
    assert len(set(RowCodec(schema).encode(table))) == len(set(pairs))


def test_null_has_the_same_bytes_whatever_is_below_it() -> None:
    fields = pa.array([7, 8, 9])
    below = pa.StructArray.from_arrays([fields], ["a"], mask=pa.array([False, True, True]))
    first, second, third = RowCodec(pa.schema([("s", below.type)])).encode(pa.table({"s": below}))
    assert first != second == third
    numbers = pa.Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(b"\0"), pa.py_buffer(np.array([1, 2]).tobytes())]
    )
    first, second = RowCodec(pa.schema([("n", pa.int64())])).encode(pa.table({"n": numbers}))
    assert first == second


def test_doubles_keep_their_bits() -> None:
    codec = RowCodec(pa.schema([("x", pa.float64())]))
    table = pa.table({"x": [math.nan, -0.0, 0.0]})
    nan, minus, plus = codec.decode(codec.encode(table))["x"].to_pylist()
    assert math.isnan(nan)
    assert (math.copysign(1, minus), math.copysign(1, plus)) == (-1, 1)


def test_bytes_of_other_columns_are_refused() -> None:
    pair = RowCodec(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    single = RowCodec(pa.schema([("a", pa.int64())]))
    row = pair.encode(pa.table({"a": [1], "b": ["x"]}))
    with pytest.raises(ValueError, match="not those of this query's columns"):
        single.decode(row)
    with pytest.raises(ValueError, match="too short"):
        pair.decode(single.encode(pa.table({"a": [1]})))


def test_type_without_an_encoding_is_refused_with_its_column() -> None:
    with pytest.raises(TypeError, match="d: values of the type dictionary"):
        RowCodec(pa.schema([("d", pa.dictionary(pa.int8(), pa.string()))]))


def test_rows_without_columns_are_empty() -> None:
    assert RowCodec(pa.schema([])).decode([]).num_rows == 0
