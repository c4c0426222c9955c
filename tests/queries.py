"""Records through queries without Kafka, for the tests of Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.columns import batch_of, table_of
from kafka_pipeline.streams.sql.spec import Queries, QueryError, QuerySpec, SparkQuery

ROOT = Path(__file__).parents[1]
FUNCTIONS = "tests.user_code.frames"
ROWS = [("k1", "a"), ("k2", "b"), ("k1", "c"), (None, "d")]


def batch(rows: Sequence[tuple[str | None, str | None]]) -> Batch:
    """Return records at the times 10, 11 … and the offsets 100, 101 …"""
    return Batch(
        [None if key is None else key.encode() for key, _ in rows],
        [None if value is None else value.encode() for _, value in rows],
        [10 + index for index in range(len(rows))],
        None,
        [100 + index for index in range(len(rows))],
    )


def run(
    query: SparkQuery, rows: Sequence[tuple[str | None, str | None]], format_: str = "string"
) -> Batch:
    """Return the results, which are the same whether Spark or Arrow reads and writes JSON."""
    records = batch(rows)
    table, wrong = table_of(records, 2, query.columns, format_)  # type: ignore[arg-type]
    assert wrong == ""
    found = batch_of(query.run(table))
    read, _ = table_of(records, 2, query.columns, format_, query.fields)  # type: ignore[arg-type]
    split = query.split
    if split is not None and split.is_possible(read):
        needed = split.for_spark(read)
        given = None if needed is None else query.parts(needed)
        assert split.results(records, read, given) == found
    return found


def results(
    queries: Queries, spec: QuerySpec, rows: Sequence[tuple[str | None, str | None]] = ROWS
) -> list[tuple[bytes | None, bytes | None, int]]:
    query = queries.open(spec)
    out = run(query, rows, spec.format)
    query.close()
    return list(zip(out.keys, out.values, out.timestamps, strict=True))


def refusal(queries: Queries, spec: QuerySpec) -> str:
    with pytest.raises(QueryError) as caught:
        queries.open(spec)
    assert "\n" not in str(caught.value)
    return str(caught.value)
