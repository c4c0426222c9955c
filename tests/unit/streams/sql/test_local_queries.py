"""Queries of a process: what its tasks share."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.user_code import UserCode
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import QuerySpec

SPEC = QuerySpec("SELECT key, count(*) AS n FROM input GROUP BY key", processor="Counts")


def test_tasks_share_an_aggregation_until_the_last_one_closes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planning it takes most of the time that another test driver needs."""
    log: list[str] = []

    def opened(spec: QuerySpec) -> Any:
        log.append(f"open {spec.processor}")
        return SimpleNamespace(
            columns=("key",),
            shape=None,
            partial=None,
            merge=None,
            replace=None,
            close=lambda: log.append("close"),
        )

    queries = LocalQueries(UserCode(), Readable())
    monkeypatch.setattr(queries, "_queries", lambda: SimpleNamespace(open_aggregation=opened))
    first = queries.open_aggregation(replace(SPEC, processor="Counts-rows"))
    second = queries.open_aggregation(SPEC)
    other = queries.open_aggregation(replace(SPEC, max_collected=7))
    assert (first.columns, log) == (("key",), ["open Counts-rows", "open Counts"])
    first.close()
    assert log[2:] == []
    second.close()
    other.close()
    assert log[2:] == ["close", "close"]
    queries.open_aggregation(SPEC)
    assert log[4:] == ["open Counts"]
