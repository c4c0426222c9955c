"""The queries of Nexmark in SQL on a test driver with a real Spark, held against the oracle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.nexmark.catalog import QUERIES, Query
from benchmarks.nexmark.generator import Settings
from tests.tiers import long_but_the_first
from tests.unit.benchmarks.nexmark_runs import (
    IN_ORDER,
    OUT_OF_ORDER,
    require_right_results,
    require_valid,
)

pytestmark = pytest.mark.integration

# q9 has a table of a topic and best rows; the others have less, or are slower.
NAMES = ["q9", "q0", "q1", "q2", "q4", "q7", "q11", "q13", "q14", "q15", "q16", "q17", "q18", "q19"]
NAMES += ["q20", "q21", "q22"]


@pytest.mark.parametrize("name", long_but_the_first(NAMES))
def test_query_in_sql_has_the_results_of_the_oracle(name: str, tmp_path: Path) -> None:
    require_valid(QUERIES[name], tmp_path)
    assert require_right_results(QUERIES[name], IN_ORDER, tmp_path) > 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["q4", "q7", "q11", "q18", "q20"])
def test_query_in_sql_takes_events_out_of_order(name: str, tmp_path: Path) -> None:
    assert require_right_results(QUERIES[name], OUT_OF_ORDER, tmp_path) > 0


@pytest.mark.long
def test_time_of_day_has_all_three_kinds(tmp_path: Path) -> None:
    # From 18:59:50 on, and from 06:59:50 on.
    for start_ms in (1_768_503_590_000, 1_768_460_390_000):
        settings = Settings(events=2_000, rate=100, start_ms=start_ms)
        assert require_right_results(QUERIES["q14"], settings, tmp_path) > 0


IN_STAGES = """
sources: {person: person, auction: auction}
processors:
  - id: NewUsers
    type: sql
    from: [person, auction]
    format: json
    schema:
      person: id BIGINT, name STRING
      auction: seller BIGINT
    query: >
      WITH new AS (
        SELECT key, first(id) AS id, first(name) AS name, window.start AS timestamp
        FROM person
        GROUP BY key, window(timestamp, '10 seconds')),
      selling AS (
        SELECT CAST(seller AS STRING) AS key, window.start AS timestamp
        FROM auction
        GROUP BY seller, window(timestamp, '10 seconds'))
      SELECT new.key, id, name, unix_millis(new.timestamp) AS stime
      FROM new JOIN selling ON new.key = selling.key AND new.timestamp = selling.timestamp
    emit: on_close
    grace: 4 s
    to: [sink]
"""


@dataclass(frozen=True, kw_only=True)
class _InFolder(Query):
    """A query whose pipeline.yaml is elsewhere."""

    folder: Path

    @property
    def pipeline(self) -> Path:
        """See `Query`."""
        return self.folder / f"{self.name}.yaml"


@pytest.mark.long
def test_join_of_windows_is_one_query_in_three_stages(tmp_path: Path) -> None:
    q8 = QUERIES["q8"]
    query = _InFolder(
        name=q8.name, title=q8.title, topics=q8.topics, is_table=True, folder=tmp_path
    )
    query.pipeline.write_text(IN_STAGES, "utf-8")
    require_valid(query, tmp_path)
    for settings in (IN_ORDER, OUT_OF_ORDER):
        assert require_right_results(query, settings, tmp_path) > 0
