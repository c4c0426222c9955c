"""Queries with `OVER (…)` over the stream: what they give, keep and refuse."""

from __future__ import annotations

import json

import pytest

from kafka_pipeline.common.pipelines.specs import OverSpec
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.over_shape import require_over_as_planned
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import SCHEMA
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce, Row

pytestmark = pytest.mark.integration

WINDOW = "PARTITION BY key ORDER BY timestamp"
HOUR = f"{WINDOW} RANGE BETWEEN INTERVAL '1 hour' PRECEDING AND CURRENT ROW"
SUMS = (
    f"SELECT key, n, lag(n) OVER ({WINDOW}) AS before, sum(n) OVER ({WINDOW} ROWS BETWEEN 2 "
    f"PRECEDING AND CURRENT ROW) AS three, count(*) OVER ({HOUR}) AS hourly FROM input"
)


def pipeline(query: str, more: str = "grace: 10 min") -> str:
    return (
        "sinks: {late: late_records}\nprocessors:\n- id: Over\n  type: sql\n  format: json\n"
        f"  schema: customer STRING, n INT\n  query: {json.dumps(query)}\n  to: [sink]\n  {more}\n"
    )


def row(n: int, at: float, key: str | None = "a") -> Row:
    return {"key": key, "n": n, "at": at}


def test_record_gets_its_result_once_time_has_passed_in_the_order_of_time(
    shared: OpenedOnce,
) -> None:
    job = Job(pipeline(SUMS, "grace: 10 min\n  late_to: late"), shared)
    job.send([row(1, 0), row(3, 50), row(2, 45), row(4, 59)])
    assert [each[1:4] for each in job.take()] == [
        ("a", {"n": 1, "before": None, "three": 1, "hourly": 1}, 0),
        ("a", {"n": 2, "before": 1, "three": 3, "hourly": 2}, 45 * MINUTE_MS),
    ]
    job.restart()
    # 50 is late by a record of the same batch; one exactly as old as the grace period is not.
    job.send([row(5, 61), row(6, 51), row(7, 50.9), row(9, 80, "b"), row(8, 62, None)])
    *late, fifth, sixth, fourth, last = sorted(
        job.take(), key=lambda each: each.topic != "late_records"
    )
    assert [(each.topic, each.value) for each in late] == [
        ("late_records", {"n": 7}),
        ("late_records", {"n": 8}),
    ]
    assert [each[1:4] for each in (fifth, sixth, fourth, last)] == [
        ("a", {"n": 3, "before": 2, "three": 6, "hourly": 3}, 50 * MINUTE_MS),
        ("a", {"n": 6, "before": 3, "three": 11, "hourly": 4}, 51 * MINUTE_MS),
        ("a", {"n": 4, "before": 6, "three": 13, "hourly": 5}, 59 * MINUTE_MS),
        ("a", {"n": 5, "before": 4, "three": 15, "hourly": 5}, 61 * MINUTE_MS),
    ]
    assert job.dropped == {"expired (late_to)": 2}
    job.close()


def test_time_of_all_writers_decides_what_is_due(shared: OpenedOnce) -> None:
    job = Job(pipeline(SUMS), shared, writers=2)
    job.send([row(1, 0), row(3, 46), row(2, 45), row(4, 100)])
    assert job.take() == []
    job.learn(56)
    job.restart()
    job.learn(57)
    assert [(each.value["n"], each.value["hourly"]) for each in job.take()] == [
        (1, 1),
        (2, 2),
        (3, 3),
    ]
    job.close()


def test_records_without_a_key_are_dropped_and_malformed_ones_rejected(
    shared: OpenedOnce,
) -> None:
    job = Job(pipeline(SUMS, "grace: 10 min\n  on_error: skip"), shared)
    bad = {"key": "a", "raw": b"{", "at": 3}
    job.send([row(1, 1), row(2, 2, None), bad, row(3, 4), row(4, 30)])
    assert [each.value["n"] for each in job.take()] == [1, 3]
    assert (job.dropped, job.skipped) == ({"null key": 1}, 1)
    job.close()


