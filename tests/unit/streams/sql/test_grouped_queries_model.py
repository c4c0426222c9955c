"""Random batches through pipelines with GROUP BY, compared with Spark on all records at once.

Batches are cut at random places, tasks start again in between, and some records are rejected.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import all_at_once
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Row
from tests.unit.streams.sql.random_rows import (
    GRACE_MIN,
    by_key,
    closed,
    pipeline,
    random_rows,
    rounded,
    run,
    table_of,
    without_late,
)

pytestmark = pytest.mark.integration

GAP_MIN = 4

QUERIES = [
    "SELECT concat(key, date_format(window.start, 'HH:mm')) AS key, sum(n) AS s, "
    "approx_count_distinct(customer) AS d{last} FROM input "
    "GROUP BY key, window(timestamp, '1 hour') HAVING count(*) > 1",
    "SELECT concat(key, date_format(window.start, 'HH:mm')) AS key, "
    "count(DISTINCT customer, n) AS c, sum(DISTINCT amount) FILTER (WHERE n > 0) AS s, "
    "avg(DISTINCT n) AS a{last} FROM input GROUP BY key, window(timestamp, '1 hour')",
]


def expected(query: str, rows: list[Row]) -> dict[str | None, Any]:
    return by_key(all_at_once(query, table_of(rows)))


@pytest.mark.parametrize(
    "columns",
    long_but_the_first(
        [
            "key, n",
            "key AS key, n",
            "customer AS key, n",
            "key, n, date_trunc('HOUR', timestamp) AS h",
        ]
    ),
)
def test_distinct_rows_are_given_once(shared: OpenedOnce, seeds: list[int], columns: str) -> None:
    at_once = (
        f"SELECT {columns}, unix_millis(first(timestamp)) AS `last time` FROM input WHERE n <> 1 "
        "GROUP BY ALL"
    )
    for seed in seeds:
        chance = random.Random(f"{seed} {columns}")
        rows = random_rows(chance, spread=100)
        job = Job(pipeline(f"SELECT DISTINCT {columns} FROM input WHERE n <> 1", ""), shared)
        run(job, rows, chance)
        found = Counter((each.key, rounded(each.value), each.timestamp) for each in job.take())
        wanted = Counter(
            (None if key is None else key.decode(), rounded(value), first)
            for key, value, first in all_at_once(at_once, table_of(rows))
        )
        assert found == wanted, f"seed {seed}"
        job.close()


@pytest.mark.parametrize("query", long_but_the_first(QUERIES))
@pytest.mark.parametrize("group", long_but_the_first(["customer", "key"]))
def test_each_window_is_emitted_once_with_the_records_that_came_in_time(
    shared: OpenedOnce, seeds: list[int], query: str, group: str
) -> None:
    query = query.replace("BY key", f"BY {group}")
    query = query.replace("concat(key", f"concat(coalesce({group}, '-')")
    for seed in seeds:
        chance = random.Random(f"{seed} {query}")
        rows = random_rows(chance, spread=50)
        # In front of a topic, time is that of the task.
        in_time, late = without_late(rows, with_rejected=group == "customer")
        job = Job(pipeline(query, f"grace: {GRACE_MIN} min\n  emit: on_close"), shared)
        found = closed(job, rows, chance, seed)
        assert found == expected(query, in_time), f"seed {seed}"
        assert job.dropped["expired"] == late, f"seed {seed}"
        assert late > 0
        job.close()


def closed_sessions(rows: list[Row], group: str) -> tuple[Counter[Any], int]:
    """Return the sessions of all records, and how many records are late, one after the other."""
    sessions: list[dict[str, Any]] = []
    now = now_in_front = late = 0
    for row in rows:
        time = row["at"]
        now_in_front = max(now_in_front, time)
        if group == "customer" and time + GAP_MIN + GRACE_MIN < now_in_front:
            late += "raw" not in row
            continue
        if "raw" in row:
            continue
        now = max(now, time)
        near = [
            each
            for each in sessions
            if each["group"] == row[group]
            and each["end"] + GRACE_MIN >= now
            and each["start"] <= time + GAP_MIN
            and time <= each["end"]
        ]
        if not near and time + GAP_MIN + GRACE_MIN < now:
            late += 1
            continue
        near.sort(key=lambda each: each["start"])
        sessions = [each for each in sessions if each not in near]
        sessions.append(
            {
                "group": row[group],
                "start": min([time, *(each["start"] for each in near)]),
                "end": max([time + GAP_MIN, *(each["end"] for each in near)]),
                "l": [n for each in [*near, {"l": [row["n"]]}] for n in each["l"] if n is not None],
            }
        )
    found = [(each["group"], each["start"], each["end"], tuple(each["l"])) for each in sessions]
    return Counter(found), late


@pytest.mark.parametrize("group", long_but_the_first(["customer", "key"]))
def test_each_session_is_emitted_once_whatever_the_batches(
    shared: OpenedOnce, seeds: list[int], group: str
) -> None:
    query = (
        f"SELECT {group} AS g, unix_seconds(session_window.start) AS start, "
        "unix_seconds(session_window.end) AS end, collect_list(n) AS l FROM input "
        f"GROUP BY {group}, session_window(timestamp, '{GAP_MIN} minutes')"
    )
    for seed in [each * 5 + more for each in seeds for more in range(5)]:
        chance = random.Random(f"{seed} {query}")
        rows = random_rows(chance, spread=50)
        wanted, late = closed_sessions(rows, group)
        job = Job(pipeline(query, f"grace: {GRACE_MIN} min\n  emit: on_close"), shared)
        run(job, rows, chance)
        job.send([{"key": "x", "customer": "a", "n": 0, "at": 10_000}])
        found = Counter(
            (value["g"], value["start"] // 60, value["end"] // 60, tuple(value["l"]))
            for value in (each.value for each in job.take())
        )
        assert found == wanted, f"seed {seed}"
        assert job.dropped["expired"] == late, f"seed {seed}"
        assert late > 0, f"seed {seed}: no record is late"
        job.close()
