"""Queries of a process: what its tasks share."""

from __future__ import annotations

import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.streams.sql import local
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.local import IdleAggregations, LocalQueries
from kafka_pipeline.streams.sql.spec import QuerySpec

SPEC = QuerySpec("SELECT key, count(*) AS n FROM input GROUP BY key", processor="Counts")


class _Opened(SimpleNamespace):
    """An aggregation."""


class FakeSpark:
    """Opens aggregations that do nothing but write down what happens to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most_idle: int = 16) -> None:
        self.spark_id = "local-1 UTC"
        self.log: list[str] = []
        self.opened: list[weakref.ref[_Opened]] = []
        monkeypatch.setattr(local, "_IDLE", IdleAggregations(most_idle))

    def queries(self, monkeypatch: pytest.MonkeyPatch) -> LocalQueries:
        """Return the queries of another driver in this process."""
        queries = LocalQueries(UserCode(), Readable())
        monkeypatch.setattr(queries, "_queries", lambda: self)
        return queries

    def open_aggregation(self, spec: QuerySpec) -> Any:
        self.log.append(f"open {spec.processor}")
        parts = dict.fromkeys(("shape", "partial", "merge", "replace"))
        opened = _Opened(
            columns=("key",), **parts, close=lambda: self.log.append(f"close {spec.processor}")
        )
        self.opened.append(weakref.ref(opened))
        return opened


def test_tasks_share_an_aggregation_and_the_next_driver_takes_it_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planning it takes most of the time that another test driver needs."""
    spark = FakeSpark(monkeypatch)
    queries = spark.queries(monkeypatch)
    first = queries.open_aggregation(replace(SPEC, processor="Counts-rows"))
    second = queries.open_aggregation(SPEC)
    assert (first.columns, spark.log) == (("key",), ["open Counts-rows"])
    first.close()
    others = spark.queries(monkeypatch)
    others.open_aggregation(SPEC).close()
    assert spark.log[1:] == ["open Counts"]  # the first driver still has its own
    second.close()
    assert spark.log[2:] == ["close Counts"]  # one is enough
    for _ in range(3):
        spark.queries(monkeypatch).open_aggregation(SPEC).close()
    queries.open_aggregation(SPEC)
    assert spark.log[3:] == []


def test_few_aggregations_stay_and_none_on_another_spark_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark = FakeSpark(monkeypatch, most_idle=2)
    for processor, limit in (("A", 1), ("B", 2), ("C", 3)):
        spec = replace(SPEC, processor=processor, max_collected=limit)
        spark.queries(monkeypatch).open_aggregation(spec).close()
    assert spark.log == ["open A", "open B", "open C", "close A"]
    spark.spark_id = "local-2 UTC"
    spark.queries(monkeypatch).open_aggregation(replace(SPEC, processor="C", max_collected=3))
    assert spark.log[4:] == ["open C"]


def test_a_driver_that_goes_on_keeps_no_aggregation_that_was_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark = FakeSpark(monkeypatch, most_idle=1)
    queries = spark.queries(monkeypatch)
    for limit in (1, 2, 3):
        queries.open_aggregation(replace(SPEC, max_collected=limit)).close()
    assert [each() is None for each in spark.opened] == [True, True, False]


@pytest.mark.parametrize(
    "more",
    [
        {"query": "", "function": "shop:counts"},
        {"tables": {"names": {"format": "csv", "path": "names.csv"}}},
        {"global_tables": {"names": "name STRING"}},
    ],
)
def test_aggregations_that_depend_on_code_or_rows_are_planned_anew(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    spark = FakeSpark(monkeypatch)
    for _ in range(2):
        spark.queries(monkeypatch).open_aggregation(replace(SPEC, **more)).close()
    assert spark.log == ["open Counts", "close Counts"] * 2
