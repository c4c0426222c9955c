"""Queries as a task has them: planned by the driver, and run by its JVM, on a real Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.columns import lookup_schema, table_of
from kafka_pipeline.streams.sql.queries import SparkQueries
from kafka_pipeline.streams.sql.spec import Queries, QueryError, QuerySpec, SparkQuery
from kafka_pipeline.taskmanager.query_server import QueryServer
from kafka_pipeline.taskmanager.remote_queries import RemoteQueries
from tests.queries import FUNCTIONS, ROOT, batch, run

pytestmark = pytest.mark.integration

KEY = b"secret"
JSON: Mapping[str, str] = {"format": "json", "schema": "a STRING, n DOUBLE"}


@pytest.fixture(scope="module")
def served(queries: Queries) -> SparkQueries:
    queries.open(QuerySpec("SELECT value FROM input")).close()
    session = SparkSession.getActiveSession()
    assert session is not None
    return SparkQueries(session, UserCode([FUNCTIONS], [ROOT]), Readable())


@pytest.fixture
def remote(served: SparkQueries) -> Iterator[RemoteQueries]:
    readable = Readable()
    server = QueryServer("127.0.0.1", KEY, served, readable.references)
    yield RemoteQueries(("127.0.0.1", server.port), KEY)
    server.close()


def values(query: SparkQuery, *given: str) -> list[bytes | None]:
    return list(run(query, [("k", value) for value in given], "json").values)


def test_json_is_read_by_the_worker_or_by_spark(remote: RemoteQueries) -> None:
    """Spark reads -0 as another number than Arrow does."""
    query = remote.open(QuerySpec("SELECT a, n + 1 AS m FROM input", **JSON))  # type: ignore[arg-type]
    for _ in range(2):
        assert values(query, '{"a": "x", "n": 1}') == [b'{"a":"x","m":2.0}']
        assert values(query, '{"a": "x", "n": -0}') == [b'{"a":"x","m":1.0}']
    with pytest.raises(QueryError) as raised:
        values(query, '{"a": "4111", "n": "4111"}')
    assert "4111" not in raised.value.shown
    query.close()


def test_a_query_of_random_numbers_is_planned_for_each_batch(remote: RemoteQueries) -> None:
    query = remote.open(QuerySpec("SELECT CAST(rand() AS STRING) AS value FROM input"))
    table, _ = table_of(batch([("k", "v")]), 0, query.columns, "string")
    found = {query.run(table)["value"][0].as_py() for _ in range(3)}
    assert len(found) == 3
    query.close()


def test_rows_of_a_global_table_are_those_that_the_worker_sent_last(remote: RemoteQueries) -> None:
    text = "SELECT t.value AS value FROM input LEFT JOIN t ON input.key = t.key"
    query = remote.open(QuerySpec(text, global_tables={"t": ""}))
    table, _ = table_of(batch([("k", "v")]), 0, query.columns, "string")
    found = [query.run(table)["value"].to_pylist()]
    for value in ("one", "two"):
        columns = {"key": ["k"], "value": [value], "timestamp": [0]}
        query.replace("t", pa.table(columns).cast(lookup_schema("string")))
        found.append(query.run(table)["value"].to_pylist())
    assert found == [[None], [b"one"], [b"two"]]
    query.close()


@pytest.mark.parametrize("size", [1, 20_000])
def test_groups_are_those_of_a_query_in_the_driver(
    remote: RemoteQueries, served: SparkQueries, size: int
) -> None:
    spec = QuerySpec("SELECT key, max(value) AS value FROM input GROUP BY key")
    rows = [(f"k{number % 7}", str(number)) for number in range(size)]
    found = []
    for query in (remote.open_aggregation(spec), served.open_aggregation(spec)):
        table, _ = table_of(batch(rows), 0, query.columns, "string")
        found.append(query.merge(query.partial(table)).sort_by("value"))
        query.close()
    assert found[0].equals(found[1])
    assert len(found[0]) == min(size, 7)


def test_an_error_of_a_function_has_its_own_words(remote: RemoteQueries) -> None:
    query = remote.open(QuerySpec(function=f"{FUNCTIONS}:loud"))
    with pytest.raises(QueryError, match=r"^ValueError: no good$") as raised:
        run(query, [("k", "bad")])
    assert raised.value.shown.startswith("ValueError (frames.py:")
    assert list(run(query, [("k", "good")]).values) == [b"GOOD!"]
    query.close()
