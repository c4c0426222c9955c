"""Random records through joins without bounds of time, compared with Spark on all at once.

Batches are cut at random places, tasks start again in between, sides are uneven in pace, rows come
twice, and some records are rejected.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from kafka_pipeline.streams.sql.spec import QueryError
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import make_view
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Row
from tests.unit.streams.sql.join_pipeline import pipeline
from tests.unit.streams.sql.regular_join_model import (
    KINDS,
    ON,
    SCHEMA,
    SIDES,
    counted,
    folded,
    in_order,
    query_of,
    random_rows,
    steps,
)

pytestmark = pytest.mark.integration

GIVING_LEFT = ("LEFT SEMI", "LEFT ANTI")
OF_LEFT = " AND o.x <> 3 AND length(o.id) < 4"
CONDITIONS = {
    "none": "",
    "of one side in ON": f"{OF_LEFT} AND p.x > 0",
    "of one side in WHERE": f" WHERE o.x > 0{OF_LEFT} AND (p.x IS NULL OR p.x < 3)",
    "of the left side in WHERE": f" WHERE o.x > 0{OF_LEFT}",
}
"""More conditions of a join. Those of WHERE hold for null too, or a right side would be read."""


def spark_rows(query: str, taken: Mapping[str, Sequence[Row]], later: str) -> list[Any]:
    """Return what Spark gives for all rows at once, with the time `later` of each result."""
    session = SparkSession(SparkContext._active_spark_context)  # type: ignore[arg-type]
    for topic, rows in taken.items():
        make_view(topic, rows, SCHEMA)
    found = session.sql(query.replace(" FROM", f", {later} AS later FROM", 1)).collect()
    return [each.asDict() for each in found]


@pytest.mark.parametrize("on", long_but_the_first(ON))
@pytest.mark.parametrize("how", long_but_the_first(KINDS))
def test_all_at_once_gives_the_same(
    shared: OpenedOnce, seeds: list[int], how: str, on: str
) -> None:
    require_same(shared, seeds, how, on)


@pytest.mark.parametrize("where", long_but_the_first([*CONDITIONS][1:]))
@pytest.mark.parametrize("how", long_but_the_first(["", *KINDS[:1], *KINDS[2:]]))
def test_conditions_of_one_side_mean_what_they_mean_to_spark(
    shared: OpenedOnce, seeds: list[int], how: str, where: str
) -> None:
    if how in GIVING_LEFT and where == "of one side in WHERE":
        where = "of the left side in WHERE"
    require_same(shared, seeds[:10], how, "columns", CONDITIONS[where])


@pytest.mark.parametrize(
    ("join", "left", "right"),
    long_but_the_first(
        [
            ("JOIN payments p ON o.n = p.n WHERE o.x = 1 AND p.x IN (1, 2)", ["o1"], ["p1", "p2"]),
            ("JOIN payments p ON o.n = p.n AND o.x = 1 AND p.x > 1", ["o1"], ["p2", "p3"]),
            (", payments p WHERE o.n = p.n AND o.x = 1 AND p.x = o.x", ["o1"], ["p1", "p2", "p3"]),
            (
                ", payments p LATERAL VIEW explode(array(o.x, 2)) v AS y WHERE o.n = p.n AND "
                "o.x = 1 AND p.x <> y AND p.x > 1",
                ["o1"],
                ["p2", "p3"],
            ),
            ("LEFT JOIN payments p ON o.n = p.n AND o.x = 1 AND p.x > 2", ["o1", "o2"], ["p3"]),
            (
                "LEFT JOIN payments p ON o.n = p.n WHERE o.x = 1 AND p.x > 2",
                ["o1"],
                ["p1", "p2", "p3"],
            ),
        ]
    ),
)
def test_rows_that_cannot_have_results_are_not_kept(
    shared: OpenedOnce, join: str, left: Sequence[str], right: Sequence[str]
) -> None:
    query = f"SELECT concat_ws('-', o.id, p.id) AS key, o.id, p.id AS other FROM orders o {join}"
    job = Job(pipeline(query, "ttl: none", SCHEMA), shared)
    job.send([{"at": 1, "id": f"o{x}", "n": x, "x": x} for x in (1, 2)], topic="orders")
    job.send([{"at": 2, "id": f"p{x}", "n": x, "x": x} for x in (1, 2, 3)], topic="payments")
    kept = {
        name: b" ".join(value for _, value in store.range(b"", b"\xff"))
        for stores in job.stores.values()
        for name, store in stores.items()
    }
    for name, ids, others in (("left", left, {"o1", "o2"}), ("right", right, {"p1", "p2", "p3"})):
        assert {each for each in others if each.encode() in kept[name]} == {*ids}
    job.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT concat_ws('|', o.key, n, p.key) AS key, p.x FROM orders o "
        "JOIN payments p USING (n)",
        "SELECT key, x FROM (SELECT concat_ws('|', o.key, o.n, p.key) AS key, p.x, o.offset "
        "FROM orders o JOIN payments p ON o.n = p.n)",
    ],
)
def test_a_join_reads_no_columns_that_a_select_around_it_leaves_out(
    shared: OpenedOnce, query: str
) -> None:
    """Those of a former record are not known, such as its offset."""
    text = pipeline(query, "ttl: none", SCHEMA)
    for source in ("orders", "payments"):
        text = text.replace(
            f"{source}: {source}", f"{source}: {{topic: {source}, changelog: true}}"
        )
    job = Job(text, shared)
    job.send([{"key": "a", "at": 1, "id": "o", "n": 1, "x": 3}], topic="orders")
    job.send([{"key": "b", "at": 2, "id": "p", "n": 1, "x": 5}], topic="payments")
    assert job.latest() == {"a|1|b": {"x": 5}}
    job.send([{"key": "b", "at": 3, "id": "p", "n": 1, "x": 7}], topic="payments")
    assert job.latest() == {"a|1|b": {"x": 7}}
    job.close()


def require_same(
    shared: OpenedOnce, seeds: list[int], how: str, on: str, condition: str = ""
) -> None:
    """Require that random records have the results that Spark gives for all at once."""
    text = query_of(how, on) + condition
    for seed in seeds:
        chance = random.Random(f"{seed} {text}")
        job = Job(pipeline(text, "ttl: none", SCHEMA), shared)
        taken: dict[str, list[Row]] = {topic: [] for topic in SIDES}
        bad = 0
        for parts in steps(random_rows(chance), chance):
            for topic, row in in_order(parts):
                is_keyless = "key" in on.split() and row["key"] is None
                assert not (is_keyless and "raw" in row)
                # Of a side that gives no column, rows by key need no value, so none is read.
                is_unread = topic == "payments" and on == "key" and how in GIVING_LEFT
                if "raw" not in row:
                    taken[topic].append(row)
                elif is_unread:
                    taken[topic].append({"key": row["key"], "at": row["at"]})
                else:
                    bad += 1
            job.send_together(parts)
            if chance.random() < 0.1:
                job.restart()
        where = f"seed {seed}"
        assert job.skipped == bad, where
        if how in ("", "LEFT SEMI"):
            later = "unix_millis(greatest(o.timestamp, p.timestamp))" if not how else "0L"
            rows = spark_rows(text, taken, later)
            if how:
                assert folded(job.results) == {each["key"]: {"x": each["x"]} for each in rows}
                assert len(job.take()) == len(rows), where
            else:
                values = [json.dumps({"x": each["x"], "y": each["y"]}) for each in rows]
                wanted = Counter(
                    (each["key"], value, each["later"])
                    for each, value in zip(rows, values, strict=True)
                )
                assert counted(job.take()) == wanted, where
        else:
            rows = spark_rows(text, taken, "0L")
            wanted_rows = {
                each["key"]: {name: each[name] for name in ("x", "y") if name in each}
                for each in rows
            }
            assert folded(job.take()) == wanted_rows, where
        job.close()


@pytest.mark.parametrize(
    ("query", "keys"),
    long_but_the_first(
        [
            (
                "SELECT o.id, o.x AS n FROM orders o JOIN payments p ON o.n = CAST(p.x AS BIGINT)",
                ["o1"],
            ),
            ("SELECT concat(o.id, p.id) AS id FROM orders o JOIN payments p USING (n)", ["o2p1"]),
            (
                "SELECT o.id || p.id AS id FROM "
                "(SELECT id, window(timestamp, '1 minute') AS w FROM orders) o JOIN "
                "(SELECT id, window(timestamp, '1 minute') AS w FROM payments) p "
                "ON o.w.start = p.w.start",
                ["o2p1"],
            ),
            (
                "SELECT a.id || coalesce(b.id, '') AS id, a.id || coalesce(b.id, '') AS key "
                "FROM orders a LEFT JOIN orders b ON a.n = b.x AND a.timestamp <= b.timestamp",
                ["o1o2", "o2"],
            ),
            (
                "SELECT o.id || p.id AS id FROM orders o JOIN payments p ON o.key = p.key "
                "AND p.timestamp <= o.timestamp WHERE o.x = 1",
                ["o2p1"],
            ),
            (
                "SELECT o.id || p.id AS id FROM orders o, payments p "
                "WHERE o.n = p.n AND o.x = 1 AND p.x IS NOT NULL",
                ["o2p1"],
            ),
            (
                "SELECT o.id || p.id AS id FROM orders o JOIN payments p "
                "WHERE o.n = p.n AND o.x = (SELECT 1)",
                ["o2p1"],
            ),
            (
                "SELECT a.id || coalesce(b.id, '') AS id, a.id || coalesce(b.id, '') AS key "
                "FROM orders a LEFT JOIN orders b ON a.key = b.key AND a.n = b.x + 1",
                ["o1", "o2o2"],
            ),
            (
                "SELECT o.id || p.id AS id FROM orders o JOIN payments p ON o.key = p.key "
                "AND CAST(o.n AS DOUBLE) = CAST(p.n AS DOUBLE)",
                ["o2p1"],
            ),
        ],
        2,
    ),
)
def test_rows_meet_by_what_must_be_equal(
    shared: OpenedOnce, query: str, keys: Sequence[str]
) -> None:
    text = pipeline(query, "ttl: 1 d", SCHEMA)
    topics = ["orders", "payments"] if "payments" in query else ["orders"]
    if len(topics) == 1:
        text = text.replace("[orders, payments]", "[orders]").replace(", payments: payments}", "}")
    job = Job(text, shared)
    job.send(
        [
            {"key": "a", "at": 10, "id": "o1", "n": 1},
            {"key": "b", "at": 11, "id": "o2", "n": 2, "x": 1},
        ],
        topic="orders",
    )
    if len(topics) == 2:
        job.send([{"key": "b", "at": 11, "id": "p1", "n": 2, "x": 1}], topic="payments")
    found = [(each.value or {}).get("id") for each in job.take()]
    assert sorted(filter(None, found))[-len(keys) :] == sorted(keys)
    job.close()


@pytest.mark.parametrize(
    ("query", "reason"),
    long_but_the_first(
        [
            (
                "SELECT o.n FROM orders o LEFT JOIN payments p ON o.n = p.n",
                "let the query give a key",
            ),
            (
                "SELECT o.n FROM orders o JOIN payments p ON CAST(o.n AS DOUBLE) = CAST(p.n AS "
                "DOUBLE)",
                "these are of the type double",
            ),
            ("SELECT o.n FROM orders o JOIN payments p ON o.n < p.n", "columns that must be equal"),
            (
                "SELECT o.n FROM (SELECT *, window(timestamp, '1 hour') AS w FROM orders) o JOIN "
                "(SELECT *, window(timestamp, '1 hour') AS w FROM payments) p ON o.w = p.w",
                "compare windows by their start",
            ),
            ("SELECT rand() AS n FROM orders o JOIN payments p ON o.n = p.n", "random numbers"),
            (
                "SELECT y FROM orders o, payments p, LATERAL explode(array(o.n)) v(y) WHERE o.n = "
                "p.n",
                "use LATERAL VIEW",
            ),
        ],
        2,
    ),
)
def test_other_queries_are_refused(shared: OpenedOnce, query: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        Job(pipeline(query, "ttl: none", SCHEMA), shared)


@pytest.mark.parametrize("column", long_but_the_first(["partition", "offset", "headers"]))
def test_only_what_is_kept_of_a_record_can_be_read_of_a_side_that_changes(
    shared: OpenedOnce, column: str
) -> None:
    query = f"SELECT o.key, o.{column} AS at FROM orders o JOIN payments p ON o.key = p.key"
    text = pipeline(query, "ttl: none", SCHEMA)
    changing = text.replace("orders: orders", "orders: {topic: orders, changelog: true}")
    with pytest.raises(QueryError, match=f"a join with updates cannot read {column} of these"):
        Job(changing, shared)


def test_an_update_is_no_change_if_only_the_order_of_its_fields_differs(
    shared: OpenedOnce,
) -> None:
    query = "SELECT o.key, p.x FROM orders o JOIN payments p ON o.key = p.key"
    text = pipeline(query, "ttl: none", "x DECIMAL(5,2), day DATE")
    job = Job(
        text.replace("payments: payments", "payments: {topic: payments, changelog: true}"), shared
    )
    first, same, other = (
        {"key": "a", "at": 1, "raw": raw}
        for raw in (b'{"x": 1, "day": null}', b'{"y": 2, "x": 1}', b'{"x": 2}')
    )
    job.send([first], topic="payments")
    job.send([first], topic="orders")
    assert [each.value for each in job.take()] == [{"x": 1}]
    job.send([same], topic="payments")
    assert job.take() == []
    job.send([other], topic="payments")
    assert [each.value for each in job.take()] == [{"x": 2}]
    job.close()
