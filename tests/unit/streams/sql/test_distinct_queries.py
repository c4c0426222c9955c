"""Aggregates with DISTINCT, whose values are entries of a store."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence

import pytest

from kafka_pipeline.streams.sql.kept_distinct import MOST_VALUES
from kafka_pipeline.streams.sql.spec import QueryError
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce

pytestmark = pytest.mark.integration

FEW, DISTINCT = "count(*) AS c", "count(*) AS c, count(DISTINCT n) AS d"
BY_RANK = (
    "count(DISTINCT n) AS every, sum(DISTINCT n) FILTER (WHERE t = 'x') AS x, "
    "count(DISTINCT n) FILTER (WHERE t = 'y') AS y, count(DISTINCT n, t) AS both, count(n) AS c"
)
HOUR = "window(timestamp, '1 hour')"


def pipeline(select: str, groups: str = "key", more: str = "") -> str:
    key = groups.split(",")[0]
    query = f"SELECT {key} AS key, {select} FROM input GROUP BY {groups}"
    return (
        "processors:\n- id: Q\n  type: sql\n  format: json\n  schema: n INT, t STRING, g STRING\n"
        f"  query: {json.dumps(query)}\n  to: [sink]\n  {more}\n"
    )


def entries(job: Job) -> int:
    """Return how many values the tasks keep."""
    return sum(
        sum(1 for _ in stores["distinct"].scan(b"", None))
        for stores in job.stores.values()
        if "distinct" in stores
    )


@pytest.mark.parametrize("groups", ["key", "g"])
def test_functions_share_values_over_batches_and_restarts(shared: OpenedOnce, groups: str) -> None:
    job, chance = Job(pipeline(BY_RANK, groups), shared), random.Random(3)
    seen = defaultdict[str, set[tuple[int, str]]](set)
    count = dict.fromkeys("ab", 0)
    for number in range(6):
        rows = []
        for at in range(chance.randrange(1, 30)):
            group, n, text = chance.choice("ab"), chance.randrange(12), chance.choice("xyz")
            seen[group].add((n, text))
            count[group] += 1
            rows.append({"key": group, "g": group, "n": n, "t": text, "at": 30 * number + at})
        job.send(rows)
        if number == 3:
            job.restart()
    found = job.latest()
    for group, pairs in seen.items():
        assert found[group] == {
            "every": len({n for n, _ in pairs}),
            "x": sum({n for n, text in pairs if text == "x"}),
            "y": len({n for n, text in pairs if text == "y"}),
            "both": len(pairs),
            "c": count[group],
        }
    assert entries(job) == sum(len({n for n, _ in each}) + len(each) for each in seen.values())
    job.close()


@pytest.mark.parametrize("groups", ["key", "g"])
def test_values_of_a_record_that_is_rejected_were_not_seen(shared: OpenedOnce, groups: str) -> None:
    """The error comes after the store has been asked for the values."""
    select = "IF(count(DISTINCT n) > 2, raise_error('full'), count(DISTINCT n)) AS d"
    job = Job(pipeline(select, groups, "on_error: skip"), shared)
    for n in (1, 2, 2, 3, 4, 1):
        job.send([{"key": "a", "g": "a", "n": n, "at": n}])
    job.send([{"key": "b", "g": "b", "n": n, "at": n} for n in (3, 4, 4)])
    assert job.latest() == {"a": {"d": 2}, "b": {"d": 2}}
    assert (job.skipped, entries(job)) == (2, 4)
    job.close()


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@pytest.mark.parametrize("groups", long_but_the_first([f"key, {HOUR}", f"g, {HOUR}"]))
def test_values_go_with_their_window(shared: OpenedOnce, groups: str, emit: str) -> None:
    job = Job(pipeline(DISTINCT, groups, f"emit: {emit}\n  grace: 10 min"), shared)
    for start in (0, 60):
        for n in (1, 2, 1):
            job.send([{"key": "a", "g": "a", "n": n, "at": start + n}])
    job.send([{"key": "a", "g": "a", "n": 1, "at": 59}])
    assert entries(job) == 4
    job.send([{"key": "b", "g": "b", "n": 1, "at": 6000}])
    values = [each.value for each in job.take() if each.key == "a"]
    assert {"c": 4, "d": 2} in values
    assert values[-1] == ({"c": 3, "d": 2} if emit == "on_close" else {"c": 4, "d": 2})
    job.send([{"key": "b", "g": "b", "n": 1, "at": 6001}])
    assert entries(job) == 1
    job.close()


@pytest.mark.parametrize(
    ("groups", "size"),
    [("key", 3 * MOST_VALUES), pytest.param("g", 50_000, marks=pytest.mark.long)],
)
def test_group_may_have_any_number_of_values(shared: OpenedOnce, groups: str, size: int) -> None:
    job = Job(pipeline(DISTINCT, groups, "max_collected: 3"), shared)
    numbers = [*range(size), *range(size // 2)]
    parts: Sequence[Sequence[int]] = [numbers[at::5] for at in range(5)]
    for part in parts:
        job.send([{"key": "a", "g": "a", "n": n, "at": 1} for n in part])
    assert job.latest() == {"a": {"c": len(numbers), "d": size}}
    assert entries(job) == size
    job.close()


def test_function_of_a_constant_stays_one_of_distinct_values(shared: OpenedOnce) -> None:
    """Spark's optimizer replaces the column by the constant, and count(x) by count(1)."""
    query = (
        "SELECT key, count(DISTINCT one) AS one, count(DISTINCT 1) AS two, count(one) AS c, "
        "sum(DISTINCT n * 0 + 5) AS five FROM (SELECT *, 1 AS one FROM input) GROUP BY key"
    )
    text = pipeline(FEW).replace(
        json.dumps(f"SELECT key AS key, {FEW} FROM input GROUP BY key"), json.dumps(query)
    )
    job = Job(text, shared)
    for at in range(3):
        job.send([{"key": "a", "n": at, "at": at}])
    assert job.latest() == {"a": {"one": 1, "two": 1, "c": 3, "five": 5}}
    job.close()


@pytest.mark.parametrize("groups", long_but_the_first(["key", "g"]))
def test_functions_with_distinct_come_and_go_together(shared: OpenedOnce, groups: str) -> None:
    row = {"key": "a", "g": "a", "n": 1, "t": "x", "at": 1}
    job = Job(pipeline(FEW, groups), shared)
    job.send([row])
    job.close()
    job = Job(pipeline(DISTINCT, groups), shared, job.stores)
    job.send([row, {**row, "n": 2}])
    assert job.latest() == {"a": {"c": 3, "d": 2}}
    job.close()
    for select in (
        "count(DISTINCT t) AS t, count(*) AS c, count(DISTINCT n) AS d",
        "count(DISTINCT t) AS t, count(*) AS c",
    ):
        with pytest.raises(QueryError, match=r"with DISTINCT were count\(DISTINCT n\), now"):
            Job(pipeline(select, groups), shared, job.stores)
    job = Job(pipeline(f"{DISTINCT}, max(n) AS m", groups), shared, job.stores)
    job.send([row])
    assert job.latest() == {"a": {"c": 4, "d": 2, "m": 1}}
    job.close()
    job = Job(pipeline(FEW, groups), shared, job.stores)
    job.send([row])
    assert job.latest() == {"a": {"c": 5}}
    job.close()
    with pytest.raises(QueryError, match=r"count\(DISTINCT n\) cannot begin again"):
        Job(pipeline(DISTINCT, groups), shared, job.stores)