@pytest.mark.parametrize(
    ("query", "reason"),
    long_but_the_first(
        [
            (SUMS.replace("ORDER BY timestamp", "ORDER BY n"), "must be timestamp, the time of"),
            (
                f"SELECT key, lag(n) OVER ({WINDOW}) AS a, lag(n) OVER (PARTITION BY key, customer "
                "ORDER BY timestamp) AS b FROM input",
                "with different PARTITION BY or ORDER BY",
            ),
            (f"SELECT key, lead(n) OVER ({WINDOW}) AS a FROM input", "lead(…) would wait for"),
            (
                f"SELECT key, lag(n) IGNORE NULLS OVER ({WINDOW}) AS a FROM input",
                "may look at any number of rows",
            ),
            (
                f"SELECT key, sum(n) OVER ({WINDOW} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a "
                "FROM input",
                "reaches rows after the current one",
            ),
            (
                f"SELECT key, lag(n) OVER ({WINDOW}) AS a FROM "
                "(SELECT customer AS key, timestamp, n FROM input)",
                "a column key that is not the key of the records",
            ),
            (
                f"SELECT key, lag(n) OVER ({WINDOW}) AS a FROM input WHERE n > rand()",
                "would make results depend on when a batch ran",
            ),
        ],
        short=2,
    ),
)
def test_query_is_refused(local: LocalQueries, query: str, reason: str) -> None:
    with pytest.raises(QueryError) as caught:
        local.open_over(QuerySpec(query, format="json", schema=SCHEMA))
    assert reason in str(caught.value)


def test_frames_that_spark_reads_in_another_way_are_refused(local: LocalQueries) -> None:
    opened = local.open_over(QuerySpec(SUMS, format="json", schema=SCHEMA))
    shape = opened.shape
    opened.close()
    assert (shape.rows_before, shape.range_ms) == (2, 60 * MINUTE_MS)
    require_over_as_planned(shape, OverSpec(range_ms=60 * MINUTE_MS, counts_rows=True))
    for wrong in (OverSpec(range_ms=60 * MINUTE_MS), OverSpec(range_ms=1, counts_rows=True)):
        with pytest.raises(QueryError, match="reach 2 rows and 3600000 ms back"):
            require_over_as_planned(shape, wrong)


def test_longer_grace_period_gives_no_result_twice_and_loses_no_record_in_silence(
    shared: OpenedOnce,
) -> None:
    job = Job(pipeline(SUMS), shared)
    job.send([row(1, 0), row(2, 20)])
    assert [each.value["n"] for each in job.take()] == [1]
    job.close()
    job = Job(pipeline(SUMS, "grace: 60 min"), shared, job.stores)
    # Results up to minute 10 have been given, so this one is late, whatever the period is now.
    job.send([row(3, 5), row(4, 90)])
    assert [each.value for each in job.take()] == [{"n": 2, "before": 1, "three": 3, "hourly": 2}]
    assert job.dropped == {"expired": 1}
    job.close()
    other = f"SELECT key, lag(customer) OVER ({WINDOW}) AS c FROM input"
    with pytest.raises(QueryError, match="and now key string, key string, customer string"):
        Job(pipeline(other), shared, job.stores)


def test_constants_in_partition_by_make_no_difference(shared: OpenedOnce) -> None:
    job = Job(pipeline(SUMS.replace("PARTITION BY key", "PARTITION BY key, 1, 'x'")), shared)
    job.send([row(1, 0), row(2, 5), row(3, 30)])
    assert [each.value for each in job.take()] == [
        {"n": 1, "before": None, "three": 1, "hourly": 1},
        {"n": 2, "before": 1, "three": 3, "hourly": 2},
    ]
    job.close()


def test_longer_frame_by_time_forgets_no_row_of_the_former_frames(shared: OpenedOnce) -> None:
    former = f"SELECT key, n, lag(n) OVER ({WINDOW}) AS before FROM input"
    job = Job(pipeline(former, "grace: 30 s"), shared)
    # Within a minute, so that the segments of the former store and of the new one are the same.
    job.send([row(1, 0), row(2, 0.1), row(3, 0.9)])
    assert [each.value["n"] for each in job.take()] == [1, 2]
    job.close()
    hourly = former.replace(" FROM", f", count(*) OVER ({HOUR}) AS hourly FROM")
    job = Job(pipeline(hourly, "grace: 30 s"), shared, job.stores)
    job.send([row(4, 2), row(5, 50)])
    assert [each.value for each in job.take()] == [
        {"n": 3, "before": 2, "hourly": 2},
        {"n": 4, "before": 3, "hourly": 3},
    ]
    job.close()
