"""Joins without bounds of time: their results are the same whichever input is ahead.

Python computes the rows and the results. Each input has writers, whose progress the tasks learn.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pytest

from tests.tiers import long_but_the_first
from tests.unit.streams.sql.fake_join import FakeJoins
from tests.unit.streams.sql.grouped_job import Job, Row
from tests.unit.streams.sql.join_pipeline import pipeline
from tests.unit.streams.sql.regular_join_model import KINDS, SCHEMA, SIDES, Model, folded, query_of

TTL_MIN = 5
SIZE = 30


def rows_of(chance: random.Random) -> dict[str, list[Row]]:
    """Return rows of both sides, none of which is late by the clock of its own side."""

    def row(topic: str, index: int) -> Row:
        n = chance.choice([1, 2, None])
        return {
            "key": None if n is None else str(n),
            "at": 100 + index + chance.randint(-2, 2),
            "id": f"{topic[0]}{index}",
            "n": n,
            "x": chance.choice([None, *range(5)]),
        }

    return {topic: [row(topic, index) for index in range(SIZE)] for topic in SIDES}


def paces(
    rows: Mapping[str, Sequence[Row]], chance: random.Random
) -> Iterator[list[tuple[str, Row]]]:
    """Yield all rows with either side ahead as a whole, side by side, and in random turns."""
    left, right = ([(topic, row) for row in rows[topic]] for topic in SIDES)
    yield [*left, *right]
    yield [*right, *left]
    yield [each for both in zip(left, right, strict=True) for each in both]
    turns = chance.sample([0] * SIZE + [1] * SIZE, 2 * SIZE)
    sides = iter(left), iter(right)
    yield [next(sides[turn]) for turn in turns]


def pairs_of(rows: Mapping[str, Sequence[Row]]) -> Counter[str]:
    """Return the keys of all pairs that are close in time."""
    return Counter(
        f"{order['id']}-{payment['id']}"
        for order in rows["orders"]
        for payment in rows["payments"]
        if (order["x"] or 0) < 4
        and order["n"] is not None
        and order["n"] == payment["n"]
        and abs(order["at"] - payment["at"]) <= TTL_MIN
    )


def wanted_of(how: str, rows: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    model = Model(how, TTL_MIN, is_checked=False)
    every = [(side, row) for side in SIDES for row in rows[side]]
    for side, row in sorted(every, key=lambda each: each[1]["at"]):
        model.add(side, row)
    assert model.late == 0
    return model.results


@pytest.mark.parametrize("on", ["columns", "key"])
@pytest.mark.parametrize("how", long_but_the_first(KINDS, 3))
def test_results_are_the_same_whichever_side_is_ahead(how: str, on: str) -> None:
    chance = random.Random(f"{how} {on}")
    text = pipeline(query_of(how, on), f"ttl: {TTL_MIN} min", SCHEMA)
    rows = rows_of(chance)
    wanted = wanted_of(how, rows)
    for order in paces(rows, chance):
        # Where rows go through a topic, a task of its own reads each side.
        is_by_key = on == "key"
        sources = () if is_by_key else SIDES
        job = Job(text, FakeJoins(), partitions=2, writers=2, sources=sources)
        passed = dict.fromkeys(SIDES, 0.0)
        left = Counter(topic for topic, _ in order)
        for topic, part in groupby(order, key=lambda each: each[0]):
            mine = [row for _, row in part]
            partition = 0 if is_by_key else SIDES.index(topic)
            job.send(mine, partition, topic)
            left[topic] -= len(mine)
            passed[topic] = max(passed[topic], *(row["at"] for row in mine))
            # No later row of a side is more than four minutes behind its clock.
            job.learn(min(passed[each] if left[each] else 1000 for each in SIDES))
            if chance.random() < 0.1:
                job.restart()
        assert not set(job.dropped) - {"null key"}
        if not how:
            assert Counter(each.key for each in job.results) == pairs_of(rows)
        assert folded(job.results) == wanted
        job.close()
