"""Queries that read their input by its name in `from`."""

from __future__ import annotations

import json

import pytest

from kafka_pipeline.streams.sql.spec import QueryError
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce

pytestmark = pytest.mark.integration


def pipeline(query: str, inputs: str = "in") -> str:
    return f"""
sources: {{in: in, "my.orders-2": more}}
processors:
- id: P
  type: sql
  from: [{inputs}]
  format: json
  schema: n INT
  query: {json.dumps(query)}
  to: [sink]
"""


@pytest.mark.parametrize("name", ["input", "in", "IN", "`in`"])
def test_a_single_input_has_its_own_name_too(shared: OpenedOnce, name: str) -> None:
    job = Job(pipeline(f"SELECT i.key, i.n + 1 AS n FROM {name} AS i"), shared)
    job.send([{"key": "a", "n": 1, "at": 5}])
    assert [each[1:4] for each in job.take()] == [("a", {"n": 2}, 5 * MINUTE_MS)]
    job.close()


def test_names_that_are_no_identifiers_are_written_in_backticks(shared: OpenedOnce) -> None:
    query = "SELECT `my.orders-2`.key, sum(n) AS n FROM `my.orders-2` GROUP BY key"
    job = Job(pipeline(query, '"my.orders-2"'), shared)
    job.send([{"key": "a", "n": 1, "at": 5}, {"key": "a", "n": 2, "at": 6}], topic="more")
    assert job.latest() == {"a": {"n": 3}}
    job.close()


def test_names_of_columns_may_have_dots(shared: OpenedOnce) -> None:
    text = pipeline("SELECT `a.b` AS key, sum(n) AS n FROM in GROUP BY `a.b`")
    job = Job(text.replace("schema: n INT", "schema: '`a.b` STRING, n INT'"), shared)
    job.send([{"a.b": "x", "n": 1, "at": 5}, {"a.b": "x", "n": 2, "at": 6}])
    assert job.latest() == {"x": {"n": 3}}
    job.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT key, n FROM in",
        "SELECT key, sum(n) AS n FROM in GROUP BY key",
    ],
)
def test_one_of_several_inputs_is_refused(shared: OpenedOnce, query: str) -> None:
    with pytest.raises(QueryError, match="the query reads in, which is one of several inputs"):
        Job(pipeline(query, 'in, "my.orders-2"'), shared)
