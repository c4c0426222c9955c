"""A real schema registry, and Debezium's events of a PostgreSQL in Avro, by a real converter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import islice
from pathlib import Path

import pytest

from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka.registry_check import RegistryCheck
from kafka_pipeline.streams import schema_registry
from kafka_pipeline.streams.schema_registry import SchemaRegistry
from kafka_pipeline.streams.testing.driver import TopologyTestDriver
from tests.apicurio.registry import Registry, running
from tests.change_data.connector import Connector, compile_connector, of_postgres
from tests.postgres import Database
from tests.schema_registry import require_packages
from tests.small_config import SMALL_CONFIG

pytestmark = [pytest.mark.integration, pytest.mark.long]

CONFIG = f'{SMALL_CONFIG}schema_registry: {{{{url: "{{url}}"}}}}\n'
PIPELINE = """
sources: {orders: {topic: shop.public.orders, format: debezium}}
processors:
- id: Totals
  type: sql
  format: avro
  from: [orders]
  query: >
    SELECT customer AS key, count(*) AS n, sum(price) AS price, max(day) AS day, max(at) AS at
    FROM orders GROUP BY customer
  out_value: {avro: {schema: totals.avsc, register: true}}
  to: [sink]
"""
TOTALS = {
    "type": "record",
    "name": "Totals",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal",
                                            "precision": 20, "scale": 2}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ],
}  # fmt: skip
TABLE = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE TABLE orders (id int PRIMARY KEY, customer text, price numeric(10, 2), free numeric, "
    "day date, placed timestamptz, at timestamp, clock time, mood mood, raw bytea, tags text[])",
    "INSERT INTO orders VALUES (1, 'ann', 1.50, 3.14159, '2024-01-01', "
    "'2024-01-01 01:02:03.456789+01', '2024-01-01 01:02:03.456789', '10:00:00.5', 'ok', "
    "'\\xff00', '{a, NULL}')",
    "INSERT INTO orders VALUES (2, 'bob')",
)
LATER = (
    "ALTER TABLE orders ADD note text DEFAULT 'x'",
    "UPDATE orders SET note = 'n', price = -0.01, customer = 'ann' WHERE id = 2",
    "DELETE FROM orders WHERE id = 1",
)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    require_packages()
    folder = tmp_path / "registry"
    folder.mkdir()
    try:
        with running(folder) as found:
            yield found
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.timeout(600)
def test_events_of_a_real_connector_are_the_rows_of_the_table(
    registry: Registry, tmp_path: Path, database: Database
) -> None:
    try:
        program = replace(compile_connector(tmp_path), more_jars=(registry.jars,))
    except UnavailableError as error:
        pytest.skip(str(error))
    for statement in TABLE:
        database.run(statement)
    settings = {**registry.of_converter, "provide.transaction.metadata": "false"}
    source = of_postgres(database)
    connector = Connector(program, tmp_path / "kept", source, settings, in_avro=True)
    try:
        given = [*islice(connector.records(120), 2)]
        for statement in LATER:
            database.run(statement)
        given += islice(connector.records(120), 3)
    finally:
        connector.kill()
    here = SchemaRegistry(registry.url)
    changes = schema_registry.debezium_changes(here, "shop.public.orders-value")
    events = [changes.deserialize(each.value) for each in given if each.value is not None]
    assert [each["op"] for each in events] == ["r", "r", "u", "d"]
    assert events[0]["after"] == {
        "id": 1,
        "customer": "ann",
        "price": Decimal("1.50"),
        "free": Decimal("3.14159"),
        "day": "2024-01-01",
        "placed": "2024-01-01T00:02:03.456789Z",
        "clock": "10:00:00.5",
        "at": "2024-01-01T01:02:03.456789",
        "mood": "ok",
        "raw": "/wA=",
        "tags": ["a", None],
    }
    assert events[2]["after"]["note"] == "n"
    config, pipeline = tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    config.write_text(CONFIG.format(url=registry.url))
    pipeline.write_text(PIPELINE)
    (tmp_path / "totals.avsc").write_text(json.dumps(TOTALS))
    with TopologyTestDriver.of_pipeline(config, pipeline) as driver:
        topic = driver.create_input_topic("shop.public.orders")
        for each in given:
            topic.pipe_input(each.key, each.value)
        totals = schema_registry.avro(here, "out-value")
        output = driver.create_output_topic("out", value_serde=totals)
        latest = dict(output.read_key_values())
    assert latest == {
        b"ann": {"n": 1, "price": Decimal("-0.01"), "day": None, "at": None},
        b"bob": None,
    }
    check = RegistryCheck(RegistrySettings(registry.url))
    assert check.writing_problem("avro", "out-value", "", register=False) == ""
    assert "no version 9" in check.reading_problem("avro", "out-value", "", 9)
    other = json.dumps({**TOTALS, "fields": [{"name": "n", "type": "string"}]})
    assert 'field "n" is long, not string' in check.reading_problem("avro", "out-value", other)
