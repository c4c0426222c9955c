"""Tasks of whole pipelines of queries on brokers in memory: what is late hangs on the source.

Python computes what Spark would, so that thousands of batches take seconds; some worlds have the
real one. A failure prints its seed, the pipeline and the story; replay it with
`pytest tests/memory/test_sql_event_time.py --seed N`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.local import LocalQueries
from tests.memory.event_time_sabotage import (
    Sabotage,
    clocks_do_not_travel,
    marks_are_taken_at_once,
    nothing_is_held_back,
    the_maximum_is_the_time,
)
from tests.memory.event_time_world import let_live
from tests.memory.fake_queries import FakeQueries
from tests.memory.sql_plans import Query, SqlPlan
from tests.memory.sql_world import SharedQueries, SqlWorld
from tests.seeds import parametrize
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.grouped_job import Job
from tests.user_code.timed_windows import Join, Level

SHORT_SEEDS = 10
SEEDS = 190
CHUNK = 10
SEEDS_FOR_SABOTAGE = 200
SEEDS_ON_SPARK = 15
SABOTAGES = (
    the_maximum_is_the_time,
    clocks_do_not_travel,
    marks_are_taken_at_once,
    nothing_is_held_back,
)
MANY_KEYS = 1_000_000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SHORT_SEEDS, SEEDS, CHUNK)


def live(seed: int, queries: SharedQueries | None = None, state_dir: Path | None = None) -> None:
    let_live(SqlWorld(seed, queries, state_dir=state_dir), seed)


def test_results_of_queries_hang_on_the_source_partitions_alone(seeds: range) -> None:
    for seed in seeds:
        live(seed)


@pytest.mark.parametrize("seed", long_but_the_first(range(6), short=1))
def test_the_same_with_stores_on_disk(seed: int, tmp_path: Path) -> None:
    live(seed, state_dir=tmp_path)


@pytest.mark.long
@pytest.mark.integration
def test_the_same_on_spark() -> None:
    queries = SharedQueries(LocalQueries(UserCode(), Readable()))
    for seed in range(SEEDS_ON_SPARK):
        live(seed, queries)


@pytest.mark.parametrize("sabotage", long_but_the_first(SABOTAGES), ids=lambda each: each.__name__)
def test_the_model_sees_what_is_broken(sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    for seed in range(SEEDS_FOR_SABOTAGE):
        try:
            SqlWorld(seed).live()
        except AssertionError:
            return
    pytest.fail(f"nobody has seen: {sabotage.__doc__}")


def query(kind: str, grace_s: int, *, keyed: bool) -> Query:
    return Query(Level(kind, 10_000, 10_000, grace_s * 1000, MANY_KEYS if keyed else 3, 0), keyed)


SUMS = query("tumbling", 0, keyed=False)
JOIN = Join("left_join", 0, 5_000, 10_000, MANY_KEYS, 0)


@pytest.mark.parametrize(
    "plan",
    [
        SqlPlan((), (), None, (), queries=(query("tumbling", 10, keyed=True), SUMS)),
        SqlPlan((), (), None, (), queries=(query("frames", 10, keyed=True), SUMS)),
        SqlPlan((), (), JOIN, (), direct=True, queries=(SUMS,)),
    ],
    ids=["windows", "frames", "join"],
)
def test_result_that_was_held_back_is_not_late_though_a_record_of_its_time_is_behind(
    plan: SqlPlan,
) -> None:
    job = Job(plan.text, FakeQueries(plan), writers=1, sources=plan.topics)
    times = [5_000, 16_000, 7_000, 90_000]
    values = [json.dumps({"k": 1, "ids": [str(time)]}).encode() for time in times]
    job.deliver("in0", 0, [b"1"] * 4, values, times)
    if plan.join is not None:
        job.deliver("in1", 0, [b"1"], [b'{"k": 2, "ids": ["0"]}'], [90_000])
    job.learn(10)
    job.close()
    assert job.dropped == {}
    found = {id_.split("+")[0] for each in job.take() for id_ in each.value["ids"]}
    assert {"5000", "7000", "16000"} <= found
