"""Records and changes of tables in random order, compared with Spark on all versions at once.

Batches are cut at random places, tasks start again in between, and some records are rejected.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import plain_session
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Row, columns_of

pytestmark = pytest.mark.integration

SIZE = 30
FOREVER = 10**9
SCHEMA = "n INT"
TABLE_SCHEMA = "city STRING, level INT"
KEYS = "abcd"

AS_OF = " AND {c}.since <= i.number AND i.number < {c}.until"
JOINS = {
    "left": "SELECT i.key, i.n, c.city, c.level, unix_millis(c.timestamp) AS at "
    "FROM input i LEFT JOIN customers c ON i.key = c.key{c}",
    "inner": "SELECT i.key, i.n, c.city FROM customers c JOIN input i "
    "ON c.key = i.key{c} AND c.level > i.n WHERE c.city <> 'Ulm'",
    "semi": "SELECT i.key, i.n FROM input i LEFT SEMI JOIN customers c ON i.key = c.key{c}",
    "anti": "SELECT i.key, i.n FROM (SELECT *, 1 AS one FROM input) i "
    "LEFT ANTI JOIN (SELECT * FROM customers WHERE level > 1) c ON c.key = i.key{c}",
    "both": "SELECT i.key, c.city, r.value AS raw, d.level "
    "FROM input i LEFT JOIN customers c ON i.key = c.key{c} "
    "LEFT JOIN raws r ON i.key = r.key{r} LEFT JOIN customers d ON i.key = d.key{d}",
}
GROUPS = {
    "by key": "SELECT concat(i.key, coalesce(c.city, '-')) AS key, count(*) AS c, sum(i.n) AS s "
    "FROM input i LEFT JOIN customers c ON i.key = c.key{c} GROUP BY i.key, c.city",
    "by a column of the table": "SELECT c.city AS key, count(*) AS c, sum(i.n) AS s, "
    "max(c.level) AS m FROM input i JOIN customers c ON i.key = c.key{c} GROUP BY c.city",
}


def pipeline(query: str) -> str:
    query = query.replace("{c}", "").replace("{r}", "").replace("{d}", "")
    return f"""
sources: {{in: in, customers: customers, raws: raws}}
processors:
- id: P
  type: sql
  from: [in]
  format: json
  schema: {SCHEMA}
  tables:
    customers: {{topic: customers, schema: "{TABLE_SCHEMA}"}}
    raws: {{topic: raws}}
  query: {json.dumps(query)}
  on_error: skip
  to: [sink]
