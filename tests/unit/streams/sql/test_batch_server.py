"""Batches that threads of the driver's JVM compute, without a job of Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from json import dumps
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kafka_pipeline.streams.sql import plan_calls
from kafka_pipeline.streams.sql.batch_server import BatchServer
from kafka_pipeline.streams.sql.columns import schema_of
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.plan_calls import MOST_INTERPRETED, PlanInJvm
from kafka_pipeline.streams.sql.queries import RunningQuery
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec, SparkLostError

pytestmark = pytest.mark.integration

QUERY = "SELECT key, CAST(CAST(value AS INT) * 2 AS STRING) AS value FROM input"


def records(values: list[str]) -> pa.Table:
    columns = {"key": ["k"] * len(values), "value": values, "timestamp": [0] * len(values)}
    schema = schema_of("string")
    arrays = [pa.array(items, schema.field(name).type) for name, items in columns.items()]
    return pa.Table.from_arrays(arrays, list(columns))


@pytest.fixture
def query(local: LocalQueries) -> Iterator[RunningQuery]:
    query = local.open(QuerySpec(QUERY))
    assert isinstance(query, RunningQuery)
    yield query
    query.close()


@pytest.mark.parametrize("size", [0, 1, 100, 2000, MOST_INTERPRETED])
def test_a_batch_gives_what_a_job_gives(query: RunningQuery, size: int) -> None:
    """Small ones, whose results are one answer or several, and a large one."""
    table = records([str(number) for number in range(size)])
    found = query.run(table)
    plans: Any = query.work.plans
    plans._java = plans._server.java.query(False)
    by_job = query._make_plan(query.plan.rows).compiled.run(table)
    assert found.equals(by_job)
    assert found["value"].to_pylist() == [b"%d" % (2 * number) for number in range(size)]


FUNCTIONS = (
    # Rows of Spark are overwritten by those that follow, so these values must be copied.
    *("max(s)", "min(s)", "first(s, true)", "last(s)", "max(CAST(s AS BINARY))", "max(array(s))"),
    *("max_by(struct(s, n), n)", "min(struct(n, s))", "collect_list(s)", "max(d)", "sum(d)"),
    *("count(DISTINCT s)", "avg(n)", "stddev(n)", "max(timestamp_millis(n))", "count_if(n > 1)"),
)


def test_a_small_batch_which_is_interpreted_gives_what_compiled_code_gives(
    local: LocalQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = ", ".join(f"{each} AS f{number}" for number, each in enumerate(FUNCTIONS))
    rows = "SELECT key, s, n, CAST(n AS DECIMAL(38, 2)) AS d FROM input"
    text = f"SELECT key, {named} FROM ({rows}) GROUP BY key"
    query = local.open_aggregation(QuerySpec(text, format="json", schema="s STRING, n INT"))
    random = Random(1)
    values = [
        dumps({"s": random.choice([None, "", "é" * random.randint(1, 40), "z"]), "n": number % 5})
        for number in range(300)
    ]
    table = records(values).set_column(0, "key", pa.array([str(n % 7) for n in range(300)]))
    interpreted = query.partial(table)
    monkeypatch.setattr(plan_calls, "MOST_INTERPRETED", 0)
    compiled = query.partial(table)
    query.close()
    order = [(interpreted.column_names[0], "ascending")]
    assert interpreted.sort_by(order).equals(compiled.sort_by(order))
    assert len(compiled) == 7


def test_what_a_batch_has_used_is_released_though_it_fails(query: RunningQuery) -> None:
    tasks = query.work.plans
    before = tasks.memory_used
    with pytest.raises(QueryError, match="cannot be cast"):
        query.run(records(["1", "x"]))
    assert query.run(records(["4"]))["value"].to_pylist() == [b"8"]
    assert tasks.memory_used == before


def test_a_cancelled_query_computes_nothing(query: RunningQuery) -> None:
    query.cancel()
    with pytest.raises(SparkLostError, match="cancelled"):
        query.run(records(["1"]))


def test_the_path_of_the_socket_is_short_enough(
    query: RunningQuery, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    server = BatchServer(query.work.jvm)
    assert Path(server.path).is_socket()
    assert list(long.iterdir()) == []


def test_an_error_of_spark_is_that_of_its_innermost_cause_with_a_name(query: RunningQuery) -> None:
    with pytest.raises(QueryError) as raised:
        query.run(records(["1", "x"]))
    assert '\'x\' of the type "STRING" cannot be cast to "INT"' in str(raised.value)
    assert raised.value.shown == "CAST_INVALID_INPUT (SQLSTATE 22018)"


def test_a_plan_that_python_has_given_up_is_gone(query: RunningQuery) -> None:
    request = PlanInJvm("o0", query.ask)
    with pytest.raises(SparkLostError):
        request.of([])
