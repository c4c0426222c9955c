"""Moments in the JSON of results have microseconds if they need them, and else are as in Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kafka_pipeline.streams.sql.exact_times import with_exact_times
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.output import finite_fields
from kafka_pipeline.streams.sql.spec import QuerySpec

pytestmark = pytest.mark.integration

WHOLE = ("2026-03-29T02:30:00.123", "1969-12-31T23:59:59.999", "0001-01-01T00:00:00", "-0044-03-15")
"""In Berlin, the first one is in the hour that summer time leaves out."""


@pytest.fixture
def session(local: LocalQueries) -> Any:
    local.open(QuerySpec("SELECT key, value FROM input"))
    return SparkSession(SparkContext._active_spark_context)  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata"])
def test_whole_milliseconds_are_as_spark_has_them(session: Any, zone: str) -> None:
    texts = ", ".join(f"('{text}')" for text in WHOLE)
    columns = "CAST(t AS TIMESTAMP) t, CAST(t AS TIMESTAMP_NTZ) l"
    former = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = session.sql(
            f"SELECT t, l, array(t, null) a, map('k', l) m, struct(t, struct(l, null AS x)) s, "
            f"CAST(null AS TIMESTAMP) n, CAST(null AS STRUCT<t: TIMESTAMP>) z "
            f"FROM (SELECT {columns} FROM VALUES {texts} AS v(t))"
        )
        plain = frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))
        exact = [
            with_exact_times(F.col(field.name), field.dataType)[0].alias(field.name)
            for field in frame.schema.fields
        ]
        ours = frame.select(F.to_json(F.struct(*exact), {"ignoreNullFields": "false"}))
        assert ours.collect() == plain.collect()
    finally:
        session.conf.set("spark.sql.session.timeZone", former)


def test_microseconds_are_kept(session: Any) -> None:
    frame = session.sql(
        "SELECT TIMESTAMP '1950-01-01 00:00:00.000001Z' t, "
        "TIMESTAMP_NTZ '1950-01-01 00:00:00.1234' l"
    ).selectExpr("t", "l", "array(struct(t)) a", "map('k', l) m")
    exact = [
        with_exact_times(F.col(field.name), field.dataType)[0].alias(field.name)
        for field in frame.schema.fields
    ]
    ((text,),) = frame.select(F.to_json(F.struct(*exact))).collect()
    moment, local = "1950-01-01T00:00:00.000001Z", "1950-01-01T00:00:00.1234"
    assert json.loads(text) == {"t": moment, "l": local, "a": [{"t": moment}], "m": {"k": local}}


@pytest.mark.parametrize("micros", [-62_135_596_800_000_001, 253_402_300_800_000_000])
def test_a_moment_outside_of_all_years_is_refused(session: Any, micros: int) -> None:
    """Such as milliseconds since 1970, which Spark takes for seconds."""

    def read(count: int) -> Any:
        frame = session.sql(f"SELECT 'k' AS key, timestamp_micros({count}) AS t, 1 AS at")
        return finite_fields(frame, 1).selectExpr("unix_micros(t)").collect()

    inside = micros + 1 if micros < 0 else micros - 1
    assert len(read(inside)) == 1
    with pytest.raises(Exception, match="t is not in the years 1 to 9999"):
        read(micros)
