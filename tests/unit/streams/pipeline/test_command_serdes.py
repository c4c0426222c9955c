"""Serdes with schemas as options of commands: records as JSON, and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kafka_pipeline.common import json_text
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.operations.record_lines import RecordLines
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.pipeline.kinds.command_serdes import command_serde
from kafka_pipeline.streams.schema_registry import SchemaRegistry, avro, json_schema, protobuf
from tests.schema_registry import StandIn, order_type, standing_in
from tests.small_config import SMALL_CONFIG

CONFIG = SMALL_CONFIG + "modules: [messages_of_command]\n"
LINE = {"type": "record", "name": "shop.Line", "fields": [{"name": "n", "type": "int"}]}
OTHER = {"type": "record", "name": "shop.Other", "fields": [{"name": "n", "type": "int"}]}
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4}},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "line", "type": [LINE, OTHER]},
            {"name": "more", "type": {"type": "array", "items": "shop.Line"}},
            {"name": "rates", "type": {"type": "map", "values": "double"}},
        ],
    }
)
VALUE = {
    "placed": datetime(2026, 11, 27, 14, 30, tzinfo=UTC),
    "price": Decimal(200),
    "note": "to the back door",
    "line": ("shop.Other", {"n": 7}),
    "more": [{"n": 1}, {"n": 2}],
    "rates": {"EUR": 0.5},
}
SHOWN = {
    "placed": 1795789800000,
    "price": "\x00\xc8",
    "note": {"string": "to the back door"},
    "line": {"shop.Other": {"n": 7}},
    "more": [{"n": 1}, {"n": 2}],
    "rates": {"EUR": 0.5},
}


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with standing_in() as found:
        yield found


def config(folder: Path, url: str = "") -> Config:
    section = f"schema_registry: {{url: '{url}'}}\n" if url else ""
    file = folder / "config.yaml"
    file.write_text(CONFIG + section)
    return load_config(file)


def lines(folder: Path, url: str, value: str) -> RecordLines:
    serde = command_serde(value, "orders-value", config(folder, url))
    return RecordLines("orders", serdes.string, serde)


def shown(of: RecordLines, data: bytes) -> Any:
    return of.to_json(RecordBatch("orders", 3, [None], [data], [0], [7]), 0)["value"]


def written(of: RecordLines, value: Any) -> bytes | None:
    return of.from_json(json_text.dumps({"value": value}), 1)[2]


def test_avro_is_shown_in_its_json_encoding_and_written_as_it_was(
    stand_in: StandIn, tmp_path: Path
) -> None:
    data = avro(SchemaRegistry(stand_in.url), "orders-value", ORDER).serialize(VALUE)
    of = lines(tmp_path, stand_in.url, "avro")
    assert shown(of, data) == SHOWN
    assert written(of, SHOWN) == data
    assert shown(of, written(of, SHOWN | {"note": None}) or b"")["note"] is None
    assert shown(lines(tmp_path, stand_in.url, "avro:other"), data) == SHOWN


def test_avro_bytes_alone_are_text_of_their_characters(stand_in: StandIn, tmp_path: Path) -> None:
    data = avro(SchemaRegistry(stand_in.url), "orders-value", '"bytes"').serialize(b"a\xff")
    of = lines(tmp_path, stand_in.url, "avro")
    assert shown(of, data) == "a\xff"
    assert written(of, "a\xff") == data


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"note": "x"}, 'field "note" is a union: write {"string": …} or null'),
        ({"line": {"Line": {"n": 7}}}, 'is a union: write {"shop.Line": …} or {"shop.Other": …}'),
        ({"notes": None}, 'it has no field "notes" in the schema'),
        ({"more": [{"m": 1}]}, 'field "more" has no field "m" in the schema'),
        ({"placed": "today"}, 'version 1 (id 1): field "Order.placed" is a str, not timestamp'),
        ({"price": "\u20ac"}, "ordinal not in range(256)"),
        ({"rates": {"EUR": Decimal("1E+400")}}, "beyond the range of a float"),
    ],
)
def test_what_avro_cannot_write_is_named_with_the_line(
    change: dict[str, Any], problem: str, stand_in: StandIn, tmp_path: Path
) -> None:
    avro(SchemaRegistry(stand_in.url), "orders-value", ORDER).serialize(VALUE)
    with pytest.raises(ConfigError) as caught:
        written(lines(tmp_path, stand_in.url, "avro"), SHOWN | change)
    said = str(caught.value)
    assert said.startswith("line 1: the value is not what avro of orders-value writes: ")
    assert problem in said


def test_json_keeps_the_digits_that_a_schema_checks(stand_in: StandIn, tmp_path: Path) -> None:
    price = {"type": "number", "multipleOf": 0.5, "minimum": 0}
    schema = json.dumps({"title": "Order", "type": "object", "properties": {"price": price}})
    here = SchemaRegistry(stand_in.url)
    frame = json_schema(here, "shop.orders", schema).serialize({"price": 1})[:5]
    of = lines(tmp_path, stand_in.url, "json_schema:shop.orders")
    data = frame + b'{"price":12345678901234567890.50}'
    value = shown(of, data)
    assert value == {"price": Decimal("12345678901234567890.50")}
    assert written(of, value) == data
    with pytest.raises(ConfigError, match='which says "minimum" of field "price"'):
        written(of, {"price": -1})
    with pytest.raises(ConfigError, match="choose another serde for it, such as bytes"):
        shown(of, frame + b'{"price":-1}')


def test_message_is_shown_in_the_json_mapping_of_its_class(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = order_type()
    order.__module__ = "messages_of_command"
    module = ModuleType("messages_of_command")
    module.Order = order  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "messages_of_command", module)
    here = SchemaRegistry(stand_in.url)
    data = protobuf(here, "orders-value", order).serialize(order(amount=7))
    of = lines(tmp_path, stand_in.url, "protobuf:messages_of_command:Order")
    assert shown(of, data) == {"amount": 7}
    assert written(of, {"amount": 7}) == data
    with pytest.raises(ConfigError, match='no field named "price"'):
        written(of, {"price": 7})
    with pytest.raises(ConfigError, match="they have fields that Order does not know"):
        shown(of, data + b"\x10\x07")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("avr", "or, with a schema registry, avro, json_schema, or protobuf:MODULE:CLASS"),
        ("avro:", 'there is no serde "avro:"'),
        ("protobuf", "give the class, as protobuf:MODULE:CLASS: "),
        ("protobuf:shop.Order", 'did you mean "shop:Order"?'),
        ("avro", "the serde avro needs a schema registry: give its address in config.yaml"),
    ],
)
def test_what_is_no_serde_is_refused(given: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        command_serde(given, "orders-value", config(tmp_path))
    assert problem in str(caught.value)


def test_registry_that_is_away_ends_the_command_as_such(tmp_path: Path) -> None:
    with standing_in() as registry:
        url = registry.url
    of = lines(tmp_path, url, "avro")
    with pytest.raises(UnavailableError, match="does not answer"):
        shown(of, b"\0\0\0\0\x01\x0e")
    with pytest.raises(UnavailableError, match="does not answer"):
        written(of, {"n": 1})
