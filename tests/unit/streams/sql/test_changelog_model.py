"""Random upserts through queries over a changelog, compared with a model of the newest rows.

Batches are cut at random places, tasks start again in between, and some records are rejected.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafka_pipeline.streams.sql.changelog import KeptChangelog
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Row

pytestmark = pytest.mark.integration

PARTITIONS = 2
SCHEMA = "format: json, on_error: skip, schema: 'category STRING, price BIGINT, n DOUBLE'"
SOURCES = "sources: {prices: {topic: in, changelog: true}}\nprocessors:"
TOTALS = (
    "SELECT category AS key, count(*) AS c, count(price) AS k, sum(price) AS s, avg(price) AS a, "
    "count_if(price > 5) AS i, sum(price) FILTER (WHERE price > 5) AS f, bool_or(price > 8) AS o, "
    "bool_and(price > 1) AS b FROM input GROUP BY category"
)
FILTERED = (
    "SELECT category AS key, count(*) FILTER (WHERE price > 5) AS high, count(*) AS c FROM input "
    "GROUP BY category"
)
DIFFERENT = "SELECT category AS key, category FROM input GROUP BY category"
Rows = Mapping[str, Mapping[str, Any]]


def totals(rows: Rows) -> dict[str | None, Any]:
    groups = defaultdict[str | None, list[int | None]](list)
    for row in rows.values():
        groups[row["category"]].append(row["price"])
    found = {}
    for category, prices in groups.items():
        given = [price for price in prices if price is not None]
        high = [price for price in given if price > 5]
        found[category] = {
            "c": len(prices),
            "k": len(given),
            "s": sum(given) if given else None,
            "a": sum(given) / len(given) if given else None,
            "i": len(high),
            "f": sum(high) if high else None,
            "o": any(price > 8 for price in given) if given else None,
            "b": all(price > 1 for price in given) if given else None,
        }
    return found


def frequent(rows: Rows) -> dict[str | None, Any]:
    return {key: row for key, row in totals(rows).items() if row["c"] > 2}


def low(rows: Rows) -> dict[str | None, Any]:
    return totals({key: row for key, row in rows.items() if (row["price"] or 0) < 7})


def doubled(rows: Rows) -> dict[str | None, Any]:
    return low(
        {
            key: {**row, "price": row["price"] and 2 * row["price"]}
            for key, row in rows.items()
            if row["price"] is not None
        }
    )


def by_key(rows: Rows) -> dict[str | None, Any]:
    return {key: {"s": row["price"]} for key, row in rows.items()}


def categories(rows: Rows) -> dict[str | None, Any]:
    return {row["category"]: {"category": row["category"]} for row in rows.values()}


def filtered(rows: Rows) -> dict[str | None, Any]:
    return {key: {"high": row["i"], "c": row["c"]} for key, row in totals(rows).items()}


def query(text: str) -> str:
    return (
        f'{SOURCES}\n- {{id: T, type: sql, query: "{text}", {SCHEMA}, from: [prices], to: [sink]}}'
    )


LOW = TOTALS.replace("GROUP", "WHERE coalesce(price, 0) < 7 GROUP")
BETWEEN = "SELECT key, category, 2 * price AS price FROM input WHERE price IS NOT NULL"
PIPELINES: dict[str, tuple[str, Callable[[Rows], dict[str | None, Any]]]] = {
    "all functions": (query(TOTALS), totals),
    "a count of some rows first": (query(FILTERED), filtered),
    "having": (query(TOTALS + " HAVING count(*) > 2"), frequent),
    "where": (query(LOW), low),
    "different rows": (query(DIFFERENT), categories),
    "by their key": (query("SELECT key, sum(price) AS s FROM input GROUP BY key"), by_key),
    "a query in between": (
        f"""{SOURCES}
- {{id: B, type: sql, query: "{BETWEEN}", {SCHEMA}, from: [prices], to: [F]}}
- {{id: F, type: forward, to: [T]}}
- {{id: T, type: sql, query: "{LOW}", {SCHEMA}, to: [sink]}}
""",
        doubled,
    ),
}


def random_rows(chance: random.Random) -> list[Row]:
    rows: list[Row] = []
    for at in range(120):
        key = chance.choice("abcdefgh")
        kind = chance.random()
        row = {
            "key": key,
            "at": at,
            "category": chance.choice("xyz"),
            "price": chance.choice([None, *range(10)]),
        }
        if kind < 0.25:
            row = {"key": key, "at": at, "raw": None}
        elif kind < 0.3:
            row = {"key": key, "at": at, "raw": chance.choice([b'{"price": "x"}', b"[]", b"\xff"])}
        rows.append(row)
    return rows


def newest(rows: list[Row]) -> dict[str, Row]:
    table: dict[str, Row] = {}
    for row in rows:
        if "raw" not in row:
            table[row["key"]] = row
        elif row["raw"] is None:
            table.pop(row["key"], None)
    return table


def compare(name: str, seed: int, shared: OpenedOnce) -> None:
    """Compare the results with the model after each batch."""
    text, model = PIPELINES[name]
    chance = random.Random(f"{seed} {name}")
    rows = random_rows(chance)
    job = Job(text, shared, partitions=PARTITIONS)
    table: dict[str | None, Any] = {}
    at = 0
    while at < len(rows):
        part = rows[at : at + chance.choice([1, 2, 5, 30])]
        at += len(part)
        for number in range(PARTITIONS):
            own = [row for row in part if ord(row["key"]) % PARTITIONS == number]
            if own:
                job.send(own, number)
        if chance.random() < 0.2:
            job.restart()
        table |= {result.key: result.value for result in job.take()}
        found = {key: value for key, value in table.items() if value is not None}
        assert found == model(newest(rows[:at])), f"seed {seed}, after {at} records"
    assert job.skipped == sum(row.get("raw") is not None for row in rows), f"seed {seed}"
    job.close()


@pytest.mark.parametrize("name", long_but_the_first(PIPELINES))
def test_results_are_those_of_the_newest_rows(
    shared: OpenedOnce, seeds: list[int], name: str
) -> None:
    for seed in seeds:
        compare(name, seed, shared)


def test_rows_that_are_not_taken_out_are_found(
    shared: OpenedOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeptChangelog, "keep", lambda self, batch: None)
    with pytest.raises(AssertionError, match="seed 0, after"):
        compare("all functions", 0, shared)
