"""Tables of queries that follow topics in the whole engine, with a TaskManager that is killed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import BulkWriter, TimedRow
from kafka_pipeline.common.topics import TopicSpec
from tests.engine import Engine, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

KEYS, VERSIONS = 20, 60
STEP_MS = 1000
START_MS = wall_clock_ms() - VERSIONS * STEP_MS

PIPELINE = """
sources: {{orders: orders_{job}, customers: customers_{job}, kinds: kinds_{job}}}
processors:
- id: Joined
  type: sql
  from: [orders]
  format: json
  schema: n INT
  tables:
    customers: {{topic: customers, schema: version INT}}
    kinds: {{topic: kinds, global: true}}
  query: >
    SELECT i.key, i.n, c.version, k.value AS kind
    FROM input i LEFT JOIN customers c ON i.key = c.key JOIN kinds k ON i.n % 2 = k.key
  to: [sink]
"""


def write(made: Engine, topic: str, rows: list[TimedRow]) -> None:
    name = f"{topic}_{made.config.job_name}"
    Admin(made.config).ensure_topics([TopicSpec(name, made.config.parallelism, 1)])
    writer = BulkWriter(made.config, name)
    writer.write_at(rows)
    writer.flush(30)


def test_each_record_sees_the_row_of_its_time_though_a_task_manager_is_killed(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """The rows change between the records, and one comes at the time of the change itself."""
    job = f"tables_{os.getpid()}"
    keys = [f"k{number}" for number in range(KEYS)]
    changes: list[TimedRow] = []
    orders: list[TimedRow] = []
    expected = set()
    for version in range(VERSIONS):
        at = START_MS + version * STEP_MS
        for key in keys:
            # Every third change deletes the row.
            row = None if version % 3 == 2 else b'{"version": %d}' % version
            changes.append((key.encode(), row, at))
            for half in (0, 1):
                n = 2 * version + half
                orders.append((key.encode(), b'{"n": %d}' % n, at + half * STEP_MS // 2))
                expected.add((key, n, version if row else None, ("even", "odd")[half]))
    with engine(
        tmp_path,
        bootstrap_servers,
        job,
        PIPELINE.format(job=job),
        tm_number=2,
        heartbeat_interval_ms=500,
    ) as made:
        write(made, "kinds", [(b"0", b"even", START_MS), (b"1", b"odd", START_MS)])
        write(made, "customers", changes)
        write(made, "orders", orders)
        made.start_job_manager()
        made.start_task_manager(0)
        victim = made.start_task_manager(1)
        made.wait_until_done({made.config.sink_topic: len(orders) // 10})
        victim.kill()
        made.wait_until_done({made.config.sink_topic: len(orders)})
        time.sleep(1)
        rows = [
            ((key or b"").decode(), json.loads(value or b""))
            for key, value in made.read(made.config.sink_topic)
        ]
        assert len(rows) == len(orders)
        found = {(key, row["n"], row["version"], row["kind"]) for key, row in rows}
        assert found == expected
        assert f"state_topic_Joined_table-customers_{job}" in Admin(made.config).topics()
