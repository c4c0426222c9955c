"""Random batches through functions with groups, compared with Spark on all records at once.

Batches are cut at random places, tasks start again in between, and some records are rejected.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import SCHEMA, frame_at_once
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Row
from tests.unit.streams.sql.random_rows import (
    GRACE_MIN,
    by_key,
    closed,
    final,
    random_rows,
    rounded,
    run,
    table_of,
    without_late,
)
from tests.user_code import grouped_frames as frames

pytestmark = pytest.mark.integration

FRAMES: list[tuple[Callable[..., DataFrame], str]] = [
    (frames.totals, "{key: true}"),
    (frames.by_customer, "{}"),
    (frames.hourly, "{key: true, window: 1 h}"),
    (frames.hopping, "{window: 60 min, slide: 20 min, offset: 5 min}"),
    (frames.sessions, "{key: true, session: 9 min}"),
    (frames.sessions_of_fields, "{session: 25 min}"),
    (frames.rolled_up, "{}"),
    (frames.shouted, "{}"),
    (frames.mapped, "{}"),
]


def pipeline(
    function: Callable[..., DataFrame], group_by: str, more: str = "", **config: str
) -> str:
    return (
        f"- id: P\n  type: dataframe\n  function: {function.__module__}:{function.__name__}\n"
        f"  config: {config}\n  group_by: {group_by}\n  format: json\n  schema: {SCHEMA}\n"
        f"  to: [sink]\n  on_error: skip\n  {more}\n"
    )


def expected(
    function: Callable[..., DataFrame], rows: list[Row], **config: str
) -> dict[str | None, Any]:
    return by_key(frame_at_once(function, table_of(rows), last=True, **config))


@pytest.mark.parametrize(("function", "group_by"), long_but_the_first(FRAMES))
def test_updates_end_with_what_all_records_at_once_give(
    shared: OpenedOnce, seeds: list[int], function: Callable[..., DataFrame], group_by: str
) -> None:
    for seed in seeds:
        chance = random.Random(f"{seed} {function.__name__}")
        rows = random_rows(chance, spread=100)
        job = Job(pipeline(function, group_by), shared)
        run(job, rows, chance)
        found = final(job)
        bad = sum("raw" in row for row in rows)
        assert (job.skipped, job.dropped) == (bad, {}), f"seed {seed}"
        wanted = expected(function, rows)
        assert wanted, f"seed {seed}: nothing is compared"
        assert found == wanted, f"seed {seed}"
        job.close()


@pytest.mark.parametrize(
    ("group", "group_by"), long_but_the_first([("key", "key: true, "), ("customer", "")])
)
def test_each_window_is_emitted_once_with_the_records_that_came_in_time(
    shared: OpenedOnce, seeds: list[int], group: str, group_by: str
) -> None:
    for seed in seeds:
        chance = random.Random(f"{seed} {group}")
        rows = random_rows(chance, spread=50)
        in_time, late = without_late(rows, with_rejected=group == "customer")
        more = f"grace: {GRACE_MIN} min\n  emit: on_close"
        text = pipeline(frames.hourly, f"{{{group_by}window: 1 h}}", more, group=group)
        job = Job(text, shared)
        found = closed(job, rows, chance, seed)
        assert found == expected(frames.hourly, in_time, group=group), f"seed {seed}"
        assert job.dropped["expired"] == late, f"seed {seed}"
        assert late > 0
        job.close()


def first_times(frame: DataFrame, columns: str) -> DataFrame:
    """Group by what is to be distinct, with the time of the first record."""
    rows = frame.where("n <> 1").selectExpr(*columns.split(", "), "timestamp")
    names = [name for name in rows.columns if name != "timestamp"]
    return rows.groupBy(*names).agg(F.unix_millis(F.first("timestamp")).alias("last time"))


@pytest.mark.parametrize(
    ("columns", "group_by"),
    long_but_the_first([("key, n", "{key: true}"), ("customer AS key, n", "{}")]),
)
def test_distinct_rows_are_given_once(
    shared: OpenedOnce, seeds: list[int], columns: str, group_by: str
) -> None:
    for seed in seeds:
        chance = random.Random(f"{seed} {columns}")
        rows = random_rows(chance, spread=100)
        job = Job(pipeline(frames.distinct, group_by, columns=columns), shared)
        run(job, rows, chance)
        found = Counter((each.key, rounded(each.value), each.timestamp) for each in job.take())
        wanted = Counter(
            (None if key is None else key.decode(), rounded(value), first)
            for key, value, first in frame_at_once(first_times, table_of(rows), columns=columns)
        )
        assert found == wanted, f"seed {seed}"
        job.close()
