"""Random upserts through queries over a changelog, compared with a model of the newest rows.

Batches are cut at random places, tasks start again in between, and some records are rejected.
`tests/random_sql` draws more such queries, and compares them with Spark.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import pytest

from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.sql.changelog import KeptChangelog
from kafka_pipeline.streams.sql.kept_values import ValueEntries, Versions
from kafka_pipeline.streams.sql.spec import QueryError
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce, Row

pytestmark = pytest.mark.integration

PARTITIONS = 2
CHANGE_VALUES = ValueEntries.change
SCHEMA = "format: json, on_error: skip, schema: 'category STRING, price BIGINT, n DOUBLE'"
SOURCES = "sources: {prices: {topic: in, changelog: true}}\nprocessors:"
TOTALS = (
    "SELECT category AS key, count(*) AS c, count(price) AS k, sum(price) AS s, avg(price) AS a, "
    "count_if(price > 5) AS i, sum(price) FILTER (WHERE price > 5) AS f, bool_or(price > 8) AS o, "
    "bool_and(price > 1) AS b, min(price) AS l, max(price) AS h, "
    "max(price) FILTER (WHERE price < 5) AS m, max_by(price, key) AS y, "
    "count(DISTINCT price) AS d, sum(DISTINCT price) FILTER (WHERE price < 5) AS e FROM input "
    "GROUP BY category"
)
ENDS = (
    "SELECT category AS key, min(cast(n AS FLOAT)) AS float, max(cast(n AS DECIMAL(5,2))) AS "
    "decimal, max(cast(4 * n AS TINYINT)) AS tiny, min(date_add(DATE'1970-01-01', int(4 * n))) AS "
    "day, max(repeat('a', int(4 * n + 6))) AS text, min(n > 0) AS flag, "
    "cast(max(if(n = 2, double('NaN'), n)) AS STRING) AS nan, "
    "cast(min(if(n = -1.5, double('-inf'), n)) AS STRING) AS infinite, "
    "unix_millis(max(timestamp)) AS time, avg(DISTINCT n) AS mean, "
    "count(DISTINCT n, price) AS pairs FROM input GROUP BY category"
)
BEST = (
    "SELECT concat(category, '-', place) AS key, place, price, k FROM (SELECT category, price, "
    "key AS k, row_number() OVER (PARTITION BY category ORDER BY price DESC NULLS LAST) AS place "
    "FROM input) WHERE place <= 2"
)
RANKS = (
    "SELECT concat(category, '-', k) AS key, place, price FROM (SELECT category, price, key AS k, "
    "rank() OVER (PARTITION BY category ORDER BY price DESC NULLS LAST) AS place FROM input) "
    "WHERE place <= 2"
)
PLACES = (
    "SELECT concat(category, '-', place) AS key, k FROM (SELECT category, key AS k, row_number() "
    "OVER (PARTITION BY category ORDER BY price) AS place FROM input)"
)
DIFFERENT = "SELECT category AS key, category FROM input GROUP BY category"
DISTINCT = "SELECT DISTINCT category AS key, category FROM input"
BEST_OF_WINDOWS = (
    "SELECT concat_ws('|', category, unix_seconds(window.start)) AS key, k FROM (SELECT category, "
    "window, key AS k, row_number() OVER (PARTITION BY category, window ORDER BY price DESC NULLS "
    "LAST) AS place FROM (SELECT *, window(timestamp, '20 minutes') AS window FROM input)) "
    "WHERE place = 1"
)
Rows = Mapping[str, Mapping[str, Any]]


def totals(rows: Rows) -> dict[str | None, Any]:
    groups = defaultdict[str | None, dict[str, int | None]](dict)
    for key, row in rows.items():
        groups[row["category"]][key] = row["price"]
    found = {}
    for category, by_key in groups.items():
        prices = [*by_key.values()]
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
            "l": min(given, default=None),
            "h": max(given, default=None),
            "m": max((price for price in given if price < 5), default=None),
            "y": by_key[max(by_key)],
            "d": len({*given}),
            "e": sum({price for price in given if price < 5})
            if min(given, default=5) < 5
            else None,
        }
    return found


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


def ends(rows: Rows) -> dict[str | None, Any]:
    """Return the values of all types; they grow with `n`, which is null together with them."""
    found = {}
    for category, members in by_category(rows).items():
        numbers = [row["n"] for row in members if row["n"] is not None]
        low, high = min(numbers, default=None), max(numbers, default=None)
        pairs = [(row["n"], row["price"]) for row in members]
        found[category] = {
            "float": low,
            "decimal": high,
            "tiny": None if high is None else int(4 * high),
            "day": None if low is None else str(date(1970, 1, 1) + timedelta(int(4 * low))),
            "text": None if high is None else "a" * int(4 * high + 6),
            "flag": None if low is None else low > 0,
            "nan": None if high is None else "NaN" if high == 2 else str(high),
            "infinite": None if low is None else "-Infinity" if low == -1.5 else str(low),
            "time": max(row["at"] for row in members) * MINUTE_MS,
            "mean": sum({*numbers}) / len({*numbers}) if numbers else None,
            "pairs": len({(n, p) for n, p in pairs if n is not None and p is not None}),
        }
    return found


def by_category(rows: Rows) -> dict[str | None, list[Row]]:
    groups = defaultdict[str | None, list[Row]](list)
    for row in rows.values():
        groups[row["category"]].append(row)
    return groups


def best_of_windows(rows: Rows) -> dict[str | None, Any]:
    groups = defaultdict[str | None, list[tuple[bool, int, str]]](list)
    for key, row in rows.items():
        place = row["price"] is None, -(row["price"] or 0), key
        groups[f"{row['category']}|{60 * (row['at'] // 20 * 20)}"].append(place)
    return {key: {"k": min(places)[-1]} for key, places in groups.items()}


def best(rows: Rows) -> dict[str | None, Any]:
    found: dict[str | None, Any] = {}
    for category, members in by_category(rows).items():
        # Rows that tie are in the order of their columns, which are k and price.
        ordered = sorted(members, key=lambda row: (-(row["price"] or 0), row["key"]))
        ordered.sort(key=lambda row: row["price"] is None)
        for place, row in enumerate(ordered[:2], 1):
            key = f"{category}-{place}"
            found[key] = {"place": place, "price": row["price"], "k": row["key"]}
    return found


def ranks(rows: Rows) -> dict[str | None, Any]:
    found: dict[str | None, Any] = {}
    for category, members in by_category(rows).items():
        prices = [-1 if row["price"] is None else row["price"] for row in members]
        for row, price in zip(members, prices, strict=True):
            place = 1 + sum(other > price for other in prices)
            if place <= 2:
                key = f"{category}-{row['key']}"
                found[key] = {"place": place, "price": row["price"]}
    return found


def categories(rows: Rows) -> dict[str | None, Any]:
    return {row["category"]: {"category": row["category"]} for row in rows.values()}


def query(text: str) -> str:
    return (
        f'{SOURCES}\n- {{id: T, type: sql, query: "{text}", {SCHEMA}, from: [prices], to: [sink]}}'
    )


LOW = TOTALS.replace("GROUP", "WHERE coalesce(price, 0) < 7 GROUP")
BETWEEN = "SELECT key, category, 2 * price AS price FROM input WHERE price IS NOT NULL"
PIPELINES: dict[str, tuple[str, Callable[[Rows], dict[str | None, Any]]]] = {
    "all functions": (query(TOTALS), totals),
    "values of all types": (query(ENDS), ends),
    "best rows": (query(BEST), best),
    "ranks": (query(RANKS), ranks),
    "best rows of windows": (query(BEST_OF_WINDOWS), best_of_windows),
    "different rows": (query(DIFFERENT), categories),
    "distinct rows": (query(DISTINCT), categories),
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
            "n": chance.choice([None, -1.5, -0.25, 0.5, 2.0]),
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


def only_new(values: ValueEntries, keys: Sequence[bytes], changes: Sequence[int]) -> Any:
    """Change values, but take none out."""
    return CHANGE_VALUES(values, keys, [max(change, 0) for change in changes])


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (KeptChangelog, "keep", lambda self, batch: None),
        (ValueEntries, "change", only_new),
        (Versions, "former", lambda self, prefix: ()),
    ],
    ids=["rows", "values", "former versions of rows"],
)
def test_what_is_not_taken_out_is_found(
    shared: OpenedOnce, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, broken: object
) -> None:
    monkeypatch.setattr(owner, name, broken)
    broken_pipelines = ["ranks"] if owner is Versions else ["all functions", "best rows", "ranks"]
    for pipeline in (*broken_pipelines, *(["distinct rows"] if name == "keep" else [])):
        with pytest.raises(AssertionError, match="seed 0, after"):
            compare(pipeline, 0, shared)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BEST.replace("concat(category, '-', place)", "k"), "the columns of PARTITION BY and of"),
        (
            PLACES.replace(", '-', place", ""),
            "of the place, or of others that name",
        ),
        (RANKS.replace("'-', k", "'-', place"), "of all columns of PARTITION BY, and of others"),
    ],
    ids=["a key of the rows", "a key of the group", "a key that rows that tie have"],
)
def test_best_rows_that_could_not_be_taken_back_are_refused(
    shared: OpenedOnce, text: str, reason: str
) -> None:
    with pytest.raises(QueryError, match=re.escape(reason)) as raised:
        Job(query(text), shared)
    assert "on_close" not in str(raised.value)


@pytest.mark.parametrize(("text", "name"), [(BEST, "row_number(…)"), (RANKS, "rank()")])
def test_more_rows_than_a_group_may_keep_are_not_left_out_in_silence(
    shared: OpenedOnce, text: str, name: str
) -> None:
    job = Job(query(text).replace(SCHEMA, f"{SCHEMA}, max_collected: 2"), shared)
    rows = [{"key": key, "at": 1, "category": "x", "price": 1, "n": None} for key in "abc"]
    job.send(rows[:2], 0)
    reason = f"{name} has more than 2 values in a group: see max_collected"
    with pytest.raises(ProcessingFailedError, match=re.escape(reason)):
        job.send(rows[2:], 0)
    job.close()


PRICE_OF_TIME = "sum(if(timestamp < timestamp_seconds(90), price, 0))"


@pytest.mark.parametrize(
    ("value", "raw", "is_sent"),
    [
        ("sum(price)", b'{"price": 1, "n": 0.0, "category": "x"}', False),
        ("sum(price)", b'{"n": null, "category": "x", "price": 1}', False),
        ("sum(price)", b'{"category": "x", "price": 1}', False),
        ("sum(price)", b'{"category": "x", "price": 1, "n": 0.0, "unknown": 2}', False),
        ("sum(price)", b'{"category": "x", "price": null}', True),
        ("sum(price)", b'{"category": "y", "price": 1}', True),
        ("sum(price)", None, True),
        ("count(n)", b'{"category": "x", "n": -0.0}', True),
        ("count(n)", b'{"category": "x"}', True),
        (PRICE_OF_TIME, b'{"price": 1, "n": 0.0, "category": "x"}', True),
    ],
)
def test_an_update_is_a_change_if_a_column_differs_that_the_query_uses(
    shared: OpenedOnce, value: str, raw: bytes | None, *, is_sent: bool
) -> None:
    text = query(f"SELECT category AS key, {value} AS v, count(*) AS c FROM input GROUP BY 1")
    job, former = Job(text, shared), {"key": "a", "category": "x", "price": 1, "n": 0.0}
    job.send([{**former, "at": 1}])
    job.take()
    job.send([{"key": "a", "at": 2, "raw": raw}])
    assert bool(job.take()) == is_sent
    job.send([{**former, "at": 3}])
    job.send([{"key": "a", "at": 4, "raw": None}])
    assert job.take()[-1][1:3] == ("x", None)
    job.close()


@pytest.mark.parametrize(
    ("raw", "is_sent"),
    [
        (b'{"tags": [1], "price": 1.5, "category": "x", "unknown": 1}', False),
        (b'{"category": "x", "price": 1.50, "tags": [1]}', True),
        (b'{"category": "x", "price": 1.5, "tags": [2]}', True),
        (b'{"category": "x", "price": 1.5}', True),
    ],
)
def test_so_is_one_whose_values_only_spark_can_read(
    shared: OpenedOnce, raw: bytes, *, is_sent: bool
) -> None:
    select = "SELECT category AS key, sum(price) AS v, count(tags[0]) AS c FROM input GROUP BY 1"
    text = query(select).replace("price BIGINT, n DOUBLE", "price DECIMAL(5,2), tags ARRAY<INT>")
    job = Job(text, shared)
    job.send([{"key": "a", "at": 1, "raw": b'{"category": "x", "price": 1.5, "tags": [1]}'}])
    assert job.latest() == {"x": {"v": 1.5, "c": 1}}
    job.send([{"key": "a", "at": 2, "raw": raw}])
    assert bool(job.take()) == is_sent
    job.send([{"key": "a", "at": 4, "raw": None}])
    assert job.take()[-1][1:3] == ("x", None)
    job.close()


@pytest.mark.parametrize("together", [True, False])
def test_a_distinct_row_is_given_when_it_comes_and_deleted_when_it_goes(
    shared: OpenedOnce, *, together: bool
) -> None:
    """Its result does not change while it is there, so it is not given again."""
    job = Job(query(DISTINCT), shared)
    empty = {"price": None, "n": None}
    first: list[Row] = [{"key": key, "at": 1, "category": "x", **empty} for key in "ab"]
    moved: list[Row] = [{"key": "a", "at": 2, "category": "y", **empty}]
    gone: list[Row] = [{"key": "b", "at": 3, "raw": None}, {"key": "a", "at": 3, "raw": None}]
    back: list[Row] = [{"key": "c", "at": 4, "category": "x", **empty}]
    batches = [first, moved, gone, back]
    for batch in batches if together else [[row] for rows in batches for row in rows]:
        job.send(batch)
    x, y = {"category": "x"}, {"category": "y"}
    found = [(each.key, each.value, each.timestamp // MINUTE_MS) for each in job.take()]
    assert sorted(found[2:4]) == [("x", None, 3), ("y", None, 3)]
    assert [*found[:2], *found[4:]] == [("x", x, 1), ("y", y, 2), ("x", x, 4)]
    job.close()
