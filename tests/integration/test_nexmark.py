"""The queries of Nexmark in SQL on a test driver with a real Spark, held against the oracle."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.nexmark.catalog import QUERIES
from benchmarks.nexmark.generator import Settings
from tests.tiers import long_but_the_first
from tests.unit.benchmarks.nexmark_runs import (
    IN_ORDER,
    OUT_OF_ORDER,
    require_right_results,
    require_valid,
)

# With the fixture, these run where Spark does: see tests/scheduling.py.
pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("queries")]

# q9 has a join and best rows; the others have less, or are slower.
NAMES = ["q9", "q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q11", "q13", "q14", "q15", "q16"]
NAMES += ["q17", "q18", "q19", "q20", "q21", "q22"]


@pytest.mark.parametrize("name", long_but_the_first(NAMES))
def test_query_in_sql_has_the_results_of_the_oracle(name: str, tmp_path: Path) -> None:
    require_valid(QUERIES[name], tmp_path)
    assert require_right_results(QUERIES[name], IN_ORDER, tmp_path) > 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["q3", "q4", "q5", "q7", "q8", "q9", "q11", "q18", "q20"])
def test_query_in_sql_takes_events_out_of_order(name: str, tmp_path: Path) -> None:
    assert require_right_results(QUERIES[name], OUT_OF_ORDER, tmp_path) > 0


@pytest.mark.long
def test_time_of_day_has_all_three_kinds(tmp_path: Path) -> None:
    # From 18:59:50 on, and from 06:59:50 on.
    for start_ms in (1_768_503_590_000, 1_768_460_390_000):
        settings = Settings(events=2_000, rate=100, start_ms=start_ms)
        assert require_right_results(QUERIES["q14"], settings, tmp_path) > 0


@pytest.mark.long
@pytest.mark.parametrize("disorder", [1, 200])
def test_q23_joins_bids_with_people_of_whom_there_are_many(disorder: int, tmp_path: Path) -> None:
    # The ids of bidders are 1,000 larger than those of the persons, so there must be so many.
    settings = Settings(events=60_000, rate=10_000, start_ms=1_768_521_590_000, disorder=disorder)
    require_valid(QUERIES["q23"], tmp_path)
    assert require_right_results(QUERIES["q23"], settings, tmp_path) > 0
