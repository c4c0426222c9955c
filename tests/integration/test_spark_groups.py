"""Queries with GROUP BY in the whole engine, with a TaskManager that is killed."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.kafka.admin import Admin
from tests.engine import all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

KEYS, VALUES = 20, 7
RECORDS = 12_000
PARTS = 30
STEP_MS, WINDOW_MS = 100, 60_000

PIPELINE = """
sinks: {{totals: {totals}, halves: {halves}, best: {best}, pairs: {pairs}}}
processors:
- id: Minutes
  type: sql
  format: json
  schema: n INT
  query: >
    SELECT key, unix_millis(window.start) AS start, count(*) AS c, sum(n) AS s
    FROM input GROUP BY key, window(timestamp, '1 minute')
  emit: on_close
  grace: 0 s
  to: [sink]
- id: Totals
  type: sql
  format: json
  schema: n INT
  query: SELECT n AS key, count(*) AS c FROM input GROUP BY n
  to: [totals, Halves]
- id: Halves
  type: sql
  format: json
  schema: c BIGINT
  query: >
    SELECT cast(key AS INT) % 2 AS key, sum(c) AS c FROM input GROUP BY cast(key AS INT) % 2
  to: [halves]
- id: Best
  type: sql
  format: json
  schema: n INT
  query: >
    SELECT concat(n, '-', place) AS key, at
    FROM (SELECT n, unix_millis(timestamp) AS at,
                 row_number() OVER (PARTITION BY n ORDER BY timestamp DESC) AS place FROM input)
    WHERE place <= 3
  to: [best]
- id: Sent
  type: sql
  format: json
  schema: n INT
  query: SELECT key, unix_millis(timestamp) AS at FROM input
  to: [Pairs]
- id: Positive
  type: sql
  format: json
  schema: n INT
  query: SELECT key, unix_millis(timestamp) AS at FROM input WHERE n > 0
  to: [Pairs]
- id: Pairs
  type: sql
  format: json
  schema: at BIGINT
  query: >
    SELECT s.key, s.at FROM Sent s JOIN Positive p ON concat(s.key, s.at) = concat(p.key, p.at)
  ttl: 1 h
  to: [pairs]
"""


def test_windows_totals_their_sums_best_rows_and_pairs_are_exact_though_a_task_manager_is_killed(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """Each window is given once; the others go through internal topics.

    The sums of totals take each former total out again. A join without bounds of time gives each
    pair once. All results are compared when no task has anything left to read, so a slow machine
    takes longer, and a missing result is a lost one.
    """
    job = f"groups_{os.getpid()}"
    start = wall_clock_ms() // WINDOW_MS * WINDOW_MS - RECORDS * STEP_MS
    rows = [(i % KEYS, i % VALUES, start + i * STEP_MS) for i in range(RECORDS)]
    counts: Counter[tuple[str, int]] = Counter()
    sums: Counter[tuple[str, int]] = Counter()
    for key, n, at in rows:
        window = (f"k{key}", at // WINDOW_MS * WINDOW_MS)
        counts[window] += 1
        sums[window] += n
    # Windows wait for records: these close the others, and stay open themselves.
    end = start + RECORDS * STEP_MS + WINDOW_MS
    last = [(key, 0, end) for key in range(KEYS)]
    totals = Counter(n for _, n, _ in [*rows, *last])
    pairs = Counter((f"k{key}", at) for key, n, at in rows if n > 0)
    halves = Counter(n % 2 for _, n, _ in [*rows, *last])
    best = {
        f"{number}-{place}": at
        for number in range(VALUES)
        for place, at in enumerate(
            sorted((at for _, n, at in [*rows, *last] if n == number), reverse=True)[:3], 1
        )
    }
    with engine(
        tmp_path,
        bootstrap_servers,
        job,
        PIPELINE.format(
            **{name: f"{name}_{job}" for name in ("totals", "halves", "best", "pairs")}
        ),
        tm_number=2,
        heartbeat_interval_ms=500,
    ) as made:
        made.start_job_manager()
        made.start_task_manager(0)
        victim = made.start_task_manager(1)
        made.wait_until(all_run([0, 1]))
        encoded = [(b"k%d" % key, b'{"n": %d}' % n, at) for key, n, at in rows]
        for part in range(PARTS):
            made.write_at(encoded[part * RECORDS // PARTS : (part + 1) * RECORDS // PARTS])
            time.sleep(0.1)
            if part == PARTS // 2:
                victim.kill()
        made.write_at([(b"k%d" % key, b'{"n": %d}' % n, at) for key, n, at in last])
        made.wait_until_done({made.config.sink_topic: len(counts)})
        found = [
            (key, json.loads(value or b"")) for key, value in made.read(made.config.sink_topic)
        ]
        windows = [((key or b"").decode(), value["start"]) for key, value in found]
        assert Counter(windows).most_common(1)[0][1] == 1
        assert {w: (v["c"], v["s"]) for w, (_, v) in zip(windows, found, strict=True)} == {
            window: (counts[window], sums[window]) for window in counts
        }
        made.wait_until_all_is_read()
        assert totals_in(made.read(f"totals_{job}")) == totals
        assert totals_in(made.read(f"halves_{job}")) == halves
        assert best_in(made.read(f"best_{job}")) == best
        assert pairs_in(made.read(f"pairs_{job}")) == pairs
        topics = Admin(made.config).topics()
        assert f"Totals_groups-repartition_{job}" in topics
        assert f"state_topic_Minutes_windows_{job}" in topics


def pairs_in(rows: list[tuple[bytes | None, bytes | None]]) -> Counter[tuple[str, int]]:
    """Return how many times each record was given with its partner."""
    return Counter(((key or b"").decode(), json.loads(value or b"")["at"]) for key, value in rows)


def best_in(rows: list[tuple[bytes | None, bytes | None]]) -> dict[str, int]:
    """Return the last time of each number and place."""
    return {(key or b"").decode(): json.loads(value or b"")["at"] for key, value in rows}


def totals_in(rows: list[tuple[bytes | None, bytes | None]]) -> dict[int, int]:
    """Return the last count of each number."""
    return {int(key or b""): json.loads(value or b"")["c"] for key, value in rows}
