"""Defaults in Avro schemas are values of their types, where fastavro reads and writes them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("fastavro", reason="needs the extra schemaregistry")

from kafka_pipeline.common.kafka.avro_codec import AvroReader, AvroWriter
from kafka_pipeline.common.kafka.avro_json import AvroJsonReader, AvroJsonWriter
from kafka_pipeline.common.kafka.avro_rows import AvroRowReader, AvroRowWriter
from kafka_pipeline.common.kafka.misfit import MisfitError
from kafka_pipeline.common.kafka.schema_registry import SchemaRegistry, client_of

SUBJECT = "orders-value"
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
DAY = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "x", "type": "bytes"}, {"name": "y", "type": DAY, "default": 1}],
}


def record(*types: Any, **more: tuple[Any, Any]) -> str:
    fields = [{"name": f"f{at}", "type": type_} for at, type_ in enumerate(types)]
    fields += [
        {"name": each, "type": type_, "default": value} for each, (type_, value) in more.items()
    ]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


@pytest.mark.parametrize(
    ("type_", "default", "value", "as_json"),
    [
        ("bytes", "\xff", b"\xff", "\xff"),
        (MONEY, "\x01\x00", Decimal("2.56"), "\x01\x00"),
        ({"type": "fixed", "name": "Two", "size": 2}, "\xff\0", b"\xff\0", "\xff\0"),
        (DAY, 1, date(1970, 1, 2), 1),
        ([MILLIS, "null"], 1000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), {"long": 1000}),
        (["null", MILLIS], None, None, None),
        ("double", 1, 1.0, 1.0),
        (INNER, {"x": "\xff"}, {"x": b"\xff", "y": date(1970, 1, 2)}, {"x": "\xff", "y": 1}),
        ({"type": "array", "items": DAY}, [1], [date(1970, 1, 2)], [1]),
        ({"type": "map", "values": "bytes"}, {"k": "\xff"}, {"k": b"\xff"}, {"k": "\xff"}),
    ],
)  # fmt: skip
def test_a_default_is_a_value_of_its_type(
    type_: Any, default: Any, value: Any, as_json: Any
) -> None:
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    older, newer = record("int"), record("int", more=(type_, default))
    data = AvroWriter(client, SUBJECT, older, register=True)({"f0": 7})
    assert AvroReader(client, SUBJECT, newer)(data) == {"f0": 7, "more": value}
    assert AvroJsonReader(client, SUBJECT, newer)(data) == {"f0": 7, "more": as_json}
    for writer in (AvroWriter, AvroJsonWriter):
        written = writer(client, SUBJECT, newer, register=True)({"f0": 7})
        assert AvroReader(client, SUBJECT, None)(written) == {"f0": 7, "more": value}


PARTLY = {
    "type": "record",
    "name": "Partly",
    "fields": [
        {"name": "x", "type": "int", "default": 7},
        {"name": "y", "type": "bytes", "default": "\xff"},
    ],
}
SIZE = {"type": "enum", "name": "Size", "symbols": ["S", "L"]}


@pytest.mark.parametrize(
    ("type_", "default", "row", "as_json"),
    [
        (PARTLY, {}, {"x": 7, "y": "/w=="}, {"x": 7, "y": "\xff"}),
        ({"type": "array", "items": PARTLY}, [{"x": 1}],
         [{"x": 1, "y": "/w=="}], [{"x": 1, "y": "\xff"}]),
        ([PARTLY, "null"], {"y": "a"}, {"x": 7, "y": "YQ=="}, {"Partly": {"x": 7, "y": "a"}}),
        ([PARTLY, "string"], {"y": "a"},
         {"member_Partly": {"x": 7, "y": "YQ=="}, "member_string": None},
         {"Partly": {"x": 7, "y": "a"}}),
        ([SIZE, "string"], "L", {"member_Size": "L", "member_string": None}, {"Size": "L"}),
        (["bytes", "string"], "\xff", {"member_bytes": "/w==", "member_string": None},
         {"bytes": "\xff"}),
        (["string", SIZE], "L", {"member_string": "L", "member_Size": None}, {"string": "L"}),
        (["int", "long"], 7, {"member_long": 7}, {"int": 7}),
    ],
)  # fmt: skip
def test_a_default_is_whole_and_of_the_first_type_of_a_union(
    type_: Any, default: Any, row: Any, as_json: Any
) -> None:
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    data = AvroWriter(client, SUBJECT, record("int"), register=True)({"f0": 7})
    newer = record("int", more=(type_, default))
    reader = AvroRowReader(client, SUBJECT, newer)
    for _ in range(2):
        assert json.loads(reader(data)) == {"f0": 7, "more": row}
    assert AvroJsonReader(client, SUBJECT, newer)(data) == {"f0": 7, "more": as_json}
    written = AvroRowWriter(client, SUBJECT, newer, register=True)(b'{"f0": 7}')
    assert json.loads(AvroRowReader(client, SUBJECT, None)(written)) == {"f0": 7, "more": row}


def test_a_query_writes_defaults_within_what_it_gives() -> None:
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    outer = {"type": "record", "name": "Outer", "fields": [
        {"name": "partly", "type": PARTLY, "default": {}}
    ]}  # fmt: skip
    writer = AvroRowWriter(client, SUBJECT, record(outer), register=True)
    for given, x in ((b"{}", 7), (b'{"partly": {}}', 7), (b'{"partly": {"x": 1}}', 1)):
        found = AvroRowReader(client, SUBJECT, None)(writer(b'{"f0": %s}' % given))
        assert json.loads(found) == {"f0": {"partly": {"x": x, "y": "/w=="}}}


@pytest.mark.parametrize("type_", [PARTLY, SIZE])
@pytest.mark.parametrize("others", [["null"], ["null", "string"]])
def test_a_type_may_be_defined_elsewhere_in_another_version(type_: Any, others: list[str]) -> None:
    name = type_["name"]
    value = {"x": 1, "y": b"a"} if type_ is PARTLY else "L"
    plain = {"x": 1, "y": "YQ=="} if type_ is PARTLY else "L"
    row = {f"member_{name}": plain, "member_string": None} if "string" in others else plain
    first = record(more=([*others, type_], None))
    later = record(before=(["null", type_], None), more=([*others, name], None))
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    for wrote, reads, more in ((first, later, {"before": None}), (later, first, {})):
        data = AvroWriter(client, SUBJECT, wrote, register=True)({"more": (name, value)})
        assert json.loads(AvroRowReader(client, SUBJECT, reads)(data)) == {"more": row, **more}
        shown = AvroJsonReader(client, SUBJECT, reads)(data)
        assert shown["more"] == {name: "L" if type_ is SIZE else {"x": 1, "y": "a"}}


def test_a_type_that_contains_itself_may_be_defined_elsewhere() -> None:
    next_ = {"name": "next", "type": ["null", "Node"], "default": None}
    node = {"type": "record", "name": "Node", "fields": [{"name": "n", "type": "int"}, next_]}
    first = record(more=(["null", node], None))
    later = record(before=(["null", node], None), more=(["null", "Node"], None))
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    value = {"more": {"n": 1, "next": {"n": 2}}}
    data = AvroWriter(client, SUBJECT, first, register=True)(value)
    read = {"n": 1, "next": {"Node": {"n": 2, "next": None}}}
    shown = AvroJsonReader(client, SUBJECT, later)(data)
    assert shown == {"before": None, "more": {"Node": read}}


def test_types_that_only_their_namespaces_tell_apart_are_not_mixed_up() -> None:
    def union(**fields: int) -> Any:
        types = [
            {
                "type": "record",
                "name": f"{name}.Price",
                "fields": [{"name": name, "type": "int", "default": default}],
            }
            for name, default in fields.items()
        ]
        return (["null", *types], None)

    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    wrote, reads = record(more=union(a=1, b=2)), record(more=union(a=1, b=2), n=("int", 0))
    data = AvroWriter(client, SUBJECT, wrote, register=True)({"more": ("b.Price", {"b": 5})})
    assert AvroReader(client, SUBJECT, None)(data) == {"more": {"b": 5}}
    with pytest.raises(MisfitError, match='"more" is a union of several types with the name Price'):
        AvroReader(client, SUBJECT, reads)(data)


@pytest.mark.parametrize(
    ("wrote", "value", "reads"),
    [
        (SIZE, "L", {**SIZE, "symbols": ["S"]}),
        (["null", "int"], None, "int"),
        (["null", "int", "string"], 7, ["null", "string"]),
    ],
)
def test_what_the_schema_that_reads_may_lack_is_named(wrote: Any, value: Any, reads: Any) -> None:
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    data = AvroWriter(client, SUBJECT, record(wrote), register=True)({"f0": value})
    with pytest.raises(MisfitError, match=r"version 1 .* wrote them, .*: it lacks a symbol of an"):
        AvroReader(client, SUBJECT, record(reads))(data)


def test_a_default_that_is_changed_is_that_of_one_record() -> None:
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    data = AvroWriter(client, SUBJECT, record("int"), register=True)({"f0": 7})
    read = AvroReader(client, SUBJECT, record(tags=({"type": "array", "items": "string"}, [])))
    read(data)["tags"].append("x")
    assert read(data) == {"tags": []}


def test_bytes_after_a_record_are_refused() -> None:
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    data = AvroWriter(client, SUBJECT, record("int"), register=True)({"f0": 7})
    with pytest.raises(MisfitError, match=r"version 1 \(id 1\): more bytes follow"):
        AvroReader(client, SUBJECT, None)(data + b"\0")


def test_json_of_a_tree_names_the_types_of_unions() -> None:
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    kids = {"type": "array", "items": "Order"}
    schema = record(["null", "int", "long", "double", "string", "bytes", "boolean", kids])
    write = AvroJsonWriter(client, SUBJECT, schema, register=True)
    read = AvroJsonReader(client, SUBJECT, None)
    leaves: list[Any] = [
        None,
        {"int": -(2**31)},
        {"long": 2**31},
        {"double": 0.5},
        {"string": "x"},
        {"bytes": "\xff"},
        {"boolean": True},
    ]
    tree = {"f0": {"array": [{"f0": {"array": [{"f0": leaf} for leaf in leaves]}}]}}
    assert read(write(tree)) == tree


def test_json_has_logical_types_as_they_are_stored() -> None:
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    schema = record({"type": "string", "logicalType": "uuid"}, MILLIS)
    row = {"f0": "6F9619FF-8B86-D011-B42D-00C04FC964FF", "f1": 253_402_300_800_000}
    data = AvroJsonWriter(client, SUBJECT, schema, register=True)(row)
    assert AvroJsonReader(client, SUBJECT, None)(data) == row
    assert AvroJsonReader(client, SUBJECT, record("string", "long"))(data) == row
