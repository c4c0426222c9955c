"""Change events of Debezium in Avro, as Connect's AvroConverter writes them."""

from __future__ import annotations

import json
from copy import deepcopy
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("fastavro", reason="needs the extra schemaregistry")

from confluent_kafka.schema_registry import Schema
from fastavro import parse_schema, schemaless_writer

from kafka_pipeline import StreamsBuilder
from kafka_pipeline.common.kafka.schema_registry import shared_client
from kafka_pipeline.streams import schema_registry, serdes
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.schema_registry import SchemaRegistry
from kafka_pipeline.streams.testing.driver import TopologyTestDriver

VALUE_SUBJECT, KEY_SUBJECT = "shop.public.orders-value", "shop.public.orders-key"
KEY = {
    "type": "record",
    "name": "Key",
    "namespace": "shop.public.orders",
    "fields": [{"name": "id", "type": "int"}],
    "connect.name": "shop.public.orders.Key",
}
VALUE: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {
            "name": "price",
            "type": [
                "null",
                {
                    "type": "bytes",
                    "scale": 2,
                    "precision": 64,
                    "connect.version": 1,
                    "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
                    "connect.name": "org.apache.kafka.connect.data.Decimal",
                    "logicalType": "decimal",
                },
            ],
            "default": None,
        },
        {
            "name": "at",
            "type": [
                "null",
                {
                    "type": "long",
                    "connect.version": 1,
                    "connect.name": "io.debezium.time.MicroTimestamp",
                },
            ],
            "default": None,
        },
        {"name": "doc", "type": ["null", "string"], "default": None},
    ],
    "connect.name": "shop.public.orders.Value",
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "connector", "type": "string"},
        {
            "name": "snapshot",
            "type": [
                {
                    "type": "string",
                    "connect.version": 1,
                    "connect.default": "false",
                    "connect.parameters": {"allowed": "true,last,false,incremental"},
                    "connect.name": "io.debezium.data.Enum",
                },
                "null",
            ],
            "default": "false",
        },
        {"name": "db", "type": "string"},
        {"name": "lsn", "type": ["null", "long"], "default": None},
    ],
    "connect.name": "io.debezium.connector.postgresql.Source",
}
ENVELOPE: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.orders",
    "fields": [
        {"name": "before", "type": ["null", VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
    "connect.version": 2,
    "connect.name": "shop.public.orders.Envelope",
}
WIDER = deepcopy(ENVELOPE)
WIDER["fields"][0]["type"][1]["fields"].append(
    {"name": "note", "type": ["null", "string"], "default": None}
)


class Topic:
    """What a connector writes, with the schemas in a registry in memory."""

    def __init__(self) -> None:
        self.registry = SchemaRegistry(f"mock://{uuid4()}")
        self._client = shared_client(self.registry)

    def data(self, subject: str, schema: Any, value: Any) -> bytes:
        """Return a value, stored as it is, without logical types."""
        text = json.dumps(schema)
        id_ = self._client.register_schema(subject, Schema(text, "AVRO"))
        plain = parse_schema(json.loads(text.replace('"logicalType"', '"was"')))
        data = BytesIO()
        schemaless_writer(data, plain, value)
        return bytes(b"\0" + id_.to_bytes(4) + data.getvalue())

    def key(self, id_: int) -> bytes:
        return self.data(KEY_SUBJECT, KEY, {"id": id_})

    def change(self, op: str, after: Any, lsn: int = 1, schema: Any = ENVELOPE) -> bytes:
        source = {"connector": "postgresql", "snapshot": "false", "db": "shop", "lsn": lsn}
        event = {"op": op, "before": None, "after": after, "source": source, "ts_ms": 1}
        return self.data(VALUE_SUBJECT, schema, event)


ROW = {"id": 1, "price": b"\x96", "at": 1_000_001, "doc": "x"}
SHOWN = {"id": 1, "price": Decimal("-1.06"), "at": "1970-01-01T00:00:01.000001", "doc": "x"}


def test_events_are_read_as_those_in_json() -> None:
    topic = Topic()
    rows = schema_registry.debezium(topic.registry, VALUE_SUBJECT)
    changes = schema_registry.debezium_changes(topic.registry, VALUE_SUBJECT)
    keys = schema_registry.debezium_key(topic.registry, KEY_SUBJECT)
    data = topic.change("c", ROW)
    assert rows.deserialize(data) == SHOWN
    event = changes.deserialize(data)
    assert (event["op"], event["before"], event["after"]) == ("c", None, SHOWN)
    assert event["source"]["lsn"] == 1
    assert keys.deserialize(topic.key(7)) == {"id": 7}
    assert rows.deserialize(topic.change("d", None)) is None
    assert rows.deserialize(rows.serialize(SHOWN)) == SHOWN, "stores have JSON"
    assert keys.deserialize(serdes.debezium_key.serialize({"id": 7})) == {"id": 7}


def test_table_that_gets_a_column_is_read_by_the_version_of_each_event() -> None:
    topic = Topic()
    rows = schema_registry.debezium(topic.registry, VALUE_SUBJECT)
    before, wider = topic.change("c", ROW), topic.change("u", {**ROW, "note": "n"}, schema=WIDER)
    for _ in range(2):
        assert rows.deserialize(before) == SHOWN
        assert rows.deserialize(wider) == {**SHOWN, "note": "n"}


@pytest.mark.parametrize(
    ("op", "after", "words"),
    [
        ("x", ROW, "op is none of c, u, d, r, t and m"),
        ("c", None, "op is c, but after is not an object"),
        ("u", {**ROW, "doc": "__debezium_unavailable_value"}, "after.doc has no value"),
        ("c", {**ROW, "at": 2**62}, 'field "after.at": the time is not between the years'),
    ],
)
def test_what_is_no_change_of_a_row_is_refused_with_the_field(
    op: str, after: Any, words: str
) -> None:
    topic = Topic()
    rows = schema_registry.debezium(topic.registry, VALUE_SUBJECT)
    with pytest.raises(SerializationError, match=words):
        rows.deserialize(topic.change(op, after))


def test_dsl_has_the_table() -> None:
    topic = Topic()
    builder = StreamsBuilder(key_serde=schema_registry.debezium_key(topic.registry, KEY_SUBJECT))
    rows = schema_registry.debezium(topic.registry, VALUE_SUBJECT)
    table = builder.table("orders", name="Orders", value_serde=rows)
    prices = table.map_values(lambda row: str(row["price"])).to_stream()
    prices.to("prices", value_serde=serdes.string)
    with TopologyTestDriver(builder) as driver:
        given = driver.create_input_topic("orders")
        for value in (topic.change("c", ROW), topic.change("d", None), None):
            given.pipe_input(topic.key(1), value)
        output = driver.create_output_topic("prices", serdes.debezium_key, serdes.string)
        # A tombstone is another deletion.
        assert output.read_key_values() == [({"id": 1}, "-1.06"), *[({"id": 1}, None)] * 2]


CONFIG = """
server_ip: "127.0.0.1"
server_port: 9092
tm_number: 1
parallelism: 1
replication_factor: 1
source_topic: orders
sink_topic: out
modules: [{module}]
python_path: ["."]
schema_registry: {{url: "{url}"}}
"""
CODE = """
from kafka_pipeline import Processor


class Log(Processor):
    def process(self, record):
        found = record.value and [record.key["id"], record.value["after"]["at"]]
        self.context.forward(record.with_value(found))
"""


def test_class_gets_keys_and_changes(tmp_path: Path) -> None:
    topic, module = Topic(), f"log_{uuid4().hex}"
    (tmp_path / f"{module}.py").write_text(CODE)
    config, pipeline = tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    config.write_text(CONFIG.format(module=module, url=topic.registry.url))
    pipeline.write_text(
        f"- {{id: L, type: '{module}:Log', to: [sink], serdes: {{key: {{debezium_key: avro}}, "
        "value: {debezium_changes: avro}, out_value: json}}\n"
    )
    with TopologyTestDriver.of_pipeline(config, pipeline) as driver:
        given = driver.create_input_topic("orders")
        given.pipe_input(topic.key(1), topic.change("c", ROW))
        given.pipe_input(topic.key(1), None)
        output = driver.create_output_topic("out", serdes.debezium_key, serdes.json)
        assert output.read_key_values() == [({"id": 1}, [1, SHOWN["at"]]), ({"id": 1}, None)]
