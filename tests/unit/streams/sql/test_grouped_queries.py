"""`type: sql` with GROUP BY in pipeline.yaml: results, windows, late records, restarts."""

from __future__ import annotations

import pytest

from streams.sql.local import LocalQueries
from streams.sql.spec import QueryError
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job

pytestmark = pytest.mark.integration

TEXT = """
sinks: {{late: late_records}}
processors:
- id: Revenue
  type: sql
  format: json
  schema: customer STRING, n INT
  query: {query}
  to: [sink]
  {more}
"""
TOTALS = "SELECT key, count(*) AS c, sum(n) AS s FROM input GROUP BY key HAVING sum(n) > 1"
HOURLY = (
    "SELECT key, date_format(window.start, 'HH:mm') AS hour, collect_list(n) AS l FROM input "
    "GROUP BY key, window(timestamp, '1 hour')"
)


def pipeline(query: str, more: str = "") -> str:
    return TEXT.format(query=query, more=more)


def test_group_is_updated_once_a_batch_and_deleted_when_having_drops_it(
    local: LocalQueries,
) -> None:
    job = Job(pipeline(TOTALS), local)
    job.send([{"key": "a", "n": 1, "at": 0}, {"key": "b", "n": 5, "at": 1}])
    assert [each[:4] for each in job.take()] == [("out", "b", {"c": 1, "s": 5}, MINUTE_MS)]
    job.send([{"key": "a", "n": 1, "at": 5}, {"key": "a", "n": 1, "at": 4}])
    assert [each[:4] for each in job.take()] == [("out", "a", {"c": 3, "s": 3}, 5 * MINUTE_MS)]
    job.restart()
    job.send([{"key": "a", "n": -3, "at": 6}, {"key": "b", "n": -5, "at": 2}])
    assert sorted(each[1:4] for each in job.take()) == [
        ("a", None, 6 * MINUTE_MS),
        ("b", None, 2 * MINUTE_MS),
    ]
    job.send([{"key": "a", "n": -3, "at": 6}])
    assert job.take() == []
    job.close()
