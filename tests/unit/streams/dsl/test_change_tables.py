"""Topics of change events of Debezium in the DSL: as a table, and as a stream of changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_pipeline import StreamsBuilder, serdes
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.test_debezium import event

KEY = json.dumps({"id": 1}).encode()


def piped(driver: TopologyTestDriver, *values: dict[str, Any] | None) -> None:
    topic = driver.create_input_topic("changes")
    for value in values:
        topic.pipe_input(KEY, None if value is None else json.dumps(value).encode())


def test_a_table_has_the_rows_and_takes_them_out_of_groups() -> None:
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.int64)
    orders = builder.table(
        "changes", name="Orders", key_serde=serdes.debezium_key, value_serde=serdes.debezium
    )
    prices = orders.group_by(lambda key, row: (row["customer"], row["price"]), name="ByCustomer")
    totals = prices.aggregate(
        lambda: 0,
        lambda key, price, total: total + price,
        lambda key, price, total: total - price,
        name="Totals",
    )
    totals.to_stream().to("totals")
    with TopologyTestDriver(builder) as driver:
        results = driver.create_output_topic("totals", serdes.string, serdes.int64)
        piped(
            driver,
            event("c", {"id": 1, "customer": "a", "price": 10}, 1),
            event("u", {"id": 1, "customer": "b", "price": 20}, 2),
        )
        store = driver.get_timestamped_key_value_store("Orders")
        found = store.get({"id": 1})
        assert found is not None
        assert found.value == {"id": 1, "customer": "b", "price": 20}
        piped(driver, event("d", None, 3), None)
        assert store.get({"id": 1}) is None
        assert results.read_key_values() == [("a", 10), ("a", 0), ("b", 20), ("b", 0)]


def test_a_stream_has_the_changes() -> None:
    builder = StreamsBuilder(key_serde=serdes.debezium_key)
    changes = builder.stream("changes", name="Changes", value_serde=serdes.debezium_changes)
    changes.filter(lambda key, change: change is not None).map_values(
        lambda change: f"{change['op']} {change['after']} {change['source']['lsn']}"
    ).to("log", value_serde=serdes.string)
    with TopologyTestDriver(builder) as driver:
        results = driver.create_output_topic("log", serdes.debezium_key, serdes.string)
        piped(driver, event("c", {"id": 1}, 5), event("d", None, 6), None)
        assert results.read_key_values() == [
            ({"id": 1}, "c {'id': 1} 5"),
            ({"id": 1}, "d None 6"),
        ]


def test_a_truncate_is_rejected() -> None:
    builder = StreamsBuilder(value_serde=serdes.debezium)
    builder.table("changes", name="Orders")
    with (
        TopologyTestDriver(builder) as driver,
        pytest.raises(SerializationError, match="op is t: a TRUNCATE"),
    ):
        piped(driver, event("t"))
