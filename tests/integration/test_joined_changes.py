"""A join of results that change, on a cluster whose TaskManagers are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.engine import all_run, engine, signal_session
from tests.steady_load import KEYS, Writer

pytestmark = [pytest.mark.integration, pytest.mark.long]
GROUPS = 5
GROUP = f"concat('g', CAST(substring({{}}key, 2) AS INT) % {GROUPS})"
# A count of a group is replaced by each record, and then has another partner: the parity moves.
PIPELINE = f"""
- id: Counts
  type: sql
  query: SELECT key, count(*) AS value FROM source GROUP BY key
  to: [Joined]
- id: Groups
  type: sql
  query: >
    SELECT concat(g, ' ', parity) AS key, max(number) AS value
    FROM (SELECT {GROUP.format("")} AS g, CAST(value AS BIGINT) AS number,
        CAST(value AS BIGINT) % 2 AS parity FROM source)
    GROUP BY g, parity
  to: [Joined]
- id: Joined
  type: sql
  query: >
    SELECT concat_ws('|', c.key, m.key, c.value) AS key, m.value AS value
    FROM Counts c LEFT JOIN Groups m
    ON concat({GROUP.format("c.")}, ' ', CAST(c.value AS BIGINT) % 2) = m.key
  ttl: none
  to: [sink]
"""


def test_join_of_counts_and_maxima_ends_as_a_batch_would(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    name = f"joined_changes_{os.getpid()}"
    with engine(tmp_path, bootstrap_servers, name, PIPELINE, heartbeat_interval_ms=500) as job:
        job.start_job_manager()
        victim, _ = (job.start_task_manager(number, threads=1) for number in (0, 1))
        job.wait_until(all_run([0, 1]))
        with Writer(job) as writer:
            writer.go_on(20)
            signal_session(victim, signal.SIGKILL)
            writer.go_on(20)
            job.start_task_manager(0, threads=1)
            job.wait_until(all_run([0, 1]))
            writer.go_on(20)
        job.wait_until_all_is_read()
        last = dict(job.read(job.config.sink_topic))
        count = writer.rounds
        # The numbers begin with 0: the largest one of the parity of the count.
        assert {key: value for key, value in last.items() if value is not None} == {
            b"k%d|g%d %d|%d" % (key, key % GROUPS, count % 2, count): b"%d" % (count - 2)
            for key in range(KEYS)
        }
