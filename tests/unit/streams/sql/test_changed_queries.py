"""A query with GROUP BY changes, and the groups that were kept go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.sql.spec import QueryError
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, columns_of
from tests.unit.streams.sql.rescaled_job import rescaled

pytestmark = pytest.mark.integration

HOUR = "window(timestamp, '1 hour')"
WIDE = "n INT, d DECIMAL(10,2), t STRING"
ROWS = [{"key": "a", "n": n, "d": n, "t": f"t{n}", "at": n} for n in (1, 2, 3)]
LATER = {"key": "a", "n": 10, "d": 10, "t": "x", "at": 4}
FEW = "count(*) AS c"
MORE = "sum(n) AS s, count(*) AS c"
ALL = (
    "sum(n) AS s, sum(d) AS sd, avg(d) AS ad, count(*) AS c, max(t) AS m, first(n) AS f, "
    "collect_set(n) AS cs, count(DISTINCT n) AS cd, approx_count_distinct(n) AS ap, "
    "percentile(n, 0.5) AS p, stddev_pop(n) AS st, max_by(t, n) AS mb, count(n) AS cn, "
    "count(*) FILTER (WHERE n > 2) AS big, bool_or(n > 2) AS any"
)
OF_LATER = {
    "s": 10,
    "sd": 10.0,
    "ad": 10.0,
    "c": 4,
    "m": "x",
    "f": 10,
    "cs": [10],
    "cd": 1,
    "ap": 1,
    "p": 10.0,
    "st": 0.0,
    "mb": "x",
    "cn": 1,
    "big": 1,
    "any": True,
}


def pipeline(select: str, groups: str = "key", more: str = "", schema: str = WIDE) -> str:
    key = groups.split(",")[0]
    query = f"SELECT {key} AS key, {select} FROM input GROUP BY {groups}"
    return (
        f"processors:\n- id: Q\n  type: sql\n  format: json\n  schema: {json.dumps(schema)}\n"
        f"  query: {json.dumps(query)}\n  to: [sink]\n  {more}\n"
    )


def going_on(job: Job, text: str, queries: OpenedOnce) -> Job:
    """Return a job that goes on with what another one has committed."""
    job.close()
    return Job(text, queries, job.stores)


@pytest.mark.parametrize("groups", long_but_the_first(["key", "key, t IS NULL"]))
def test_functions_come_and_go_next_to_others(shared: OpenedOnce, groups: str) -> None:
    job = Job(pipeline(FEW, groups), shared)
    job.send([*ROWS, {**LATER, "key": "still"}])
    assert job.latest() == {"a": {"c": 3}, "still": {"c": 1}}
    job = going_on(job, pipeline(ALL, groups), shared)
    job.send([LATER])
    assert job.latest() == {"a": OF_LATER}
    job.restart()
    job.send([{**LATER, "key": "b"}, {**LATER, "n": 2}])
    found = job.latest()
    assert found["b"] == {**OF_LATER, "c": 1}
    assert {name: found["a"][name] for name in ("s", "sd", "c", "cd", "f", "big")} == {
        "s": 12,
        "sd": 20.0,
        "c": 5,
        "cd": 2,
        "f": 10,
        "big": 1,
    }
    # One without records in between keeps what it had; one that has changed begins again.
    job = going_on(job, pipeline(FEW, groups), shared)
    job.send([LATER])
    assert job.latest() == {"a": {"c": 6}}
    job = going_on(job, pipeline(MORE, groups), shared)
    job.send([LATER, {**LATER, "key": "b"}, {**LATER, "key": "still"}])
    assert job.latest() == {
        "a": {"s": 10, "c": 7},
        "b": {"s": 20, "c": 2},
        "still": {"s": 10, "c": 2},
    }
    job.close()


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
def test_windows_go_on_and_close_without_later_records(shared: OpenedOnce, emit: str) -> None:
    more = f"emit: {emit}\n  grace: 1 h"
    job = Job(pipeline(FEW, f"key, {HOUR}", more), shared)
    job.send([*ROWS, {**LATER, "at": 70}])
    job.take()
    job = going_on(job, pipeline(MORE, f"key, {HOUR}", more), shared)
    job.send([{**LATER, "at": 71}])
    job.send([{**LATER, "at": 500, "key": "z"}])
    found = [(each.key, each.value) for each in job.take()]
    if emit == "on_close":
        assert found == [("a", {"s": None, "c": 3}), ("a", {"s": 10, "c": 2})]
    else:
        assert found == [("a", {"s": 10, "c": 2}), ("z", {"s": 10, "c": 1})]
    job.close()


def test_sessions_go_on(shared: OpenedOnce) -> None:
    groups = "key, session_window(timestamp, '5 minutes')"
    job = Job(pipeline(FEW, groups), shared)
    job.send([ROWS[0], {**ROWS[0], "at": 9}])
    job.take()
    job = going_on(job, pipeline(MORE, groups), shared)
    job.send([{**LATER, "at": 5}])
    assert job.latest() == {"a": {"s": 10, "c": 3}}
    # The time of a session would be missing if it closed without a record.
    other = pipeline("min(timestamp) AS timestamp, count(*) AS c", groups)
    own = Job(other, shared)
    own.send(ROWS)
    with pytest.raises(QueryError, match="the aggregate functions were"):
        going_on(own, pipeline(FEW, groups), shared)
    job.close()


def test_rows_of_the_former_query_are_read_from_the_topic(shared: OpenedOnce) -> None:
    texts = [pipeline(select, "t") for select in (FEW, MORE)]
    job = Job(texts[0], shared)
    job.send([{**LATER, "t": "a"}])
    sent: list[tuple[object, ...]] = []
    job.deliver = lambda topic, *rest: sent.append((topic, *rest))  # type: ignore[method-assign]
    Job.deliver(job, "in", 0, *columns_of([{**LATER, "t": "a"}]))
    job = going_on(job, texts[1], shared)
    job.take()
    job.send([{**LATER, "t": "a"}])
    assert job.latest() == {"a": {"s": 10, "c": 2}}
    job.restart()
    job.deliver(*sent[0])  # type: ignore[arg-type]
    job.send([{**LATER, "t": "a"}])
    assert job.latest() == {"a": {"s": 20, "c": 4}}
    # Another function of the same types is not taken for the one that was kept before.
    for select, expected in (
        (FEW, {"c": 5}),
        ("sum(n + 1) AS s, count(*) AS c", {"s": 11, "c": 6}),
    ):
        job = going_on(job, pipeline(select, "t"), shared)
        job.send([{**LATER, "t": "a"}])
        assert job.latest() == {"a": expected}
    job.close()


def test_tasks_with_and_without_former_layouts_become_one(shared: OpenedOnce) -> None:
    keys = [next(k for k in "abcdef" if default_partition(k.encode(), 2) == n) for n in (0, 1)]
    job = Job(pipeline(FEW), shared, partitions=2)
    for number, key in enumerate(keys):
        job.send([{**LATER, "key": key}], number)
    job.close()
    # Only one of the tasks gets a record after the change.
    job = Job(pipeline(MORE), shared, job.stores, partitions=2)
    job.send([{**LATER, "key": keys[0]}], 0)
    job = rescaled(job, pipeline(MORE), shared, 2, 1)
    job.take()
    job.send([{**LATER, "key": key} for key in keys])
    assert job.latest() == {keys[0]: {"s": 20, "c": 3}, keys[1]: {"s": 10, "c": 2}}
    job.close()


@pytest.mark.parametrize(
    ("before", "after", "select", "expected"),
    long_but_the_first(
        [
            ("DECIMAL(10,2)", "DECIMAL(12,2)", "sum(x) AS s, max(x) AS m", {"s": 12.75, "m": 7.5}),
            ("INT", "BIGINT", "sum(x) AS s, max(x) AS m, min(x) AS n", {"s": 5, "m": 7, "n": -2}),
            (
                "DECIMAL(10,2)",
                "DECIMAL(12,2)",
                "sum(x) AS s, count(DISTINCT x) AS cd, collect_list(x) AS l",
                {"s": 12.75, "cd": 2, "l": [5.25, 7.5]},
            ),
        ]
    ),
)
def test_types_become_wider(
    shared: OpenedOnce, before: str, after: str, select: str, expected: Mapping[str, Any]
) -> None:
    values = (5.25, 7.5) if "DECIMAL" in before else (-2, 7)
    texts = [pipeline(select, schema=f"x {each}") for each in (before, after)]
    job = Job(texts[0], shared)
    job.send([{"key": "a", "x": values[0], "at": 1}])
    job.take()
    job = going_on(job, texts[1], shared)
    job.send([{"key": "a", "x": values[1], "at": 2}])
    assert job.latest() == {"a": expected}
    with pytest.raises(QueryError, match="the aggregate functions were"):
        going_on(job, texts[0], shared)


def test_decimals_of_a_group_become_wider(shared: OpenedOnce) -> None:
    texts = [
        pipeline("x, count(*) AS c", "x", schema=f"x DECIMAL({digits},2)") for digits in (10, 30)
    ]
    job = Job(texts[0], shared)
    job.send([{"key": "a", "x": 1.25, "at": 1}])
    job.take()
    job = going_on(job, texts[1], shared)
    job.send([{"key": "a", "x": 1.25, "at": 2}])
    assert job.latest() == {"1.25": {"x": 1.25, "c": 2}}
    with pytest.raises(QueryError, match="the types of the grouping columns were decimal"):
        going_on(job, texts[0], shared)


def test_another_scale_of_decimals_is_another_state(shared: OpenedOnce) -> None:
    """Spark sums decimals with few digits as whole numbers."""
    job = Job(pipeline("sum(d) AS s", schema="d DECIMAL(5,2)"), shared)
    job.send(ROWS)
    with pytest.raises(QueryError, match="the aggregate functions were"):
        going_on(job, pipeline("sum(d) AS s", schema="d DECIMAL(5,3)"), shared)


def test_renamed_columns_keep_their_state(shared: OpenedOnce) -> None:
    job = Job(pipeline("sum(n) AS s, sum(k) AS k", schema="n INT, k INT"), shared)
    job.send([{"key": "a", "n": 1, "k": 2, "at": 1}])
    job.take()
    texts = [
        pipeline(select, schema="m INT, k INT")
        for select in (
            "sum(m) AS total, sum(k) AS k",
            "max(k) AS x, sum(k) AS k, sum(m) AS total",
            "sum(k) AS k, sum(m) AS total",
        )
    ]
    job = going_on(job, texts[0], shared)
    job.send([{"key": "a", "m": 10, "k": 20, "at": 2}])
    assert job.latest() == {"a": {"total": 11, "k": 22}}
    job = going_on(job, texts[1], shared)
    job.send([{"key": "a", "m": 100, "k": 200, "at": 3}])
    assert job.latest() == {"a": {"x": 200, "k": 222, "total": 111}}
    job = going_on(job, texts[2], shared)
    job.send([{"key": "a", "m": 1000, "k": 2000, "at": 4}])
    assert job.latest() == {"a": {"k": 2222, "total": 1111}}
    with pytest.raises(QueryError, match="the aggregate functions were"):
        going_on(job, pipeline("sum(m) AS m, sum(k) AS k", schema="m INT, k INT"), shared)
