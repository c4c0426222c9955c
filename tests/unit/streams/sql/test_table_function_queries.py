"""`type: sql` with TUMBLE, HOP and SESSION in FROM: the results are those of `window(…)`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import SCHEMA
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce, Result, Row
from tests.unit.streams.sql.test_grouped_queries import pipeline

pytestmark = pytest.mark.integration

TUMBLE = "TUMBLE(TABLE input, DESCRIPTOR(timestamp), INTERVAL '1' HOUR)"
HOP = "HOP(TABLE input, DESCRIPTOR(timestamp), INTERVAL '20' MINUTES, INTERVAL '1' HOUR)"
SESSION = "SESSION(TABLE input PARTITION BY key, DESCRIPTOR(timestamp), INTERVAL '5' MINUTES)"
MINUTES = "INTERVAL '{}' MINUTES"
CLOSED = "emit: on_close\n  grace: 2 h"
HOURLY = "window(timestamp, '1 hour')"
ROWS: Sequence[Row] = [
    {"key": key, "customer": customer, "n": n, "at": at}
    for key, customer, n, at in [
        ("a", "x", 1, 10),
        ("b", "y", 5, 14),
        ("a", "y", 2, 59),
        ("a", "x", 7, 62),
        ("b", "x", 3, 64),
        ("a", "x", 4, 61),
        ("b", "y", 9, 125),
        ("a", "x", 8, 30),
        ("c", "x", 1, 400),
    ]
]


def results(query: str, more: str, queries: OpenedOnce, rows: Sequence[Row] = ROWS) -> list[Result]:
    """Return what a query gives for some batches, sorted, with a restart in between."""
    job = Job(pipeline(query, more), queries)
    for at in range(0, len(rows), 3):
        job.send(rows[at : at + 3])
        job.restart()
    found = job.take()
    job.close()
    return sorted(found, key=str)


@pytest.mark.parametrize("more", long_but_the_first(["grace: 0 s", "emit: on_close\n  grace: 0 s"]))
@pytest.mark.parametrize(
    ("query", "same"),
    long_but_the_first(
        [
            (
                f"SELECT key, window_start AS s, window_end, count(*) AS c FROM {TUMBLE} "
                "GROUP BY key, window_start, window_end HAVING max(n) > 1 AND hour(window_end) < 9",
                "SELECT key, window.start AS s, window.end AS window_end, count(*) AS c FROM input "
                f"GROUP BY key, {HOURLY} HAVING max(n) > 1 AND hour(window.end) < 9",
            ),
            (
                f"SELECT customer AS key, window_time, sum(n) AS s FROM TABLE({HOP}) w "
                "GROUP BY w.window_start, window_end, w.window_time, customer",
                "SELECT customer AS key, window.end - INTERVAL '1' MILLISECOND AS window_time, "
                "sum(n) AS s FROM input GROUP BY window(timestamp, '1 hour', '20 minutes'), "
                "customer",
            ),
            (
                f"SELECT key, window_start, window_end, collect_list(n) AS l FROM TABLE({SESSION}) "
                "GROUP BY window_start, window_end, key",
                "SELECT key, session_window.start AS window_start, session_window.end AS "
                "window_end, "
                "collect_list(n) AS l FROM input GROUP BY session_window(timestamp, '5 minutes'), "
                "key",
            ),
            (
                f"SELECT key, window_start, window_end, sum(n) AS s FROM TABLE({SESSION}) "
                "WHERE n <> 1 GROUP BY window_start, window_end, key",
                "SELECT key, session_window.start AS window_start, session_window.end AS "
                "window_end, sum(n) AS s FROM input WHERE n <> 1 "
                "GROUP BY session_window(timestamp, '5 minutes'), key",
            ),
            (
                "SELECT key, window_start, n, place FROM (SELECT *, row_number() OVER (PARTITION "
                f"BY window_start, window_end, key ORDER BY n DESC) AS place FROM TABLE({TUMBLE})) "
                "WHERE place <= 2",
                "SELECT key, w.start AS window_start, n, place FROM (SELECT *, row_number() OVER "
                f"(PARTITION BY w, key ORDER BY n DESC) AS place FROM (SELECT *, {HOURLY} AS w "
                "FROM input)) WHERE place <= 2",
            ),
            (
                f"WITH big AS (SELECT key, window_start, window_end FROM TABLE({TUMBLE}) WHERE n > "
                "1) SELECT key, window_start, count(*) AS c FROM big "
                "GROUP BY key, window_start, window_end",
                "SELECT key, window.start AS window_start, count(*) AS c FROM input WHERE n > 1 "
                f"GROUP BY key, {HOURLY}",
            ),
        ],
        3,
    ),
    ids=["tumble", "hop", "session", "some of a session", "best rows", "passed on"],
)
def test_results_are_those_of_the_window_functions(
    query: str, same: str, more: str, shared: OpenedOnce
) -> None:
    found = results(query, more, shared)
    assert len(found) > 3
    assert found == results(same, more, shared)


@pytest.mark.parametrize("offset", long_but_the_first([0, -10]))
def test_windows_of_cumulate_begin_together_and_end_a_step_apart(
    offset: int, shared: OpenedOnce
) -> None:
    """As in Flink: a record is in each window of its size that ends after it."""
    cumulate = (
        f"CUMULATE(TABLE input, DESCRIPTOR(timestamp), {MINUTES.format(20)}, {MINUTES.format(60)}, "
        f"{MINUTES.format(offset)})"
    )
    query = (
        "SELECT key, unix_millis(w.window_start) div 60000 AS s, unix_millis(window_end) div 60000 "
        f"AS e, unix_millis(window_time) AS t, sum(n) AS n FROM TABLE({cumulate}) w WHERE n <> 7 "
        "GROUP BY window_start, w.window_end, window_time, key"
    )
    # Windows that begin before 1970 are not kept.
    rows = [{**row, "at": row["at"] + 600} for row in ROWS]
    wanted = Counter[tuple[str, int, int]]()
    for row in rows:
        start = (row["at"] - offset) // 60 * 60 + offset
        ends = [end for end in (start + 20, start + 40, start + 60) if end > row["at"]]
        wanted.update({(row["key"], start, end): row["n"] for end in ends if row["n"] != 7})
    updates = results(query, "grace: 1 d", shared, rows)
    once = results(query, CLOSED, shared, rows)
    last = {(each.key, each.value["e"]): each.value for each in in_order(updates)}
    assert {(key, v["s"], end): v["n"] for (key, end), v in last.items()} == wanted
    assert all(v["t"] == v["e"] * MINUTE_MS - 1 for v in last.values())
    closed = {(each.key, each.value["s"], each.value["e"]): each.value["n"] for each in once}
    assert len(closed) == len(once)
    assert closed.items() == {each for each in wanted.items() if each[0][2] <= 1000 - 120}


def in_order(found: list[Result]) -> list[Result]:
    """Return the updates of sums that only grow, in their order."""
    return sorted(found, key=lambda each: each.value["n"])


def test_rows_without_groups_have_the_columns_of_their_windows(shared: OpenedOnce) -> None:
    job = Job(
        pipeline(f"SELECT * EXCEPT (partition, offset, headers) FROM {TUMBLE} WHERE n > 1"), shared
    )
    job.send([{"key": "a", "customer": "x", "n": 2, "at": 61}, {"key": "b", "n": 1, "at": 62}])
    (found,) = job.take()
    job.close()
    value: dict[str, Any] = found.value
    assert found.key == "a"
    assert found.timestamp == 61 * MINUTE_MS
    assert value == {
        "customer": "x",
        "n": 2,
        "window_start": "1970-01-01T01:00:00.000Z",
        "window_end": "1970-01-01T02:00:00.000Z",
        "window_time": "1970-01-01T01:59:59.999Z",
    }


def test_a_call_that_is_not_possible_is_refused_before_spark_reads_it(shared: OpenedOnce) -> None:
    query = f"SELECT *\nFROM {SESSION}"
    with pytest.raises(QueryError, match=r"SESSION.* in line 2: only GROUP BY makes sessions"):
        shared.open(QuerySpec(query=query, format="json", schema=SCHEMA))
