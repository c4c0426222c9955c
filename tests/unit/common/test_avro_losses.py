"""Values that fastavro would write as others are refused, and all others are left to it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, time
from decimal import Decimal
from io import BytesIO
from math import inf, isnan, nan
from typing import Any
from uuid import UUID, uuid4

import pytest

pytest.importorskip("fastavro", reason="needs the extra schemaregistry")

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.kafka.avro_codec import AvroWriter
from kafka_pipeline.common.kafka.avro_losses import loss_finder
from kafka_pipeline.common.kafka.misfit import MisfitError
from kafka_pipeline.common.kafka.schema_registry import SchemaRegistry, client_of

NODE: dict[str, Any] = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "ok", "type": "boolean", "default": True},
        {"name": "children", "type": {"type": "array", "items": "Node"}, "default": []},
    ],
}
STRINGS = {"type": "array", "items": "string"}
MOMENT = datetime(2026, 1, 1, microsecond=1, tzinfo=UTC)
TYPES: list[Any] = ["boolean", "int", "long", "float", "double", "string"]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**66), 2**66),
    st.floats(),
    st.decimals(),
    st.text(max_size=3),
)


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


def record(type_: Any, **more: Any) -> Any:
    fields = [{"name": "a", "type": type_, **more}]
    return {"type": "record", "name": "Row", "fields": fields}


def loss(type_: Any, value: Any) -> str:
    find = loss_finder(parse_schema(record(type_)))
    return find({"a": value}) if find else ""


@pytest.mark.parametrize(
    ("type_", "value", "words"),
    [
        ("boolean", "no", 'field "a" is a str, not boolean'),
        ("boolean", None, 'field "a" is null or missing, not boolean'),
        ("int", 2**31, 'field "a" is not a whole number, or beyond the range of int'),
        ("int", 2.7, 'field "a" is not a whole number, or beyond the range of int'),
        ("long", Decimal("2.7"), 'field "a" is not a whole number, or beyond the range of long'),
        ("long", nan, 'field "a" is not a whole number, or beyond the range of long'),
        ("float", 1e300, 'field "a" is beyond the range of float'),
        ("double", Decimal("1e400"), 'field "a" is beyond the range of double'),
        (["null", "float"], -1e39, 'field "a" is beyond the range of float'),
        (["int", "string"], ("int", 2**40), 'field "a" is not a whole number, or beyond'),
        ({"type": "array", "items": "int"}, [1, 2**40], 'field "a" is not a whole number, or'),
        ({"type": "map", "values": "boolean"}, {"x": 1}, 'field "a" is a int, not boolean'),
        (NODE, {"children": [{"children": [{"ok": "no"}]}]}, 'field "a.children.children.ok" is'),
        (NODE, {"children": [{"oh": True}]}, 'field "a.children.oh" is not in the schema'),
        ("null", 7, 'field "a" is a int, not null'),
        (STRINGS, "abc", 'field "a" is a str, not an array'),
        (STRINGS, {"a": 1}, 'field "a" is a dict, not an array'),
        (STRINGS, iter("abc"), 'field "a" is a str_ascii_iterator, not an array'),
        (logical("string", "uuid"), "x", 'field "a" is not a UUID'),
        (logical("int", "date"), MOMENT, 'field "a" is a time, not a date'),
        (["null", logical("int", "date"), logical("long", "timestamp-micros")], MOMENT,
         'field "a" is a time, not a date'),
        (logical("long", "timestamp-millis"), MOMENT, 'field "a" has microseconds, and the schema'),
        (logical("int", "time-millis"), time(1, 0, 0, 1), 'field "a" has microseconds, and the'),
        (logical("long", "local-timestamp-micros"), MOMENT, 'field "a" has a time zone, and the'),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal(100),
         'field "a" has more than 4 digits'),
    ],
)  # fmt: skip
def test_value_that_would_become_another_one_is_named(type_: Any, value: Any, words: str) -> None:
    assert loss(type_, value).startswith(words)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int", 2.0),
        ("int", -(2**31)),
        ("float", inf),
        ("float", 0.1),
        ("int", "7"),
        (["null", "boolean"], None),
        (["null", "boolean"], ("boolean", True)),
        (["int", "string"], "7"),
        (["int", "string"], ("string", "7")),
        (logical("int", "date"), "2026-01-01"),
        (logical("int", "date"), MOMENT.date()),
        ([logical("long", "timestamp-micros"), logical("int", "date")], MOMENT),
        (logical("long", "timestamp-micros"), MOMENT),
        (logical("long", "timestamp-millis"), MOMENT.replace(microsecond=1000)),
        (logical("long", "local-timestamp-micros"), MOMENT.replace(tzinfo=None)),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("-99.99")),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("0E+9")),
        (logical("string", "uuid"), UUID(int=7)),
        (logical("string", "uuid"), str(UUID(int=7))),
        (STRINGS, ("a", "b")),
        (["null", NODE], {"-type": "Node", "children": []}),
        ("string", 7),
        (NODE, {"children": [{"ok": True}, {}]}),
        (NODE, 7),
    ],
)
def test_everything_else_is_left_to_fastavro(type_: Any, value: Any) -> None:
    assert loss(type_, value) == ""


@given(st.sampled_from(TYPES), VALUES, st.booleans())
def test_what_is_written_is_read_as_it_was(type_: Any, value: Any, may_be_null: bool) -> None:
    schema = parse_schema(record(["null", type_] if may_be_null else type_))
    find, stream = loss_finder(schema), BytesIO()
    if find and find({"a": value}):
        return
    try:
        schemaless_writer(stream, schema, {"a": value})
    except Exception:
        return
    stream.seek(0)
    row: Any = schemaless_reader(stream, schema, None)
    read = row["a"]
    if isinstance(value, int | float | Decimal) and type_ in ("float", "double"):
        # Digits beyond those of the type are lost by its nature.
        assert isnan(read) == isnan(value)
        assert isnan(read) or read == pytest.approx(float(value), rel=1e-6, abs=1e-37)
    elif not (value is None and type_ == "boolean"):
        assert read == value


def test_writer_refuses_the_value() -> None:
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    write = AvroWriter(client, "rows-value", json.dumps(record("boolean")), register=True)
    with pytest.raises(MisfitError, match=r'the schema, version 1 .*: field "a" is a str'):
        write({"a": "no"})
    assert write({"a": True})[5:] == b"\x01"
