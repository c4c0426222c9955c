"""`OVER (…)`: rows whose results cannot be computed, and `on_error`."""

from __future__ import annotations

import pytest

from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce
from tests.unit.streams.sql.test_over import WINDOW, pipeline, row

pytestmark = pytest.mark.integration

STEP = f"SELECT key, n, 6 / (n - lag(n) OVER ({WINDOW})) AS step FROM input"
ROWS = [row(1, 0), row(3, 5), row(3, 6), row(5, 7, "b"), row(5, 7.5, "b"), row(6, 8)]
WANTED = [
    ("a", {"n": 1, "step": None}, 0),
    ("a", {"n": 3, "step": 3.0}, 5 * MINUTE_MS),
    ("b", {"n": 5, "step": None}, 7 * MINUTE_MS),
    ("a", {"n": 6, "step": 2.0}, 8 * MINUTE_MS),
]
FAILED = [("a", 3, 6 * MINUTE_MS), ("b", 5, 7.5 * MINUTE_MS)]


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_row_without_a_result_rejects_no_record(shared: OpenedOnce, on_error: str) -> None:
    job = Job(pipeline(STEP, f"grace: 10 min\n  on_error: {on_error}"), shared)
    job.send(ROWS)
    job.send([row(0, 100, None)])
    job.send([row(7, 101), row(8, 130)])
    results = job.take()
    assert [each[1:4] for each in results] == [
        *WANTED,
        ("a", {"n": 7, "step": 6.0}, 101 * MINUTE_MS),
    ]
    assert {each.topic for each in results} == {"out"}
    assert (job.dropped, job.skipped) == ({"result failed": 2, "null key": 1}, 0)
    job.close()


def test_row_without_a_result_lets_the_time_of_all_writers_go_on(shared: OpenedOnce) -> None:
    job = Job(pipeline(STEP, "grace: 10 min\n  on_error: skip"), shared, writers=2)
    job.send(ROWS)
    job.learn(20)
    assert [each[1:4] for each in job.take()] == WANTED
    assert job.dropped == {"result failed": 2}
    job.close()


def test_task_fails_by_default_and_goes_on_with_a_query_that_is_mended(
    shared: OpenedOnce,
) -> None:
    job = Job(pipeline(STEP), shared)
    job.send(ROWS)
    with pytest.raises(ProcessingFailedError, match="DIVIDE_BY_ZERO"):
        job.send([row(7, 100)])
    job.close()
    job = Job(pipeline(STEP.replace("6 / (n", "try_divide(6, n")), shared, job.stores)
    job.send([row(7, 100)])
    results = [each[1:4] for each in job.take()]
    failed = [(key, {"n": n, "step": None}, at) for key, n, at in FAILED]
    assert results == sorted([*WANTED, *failed], key=lambda each: each[2])
    job.close()
