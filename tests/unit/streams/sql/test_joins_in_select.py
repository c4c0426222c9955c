"""Queries whose SELECT joins more than two inputs, or groups what it joins, against Spark."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.sql.query_stages import cut_query
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.testing import TopologyTestDriver
from tests.small_config import SMALL_CONFIG
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce

pytestmark = pytest.mark.integration

SCHEMA = "id INT, other INT, n INT, group STRING"
TOPICS = ("a", "b", "c")


_READ = re.compile(r"(?:FROM|JOIN|,) [(]?([abc])\b(?![.])", re.IGNORECASE)


def read_by(query: str) -> list[str]:
    return sorted({each.lower() for each in _READ.findall(query)})


def pipeline(query: str, sources: Mapping[str, str] | None = None) -> str:
    """Return a pipeline; `sources` say what is next to their topics, by name."""
    if sources is None:
        sources = dict.fromkeys(read_by(query), f'schema: "{SCHEMA}"')
    given = [f"  {name}: {{topic: {name}, {settings}}}" for name, settings in sources.items()]
    return "\n".join(
        (
            "sources:",
            *given,
            "processors:",
            f"- {{id: P, type: sql, from: {json.dumps([*sources])}, format: json, ttl: none,",
            f"   query: {json.dumps(query)}, to: [sink]}}",
        )
    )


def random_value(chance: random.Random) -> dict[str, Any]:
    return {
        "id": chance.choice([1, 2, 3, None]),
        "other": chance.randrange(3),
        "n": chance.choice([1, 2, 3, 4, None]),
        "group": chance.choice("xyz"),
    }


def results(folder: Path, query: str, rows: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    (folder / "config.yaml").write_text(SMALL_CONFIG, "utf-8")
    (folder / "pipeline.yaml").write_text(pipeline(query), "utf-8")
    with TopologyTestDriver.of_pipeline(folder / "config.yaml", folder / "pipeline.yaml") as driver:
        given = {
            topic: driver.create_input_topic(topic, serdes.string, serdes.json)
            for topic in read_by(query)
        }
        for at, (topic, value) in enumerate(each for each in rows if each[0] in given):
            given[topic].pipe_input(f"k{at}", value, at)
        return driver.create_output_topic("out", serdes.string, serdes.json).read_records()


def of_spark(query: str, rows: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    session = SparkSession(SparkContext._active_spark_context)  # type: ignore[arg-type]
    for topic in TOPICS:
        values = [(topic, None, *value.values()) for of, value in rows if of == topic]
        frame = session.createDataFrame(values, f"key STRING, timestamp TIMESTAMP, {SCHEMA}")
        frame.createOrReplaceTempView(topic)
    return [row.asDict(recursive=True) for row in session.sql(query).collect()]


GROUPED = {
    "groups of a join by a comma": (
        "SELECT A.group AS key, A.group, max(B.n) AS best, count(*) AS c FROM a A, b B "
        "WHERE A.id = B.id AND B.n BETWEEN A.n AND A.n + 2 GROUP BY A.group"
    ),
    "groups by columns without a table": (
        "SELECT id AS key, sum(b.n) AS s FROM a JOIN b USING (id) GROUP BY id HAVING s > 3"
    ),
    "best rows": (
        "SELECT * FROM (SELECT concat(a.id, a.group) AS key, a.* EXCEPT (key, timestamp, group), "
        "b.other AS taken, row_number() OVER (PARTITION BY a.id, a.group "
        "ORDER BY b.n DESC, b.other, a.n, a.other) AS place "
        "FROM a, b WHERE a.id = b.id AND b.n IS NOT NULL) WHERE place <= 1"
    ),
    "best rows with all columns": (
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY x.id, x.group ORDER BY y.m DESC, "
        "y.other, x.n) AS place FROM (SELECT concat(id, group) AS key, id, group, n FROM a WHERE id"
        " > 0) x, (SELECT id AS i, n AS m, other FROM b) y WHERE x.id = y.i AND y.m IS NOT NULL) "
        "WHERE place <= 1"
    ),
    "distinct": (
        "SELECT DISTINCT concat(a.group, b.group) AS key, a.group, b.group AS h "
        "FROM a JOIN b ON a.id = b.id"
    ),
    "groups of three inputs": (
        "SELECT concat(c.group, a.other) AS key, count(*) AS c, sum(a.n) AS s FROM a, b, c "
        "WHERE a.id = b.id AND b.other = c.other AND (a.n < c.n OR b.n = 1) "
        "GROUP BY c.group, a.other"
    ),
    "groups of an outer join": (
        "SELECT coalesce(b.group, '-') AS key, count(*) AS c, sum(a.n) AS s, max(c.n) AS m FROM a "
        "LEFT JOIN b ON a.id = b.id AND b.n > a.n JOIN c ON a.other = c.other GROUP BY b.group"
    ),
    "groups of an outer join after an inner one": (
        "SELECT coalesce(c.group, '-') AS key, count(*) AS c, sum(a.n) AS s, sum(c.n) AS t FROM a, "
        "b LEFT JOIN c ON b.other = c.other AND c.n > b.n WHERE a.id = b.id GROUP BY c.group"
    ),
    "groups of an outer join with an inner one": (
        "SELECT a.group AS key, count(*) AS c, count(b.n) AS n, sum(c.n) AS s FROM a LEFT JOIN "
        "(b JOIN c ON b.other = c.other AND c.n > b.n) ON a.id = b.id AND b.group <> 'z' GROUP BY 1"
    ),
    "groups of a LATERAL VIEW": (
        "SELECT concat(item, a.group) AS key, count(*) AS c, sum(v.item * b.n) AS s FROM a, b "
        "LATERAL VIEW explode(array(a.n, b.other)) v AS item "
        "WHERE a.id = b.id AND item > 1 AND a.n < 4 AND v.item <> b.n GROUP BY item, a.group"
    ),
}


@pytest.mark.parametrize("name", long_but_the_first(GROUPED))
def test_groups_of_joins(name: str, tmp_path: Path, seeds: list[int]) -> None:
    query = GROUPED[name]
    chance = random.Random(f"{seeds} {query}")
    rows = [(chance.choice(TOPICS), random_value(chance)) for _ in range(40)]
    found: dict[Any, Any] = {}
    for each in results(tmp_path, query, rows):
        found[each.key] = each.value
    wanted = {str(each.pop("key")): each for each in of_spark(query, rows)}
    assert {
        key: {name: value.get(name) for name in wanted.get(key, value)}
        for key, value in found.items()
        if value is not None
    } == wanted
    assert wanted


ROWS = {
    "by a comma, with LATERAL VIEW": (
        "SELECT a.n AS p, b.n AS q, item, x FROM a, b LATERAL VIEW explode(array(a.n, b.other)) v "
        "AS item LATERAL VIEW OUTER explode(array(a.other, 1)) w AS x WHERE a.id = b.id AND a.n > "
        "1 AND item <> x AND (b.n < 4 OR v.item = 2)"
    ),
    "three inputs": (
        "SELECT a.n AS p, b.n AS q, C.N AS r, C.Group FROM a JOIN b ON a.id = b.id JOIN c C ON "
        "b.other = c.other AND c.n > a.n WHERE a.group <> 'z'"
    ),
    "by commas": (
        "SELECT a.n AS p, b.n AS q, c.n AS r FROM a, b, c WHERE a.id = b.id AND c.id = b.id AND "
        "a.n BETWEEN 1 AND 3 AND CASE WHEN b.n > 1 AND c.n > 1 THEN true ELSE a.other = 1 END"
    ),
    "by USING": (
        "SELECT id, a.n AS p, b.n AS q, c.n AS r FROM a JOIN b USING (id) JOIN c USING (id)"
    ),
    "in parentheses": (
        "SELECT a.n AS p, b.n AS q, c.n AS r FROM a JOIN (b JOIN c ON b.other = c.other AND c.n > "
        "b.n) ON a.id = b.id WHERE a.group <> 'z'"
    ),
    "all columns": (
        "SELECT * FROM (SELECT id, n AS p FROM a) JOIN (SELECT id, n AS q FROM b) USING "
        "(id) JOIN (SELECT id, other FROM c) x USING (id) LATERAL VIEW explode(array(p, q)) v AS y "
        "WHERE y > 1"
    ),
    "with LATERAL VIEW": (
        "SELECT a.n AS p, c.n AS r, item, at FROM a JOIN b ON a.id = b.id JOIN c ON b.other = "
        "c.other LATERAL VIEW posexplode(array(a.n, b.n, c.n)) v AS at, item WHERE item > at"
    ),
}


@pytest.mark.parametrize("name", long_but_the_first(ROWS))
def test_joins_of_three_inputs(name: str, tmp_path: Path, seeds: list[int]) -> None:
    query = ROWS[name]
    chance = random.Random(f"{seeds} {query}")
    rows = [(chance.choice(TOPICS), random_value(chance)) for _ in range(40)]
    found = Counter(json.dumps(each.value) for each in results(tmp_path, query, rows))
    assert found == Counter(json.dumps(each) for each in of_spark(query, rows))
    assert found


@pytest.mark.long
def test_last_join_may_keep_rows_without_a_partner(tmp_path: Path, seeds: list[int]) -> None:
    query = (
        "SELECT concat(a.n, b.other, b.n) AS key, c.n FROM a JOIN b ON a.id = b.id "
        "LEFT JOIN c ON b.other = c.other AND c.n = 1"
    )
    chance = random.Random(f"{seeds}")
    rows = [("a", {**random_value(chance), "n": at}) for at in range(5)]
    rows += [("b", {**random_value(chance), "n": at}) for at in range(5)]
    rows += [("c", {**random_value(chance), "other": other, "n": 1}) for other in (0, 1)]
    chance.shuffle(rows)
    found = {each.key: each.value for each in results(tmp_path, query, rows)}
    assert {key: value for key, value in found.items() if value is not None} == {
        each.pop("key"): each for each in of_spark(query, rows)
    }


NEAR = (
    "a {} JOIN b ON a.key = b.key AND b.timestamp BETWEEN a.timestamp - INTERVAL 3 MINUTES AND "
    "a.timestamp + INTERVAL 3 MINUTES"
)
WINDOWS = {
    "of one side": (
        "SELECT concat(a.group, window(a.timestamp, '10 minutes').start) AS key, count(*) AS c, "
        f"sum(b.n) AS s FROM {NEAR.format('')} GROUP BY a.group, window(a.timestamp, '10 minutes')"
    ),
    "of both": (
        "SELECT concat(a.group, window.start) AS key, a.group, count(*) AS c, "
        f"max(a.timestamp) AS m FROM {NEAR.format('')} WHERE a.n < 4 OR b.n > 1 "
        "GROUP BY a.group, window(greatest(a.timestamp, b.timestamp), '10 minutes', '5 minutes')"
    ),
    "of a side that may be missing": (
        "SELECT concat(b.group, window.start) AS key, count(*) AS c, count(a.n) AS n FROM "
        f"{NEAR.format('FULL')} GROUP BY b.group, WINDOW(B.timestamp, '10 minutes')"
    ),
}


@pytest.mark.parametrize("name", long_but_the_first(WINDOWS))
def test_windows_over_a_join(name: str, tmp_path: Path, seeds: list[int]) -> None:
    query = WINDOWS[name]
    chance = random.Random(f"{seeds} {query}")
    rows = [
        (chance.choice("ab"), chance.choice("xyz"), minute, random_value(chance))
        for minute in range(60, 120)
    ]
    (tmp_path / "config.yaml").write_text(SMALL_CONFIG, "utf-8")
    text = pipeline(query).replace("ttl: none", "grace: 1 h")
    (tmp_path / "pipeline.yaml").write_text(text, "utf-8")
    with TopologyTestDriver.of_pipeline(
        tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    ) as driver:
        given = {
            topic: driver.create_input_topic(topic, serdes.string, serdes.json) for topic in "ab"
        }
        for topic, key, minute, value in rows:
            given[topic].pipe_input(key, value, minute * 60_000)
        for topic in "ab":
            given[topic].pipe_input(f"last of {topic}", random_value(chance), 10_000 * 60_000)
        out = driver.create_output_topic("out", serdes.string, serdes.json)
        found = {each.key: each.value for each in out.read_records()}
    session = SparkSession(SparkContext._active_spark_context)  # type: ignore[arg-type]
    for topic in "ab":
        values = [
            (key, datetime.fromtimestamp(60 * minute, UTC), *value.values())
            for of, key, minute, value in rows
            if of == topic
        ]
        frame = session.createDataFrame(values, f"key STRING, timestamp TIMESTAMP, {SCHEMA}")
        frame.createOrReplaceTempView(topic)
    wanted = session.sql(f"SELECT key, to_json(struct(* EXCEPT (key))) FROM ({query})").collect()
    assert {
        key: {name: of for name, of in each.items() if of is not None}
        for key, each in found.items()
        if key is not None
    } == {key: json.loads(text) for key, text in wanted if key is not None}
    assert len(wanted) > 3


def test_windows_of_two_times_are_refused(tmp_path: Path) -> None:
    query = WINDOWS["of one side"].replace("window(a.timestamp", "window(b.timestamp", 1)
    with pytest.raises(QueryError, match="a row has one time"):
        cut_query(query, (), "P")


@pytest.mark.parametrize(
    "joined",
    long_but_the_first(
        [
            "a JOIN b ON a.id = b.id",
            "a JOIN b ON a.key = b.key",
            "b JOIN c ON b.key = c.key JOIN a ON a.id = c.id",
            "a JOIN c ON a.id = c.id JOIN b ON a.id = b.id",
            "a JOIN c ON a.key = c.key JOIN b ON a.key = b.key",
        ]
    ),
)
def test_groups_of_a_join_follow_the_side_that_changes(shared: OpenedOnce, joined: str) -> None:
    """Records that are equal in all that the query reads count one by one."""
    query = f"SELECT b.group AS key, sum(a.n) AS s, count(*) AS c FROM {joined} GROUP BY 1"
    job = Job(pipeline(query).replace("topic: b", "topic: b, changelog: true"), shared)
    row = {"key": "k", "at": 1, "id": 1, "other": 0, "n": 5, "group": "x"}
    for topic in read_by(query)[1:]:
        job.send([row], topic=topic)
    job.send([row, row], topic="a")
    assert job.latest() == {"x": {"s": 10, "c": 2}}
    job.send([{**row, "group": "y"}], topic="b")
    assert {each.key: each.value for each in job.take()} == {"x": None, "y": {"s": 10, "c": 2}}
    job.restart()
    job.send([row], topic="a")
    assert job.latest() == {"y": {"s": 15, "c": 3}}
    job.send([{"key": "k", "at": 2, "raw": None}], topic="b")
    assert job.take()[-1][1:3] == ("y", None)
    job.close()


@pytest.mark.long
def test_rows_of_nulls_on_both_sides_are_two(shared: OpenedOnce) -> None:
    """They lack a partner each, and have no other column that tells them apart."""
    sides = [f"(SELECT group AS g, sum(n) AS s FROM {each} GROUP BY group)" for each in "ab"]
    query = (
        "SELECT coalesce(x.g, y.g, '-') AS key, count(*) AS c, sum(x.s) AS s, sum(y.s) AS t "
        f"FROM {sides[0]} x FULL JOIN {sides[1]} y ON x.g = y.g GROUP BY 1"
    )
    job = Job(pipeline(query), shared)
    rows = [{"key": "k", "at": 1, "id": 1, "other": 0, "group": group} for group in (None, "x")]
    for topic, n in (("a", 5), ("b", 7)):
        job.send([{**row, "n": n} for row in rows], topic=topic)
    assert job.latest() == {"-": {"c": 2, "s": 5, "t": 7}, "x": {"c": 1, "s": 5, "t": 7}}
    job.restart()
    job.send([{**row, "n": 1} for row in rows], topic="b")
    assert job.latest() == {"-": {"c": 2, "s": 5, "t": 8}, "x": {"c": 1, "s": 5, "t": 8}}
    job.close()


THREE = (
    "a JOIN b ON a.id = b.id JOIN c ON a.other = c.other",
    "a LEFT JOIN b ON a.id = b.id LEFT JOIN c ON b.other = c.other",
)


@pytest.mark.parametrize("joined", long_but_the_first(THREE))
def test_a_join_of_three_follows_all_that_change(shared: OpenedOnce, joined: str) -> None:
    key = "to_json(named_struct('1', a.key, '2', a.id, '3', b.key, '4', c.key, '5', b.other, "
    key += "'6', c.other, '7', b.id))"
    job = Job(
        pipeline(
            f"SELECT {key} AS key, a.n + b.n AS s, c.group AS g FROM {joined}",
            dict.fromkeys(TOPICS, f'changelog: true, schema: "{SCHEMA}"'),
        ),
        shared,
    )
    row = {"key": "k", "at": 1, "id": 1, "other": 0, "n": 5, "group": "x"}
    for topic in TOPICS:
        job.send([row], topic=topic)
    found = {each.key: each.value for each in job.take()}
    assert [each for each in found.values() if each] == [{"s": 10, "g": "x"}]
    job.send([{**row, "n": 6}], topic="b")
    job.send([{**row, "group": "y"}], topic="c")
    found |= {each.key: each.value for each in job.take()}
    assert [each for each in found.values() if each] == [{"s": 11, "g": "y"}]
    job.restart()
    job.send([{**row, "id": 2}], topic="b")
    found |= {each.key: each.value for each in job.take()}
    left = [{"s": None, "g": None}] if "LEFT" in joined else []
    assert [each for each in found.values() if each] == left
    job.send([{**row, "id": 2}], topic="a")
    found |= {each.key: each.value for each in job.take()}
    assert [each for each in found.values() if each] == [{"s": 10, "g": "y"}]
    job.send([{"key": "k", "at": 2, "raw": None}], topic="a")
    found |= {each.key: each.value for each in job.take()}
    assert not any(found.values())
    job.close()


@pytest.mark.parametrize(
    "joined",
    long_but_the_first(["x JOIN y ON item = id", "x LEFT JOIN y ON item = id AND kind <> 'z'"]),
)
def test_columns_of_results_that_change_need_no_table(shared: OpenedOnce, joined: str) -> None:
    query = f"SELECT coalesce(kind, '-') AS key, sum(price) AS s FROM {joined} GROUP BY kind"
    sources = {
        "x": 'changelog: true, schema: "item INT, price INT"',
        "y": 'changelog: true, schema: "id INT, kind STRING"',
    }
    job = Job(pipeline(query, sources), shared)
    job.send([{"key": "p", "at": 1, "id": 7, "kind": "book"}], topic="y")
    job.send([{"key": k, "at": 1, "item": 7, "price": 1} for k in "ab"], topic="x")
    assert job.latest() == {"book": {"s": 2}}
    job.send([{"key": "p", "at": 2, "id": 7, "kind": "game"}], topic="y")
    job.send([{"key": "a", "at": 2, "item": 7, "price": 5}], topic="x")
    assert {each.key: each.value for each in job.take()} == {"book": None, "game": {"s": 6}}
    job.close()


@pytest.mark.parametrize(
    "joined",
    long_but_the_first(
        [
            "x, y, z WHERE item = id AND seller = pid",
            "x JOIN y ON item = id JOIN z ON seller = pid",
        ]
    ),
)
def test_columns_need_no_table_if_one_input_alone_has_them(shared: OpenedOnce, joined: str) -> None:
    query = (
        f"SELECT City AS key, sum(price) AS s FROM {joined} GROUP BY city HAVING max(bidder) < 9"
    )
    sources = {
        "x": 'schema: "item INT, bidder INT, price INT"',
        "y": 'schema: "id INT, seller INT, kind STRUCT<city: STRING>"',
        "z": 'schema: "pid INT, city STRING"',
    }
    job = Job(pipeline(query, sources), shared)
    job.send([{"key": "p", "at": 1, "pid": 5, "city": "Ulm"}], topic="z")
    job.send([{"key": "a", "at": 1, "id": 7, "seller": 5}], topic="y")
    job.send([{"key": "b", "at": 1, "item": 7, "bidder": 1, "price": n} for n in (3, 4)], topic="x")
    assert job.latest() == {"Ulm": {"s": 7}}
    job.send([{"key": "b", "at": 1, "item": 7, "bidder": 9, "price": 1}], topic="x")
    assert [each[1:3] for each in job.take()] == [("Ulm", None)]
    job.close()
