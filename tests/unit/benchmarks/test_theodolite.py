"""The use cases of Theodolite on a test driver, held against the model; lag, and the search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.records import WrongOutputError
from benchmarks.theodolite.catalog import MODULES, USE_CASES, UseCase
from benchmarks.theodolite.jobs import CONFIGURATION
from benchmarks.theodolite.lag import trend, unread
from benchmarks.theodolite.model import require_equal
from benchmarks.theodolite.runs import Trial
from benchmarks.theodolite.search import Search
from benchmarks.theodolite.sensors import Load, Reading, parents, registry
from kafka_pipeline.streams.record import Record
from kafka_pipeline.testing import TopologyTestDriver
from tests.small_config import SMALL_CONFIG

ROOT = Path(__file__).parents[3]


SENSORS = 7
"""So many that groups have groups."""


def outputs(use_case: UseCase, text: str, given: list[Reading], folder: Path) -> list[bytes]:
    """Return the values of the sink for these readings of all sensors, by a pipeline.yaml."""
    config, pipeline = folder / "config.yaml", folder / "pipeline.yaml"
    config.write_text(f'{SMALL_CONFIG}modules: [{", ".join(MODULES)}]\npython_path: ["{ROOT}"]\n')
    pipeline.write_text(text)
    with TopologyTestDriver.of_pipeline(config, pipeline) as driver:
        if CONFIGURATION in use_case.topics:
            rows = registry(SENSORS, given[0].timestamp)
            driver.create_input_topic(CONFIGURATION).pipe_batch(Record(*row) for row in rows)
        source = driver.create_input_topic("in")
        source.pipe_batch(Record(*each.row) for each in given)
        source.pipe_batch(Record(*each.row) for each in use_case.closing_readings(SENSORS))
        return [record.value for record in driver.create_output_topic("out").read_records()]


PIPELINES = {
    name: (use_case, text)
    for use_case in USE_CASES.values()
    for name, text in (
        (f"{use_case.name} in the DSL", use_case.pipeline),
        (f"{use_case.name} in SQL", use_case.sql),
    )
    if text
}


@pytest.mark.parametrize(("use_case", "text"), PIPELINES.values(), ids=PIPELINES)
def test_use_case_has_the_results_of_the_model(
    use_case: UseCase, text: str, tmp_path: Path
) -> None:
    given = use_case.readings(SENSORS)
    found = outputs(use_case, text, given, tmp_path)
    use_case.require_right(given, found)
    with pytest.raises(WrongOutputError):
        use_case.require_right(given, found[: len(found) // 2])


def test_load_has_a_record_of_each_sensor_in_turn() -> None:
    load = Load(sensors=3)
    records = [load.record(number) for number in range(6)]
    assert [key for key, _ in records] == [b"s_0", b"s_1", b"s_2"] * 2
    for key, value in records:
        found = json.loads(value or b"")
        assert (found["identifier"].encode(), found["valueInW"]) == (key, 10.0)


def test_groups_have_four_members_up_to_one_that_has_all() -> None:
    found = parents(17)
    assert [found[f"s_{number}"] for number in (0, 3, 4, 16)] == [
        "g_1_0",
        "g_1_0",
        "g_1_1",
        "g_1_4",
    ]
    assert [found[f"g_1_{number}"] for number in (0, 3, 4)] == ["g_2_0", "g_2_0", "g_2_1"]
    assert [found["g_2_0"], found["g_2_1"]] == ["g_3_0", "g_3_0"]
    assert "g_3_0" not in found
    assert parents(1) == {"s_0": "g_1_0"}


def test_rows_that_differ_are_shown() -> None:
    with pytest.raises(WrongOutputError) as caught:
        require_equal({("a",): (1,), ("b",): (2,)}, {("b",): (3,), ("c",): (4,)})
    assert str(caught.value) == (
        "1 rows are missing, such as ('a',): (1,) expected, None found; "
        "1 rows are too many, such as ('c',): None expected, (4,) found; "
        "1 rows are wrong, such as ('b',): (2,) expected, (3,) found"
    )


def test_lag_counts_the_topics_that_the_group_has_committed() -> None:
    ends = {("source", 0): 10, ("source", 1): 7, ("inner", 0): 5, ("inner", 1): 5}
    assert unread({("source", 0): 4}, ends) == 6 + 7
    assert unread({("inner", 0): 5, ("inner", 1): 9}, ends) == 0


def test_trend_is_the_slope_of_the_lag() -> None:
    assert trend([0.0, 1.0, 2.0, 3.0], [100, 80, 140, 120]) == pytest.approx(12.0)


@pytest.mark.parametrize(
    ("written_per_s", "lag_per_s", "problem"),
    [
        (1_000.0, 20.0, ""),
        (1_000.0, -500.0, ""),
        (1_000.0, 21.0, "the lag grew by 21 records/s"),
        (960.0, 0.0, "the generator wrote only 960 records/s"),
    ],
)
def test_rate_is_sustained_if_it_is_written_and_the_lag_stays_flat(
    written_per_s: float, lag_per_s: float, problem: str
) -> None:
    assert Trial(1_000, written_per_s, lag_per_s, {}).problem(0.02) == problem


@pytest.mark.parametrize("limit", [1, 2, 3, 99, 100, 101, 1_000, 54_321])
def test_search_finds_the_highest_rate(limit: int) -> None:
    tried: list[int] = []
    search = Search(first=100, precision=0.1)
    while (rate := search.rate) is not None:
        tried.append(rate)
        search.learn(rate <= limit)
    found = search.found
    failed = min(rate for rate in tried if rate > limit)
    assert found <= limit < failed <= max(found + 1, found * 1.1)
    assert found == max(rate for rate in tried if rate <= limit)
    assert len(tried) == len(set(tried)) < 25


def test_search_ends_if_no_rate_is_sustained() -> None:
    search = Search(first=100, precision=0.1)
    while search.rate is not None:
        search.learn(False)
    assert search.found == 0
