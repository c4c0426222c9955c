"""Batches of Avro become the same rows as their records one by one, and the other way round."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any
from uuid import uuid4

import pytest
from fastavro import schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.arrow_json import FEWEST_RECORDS
from kafka_pipeline.common.kafka.avro_batches import AvroBatches, UnsureError, batches_of
from kafka_pipeline.common.kafka.avro_codec import parse_text
from kafka_pipeline.common.kafka.avro_rows import AvroRowReader, AvroRowWriter
from kafka_pipeline.common.kafka.avro_values import without_logical_types
from kafka_pipeline.common.kafka.misfit import MisfitError
from kafka_pipeline.common.kafka.schema_registry import SchemaRegistry, client_of

LOGICAL: Sequence[dict[str, Any]] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "int", "connect.name": "io.debezium.time.Date"},
]
PLAIN = ["boolean", "int", "long", "float", "double", "string"]
TYPES: Sequence[Any] = [*PLAIN, *LOGICAL]
LONGS = st.sampled_from([0, 1, -1, 63, 64, -65, 2**31, 2**63 - 1, -(2**63)]) | st.integers(
    -(2**63), 2**63 - 1
)
INTS = st.sampled_from([0, -1, 2**31 - 1, -(2**31)]) | st.integers(-(2**31), 2**31 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": INTS,
    "long": LONGS | st.integers(0, 10**12),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": st.text(max_size=5) | st.sampled_from(['"', "\\", "\n", "\x7f", "é\u2028", "NaN"]),
}


def in_schema(name: str, type_: Any, form: str) -> dict[str, Any]:
    """Return a field; the `form` says whether it may be null, and has a default."""
    match form:
        case "null first":
            return {"name": name, "type": ["null", type_], "default": None}
        case "null last":
            return {"name": name, "type": [type_, "null"]}
        case "no default":
            return {"name": name, "type": ["null", type_]}
    return {"name": name, "type": type_}


FORMS = ("", "null first", "null last", "no default")
FIELDS = st.lists(st.tuples(st.sampled_from(TYPES), st.sampled_from(FORMS)), min_size=1, max_size=4)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    fields = [in_schema(f"f{at}", *each) for at, each in enumerate(draw(FIELDS))]
    return {"type": "record", "name": "Row", "fields": fields}


def values_of(field: dict[str, Any]) -> st.SearchStrategy[Any]:
    given_ = field["type"]
    members = given_ if isinstance(given_, list) else [given_]
    strategies = [
        st.none() if each == "null" else VALUES[each["type"] if isinstance(each, dict) else each]
        for each in members
    ]
    return st.one_of(strategies)


@st.composite
def records(draw: st.DrawFn) -> tuple[dict[str, Any], list[bytes]]:
    """Return a schema, and the bytes of some records."""
    schema = draw(schemas())
    rows = st.fixed_dictionaries({each["name"]: values_of(each) for each in schema["fields"]})
    stored = without_logical_types(parse_text(json.dumps(schema)))
    found = []
    for row in draw(st.lists(rows, min_size=1, max_size=4)):
        stream = BytesIO()
        schemaless_writer(stream, stored, row)
        found.append(stream.getvalue())
    return schema, found


def both(schema: dict[str, Any]) -> tuple[AvroRowReader, AvroRowWriter, AvroBatches]:
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    text = json.dumps(schema)
    batches = batches_of(parse_text(text))
    assert batches is not None
    return (
        AvroRowReader(client, "rows-value", text),
        AvroRowWriter(client, "rows-value", text, register=True),
        batches,
    )


@given(records())
def test_records_are_the_rows_that_they_are_one_by_one(
    found: tuple[dict[str, Any], list[bytes]],
) -> None:
    schema, data = found
    reader, writer, batches = both(schema)
    frame, _, _ = writer._find()
    try:
        expected = [reader(frame + each) for each in data]
    except MisfitError:
        with pytest.raises(ValueError, match=r"year|finite"):
            batches.read(data)
    else:
        assert batches.read(data) == expected


@given(records(), st.data())
def test_spoilt_records_are_never_read_as_others(
    found: tuple[dict[str, Any], list[bytes]], data: st.DataObject
) -> None:
    schema, given_ = found
    reader, writer, batches = both(schema)
    frame, _, _ = writer._find()
    record = given_[0]
    at = data.draw(st.integers(0, len(record)))
    more = data.draw(st.binary(max_size=3) | st.just(b"\xff" * 9 + b"\x01"))
    spoilt = record[:at] + more + record[data.draw(st.integers(at, len(record))) :]
    try:
        rows = batches.read([spoilt])
    except Exception:
        return
    assert rows == [reader(frame + spoilt)]


NUMBERS = [0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63) - 1, 10**30]
TEXTS = ["", "red", "NaN", "-Infinity", "AQ==", "2024-02-29", "2024-02-29T12:00:00.5Z", "é\u2028"]
RAW = ["1.0", "1e2", "2.5", "1e38", "3.5e38", "1e400", "-0", "-0.0", "0.1", '"\\ud800"', "[1]"]
JSON = st.sampled_from([*map(str, NUMBERS), *map(json.dumps, TEXTS), *RAW, "true", "false", "null"])
NUMBERS_OF_TYPES = {"int": INTS, "long": LONGS, "float": st.floats(), "double": st.floats()}
FITTING = {
    "boolean": st.sampled_from(["true", "false"]),
    "string": (st.text(max_size=5) | st.uuids().map(str)).map(json.dumps),
    **{type_: numbers.map(json.dumps) for type_, numbers in NUMBERS_OF_TYPES.items()},
}


def written_values(field: dict[str, Any]) -> st.SearchStrategy[str]:
    """Return JSON that mostly fits."""
    members = field["type"] if isinstance(field["type"], list) else [field["type"]]
    names = [each["type"] if isinstance(each, dict) else each for each in members]
    fitting = [FITTING[each] for each in names if each != "null"]
    return st.one_of(*fitting, *fitting, *fitting, JSON)


@given(schemas(), st.data())
def test_rows_are_the_records_that_they_are_one_by_one(
    schema: dict[str, Any], data: st.DataObject
) -> None:
    values = {each["name"]: written_values(each) for each in schema["fields"]}
    complete = st.fixed_dictionaries(values)
    partial = st.fixed_dictionaries({}, optional={**values, "other": JSON})
    rows = [
        ("{" + ",".join(f'"{name}":{value}' for name, value in row.items()) + "}").encode()
        for row in data.draw(st.lists(complete | complete | partial, min_size=1, max_size=3))
    ]
    _, writer, batches = both(schema)
    try:
        written = batches.write(rows)
    except Exception:
        return
    frame, _, _ = writer._find()
    assert [frame + each for each in written] == [writer(each) for each in rows]


@pytest.mark.parametrize("type_", [*PLAIN, *LOGICAL[:4]])
@pytest.mark.parametrize("form", FORMS)
def test_what_was_read_is_written_as_it_was(type_: Any, form: str) -> None:
    schema = {"type": "record", "name": "Row", "fields": [in_schema("f", type_, form)]}
    _, _, batches = both(schema)
    name = type_["type"] if isinstance(type_, dict) else type_
    value: Any = {"boolean": True, "string": "é"}.get(name, 3)
    stored = without_logical_types(parse_text(json.dumps(schema)))
    records_ = []
    for each in [value, None] if form == "null first" else [value]:
        stream = BytesIO()
        schemaless_writer(stream, stored, {"f": each})
        records_.append(stream.getvalue())
    assert batches.write(batches.read(records_)) == records_


@pytest.mark.parametrize(
    "type_",
    [
        "bytes",
        {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        {"type": "enum", "name": "Color", "symbols": ["red"]},
        {"type": "fixed", "name": "Two", "size": 2},
        {"type": "array", "items": "int"},
        {"type": "record", "name": "Inner", "fields": []},
        ["null", "int", "string"],
        ["int"],
        "null",
    ],
)
def test_other_types_are_read_one_by_one(type_: Any) -> None:
    schema = {"type": "record", "name": "Row", "fields": [{"name": "f", "type": type_}]}
    assert batches_of(parse_text(json.dumps(schema))) is None


def test_whole_batches_have_the_frames_of_their_records() -> None:
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    text = json.dumps({"type": "record", "name": "Row", "fields": [in_schema("f", "long", "")]})
    writer = AvroRowWriter(client, "rows-value", text, register=True)
    reader = AvroRowReader(client, "rows-value", text)
    rows = [b'{"f":%d}' % n for n in range(FEWEST_RECORDS)]
    with pytest.raises(UnsureError):  # the registry has not been asked
        writer.write_all(rows)
    data = [writer(row) for row in rows]
    assert writer.write_all(rows) == data
    with pytest.raises(KeyError):
        reader.read_all(data)
    assert reader(data[0]) == rows[0]
    assert reader.read_all(data) == rows
    for wrong in (data[:-1], [*data, b"\0\0\0\0\7\0"], [*data, data[0] + b"\0"]):
        with pytest.raises(UnsureError):
            reader.read_all(wrong)
