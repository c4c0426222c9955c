"""Joins with tables that follow topics: which are refused, and how the tables' values are read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_pipeline import serdes
from kafka_pipeline.common.pipelines.specs import Format
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.columns import batch_of, lookup_schema, table_of
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from kafka_pipeline.testing import TopologyTestDriver
from tests.small_config import SMALL_CONFIG
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.test_topic_tables_model import JOINS

pytestmark = pytest.mark.integration

BATCH = Batch([b"a", b"b", None], [b"1", b"2", b"3"], [10, 11, 12], None, [0, 1, 2])
TABLES = {"c": "city STRING, level INT", "d": ""}
REASONS = {
    "SELECT i.value FROM input i JOIN c ON i.value = c.city": "by the keys of both, as only .* "
    "same partition: write LEFT JOIN c ON input.key = c.key",
    "SELECT i.value FROM input i JOIN c ON upper(i.key) = c.key": "by the keys of both",
    "SELECT i.value FROM input i JOIN c ON i.key = c.key OR c.level = 1": "by the keys of both",
    "SELECT i.value FROM input i JOIN (SELECT upper(key) AS key FROM c) c ON i.key = c.key": "by "
    "the keys of both",
    "SELECT i.value FROM (SELECT value, 'a' AS key FROM input) i JOIN c ON i.key = c.key": "by the "
    "keys of both",
    "SELECT i.value FROM input i LEFT JOIN c ON i.key = c.key LEFT JOIN d ON c.city = d.key": "be "
    "joined with d by the keys of both",
    "SELECT i.name AS value FROM input UNPIVOT (part FOR name IN (key, value)) i JOIN c "
    "ON i.part = c.key": "by the keys of both",
    "SELECT i.value FROM input i, c WHERE i.key = c.key": "by the keys of both",
    "SELECT i.value FROM input i JOIN (SELECT key, max(level) FROM c GROUP BY key) c "
    "ON i.key = c.key": "Aggregate over c would miss rows",
    "SELECT i.value FROM input i JOIN (SELECT c.key FROM c JOIN d ON c.key = d.key) c "
    "ON i.key = c.key": "Join over c would miss rows",
    "SELECT value FROM input WHERE key IN (SELECT key FROM c)": "a subquery reads c, of which .* "
    "LEFT SEMI JOIN",
    "SELECT (SELECT max(level) FROM c) AS value FROM input": "a subquery reads c",
    "SELECT i.value FROM input i FULL JOIN c ON i.key = c.key": "FullOuter JOIN with input on the",
    "SELECT i.value FROM c LEFT JOIN input i ON i.key = c.key": "LeftOuter JOIN with input on the "
    "right",
    "SELECT city AS value FROM c": "only a SELECT that reads input",
    "SELECT /*+ BROADCAST(c) */ i.value FROM input i JOIN c ON i.key = c.key": "plans a "
    "BroadcastExchange for a table that follows a topic: leave hints out",
    "SELECT /*+ MERGE(i) */ i.value FROM input i JOIN c ON i.key = c.key": "Spark plans a",
}


def rows_of(format_: Format, *rows: tuple[bytes, bytes]) -> pa.Table:
    schema = lookup_schema(format_)
    arrays = [
        pa.array([each[place] for each in rows], pa.binary()).cast(schema.types[place])
        for place in (0, 1)
    ]
    return pa.Table.from_arrays(
        [*arrays, pa.array([5] * len(rows), schema.types[2])], schema=schema
    )


@pytest.mark.parametrize("query", long_but_the_first(REASONS, 6))
def test_joins_that_a_batch_cannot_do_are_refused(local: LocalQueries, query: str) -> None:
    with pytest.raises(QueryError, match=REASONS[query]):
        local.open(QuerySpec(query, topic_tables=TABLES))


def test_groups_refuse_the_same_joins(local: LocalQueries) -> None:
    query = (
        "SELECT city AS key, count(*) AS value FROM input i JOIN c ON i.value = c.key GROUP BY 1"
    )
    with pytest.raises(QueryError, match="by the keys of both"):
        local.open_aggregation(QuerySpec(query, topic_tables=TABLES))


def test_rows_are_those_of_the_batch_alone(local: LocalQueries) -> None:
    query = local.open(
        QuerySpec(
            "SELECT i.key, concat_ws(',', city, level, d.value) AS value FROM input i "
            "LEFT JOIN c ON i.key = c.key LEFT JOIN d ON i.key = d.key",
            topic_tables=TABLES,
        )
    )
    table, _ = table_of(BATCH, 0, query.columns, "string")

    def values(**lookups: pa.Table) -> list[bytes | None]:
        return batch_of(query.run(table, lookups)).values  # type: ignore[return-value]

    ulm = rows_of("string", (b"a", b'{"city": "Ulm", "level": 3}'))
    assert values(c=ulm, d=rows_of("string", (b"b", b"x"))) == [b"Ulm,3", b"x", b""]
    # A field that does not fit is null, and the others are there.
    bad = rows_of("string", (b"a", b'{"city": "Ulm", "level": "high"}'), (b"b", b'{"city": 5}'))
    assert values(c=bad) == [b"Ulm", b"5", b""]
    assert values() == [b"", b"", b""]


def test_binary_keys_and_values_are_compared_as_they_are(local: LocalQueries) -> None:
    query = local.open(
        QuerySpec(
            "SELECT i.key, coalesce(d.value, CAST(c.city AS BINARY)) AS value FROM input i "
            "LEFT JOIN d ON i.key = d.key LEFT JOIN c ON i.key = c.key",
            format="binary",
            topic_tables=TABLES,
        )
    )
    batch = Batch([b"\xff", b"a"], [b"1", b"2"], [10, 11], None, [0, 1])
    table, _ = table_of(batch, 0, query.columns, "binary")
    lookups = {
        "d": rows_of("binary", (b"\xff", b"\xfe")),
        "c": rows_of("binary", (b"a", b'{"city": "Ulm"}')),
    }
    assert batch_of(query.run(table, lookups)).values == [b"\xfe", b"Ulm"]


def test_driver_of_a_pipeline_takes_the_topic_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(SMALL_CONFIG)
    query = JOINS["left"].replace("{c}", "")
    (tmp_path / "pipeline.yaml").write_text(f"""
