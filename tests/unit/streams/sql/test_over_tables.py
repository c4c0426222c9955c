"""Queries with `OVER (…)` and tables that follow topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline import serdes
from kafka_pipeline.testing import TopologyTestDriver
from tests.small_config import SMALL_CONFIG

pytestmark = pytest.mark.integration


def test_records_and_results_see_the_rows_of_a_global_table(tmp_path: Path) -> None:
    """A join is of the time of the record, and what is above `OVER (…)` of that of its result."""
    (tmp_path / "config.yaml").write_text(SMALL_CONFIG)
    (tmp_path / "pipeline.yaml").write_text("""
sources: {products: products_topic}
processors:
- id: P
  type: sql
  format: json
  schema: code STRING, n INT
  tables: {products: {topic: products, schema: "name STRING", global: true}}
  query: >
    SELECT *, (SELECT count(*) FROM products) AS known FROM (
      SELECT i.key, n, p.name, lag(n) OVER (PARTITION BY i.key ORDER BY i.timestamp) AS before
      FROM input i LEFT JOIN products p ON i.code = p.key)
  grace: 0 s
  to: [sink]
""")
    with TopologyTestDriver.of_pipeline(
        tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    ) as driver:
        products = driver.create_input_topic("products_topic", serdes.string, serdes.json)
        orders = driver.create_input_topic("in", serdes.string, serdes.json)
        found = driver.create_output_topic("out", serdes.string, serdes.json)

        def sent(n: int) -> list[object]:
            orders.pipe_input("k", {"code": "a", "n": n}, timestamp=n)
            return [each.value for each in found.read_records()]

        assert sent(1) == []
        products.pipe_input("a", {"name": "apple"}, timestamp=1)
        assert sent(2) == [{"n": 1, "name": None, "before": None, "known": 1}]
        products.pipe_input("b", {"name": "bean"}, timestamp=1)
        assert sent(3) == [{"n": 2, "name": "apple", "before": 1, "known": 2}]
