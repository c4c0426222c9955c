"""Fields that are read from JSON by column are those that Python reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from kafka_pipeline import Record, SerializationError, StreamsBuilder, col, serdes, struct
from kafka_pipeline.streams.dsl import expression_parts, json_columns
from kafka_pipeline.streams.dsl.json_columns import JsonReader
from kafka_pipeline.testing import TopologyTestDriver

decode = serdes.json.deserialize


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_columns, "FEWEST_RECORDS", 1)
    monkeypatch.setattr(expression_parts, "FEWEST_RECORDS", 1)


def read(raw: list[bytes | None], fields: list[tuple[str, ...]]) -> Any:
    return JsonReader(decode).read(raw, fields)


GOOD = {
    "ints": [b'{"a":1}', b'{"a":-9223372036854775808}', b'{"b":[{"a":2}]}', None, b'{"a":null}'],
    "ints, with white space": [b'{ "a" :\t1 }', b'{"x":{"y":"}{"},\n"a":2}', b'{"a":3}'],
    "floats": [b'{"a":1.5}', b'{"a":1e-320}', b'{"a":0.1234567890123456789}', b'{"a":-2.0}'],
    "strings": [b'{"a":"\\ud83d\\ude00\\n"}', '{"a":"ß\u2028"}'.encode(), b'{"a":"2013-01-01"}'],
    "bools": [b'{"a":true}', b'{"a":false}', b"{}"],
    "escaped names": [b'{"\\u0061":1}', b'{"a":2}'],
    "only nulls": [b"{}", b'{"a":null}'],
}


@pytest.mark.parametrize("raw", GOOD.values(), ids=GOOD)
def test_fields_of_one_type_are_read_by_column(raw: list[bytes | None]) -> None:
    found = read(raw, [("a",)])
    expected = [None if item is None else decode(item).get("a") for item in raw]
    assert repr(found["a"].to_pylist()) == repr(expected)


def test_fields_of_fields_are_read_by_column() -> None:
    column = JsonReader(decode).column([b'{"a":{"b":1}}', b'{"a":null}', b"{}", b'{"a":{}}'])
    column.expect([("a", "b")])
    assert column.field("a").field("b").array.to_pylist() == [1, None, None, None]


ODD = {
    "whole numbers among floats": [b'{"a":1.5}', b'{"a":1}'],
    "whole numbers among floats, with white space": [b'{"a":1.5}', b'{"a"\n:\t7\n}'],
    "a name that is written otherwise": [b'{"a":1.5}', b'{"\\u0061":1}'],
    "floats among whole numbers": [b'{"a":1}', b'{"a":1.0}'],
    "an int of more than 64 bits": [b'{"a":9223372036854775808}'],
    "a string among numbers": [b'{"a":1}', b'{"a":"1"}'],
    "a name twice": [b'{"a":1,"a":2}'],
    "a lone surrogate": [b'{"a":"\\ud800"}'],
    "dicts": [b'{"a":{}}'],
    "lists": [b'{"a":[]}'],
    "not objects": [b"1", b"[]"],
    "null": [b"null"],
    "white space around": [b' {"a":1}'],
}


@pytest.mark.parametrize("raw", ODD.values(), ids=ODD)
def test_what_arrow_reads_in_another_way_is_left_to_python(raw: list[bytes | None]) -> None:
    assert read(raw, [("a",)]) is None
    assert all(decode(item) is not False for item in raw if item is not None)  # it is JSON


BAD = {
    "two objects in a record, and none in another": [b'{"a":1}{"a":2}', b""],
    "two objects in a record, and a part of one in others": [b'{"a":1', b"}", b"{}{}"],
    "a number that is not JSON": [b'{"b":NaN}'],
    "an infinity": [b'{"b":-Infinity}'],
    "a number beyond floats": [b'{"b":1e999}'],
    "an int with too many digits": [b'{"b":' + b"1" * 5000 + b"}"],
    "not UTF-8": [b'{"b":"\xff"}'],
    "a character that must be escaped": [b'{"b":"\x01"}'],
    "too deep": [b'{"b":' + b"[" * 100_000 + b"]" * 100_000 + b"}"],
    "a comment": [b'{"b":/**/1}'],
    "a byte order mark": [b'\xef\xbb\xbf{"a":1}'],
    "an open string": [b'{"a":"}', b'{"b":"}'],
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD)
def test_what_is_not_json_for_python_is_not_read_by_column(raw: list[bytes | None]) -> None:
    assert read([b'{"a":1}', *raw], [("a",)]) is None
    with pytest.raises(SerializationError):
        [decode(item) for item in raw if item is not None]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**66), 2**66)
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, 1.0, -0.0])
    | st.text('a"\\é\n{}[]:,', max_size=4)
)


@st.composite
def documents(draw: st.DrawFn) -> list[bytes | None]:
    kind = draw(
        st.sampled_from(
            [SCALARS, st.integers(-5, 5), st.floats(-5, 5), st.text("ab}\n", max_size=3)]
        )
    )
    nested = st.recursive(
        kind, lambda inner: st.dictionaries(st.sampled_from("abc"), inner), max_leaves=3
    )
    row = st.dictionaries(st.sampled_from("abcd"), kind | st.none() | nested, max_size=4)
    rows = draw(st.lists(st.none() | row, min_size=1, max_size=6))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (",\n", "\t:\n")]))
    ascii_ = draw(st.booleans())
    return [
        None
        if each is None
        else json.dumps(each, separators=separators, ensure_ascii=ascii_).encode()
        for each in rows
    ]


@settings(suppress_health_check=list(HealthCheck))
@given(documents(), st.sampled_from([[("a",)], [("a",), ("b",)], [("a", "b"), ("c",)]]))
def test_columns_are_what_python_reads(
    raw: list[bytes | None], fields: list[tuple[str, ...]]
) -> None:
    column = JsonReader(decode).column(raw)
    column.expect(fields)
    if column._items is None and column._read:
        event("read by column")
    for path in fields:
        found: Any = column
        items = [None if item is None else decode(item) for item in raw]
        for name in path:
            if any(item is not None and not isinstance(item, dict) for item in items):
                break
            found = found.field(name)
            items = [None if item is None else item.get(name) for item in items]
        else:
            assert repr(found.to_pylist()) == repr(items)


def test_a_chain_decodes_only_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def counting(data: bytes) -> Any:
        decoded.append(data)
        return decode(data)

    monkeypatch.setattr(JsonReader, "_guess", _guess_int)
    original = JsonReader.__init__

    def init(reader: JsonReader, _: Any) -> None:
        original(reader, counting)

    monkeypatch.setattr(JsonReader, "__init__", init)
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    late = builder.stream("in").filter(col("delay") > 15)
    late.to("late")
    with TopologyTestDriver(builder) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.bytes)
        topic.pipe_batch([_record(b'{"delay":%d}' % each) for each in range(20)])
        found = driver.create_output_topic("late", serdes.string, serdes.json).read_records()
    assert [record.value["delay"] for record in found] == [16, 17, 18, 19]
    assert decoded == [b'{"delay":%d}' % each for each in range(16, 20)]


def _guess_int(reader: JsonReader, raw: Any, fields: Any) -> bool:
    reader._types.update(dict.fromkeys(fields, json_columns._TYPES[int]))
    return True


def _record(value: bytes) -> Record:
    return Record("k", value, 0)


def test_one_bad_record_is_found_among_good_ones() -> None:
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    stream = builder.stream("in").filter(col("delay") > 15)
    stream.map_values(struct(delay=col("delay") * 2)).to("late")
    with TopologyTestDriver(builder) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.bytes)
        values = [b'{"delay":20}', b'{"delay":NaN}', b'{"delay":30}']
        with pytest.raises(SerializationError, match="NaN"):
            topic.pipe_batch([_record(value) for value in values])
        found = driver.create_output_topic("late", serdes.string, serdes.json).read_records()
    assert [record.value for record in found] == [{"delay": 40}]


def test_the_branches_of_a_source_get_the_same_values() -> None:
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    stream = builder.stream("in")
    stream.filter(col("delay") > 15).map_values(struct(d=col("delay"))).to("columns")
    stream.filter(col("late") == True).map_values(col("delay")).to("others")  # noqa: E712
    stream.filter(lambda key, value: value["delay"] > 15).to("functions")
    with TopologyTestDriver(builder) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.bytes)
        values = [
            b'{"delay":%d,"late":%s}' % (n, b"true" if n > 17 else b"false") for n in range(20)
        ]
        topic.pipe_batch([_record(value) for value in values])
        found = {
            name: [
                record.value
                for record in driver.create_output_topic(
                    name, serdes.string, serdes.json
                ).read_records()
            ]
            for name in ("columns", "others", "functions")
        }
    assert found["columns"] == [{"d": n} for n in range(16, 20)]
    assert found["others"] == [18, 19]
    assert found["functions"] == [{"delay": n, "late": n > 17} for n in range(16, 20)]
