"""Ranks and numbers of rows in random batches, compared with Spark on all records at once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import all_at_once
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Row
from tests.unit.streams.sql.random_rows import (
    GRACE_MIN,
    closed,
    pipeline,
    random_rows,
    rounded,
    run,
    table_of,
    without_late,
)

pytestmark = pytest.mark.integration

HOUR = "(SELECT *, window(timestamp, '1 hour') AS w FROM input)"
HOPS = "(SELECT *, window(timestamp, '1 hour', '20 minutes') AS w FROM input)"
AT = "date_format(w.start, 'HH:mm')"

QUERIES = [
    ("rank", "key", "n DESC", "place <= 3", "input"),
    ("dense_rank", "customer", "amount NULLS LAST, n", "place < 3", "input"),
    ("rank", "key, w", "n", "place = 1", HOUR),
    ("dense_rank", "customer, w", "n DESC", "place <= 2 AND amount > 0", HOUR),
    ("rank", "customer, w", "amount DESC NULLS FIRST", "place IN (1, 3)", HOUR),
    ("row_number", "customer", "n DESC, tags", "place >= 2 AND amount > 0", "input"),
    ("row_number", "key, w", "amount, tags", "true", HOPS),
    ("rank", "customer, w", "n DESC", "place <= 2", HOPS),
    ("dense_rank", "key", "n DESC", "true", "input"),
]


def numbered_rows(chance: random.Random, spread: int) -> list[Row]:
    """Return random records with a number of their own."""
    rows = random_rows(chance, spread=spread)
    return [{**row, "tags": [str(index)]} for index, row in enumerate(rows)]


def query_of(function: str, groups: str, order: str, where: str, source: str) -> str:
    made = f"coalesce(customer, '-'), '|', key, {AT if 'w' in groups else repr('')}"
    return (
        f"SELECT concat({made}, '-', tags[0]) AS key, place, n, amount{{last_2}} FROM (SELECT *, "
        f"{function}() OVER (PARTITION BY {groups} ORDER BY {order}) AS place{{last}} "
        f"FROM {source}) WHERE {where}"
    )


def of_engine(query: str) -> str:
    return query.format(last="", last_2="")


def expected(query: str, groups: str, rows: list[Row]) -> dict[str, Any]:
    """Return the value and the time of each row that Spark gives for all records at once."""
    last = f", unix_millis(max(timestamp) OVER (PARTITION BY {groups})) AS `last time`"
    text = query.format(last=last, last_2=", `last time`")
    found = all_at_once(text, table_of(rows))
    return {key.decode(): (rounded(value), time) for key, value, time in found if key is not None}


@pytest.mark.parametrize(
    ("function", "groups", "order", "where", "source"), long_but_the_first(QUERIES)
)
def test_updates_end_with_the_ranks_of_all_records(
    shared: OpenedOnce,
    seeds: list[int],
    function: str,
    groups: str,
    order: str,
    where: str,
    source: str,
) -> None:
    query = query_of(function, groups, order, where, source)
    for seed in seeds:
        chance = random.Random(f"{seed} {query}")
        rows = numbered_rows(chance, 100)
        job = Job(pipeline(of_engine(query), ""), shared)
        run(job, rows, chance)
        table: dict[str | None, Any] = {}
        for result in job.take():
            if result.value is None:
                assert table.pop(result.key, None) is not None, "only what was given is deleted"
            else:
                table[result.key] = rounded(result.value)
        wanted = expected(query, groups, rows)
        assert table == {key: value for key, (value, _) in wanted.items()}, f"seed {seed}"
        job.close()


@pytest.mark.parametrize("group", long_but_the_first(["key", "customer"]))
def test_each_window_is_emitted_once_with_the_ranks_of_its_records(
    shared: OpenedOnce, seeds: list[int], group: str
) -> None:
    query = query_of("rank", f"{group}, w", "n DESC", "place <= 2", HOUR)
    for seed in seeds:
        chance = random.Random(f"{seed} {query}")
        rows = numbered_rows(chance, 50)
        # In front of a topic, time is that of the task.
        in_time, late = without_late(rows, with_rejected=group == "customer")
        more = f"grace: {GRACE_MIN} min\n  emit: on_close"
        job = Job(pipeline(of_engine(query), more), shared)
        found = closed(job, rows, chance, seed)
        assert found == expected(query, f"{group}, w", in_time), f"seed {seed}"
        assert job.dropped["expired"] == late > 0, f"seed {seed}"
        job.close()