sources: {{people: people_topic}}
processors:
- id: P
  type: sql
  format: json
  schema: n INT
  tables: {{customers: {{topic: people, schema: "city STRING, level INT"}}}}
  query: {json.dumps(query)}
  on_error: dead_letter
  to: [sink]
""")
    with TopologyTestDriver.of_pipeline(
        tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    ) as driver:
        people = driver.create_input_topic("people_topic", serdes.string, serdes.json)
        orders = driver.create_input_topic("in", serdes.string, serdes.json)
        found = driver.create_output_topic("out", serdes.string, serdes.json)
        people.pipe_input("a", {"city": "Ulm", "level": 1}, timestamp=1)
        orders.pipe_input("a", {"n": 1}, timestamp=2)
        people.pipe_input("a", "not a map", timestamp=3)
        people.pipe_input("a", None, timestamp=4)
        orders.pipe_input("a", {"n": 2}, timestamp=5)
        assert [each.value for each in found.read_records()] == [
            {"n": 1, "city": "Ulm", "level": 1, "at": 1},
            {"n": 2, "city": None, "level": None, "at": None},
        ]
        dead = driver.create_output_topic("P_dead_letter", serdes.string, serdes.json)
        assert [each.value for each in dead.read_records()] == ["not a map"]
        assert driver.get_timestamped_key_value_store("table-customers").get(b"a") is None


@pytest.mark.long
def test_driver_of_a_pipeline_with_a_global_table(tmp_path: Path) -> None:
    """It is joined by any column, and each record sees its last rows."""
    (tmp_path / "config.yaml").write_text(SMALL_CONFIG)
    (tmp_path / "pipeline.yaml").write_text("""
sources: {rates: rates_topic}
processors:
- id: P
  type: sql
  format: json
  schema: currency STRING, amount INT
  tables: {rates: {topic: rates, schema: "rate INT", global: true}}
  query: >
    SELECT i.key, amount * coalesce(rate, 0) AS total, (SELECT count(*) FROM rates) AS known
    FROM input i LEFT JOIN rates r ON i.currency = upper(r.key)
  to: [sink]
- id: Sums
  type: sql
  format: json
  schema: currency STRING, amount INT
  tables: {rates: {topic: rates, schema: "rate INT", global: true}}
  query: >
    SELECT currency AS key, sum(amount * rate) AS total
    FROM input i JOIN rates r ON i.currency = upper(r.key) GROUP BY currency
  to: [sink]
""")
    with TopologyTestDriver.of_pipeline(
        tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    ) as driver:
        rates = driver.create_input_topic("rates_topic", serdes.string, serdes.json)
        orders = driver.create_input_topic("in", serdes.string, serdes.json)
        found = driver.create_output_topic("out", serdes.string, serdes.json)

        def sent(amount: int) -> list[tuple[str, object]]:
            orders.pipe_input("k", {"currency": "EUR", "amount": amount}, timestamp=9)
            return found.read_key_values()

        assert sent(1) == [("k", {"total": 0, "known": 0})]
        rates.pipe_input("eur", {"rate": 2}, timestamp=50)
        rates.pipe_input("usd", "not a map", timestamp=50)
        sums: list[tuple[str, object]] = [("EUR", {"total": 4})]
        assert sent(2) == [("k", {"total": 4, "known": 1}), *sums]
        assert sent(3) == [("k", {"total": 6, "known": 1}), ("EUR", {"total": 10})]
        rates.pipe_input("eur", None, timestamp=51)
        assert sent(4) == [("k", {"total": 0, "known": 0})]
