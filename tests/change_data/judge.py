"""Compares a pipeline's tables with the database, after each transaction that was passed on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.change_data.story import TOPIC
from tests.change_data.transactions import Passed
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce

_PIPELINE = f"""
sources: {{orders: {{topic: {TOPIC}, format: debezium}}}}
sinks: {{rows: rows, totals: totals}}
processors:
- id: Rows
  type: sql
  format: json
  schema: &columns >
    id INT, line INT, customer STRING, price DECIMAL(10, 2), day STRING, placed TIMESTAMP,
    at TIMESTAMP, doc STRING, note STRING
  query: >
    SELECT key, id, line, customer, price, left(day, 10) AS day,
    date_format(placed, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS") AS placed,
    date_format(at, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS") AS at, doc, note FROM orders
  from: [orders]
  to: [rows]
- id: Totals
  type: sql
  format: json
  schema: *columns
  query: >
    SELECT customer AS key, customer, count(*) AS n, sum(price) AS price, max(price) AS top
    FROM orders GROUP BY customer
  from: [orders]
  to: [totals]
"""


def require_equal(story: Iterable[Passed], queries: OpenedOnce) -> Job:
    """Run a story, and return the job, which is closed. The job starts again now and then."""
    job = Job(_PIPELINE, queries)
    tables: dict[str, dict[Any, Any]] = {"rows": {}, "totals": {}}
    for number, (records, state) in enumerate(story):
        if records:
            keys, values = [each.key for each in records], [each.value for each in records]
            job.deliver(TOPIC, 0, keys, values, [number * 1000] * len(records))
        for topic, key, value, *_ in job.take():
            tables[topic].pop(key, None)
            if value is not None:
                tables[topic][key] = value
        rows = sorted(tables["rows"].values(), key=lambda row: (row["id"], row["line"]))
        # A column that is not there any more, or not yet, is null.
        assert rows == [{"doc": None, "note": None, **_timed(row)} for row in state.rows], number
        totals = sorted(tables["totals"].values(), key=lambda row: str(row["customer"]))
        assert totals == state.totals, number
        if number % 4 == 3:
            job.restart()
    job.close()
    return job


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with all six digits of its times, as the query writes them."""
    full = {
        name: f"{whole}.{fraction:0<6}"
        for name in ("placed", "at")
        if row[name] is not None
        for whole, _, fraction in [row[name].partition(".")]
    }
    return {**row, **full}
