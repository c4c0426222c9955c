"""Random records through joins of two inputs, compared with Spark on all records at once.

Batches are cut at random places, tasks start again in between, and some records are rejected.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import make_view
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce, Result, Row
from tests.unit.streams.sql.join_pipeline import pipeline
from tests.unit.streams.sql.regular_join_model import in_order

pytestmark = pytest.mark.integration

SIZE = 30
END_MIN = 100_000
BOUNDS = {
    "difference": "p.timestamp - o.timestamp BETWEEN INTERVAL '-0 00:05:30' DAY TO SECOND AND "
    "INTERVAL '0:03' HOUR TO MINUTE + INTERVAL '0.5' SECOND",
    "around": "p.timestamp BETWEEN o.timestamp - INTERVAL 5 MINUTES AND o.timestamp + INTERVAL 3 "
    "MINUTES",
    "after": "p.timestamp > o.timestamp AND o.timestamp + INTERVAL 10 MINUTES > p.timestamp",
    "later": "p.timestamp - INTERVAL 2 MINUTES >= o.timestamp AND "
    "p.timestamp <= o.timestamp + INTERVAL '1 hour'",
    "at once": "o.timestamp = p.timestamp",
    "differences": "o.timestamp - p.timestamp < INTERVAL 5 MINUTES AND "
    "p.timestamp - (o.timestamp + INTERVAL 1 MINUTE) <= -INTERVAL '1' SECOND",
}
GIVES = "SELECT coalesce(o.key, p.key) AS key, o.n, o.s, p.n AS m, p.s AS t, p.x FROM "
SIDES = (
    "(SELECT *, n * 2 AS d FROM orders WHERE n IS NULL OR n < 4) o {} JOIN "
    "(SELECT *, explode_outer(s) AS x FROM payments) p ON o.key = p.key AND {}"
)
QUERIES = {
    "plain": GIVES + SIDES,
    "checked": GIVES + SIDES + " AND (o.d > p.n OR p.x = 1)",
    "filtered": GIVES + SIDES + " AND p.n < 3 WHERE o.n IS NULL OR p.n IS NULL OR o.n <> p.n",
}
SCHEMA = "n INT, s ARRAY<INT>"


def random_rows(chance: random.Random) -> dict[str, list[Row]]:
    """Return records whose times go on, give or take some minutes; some are not JSON."""

    def row(index: int) -> Row:
        key = chance.choice(["a", "b", "c", None])
        at = 100 + index + chance.choice([0, 0.5, -0.5, chance.randint(-12, 12)])
        fields = {
            "n": chance.choice([None, *range(5)]),
            "s": chance.choice([None, [], [1], [2, None]]),
        }
        bad = chance.random() < 0.05
        return {
            "key": key,
            "at": at,
            **({"raw": chance.choice([b"\xff", b"{"])} if bad else fields),
        }

    return {topic: [row(index) for index in range(SIZE)] for topic in ("orders", "payments")}


class Sent:
    """What was sent in which order, and which records were late by the rule."""

    def __init__(self, grace_min: float) -> None:
        self.taken: dict[str, list[Row]] = {"orders": [], "payments": []}
        self.late = 0
        self.bad = 0
        self.keyless = 0
        self._grace_min = grace_min
        self._now = -1.0

    def note(self, topic: str, row: Row, keeps: bool) -> None:
        is_dropped = row["key"] is None and not keeps
        if row["at"] + self._grace_min < self._now:
            self.late += 1
        elif "raw" in row and not is_dropped:
            self.bad += 1
            return  # a rejected record leaves no trace
        elif is_dropped:
            self.keyless += 1
        else:
            self.taken[topic].append(row)
        self._now = max(self._now, row["at"])


def send(
    job: Job, rows: dict[str, list[Row]], keeps: dict[str, bool], chance: random.Random, sent: Sent
) -> None:
    """Send the rows of both topics in batches, and restart now and then."""
    left = {topic: [*each] for topic, each in rows.items()}
    while any(left.values()):
        size = chance.choice([1, 4, 15])
        parts = {topic: each[:size] for topic, each in left.items() if chance.random() < 0.6}
        for topic, part in parts.items():
            left[topic] = left[topic][len(part) :]
        parts = {topic: part for topic, part in parts.items() if part}
        for topic, row in in_order(parts):
            sent.note(topic, row, keeps[topic])
        job.send_together(parts)
        if chance.random() < 0.1:
            job.restart()


def expected(query: str, taken: dict[str, list[Row]]) -> Counter[Any]:
    for topic, rows in taken.items():
        make_view(topic, rows, SCHEMA)
    session = SparkSession(SparkContext._active_spark_context)  # type: ignore[arg-type]
    late = ", unix_millis(greatest(o.timestamp, p.timestamp)) AS later FROM"
    found = session.sql(query.replace(" FROM", late, 1)).collect()
    return Counter((each["key"], said(each.asDict()), each["later"]) for each in found)


def said(row: dict[str, Any]) -> str:
    return json.dumps({name: row[name] for name in ("n", "s", "m", "t", "x")})


def found(results: list[Result]) -> Counter[Any]:
    return Counter((each.key, said(each.value), each.timestamp) for each in results)


@pytest.mark.parametrize("bounds", long_but_the_first(BOUNDS))
@pytest.mark.parametrize("how", long_but_the_first(["FULL", "", "LEFT", "RIGHT"]))
def test_all_at_once_gives_the_same(
    shared: OpenedOnce, seeds: list[int], how: str, bounds: str
) -> None:
    for seed in seeds:
        name = [*QUERIES][(seed + [*BOUNDS].index(bounds) + len(how)) % len(QUERIES)]
        text = QUERIES[name].format(how, BOUNDS[bounds])
        chance = random.Random(f"{seed} {text}")
        grace_min = chance.choice([0, 7, 30])
        job = Job(pipeline(text, f"grace: {grace_min} min", SCHEMA), shared)
        keeps = {"orders": how in ("LEFT", "FULL"), "payments": how in ("RIGHT", "FULL")}
        sent = Sent(grace_min)
        send(job, random_rows(chance), keeps, chance, sent)
        # Closes what is open. It has no partner.
        last = {"orders": [{"key": "end", "at": END_MIN, "n": 9}]}
        sent.note("orders", last["orders"][0], True)
        sent.taken["orders"].pop()
        job.send_together(last)
        ends = [each for each in job.results if each.timestamp == END_MIN * MINUTE_MS]
        assert ends == []
        where = f"seed {seed}, {name}"
        assert found(job.take()) == expected(text, sent.taken), where
        dropped = Counter({"expired": sent.late, "null key": sent.keyless})
        assert (job.skipped, job.dropped) == (sent.bad, +dropped), where
        job.close()


@pytest.mark.parametrize("how", long_but_the_first(["", "FULL"]))
def test_results_come_in_the_same_order_however_batches_are_cut(
    shared: OpenedOnce, seeds: list[int], how: str
) -> None:
    text = QUERIES["checked"].format(how, BOUNDS["later"])
    for seed in seeds:
        chance = random.Random(f"{seed} {how}")
        rows = in_order(random_rows(chance))
        orders = []
        for size in (1, 7, len(rows)):
            job = Job(pipeline(text, "grace: 7 min", SCHEMA), shared)
            for start in range(0, len(rows), size):
                parts: dict[str, list[Row]] = {}
                for topic, row in rows[start : start + size]:
                    parts.setdefault(topic, []).append(row)
                job.send_together(parts)
            orders.append(job.take())
            job.close()
        assert orders[0] == orders[1] == orders[2], f"seed {seed}"
