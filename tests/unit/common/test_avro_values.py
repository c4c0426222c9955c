"""Avro as rows of queries: what each type becomes, both ways, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("fastavro", reason="needs the extra schemaregistry")

from fastavro import parse_schema, schemaless_writer

from kafka_pipeline.common import json_text
from kafka_pipeline.common.kafka.avro_codec import AvroWriter, mismatch, unseen_mismatch
from kafka_pipeline.common.kafka.avro_rows import AvroRowReader, AvroRowWriter
from kafka_pipeline.common.kafka.avro_values import UnfitError, columns_of
from kafka_pipeline.common.kafka.misfit import MisfitError
from kafka_pipeline.common.kafka.schema_registry import SchemaRegistry, client_of


def record(*types: Any, name: Any = "Row", **fields: Any) -> dict[str, Any]:
    """Return a record with the fields f0, f1 and so on, and others by name."""
    named = {**{f"f{place}": type_ for place, type_ in enumerate(types)}, **fields}
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": each, "type": type_} for each, type_ in named.items()],
    }


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


MONEY = logical("bytes", "decimal", precision=10, scale=2)
COLOR = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
CODE = {"type": "fixed", "name": "Code", "size": 2}
INNER = record("long", name="Inner")
UUID_TEXT = "00000000-0000-0000-0000-00000000000a"
CASES: list[tuple[Any, str, Any, Any]] = [
    # A type, its column, a stored value, and the value in a row.
    ("boolean", "BOOLEAN", True, True),
    ("int", "INT", -1, -1),
    ("long", "BIGINT", 2**63 - 1, 2**63 - 1),
    ("float", "FLOAT", 0.5, Decimal("0.5")),
    ("double", "DOUBLE", 0.1, Decimal("0.1")),
    ("double", "DOUBLE", float("-inf"), "-Infinity"),
    ("string", "STRING", 'ä"\n', 'ä"\n'),
    ("bytes", "BINARY", b"\xff\0", "/wA="),
    (COLOR, "STRING", "RED", "RED"),
    (CODE, "BINARY", b"ab", "YWI="),
    (MONEY, "DECIMAL(10, 2)", b"\xff", Decimal("-0.01")),
    (MONEY, "DECIMAL(10, 2)", (9_999_999_999).to_bytes(5), Decimal("99999999.99")),
    ({**CODE, **logical("fixed", "decimal", precision=4, scale=1)}, "DECIMAL(4, 1)",
     b"\0\x7b", Decimal("12.3")),
    (logical("bytes", "decimal", precision=60, scale=0), "STRING", b"\1", 1),
    (logical("int", "date"), "DATE", -1, "1969-12-31"),
    (logical("int", "time-millis"), "STRING", 1, "00:00:00.001"),
    (logical("long", "time-micros"), "STRING", 86_399_999_999, "23:59:59.999999"),
    (logical("long", "timestamp-millis"), "TIMESTAMP", -1, "1969-12-31T23:59:59.999Z"),
    (logical("long", "timestamp-micros"), "TIMESTAMP", 1, "1970-01-01T00:00:00.000001Z"),
    (logical("long", "local-timestamp-micros"), "TIMESTAMP_NTZ", 0, "1970-01-01T00:00:00"),
    (logical("string", "uuid"), "STRING", UUID_TEXT, UUID_TEXT),
    (["null", MONEY], "DECIMAL(10, 2)", None, None),
    ([MONEY, "null"], "DECIMAL(10, 2)", b"\x96", Decimal("-1.06")),
    (["null", INNER], "STRUCT<`f0`: BIGINT>", {"f0": 7}, {"f0": 7}),
    ({"type": "array", "items": ["null", MONEY]}, "ARRAY<DECIMAL(10, 2)>",
     [None, b"\1"], [None, Decimal("0.01")]),
    ({"type": "map", "values": logical("int", "date")}, "MAP<STRING, DATE>",
     {"a": 0}, {"a": "1970-01-01"}),
    (record(MONEY, name="Price"), "STRUCT<`f0`: DECIMAL(10, 2)>",
     {"f0": b"\1"}, {"f0": Decimal("0.01")}),
    (["null", "long", "string", INNER], "STRUCT<`member_long`: BIGINT, `member_string`: STRING, "
     "`member_Inner`: STRUCT<`f0`: BIGINT>>",
     ("Inner", {"f0": 7}), {"member_long": None, "member_string": None, "member_Inner": {"f0": 7}}),
    (["int", "string"], "STRUCT<`member_int`: INT, `member_string`: STRING>",
     "x", {"member_int": None, "member_string": "x"}),
]  # fmt: skip


class Subject:
    """A subject of a registry in memory, and its schemas as they come."""

    def __init__(self, schema: Any) -> None:
        self.name = "rows-value"
        self.client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
        self.schema = json.dumps(schema)
        self.writer = AvroRowWriter(self.client, self.name, self.schema, register=True)

    def stored(self, row: Mapping[str, Any]) -> bytes:
        return self.writer(json_text.dumps(row).encode())

    def row(self, data: bytes, schema: Any = None) -> Any:
        text = None if schema is None else json.dumps(schema)
        read = AvroRowReader(self.client, self.name, text)
        return json_text.decode_exactly(read(data).decode())


def plain(schema: Any) -> Any:
    """Return a schema without logical types, by which a test writes what is stored."""
    text = json.dumps(schema).replace('"logicalType"', '"was"')
    return parse_schema(json.loads(text))


@pytest.mark.parametrize(("type_", "column", "stored", "shown"), CASES)
def test_each_type_has_a_column_and_comes_back_as_it_was(
    type_: Any, column: str, stored: Any, shown: Any
) -> None:
    schema = record(type_)
    assert columns_of(parse_schema(schema)) == {"f0": column}
    subject = Subject(schema)
    data = BytesIO()
    schemaless_writer(data, plain(schema), {"f0": stored})
    framed = subject.stored({"f0": shown})
    assert framed[5:] == data.getvalue()
    assert subject.row(framed) == {"f0": shown}


@pytest.mark.parametrize(
    ("type_", "given", "words"),
    [
        (MONEY, Decimal("1.005"), 'field "f0": it has more than 2 decimal places'),
        (MONEY, 123456789, 'field "f0": it has more than 10 digits'),
        (MONEY, "1.00", 'field "f0": it is not a number'),
        (logical("int", "date"), "yesterday", "it is not a time that can be read"),
        (logical("long", "timestamp-millis"), "2024-01-01T00:00:00.0001Z", "it has microseconds"),
        (["null", INNER], {"f0": 1, "f1": 2}, 'field "f0.f1": it is not in the schema'),
        (["null", INNER], {}, 'field "f0.f0": it is missing, and has no default'),
        (["int", "string"], {"member_int": 1, "member_string": "x"}, "give one of member_int"),
        ("long", True, 'field "f0": it is not a whole number'),
        ("string", None, 'field "Row.f0" is null or missing, not string'),
        ("int", "7", 'field "Row.f0" is a str, not int'),
        ("long", Decimal("1.5"), 'field "f0": it is not a whole number'),
        ("long", Decimal("1e50000"), 'field "f0": it is beyond the range of a long'),
        ("bytes", "%", 'field "f0": it is not bytes'),
        (COLOR, "GREEN", 'field "Row.f0" is a str, not enum Color'),
    ],
)  # fmt: skip
def test_row_that_does_not_fit_is_refused_with_the_field_and_without_its_value(
    type_: Any, given: Any, words: str
) -> None:
    subject = Subject(record(type_))
    with pytest.raises(MisfitError) as caught:
        subject.stored({"f0": given})
    assert words in str(caught.value)
    assert "it does not fit the schema, " in str(caught.value)


def test_types_of_connect_come_before_those_of_avro() -> None:
    """As AvroConverter writes them: `connect.name`, and logical types for its own ones only."""
    amount = {
        "type": "bytes",
        "scale": 3,
        "precision": 64,
        "logicalType": "decimal",
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "connect.parameters": {"scale": "3", "connect.decimal.precision": "12"},
    }
    variable = {
        **record(name="VariableScaleDecimal", scale="int", value="bytes"),
        "namespace": "io.debezium.data",
        "connect.name": "io.debezium.data.VariableScaleDecimal",
    }
    times = {
        name: {"type": base, "connect.name": f"io.debezium.time.{name}"}
        for name, base in (
            ("Date", "int"),
            ("MicroTime", "long"),
            ("MicroTimestamp", "long"),
            ("NanoTimestamp", "long"),
            ("ZonedTimestamp", "string"),
        )
    }
    at = {
        **logical("long", "timestamp-millis"),
        "connect.name": "org.apache.kafka.connect.data.Timestamp",
    }
    schema = record(
        amount, ["null", variable], "io.debezium.data.VariableScaleDecimal", at, **times
    )
    assert columns_of(parse_schema(schema)) == {
        "f0": "DECIMAL(12, 3)",
        "f1": "STRING",
        "f2": "STRING",
        "f3": "TIMESTAMP",
        "Date": "DATE",
        "MicroTime": "STRING",
        **dict.fromkeys(("MicroTimestamp", "NanoTimestamp", "ZonedTimestamp"), "TIMESTAMP"),
    }
    subject = Subject(schema)
    data = BytesIO()
    stored = {
        "f0": b"\x01\xe2\x40",
        "f1": {"scale": 5, "value": b"\1"},
        "f3": 1,
        "f2": {"scale": 0, "value": b"\xff"},
        "Date": 19_723,
        "MicroTime": 1_000_001,
        "MicroTimestamp": 1,
        "NanoTimestamp": 1,
        "ZonedTimestamp": "2024-01-01T00:00:00Z",
    }
    schemaless_writer(data, plain(schema), stored)
    registered = subject.client.register_schema(subject.name, _avro(subject.schema))
    assert subject.row(b"\0" + registered.to_bytes(4) + data.getvalue()) == {
        "f0": Decimal("123.456"),
        "f1": Decimal("0.00001"),
        "f2": -1,
        "f3": "1970-01-01T00:00:00.001",
        "Date": "2024-01-01",
        "MicroTime": "00:00:01.000001",
        "MicroTimestamp": "1970-01-01T00:00:00.000001",
        "NanoTimestamp": "1970-01-01T00:00:00.000000001",
        "ZonedTimestamp": "2024-01-01T00:00:00Z",
    }


def _avro(text: str) -> Any:
    from confluent_kafka.schema_registry import Schema

    return Schema(text, "AVRO")


def test_newer_record_is_read_as_the_older_schema_says_and_the_other_way_round() -> None:
    older = record("int", gone=["null", "string"])
    older["fields"][1]["default"] = None
    newer = record("long", more=["null", MONEY], price=MONEY)
    newer["fields"][1]["default"] = None
    newer["fields"][2]["default"] = "\x01"
    subject, other = Subject(older), Subject(newer)
    other.client = subject.client
    other.writer = AvroRowWriter(subject.client, other.name, other.schema, register=True)
    data = subject.stored({"f0": 7, "gone": "x"})
    assert other.row(data, newer) == {"f0": 7, "more": None, "price": Decimal("0.01")}
    with pytest.raises(MisfitError, match=r'version 2 \(id 2\) wrote them.* "f0" is long, not int'):
        subject.row(other.stored({"f0": 7}), older)


@pytest.mark.parametrize(
    ("wrote", "reads", "fault"),
    [
        (MONEY, {**MONEY, "scale": 3}, "is decimal(10, 2), not decimal(10, 3)"),
        (["null", MONEY], ["null", {**MONEY, "scale": 0}], "is decimal(10, 2), not decimal(10, 0)"),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"),
         "is timestamp-millis, not timestamp-micros"),
        (logical("int", "time-millis"), logical("long", "time-micros"),
         "is time-millis, not time-micros"),
        (logical("int", "date"), logical("long", "timestamp-millis"),
         "is date, not timestamp-millis"),
        (["null", "string", MONEY], ["null", {**MONEY, "scale": 3}, "string"],
         "is decimal(10, 2), not decimal(10, 3)"),
    ],
)  # fmt: skip
def test_other_scale_or_unit_is_refused_rather_than_read_as_another_number(
    wrote: Any, reads: Any, fault: str
) -> None:
    writer, reader = parse_schema(record(wrote)), parse_schema(record(reads))
    assert unseen_mismatch(writer, reader) == mismatch(writer, reader) == f'field "f0" {fault}'
    subject = Subject(record(wrote))
    null = isinstance(wrote, list)
    texts = {"decimal": 1, "date": "1970-01-01", "timestamp-millis": "1970-01-01T00:00:00Z"}
    row = {"f0": None if null else texts.get(wrote["logicalType"], "00:00")}
    with pytest.raises(MisfitError, match="wrote them, the schema of the pipeline reads them"):
        subject.row(subject.stored(row), record(reads))


@pytest.mark.parametrize(
    ("wrote", "reads"),
    [
        (["null", logical("int", "date"), "string"], ["null", "string", logical("int", "date")]),
        ([MONEY, "string"], MONEY),
        (MONEY, ["string", MONEY]),
    ],
)
def test_the_same_unit_in_another_union_is_read(wrote: Any, reads: Any) -> None:
    writer, reader = parse_schema(record(wrote)), parse_schema(record(reads))
    assert unseen_mismatch(writer, reader) == mismatch(writer, reader) == ""


@pytest.mark.parametrize(
    ("union", "problem"),
    [
        ([logical("int", "date"), logical("long", "timestamp-millis")],
         "a union of int and long, and one of them is a time or a date"),
        ([{**INNER, "name": "a.Inner"}, {**INNER, "name": "b.Inner"}],
         "a union of several types with the name Inner"),
    ],
)  # fmt: skip
def test_unions_whose_types_cannot_be_told_apart_are_refused(union: Any, problem: str) -> None:
    schema = record(["null", *union])
    with pytest.raises(UnfitError, match=f'field "f0": it is {problem}'):
        columns_of(parse_schema(schema))
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    data = AvroWriter(client, "rows-value", json.dumps(schema), register=True)({"f0": None})
    with pytest.raises(MisfitError, match=f"cannot be a row: it is {problem}"):
        AvroRowReader(client, "rows-value", None)(data)


def test_a_default_is_the_same_in_each_row() -> None:
    inner = record("bytes", logical("int", "date"), name="Inner")
    newer = record("int", more=[inner])
    newer["fields"][1] |= {"type": inner, "default": {"f0": "\xff", "f1": 1}}
    subject = Subject(record("int"))
    data = subject.stored({"f0": 7})
    read = AvroRowReader(subject.client, subject.name, json.dumps(newer))
    for _ in range(2):
        assert json.loads(read(data))["more"] == {"f0": "/w==", "f1": "1970-01-02"}


def test_schemas_without_columns_are_refused() -> None:
    with pytest.raises(UnfitError, match="it is string, and only a record has columns"):
        columns_of("string")
    tree = record(name="Tree", left=["null", "Tree"])
    with pytest.raises(UnfitError, match=r'field "left\.left": it contains itself'):
        columns_of(parse_schema(tree))
    with pytest.raises(UnfitError, match="it has no record after"):
        columns_of(parse_schema(tree), "after")
    subject = Subject(tree)
    row = {"left": {"left": {"left": None}}}
    assert subject.row(subject.stored(row)) == row, "without columns, it can be read"


def test_keys_are_text_or_json() -> None:
    for type_, stored, key in (
        ("string", "ann", b"ann"),
        ("bytes", b"\xff", b"\xff"),
        ("long", 7, b"7"),
        (INNER, {"f0": 1}, b'{"f0":1}'),
    ):
        subject = Subject(type_)
        registered = subject.client.register_schema(subject.name, _avro(subject.schema))
        data = BytesIO()
        if isinstance(stored, bytes):
            data.write(stored)
        else:
            schemaless_writer(data, parse_schema(type_), stored)
        framed = b"\0" + registered.to_bytes(4) + data.getvalue()
        assert AvroRowReader(subject.client, subject.name, None, is_key=True)(framed) == key
        if type_ is not INNER:
            with pytest.raises(MisfitError, match="only a record has columns"):
                AvroRowReader(subject.client, subject.name, None)(framed)
