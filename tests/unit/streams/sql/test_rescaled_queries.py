"""Queries that keep state have the same results when the number of their tasks changes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

import pytest

from kafka_pipeline.streams.partitioning import default_partition
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Row
from tests.unit.streams.sql.join_pipeline import ON
from tests.unit.streams.sql.join_pipeline import pipeline as join_pipeline
from tests.unit.streams.sql.rescaled_job import rescaled

pytestmark = pytest.mark.integration

KEYS = [f"k{number}" for number in range(9)]
CHANGES = (2, 3)
BOTH = "SELECT coalesce(o.key, p.key) AS key, o.n, p.n AS m FROM orders o {} JOIN payments p {}"


def grouped(query: str, more: str = "") -> str:
    return (
        "- {id: P, type: sql, format: json, schema: n INT, "
        f"query: {json.dumps(query)}, to: [sink]{more}}}"
    )


QUERIES = {
    "key": grouped("SELECT key, count(*) AS c, sum(n) AS s FROM input GROUP BY key"),
    "two columns": grouped(
        "SELECT concat(key, n) AS key, count(*) AS c FROM input GROUP BY n, key"
    ),
    "distinct": grouped("SELECT DISTINCT key, n FROM input"),
    "values": grouped(
        "SELECT concat(key, n % 2) AS key, count(DISTINCT n) AS c FROM input GROUP BY n % 2, key"
    ),
    "values in windows": grouped(
        "SELECT n AS key, count(DISTINCT key) AS c, sum(DISTINCT n) AS s FROM input "
        "GROUP BY n, window(timestamp, '10 minutes')",
        ", grace: 10 min",
    ),
    "best rows": grouped(
        "SELECT concat(key, r) AS key, n FROM (SELECT key, n, row_number() OVER "
        "(PARTITION BY key ORDER BY n DESC) AS r FROM input) WHERE r <= 2"
    ),
    "windows on close": grouped(
        "SELECT key, count(*) AS c, sum(n) AS s FROM input "
        "GROUP BY key, window(timestamp, '10 minutes')",
        ", emit: on_close, grace: 10 min",
    ),
    "days on close": grouped(
        "SELECT key, count(*) AS c, sum(n) AS s FROM input "
        "GROUP BY key, calendar_window(timestamp, '1 day', 'Europe/Berlin')",
        ", emit: on_close, grace: 1 d",
    ),
    "days of another column": grouped(
        "SELECT concat(n, window.start) AS key, count(*) AS c FROM input "
        "GROUP BY n, calendar_window(timestamp, '1 day', 'Europe/Berlin')",
        ", grace: 7 d",
    ),
    "sessions": grouped(
        "SELECT key, count(*) AS c FROM input GROUP BY key, session_window(timestamp, '4 minutes')",
        ", emit: on_close, grace: 10 min",
    ),
    "another column": grouped("SELECT n AS key, count(*) AS c FROM input GROUP BY n"),
    "upserts": "sources: {u: {topic: in, changelog: true}}\nprocessors:\n"
    + grouped(
        "SELECT n AS key, count(*) AS c, min(key) AS k, max(key) AS l FROM input GROUP BY n",
        ", from: [u]",
    ),
    **{
        f"{kind} join".strip(): join_pipeline(BOTH.format(kind, ON), "grace: 3 min")
        for kind in ("", "LEFT", "FULL")
    },
}


def rounds(topics: Sequence[str], step: int) -> Iterator[list[tuple[str, Row]]]:
    """Yield rows with their topics; a round ends with a row of each key at the same time.

    A round takes ten times `step` minutes.
    """
    chance = random.Random(5)
    for turn in range(1, 5):
        found: list[tuple[str, Row]] = []
        for at in range(turn * 10 - 8, turn * 10, 2):
            for topic in topics:
                chosen = chance.sample(KEYS, 4)
                found += [
                    (topic, {"key": k, "at": at * step, "n": chance.randrange(4)}) for k in chosen
                ]
        yield found + [
            (topic, {"key": k, "at": turn * 10 * step, "n": 1}) for k in KEYS for topic in topics
        ]
    yield [(topic, {"key": k, "at": 200 * step, "n": 0}) for k in KEYS for topic in topics]


def run(text: str, queries: OpenedOnce, counts: Sequence[int]) -> object:
    """Return the results in no order; the number of tasks changes after two rounds.

    Results of updates depend on batches, so of these, only the last of each key are returned.
    """
    topics = ["orders", "payments"] if "orders" in text else ["in"]
    count = counts[0]
    job = Job(text, queries, partitions=count)
    step = 144 if "1 day" in text else 1
    for number, rows in enumerate(rounds(topics, step)):
        wanted = counts[min(number // 2, len(counts) - 1)]
        if wanted != count:
            job, count = rescaled(job, text, queries, count, wanted), wanted
        for topic in topics:
            for partition in range(count):
                mine = [
                    row
                    for at, row in rows
                    if at == topic and default_partition(row["key"].encode(), count) == partition
                ]
                if mine:
                    job.send(mine, partition, topic)
    job.close()
    if ("GROUP BY" in text or "row_number" in text) and "on_close" not in text:
        return job.latest()
    return sorted(f"{each.key} {each.value} {each.timestamp}" for each in job.take())


@pytest.mark.parametrize("text", long_but_the_first(QUERIES.values()), ids=QUERIES)
def test_results_do_not_depend_on_the_number_of_tasks(text: str, shared: OpenedOnce) -> None:
    assert run(text, shared, CHANGES) == run(text, shared, [1])
