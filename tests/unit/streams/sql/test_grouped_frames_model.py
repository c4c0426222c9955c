"""Random batches through functions with groups, compared with Spark on all records at once.

Batches are cut at random places, tasks start again in between, and some records are rejected.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import SCHEMA, frame_at_once
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Row
from tests.unit.streams.sql.random_rows import (
    by_key,
    final,
    random_rows,
    run,
    table_of,
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


def pipeline(function: Callable[..., DataFrame], group_by: str) -> str:
    return (
        f"- id: P\n  type: dataframe\n  function: {function.__module__}:{function.__name__}\n"
        f"  group_by: {group_by}\n  format: json\n  schema: {SCHEMA}\n"
        "  to: [sink]\n  on_error: skip\n"
    )


def expected(function: Callable[..., DataFrame], rows: list[Row]) -> dict[str | None, Any]:
    return by_key(frame_at_once(function, table_of(rows), last=True))


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
