"""`OVER (…)` in random batches, compared with Spark on all records at once."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import all_at_once
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Row
from tests.unit.streams.sql.random_rows import (
    GRACE_MIN,
    pipeline,
    random_rows,
    rounded,
    run,
    table_of,
)

pytestmark = pytest.mark.integration

QUERIES = [
    "SELECT key, id, lag(n, 2, -1) OVER (PARTITION BY key ORDER BY timestamp{ties}) AS two_before, "
    "sum(n) OVER (PARTITION BY key ORDER BY timestamp{ties} ROWS BETWEEN 3 PRECEDING AND "
    "1 PRECEDING) AS three, count(*) OVER (PARTITION BY key ORDER BY timestamp RANGE BETWEEN "
    "INTERVAL '30 minutes' PRECEDING AND CURRENT ROW) AS half_hourly, avg(amount) OVER (PARTITION "
    "BY key ORDER BY timestamp RANGE BETWEEN INTERVAL '7' MINUTE PRECEDING AND INTERVAL '2' MINUTE "
    "PRECEDING) AS mean{last} FROM (SELECT *, tags[0] AS id FROM input)",
    "SELECT key, id, times, first{last_2} FROM (SELECT *, tags[0] AS id, count(n) OVER (PARTITION "
    "BY customer, key ORDER BY timestamp RANGE BETWEEN INTERVAL '40 minutes' PRECEDING AND CURRENT "
    "ROW) AS times, first_value(amount) OVER (PARTITION BY customer, key ORDER BY timestamp{ties} "
    "ROWS 4 PRECEDING) AS first{last} FROM input WHERE n <> 3) WHERE times > 1",
    "SELECT key, tags[0] AS id, max(n) OVER (PARTITION BY key, amount ORDER BY timestamp RANGE "
    "BETWEEN INTERVAL '3' HOUR PRECEDING AND CURRENT ROW) AS most{last} FROM input",
]

BY_CUSTOMER = [
    "SELECT customer AS key, id, lag(n, 2, -1) OVER (PARTITION BY customer ORDER BY "
    "timestamp{ties}) AS two_before, sum(n) OVER (PARTITION BY customer ORDER BY timestamp{ties} "
    "ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS three, count(*) OVER (PARTITION BY customer "
    "ORDER BY timestamp RANGE BETWEEN INTERVAL '30 minutes' PRECEDING AND CURRENT ROW) AS "
    "half_hourly{last} "
    "FROM (SELECT *, tags[0] AS id FROM input)",
    "SELECT key, id, price, times{last_2} FROM (SELECT *, count(*) OVER (PARTITION BY customer, "
    "price IS NULL ORDER BY timestamp RANGE BETWEEN INTERVAL '20 minutes' PRECEDING AND CURRENT "
    "ROW) AS times{last} FROM (SELECT *, tags[0] AS id FROM input)) WHERE times > 1",
]
"""Queries whose groups have records of several keys."""


def in_time(rows: list[Row]) -> list[Row]:
    """Return the records that are not late."""
    now, found = 0, []
    for row in rows:
        now = max(now, row["at"])
        found += [row] if row["at"] + GRACE_MIN >= now else []
    return found


@pytest.mark.parametrize("query", long_but_the_first(QUERIES))
def test_each_record_gets_its_result_once_in_the_order_of_time(
    shared: OpenedOnce, seeds: list[int], query: str
) -> None:
    text = query.format(ties="", last="", last_2="")
    for seed in seeds:
        chance = random.Random(f"{seed} {query}")
        some = [row for row in random_rows(chance, spread=25) if "raw" not in row]
        rows: list[Row] = [{**row, "tags": [str(index)]} for index, row in enumerate(some)]
        job = Job(pipeline(text, f"grace: {GRACE_MIN} min"), shared)
        run(job, rows, chance)
        job.send([{"key": "x", "n": 0, "at": 10_000}])
        results = job.take()
        taken = in_time(rows)
        wanted = all_at_once(
            query.format(
                ties=", partition, offset",
                last=", unix_millis(timestamp) AS `last time`",
                last_2=", `last time`",
            ),
            table_of(taken),
        )
        found = [(each.value["id"], rounded(each.value), each.timestamp) for each in results]
        assert sorted(found) == sorted(
            (value["id"], rounded(value), time) for _, value, time in wanted
        ), f"seed {seed}"
        # Records of one time come in the order of their offsets, which is that of their numbers.
        order = [(time, int(id_)) for id_, _, time in found]
        assert order == sorted(order), f"seed {seed}"
        late = len(rows) - len(taken)
        assert job.dropped == ({"expired": late} if late else {}), f"seed {seed}"
        job.close()


@pytest.mark.parametrize("query", long_but_the_first(BY_CUSTOMER))
def test_rows_of_a_group_meet_from_whatever_partition_their_records_come(
    shared: OpenedOnce, seeds: list[int], query: str
) -> None:
    text = query.format(ties="", last="", last_2="")
    for seed in seeds:
        chance = random.Random(f"{seed} {query}")
        some = [row for row in random_rows(chance, spread=25) if "raw" not in row]
        rows: list[Row] = [
            {**row, "key": chance.choice([row["key"], None]), "tags": [str(index)]}
            for index, row in enumerate(some)
        ]
        job = Job(pipeline(text, f"grace: {GRACE_MIN} min"), shared, partitions=3, writers=2)
        taken, places, learned = list[Row](), list[int](), 0
        while rows:
            size, partition = chance.choice([1, 5, 20]), chance.randrange(3)
            job.send(rows[:size], partition)
            found = [row for row in rows[:size] if row["at"] + GRACE_MIN >= learned]
            taken, places = taken + found, places + [partition] * len(found)
            rows = rows[size:]
            if chance.random() < 0.4:
                learned = max(learned, max(row["at"] for row in taken) + chance.randint(-5, 40))
                job.learn(learned)
            if chance.random() < 0.1:
                job.restart()
        job.learn(10_000)
        results = job.take()
        late = len(some) - len(taken)
        wanted = all_at_once(
            query.format(
                ties=", partition, offset",
                last=", unix_millis(timestamp) AS `last time`",
                last_2=", `last time`",
            ),
            with_partitions(taken, places),
        )
        given = [(rounded(each.value), each.key, each.timestamp) for each in results]
        assert sorted(given, key=repr) == sorted(
            ((rounded(value), text_of(key), time) for key, value, time in wanted), key=repr
        ), f"seed {seed}"
        assert sum(job.dropped.values()) == late, f"seed {seed}"
        job.close()


def text_of(key: bytes | None) -> str | None:
    return None if key is None else key.decode()


def with_partitions(rows: list[Row], partitions: list[int]) -> pa.Table:
    """Return records as Spark takes them, with their partitions."""
    table = table_of(rows)
    at = table.column_names.index("partition")
    return table.set_column(at, "partition", pa.array(partitions, pa.int32()))