"""


def random_rows(chance: random.Random) -> dict[str, list[Row]]:
    """Return the records of the input and of both tables; some of all are bad."""

    def row(topic: str, index: int) -> Row:
        at = index + chance.randint(-2, 2) + 10
        key = chance.choice([*KEYS, *KEYS, None])
        if chance.random() < 0.15 and topic != "in":
            return {"key": key, "at": at, "raw": chance.choice([None, b"\xff", b"{", b"[1]"])}
        if topic == "in":
            return {"key": key, "at": at, "n": chance.randint(0, 3)}
        city = chance.choice(["Ulm", "Köln", None])
        return {"key": key, "at": at, "city": city, "level": chance.choice([None, 1, 2, 3])}

    return {
        topic: [row(topic, index) for index in range(SIZE)] for topic in ("customers", "raws", "in")
    }


def is_taken(topic: str, key: bytes | None, value: bytes | None) -> bool:
    """Whether a record changes a table: it is neither dropped nor rejected."""
    if key is None or value == b"\xff":
        return False
    return topic == "raws" or value not in (b"{", b"[1]")


def in_turns(rows: dict[str, list[Row]]) -> list[tuple[str, Row]]:
    """Return records in the order in which a task takes them: by time, tables first."""
    waiting = {topic: list(each) for topic, each in rows.items()}
    order: list[tuple[str, Row]] = []
    while any(waiting.values()):
        topic = min(
            (topic for topic in waiting if waiting[topic]), key=lambda name: waiting[name][0]["at"]
        )
        order.append((topic, waiting[topic].pop(0)))
    return order


class Versions:
    """Plain Spark with all records of the input, and all versions of the tables."""

    def __init__(self) -> None:
        self._input: list[Any] = []
        self._versions: dict[str, list[list[Any]]] = {"customers": [], "raws": []}

    def add(self, order: list[tuple[str, Row]]) -> None:
        """Take records in the order in which they count."""
        for topic, row in order:
            number = len(self._input)
            ((key,), (value,), (time,)) = columns_of([row])
            if topic == "in":
                self._input.append((row["key"], row["n"], number))
            elif is_taken(topic, key, value):
                for version in self._versions[topic]:
                    if version[0] == row["key"] and version[4] == FOREVER:
                        version[4] = number
                if value is not None:
                    text = value.decode()
                    self._versions[topic].append([row["key"], text, time, number, FOREVER])

    def run(self, query: str) -> list[tuple[str | None, Any]]:
        """Return keys and values of the results, those of joins in the order of the records."""
        session = plain_session()
        types = "key STRING, n INT, number INT"
        session.createDataFrame(self._input, types).createOrReplaceTempView("input")
        for name, versions in self._versions.items():
            types = "key STRING, value STRING, time BIGINT, since INT, until INT"
            frame = session.createDataFrame([tuple(each) for each in versions], types)
            frame = frame.withColumn("timestamp", F.timestamp_millis("time"))
            if name == "customers":
                parsed = F.from_json("value", TABLE_SCHEMA).alias("value")
                frame = frame.select("key", parsed, "timestamp", "since", "until")
                frame = frame.select("key", "value.*", "timestamp", "since", "until")
            frame.createOrReplaceTempView(name)
        for alias in "crd":
            query = query.replace(f"{{{alias}}}", AS_OF.replace("{c}", alias))
        if "GROUP BY" not in query:
            query = (
                query.replace("SELECT i.key", "SELECT i.number, i.key", 1) + " ORDER BY i.number"
            )
        rows = [row.asDict() for row in session.sql(query).collect()]
        return [(row.pop("key"), {n: v for n, v in row.items() if n != "number"}) for row in rows]


def send(
    job: Job,
    add: Callable[[list[tuple[str, Row]]], None],
    left: dict[str, list[Row]],
    chance: random.Random,
) -> None:
    """Send rows in batches, `add` them in the order in which they count, and restart at times."""
    while any(left.values()):
        part = {topic: chance.randint(0, 20) for topic in left}
        now = {topic: each[: part[topic]] for topic, each in left.items()}
        left = {topic: each[part[topic] :] for topic, each in left.items()}
        job.send_together(now)
        add(in_turns(now))
        if chance.random() < 0.3:
            job.restart()


def run(query: str, seed: int, shared: OpenedOnce) -> tuple[Job, Versions, dict[str, list[Row]]]:
    """Send random records in batches, and restart now and then."""
    chance = random.Random(f"{seed} {query}")
    rows = random_rows(chance)
    job, versions = Job(pipeline(query), shared), Versions()
    send(job, versions.add, rows, chance)
    return job, versions, rows


@pytest.mark.parametrize("name", long_but_the_first(JOINS))
def test_joins_find_what_the_table_held_when_the_record_came(
    shared: OpenedOnce, seeds: list[int], name: str
) -> None:
    for seed in seeds:
        job, versions, rows = run(JOINS[name], seed, shared)
        found = [(result.key, result.value) for result in job.take()]
        assert found == versions.run(JOINS[name]), f"seed {seed}"
        assert found
        tables = [(topic, row) for topic in ("customers", "raws") for row in rows[topic]]
        bad = [
            row
            for topic, row in tables
            if row["key"] is not None
            and not is_taken(topic, *(each[0] for each in columns_of([row])[:2]))
        ]
        assert job.skipped >= len(bad) > 0, f"seed {seed}"
        job.close()


@pytest.mark.parametrize("name", long_but_the_first(GROUPS))
def test_groups_over_a_join_end_with_what_all_versions_give(
    shared: OpenedOnce, seeds: list[int], name: str
) -> None:
    for seed in seeds:
        job, versions, _ = run(GROUPS[name], seed, shared)
        expected = dict(versions.run(GROUPS[name]))
        if name == "by key":
            # Records without a key are dropped.
            expected.pop(None, None)
        assert job.latest() == expected, f"seed {seed}"
        job.close()
