"""Results that are made of records and of what Spark computes, against whole results of Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_pipeline.common.pipelines.specs import Format
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.columns import batch_of, table_of
from kafka_pipeline.streams.sql.json_fields import read_fields
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import RECORD, QuerySpec, SparkQuery
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.test_json_fields import DDL, SCHEMA, random_values

pytestmark = pytest.mark.integration

JSON = QuerySpec(format="json", schema=DDL)


def records() -> Batch:
    """Return records with all that Arrow reads, some without a key, a value or headers."""
    values: list[bytes | None] = [
        value for value in random_values() if read_fields([value], SCHEMA) is not None
    ]
    values[7] = None
    size = len(values)
    return Batch(
        [None if number % 5 == 0 else f'k"{number}'.encode() for number in range(size)],
        values,
        [1000 * number for number in range(size)],
        [[("h", b"\xff"), ("h", None)] if number % 3 == 0 else None for number in range(size)],
        range(size),
    )


def both(query: SparkQuery, spec: QuerySpec, batch: Batch) -> tuple[Batch, Batch]:
    """Return the results by Spark alone, and those that are put together."""
    split = query.split
    assert split is not None
    table, wrong = table_of(batch, 3, query.columns, spec.format, query.fields)
    assert not wrong
    assert split.is_possible(table)
    needed = split.for_spark(table)
    given = None if needed is None else query.parts(needed)
    return batch_of(query.run(table)), split.results(batch, table, given)


@pytest.mark.parametrize(
    ("query", "needed"),
    long_but_the_first(
        [
            ("SELECT key, s, b, y, h, i, l FROM input", ()),
            ("SELECT * FROM (SELECT l AS n, s AS `é t`, timestamp, key FROM input)", ()),
            ("SELECT s FROM input WHERE i % 2 = 1", (RECORD, "i")),
            ("SELECT key, d, s, d + 1 AS e, l FROM input", (RECORD, "d")),
            ("SELECT i, upper(s) AS `a`, h / 3 AS c, s, l FROM input", (RECORD, "s", "h")),
            ('SELECT i AS `a"b`, `y` FROM input', (RECORD, "i")),
            ("SELECT l AS key, s FROM input WHERE NOT b", (RECORD, "b", "l")),
            (
                "SELECT key AS k, partition, offset, b FROM input",
                (RECORD, "key", "partition", "offset"),
            ),
            (
                "SELECT b, timestamp + INTERVAL 1 SECOND AS timestamp FROM input",
                (RECORD, "timestamp"),
            ),
            ("SELECT headers, s, i FROM input WHERE length(s) > 0", (RECORD, "headers", "s")),
            ("SELECT n, s, key FROM input LATERAL VIEW explode(array(i, 7)) t AS n", (RECORD, "i")),
            (
                "SELECT s, CAST(i AS BIGINT) AS i, named_struct('i', i) AS t, s AS u FROM input",
                None,
            ),
            ("WITH w AS (SELECT i AS j, s FROM input) SELECT j, s FROM w WHERE s IS NULL", None),
        ],
        3,
    ),
)
def test_what_is_put_together_is_what_spark_gives(
    local: LocalQueries, query: str, needed: tuple[str, ...] | None
) -> None:
    spec, batch = replace(JSON, query=query), records()
    opened = local.open(spec)
    if needed is not None:
        assert opened.split is not None
        assert {*opened.split.needed} == {*needed}
    of_spark, found = both(opened, spec, batch)
    assert len(of_spark) > 20
    wrong = [each for each in zip(of_spark.values, found.values, strict=True) if each[0] != each[1]]
    assert not wrong
    assert found == of_spark
    assert found.headers == of_spark.headers


@pytest.mark.parametrize("format_", ["string", "binary"])
def test_whole_values_are_passed_on(local: LocalQueries, format_: Format) -> None:
    spec = QuerySpec("SELECT key, value FROM input WHERE timestamp > timestamp_millis(0)")
    spec = replace(spec, format=format_)
    opened = local.open(spec)
    assert opened.split is not None
    assert {*opened.split.needed} == {RECORD, "timestamp"}
    batch = records()
    of_spark, found = both(opened, spec, batch)
    assert len(found) == len(batch) - 1
    assert found == of_spark


def test_no_record_of_a_batch_may_give_a_result(local: LocalQueries) -> None:
    spec = replace(JSON, query="SELECT key, s, i + 1 AS n FROM input WHERE s = 'nowhere'")
    of_spark, found = both(local.open(spec), spec, records())
    assert len(found) == 0
    assert found == of_spark


@pytest.mark.parametrize(
    "query",
    [
        "SELECT upper(s) AS s FROM input",
        "SELECT s, current_timestamp() AS now FROM input",
        "SELECT key, d FROM input",
    ],
)
def test_results_are_whole_where_a_split_is_no_gain(local: LocalQueries, query: str) -> None:
    assert local.open(replace(JSON, query=query)).split is None


def test_records_that_only_spark_can_read_are_not_split(local: LocalQueries) -> None:
    opened = local.open(replace(JSON, query="SELECT s FROM input"))
    batch = Batch([None], [b'{"s":"x","s":"y"}'], [0])
    table, _ = table_of(batch, 0, opened.columns, "json", opened.fields)
    assert opened.split is not None
    assert not opened.split.is_possible(table)
