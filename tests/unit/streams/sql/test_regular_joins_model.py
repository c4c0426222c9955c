"""Random records through joins without bounds of time, compared with a plain model.

Python computes the rows and the results, so this is about what is kept and when, and takes little
time. Batches are cut in several ways, tasks start again in between, and sides are uneven in pace.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from tests.tiers import long_but_the_first
from tests.unit.streams.sql.fake_join import FakeJoins
from tests.unit.streams.sql.grouped_job import Job, Result, Row
from tests.unit.streams.sql.join_pipeline import pipeline
from tests.unit.streams.sql.regular_join_model import (
    KINDS,
    SCHEMA,
    Model,
    cut,
    folded,
    in_order,
    query_of,
    random_rows,
    steps,
)

SEEDS = long_but_the_first(range(2))


def keyed(rows: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Return rows whose key is their column n, so that they meet by either."""
    return {
        topic: [
            {**row, "key": None if row.get("n") is None else str(row["n"])}
            for row in each
            if "raw" not in row
        ]
        for topic, each in rows.items()
    }


def ordered_rows(chance: random.Random, *, is_unique: bool = False) -> list[tuple[str, Row]]:
    rows = keyed(random_rows(chance))
    if is_unique:
        rows = {topic: [*{row["id"]: row for row in each}.values()] for topic, each in rows.items()}
    return [each for parts in steps(rows, chance) for each in in_order(parts)]


def results_of(job: Job, rows: Sequence[tuple[str, Row]], size: int) -> list[Result]:
    for batch in cut(rows, size):
        job.send_together(batch)
    return job.take()


@pytest.mark.parametrize("ttl_min", long_but_the_first([None, 5, 1, 20], 2))
@pytest.mark.parametrize("is_checked", long_but_the_first([True, False]))
@pytest.mark.parametrize("on", long_but_the_first(["columns", "key", "key and columns"], 2))
@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_final_results_are_those_of_the_model(
    seed: int, how: str, on: str, is_checked: bool, ttl_min: int | None
) -> None:
    text = query_of(how, on) + (" AND p.x > o.x" if is_checked else "")
    ttl = "none" if ttl_min is None else f"{ttl_min} min"
    chance = random.Random(f"{seed} {text}")
    # Of two rows with one key in the results, one may outlive the other.
    rows = ordered_rows(chance, is_unique=ttl_min is not None)
    model = Model(how, float("inf") if ttl_min is None else ttl_min, is_checked=is_checked)
    for topic, row in rows:
        model.add(topic, row)
    for size in (1, 5, 30):
        job = Job(pipeline(text, f"ttl: {ttl}", SCHEMA), FakeJoins())
        for batch in cut(rows, size):
            job.send_together(batch)
            if chance.random() < 0.1:
                job.restart()
        where = f"seed {seed}, {size} at a time"
        assert folded(job.take()) == model.results, where
        assert job.dropped["expired"] == model.late, where
        job.close()


@pytest.mark.parametrize("on", long_but_the_first(["columns", "key", "key and columns"]))
@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_results_come_in_the_order_of_records_however_batches_are_cut(
    seed: int, how: str, on: str
) -> None:
    """A batch leaves out what its own records replace."""
    rows = ordered_rows(random.Random(f"{seed} {how} {on}"))
    found = [
        results_of(Job(pipeline(query_of(how, on), "ttl: none", SCHEMA), FakeJoins()), rows, n)
        for n in (1, 7, 30)
    ]
    if how in ("", "LEFT SEMI"):
        assert found[0] == found[1] == found[2]
    assert is_part(found[1], found[0])
    assert is_part(found[2], found[0])


def is_part(part: Sequence[Result], whole: Sequence[Result]) -> bool:
    """Whether a list is another one with some items left out."""
    rest = iter(whole)
    return all(each in rest for each in part)


@pytest.mark.parametrize("how", KINDS)
def test_rows_of_a_batch_share_calls(how: str) -> None:
    rows = ordered_rows(random.Random(how))
    joins = FakeJoins()
    text = query_of(how, "columns") + " AND p.x > o.x"
    job = Job(pipeline(text, "ttl: none", SCHEMA), joins)
    for batch in cut(rows, 30):
        job.send_together(batch)
    assert 0 < sum(each.calls for each in joins.opened) < len(rows) / 2
