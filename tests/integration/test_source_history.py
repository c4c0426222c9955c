"""A source whose first records are in a table alone, in a job that is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from kafka_pipeline.common.process.fault_points import DIRECTORY_VARIABLE
from kafka_pipeline.streams.partitioning import default_partition
from tests.engine import Engine, engine, signal_session

pytestmark = pytest.mark.integration

IN_TABLE, LATER = 4_000, 1_000
KEYS = 70
LEFT = 30
"""How many records of partition 0 are both in the table and in the topic."""
COLUMNS = "record_columns: {key: k, timestamp: at, partition: p, offset: o}"
WRITER = f"""
- id: Orders
  type: table
  format: delta
  path: lake/orders
  schema: "n BIGINT NOT NULL, name STRING"
  {COLUMNS}
  commit_interval_ms: 200
"""
POINTS = ("after-commit", "after-history")
MOST_WAIT_S = 120


def key(n: int) -> bytes:
    return b"k%d" % (n % KEYS)


def value(n: int) -> dict[str, object]:
    return {"n": n, "name": None if n % 3 == 0 else f"ä{n}"}


def write(job: Engine, numbers: range) -> None:
    job.write((key(n), json.dumps(value(n)).encode()) for n in numbers)


def until(condition: object, job: Engine) -> None:
    assert callable(condition)
    until_s = time.monotonic() + MOST_WAIT_S
    while not condition():
        assert time.monotonic() < until_s, job.logs()
        time.sleep(0.1)


def test_each_record_counts_once_although_task_managers_are_killed_at_the_seam(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    folders = writing, reading, faults = [tmp_path / name for name in ("a", "b", "faults")]
    for folder in folders:
        folder.mkdir()
    one, two = f"history_a_{os.getpid()}", f"history_b_{os.getpid()}"
    lake = writing / "lake"
    fast = {"tm_number": 1, "heartbeat_interval_ms": 500, "commit_interval_ms": 50}
    with engine(writing, bootstrap_servers, one, WRITER, tables="{write_paths: [lake]}") as job:
        job.start_job_manager()
        job.start_task_manager(0, 1)
        write(job, range(IN_TABLE))
        path = str(lake / "orders")
        until(
            lambda: DeltaTable.is_deltatable(path) and DeltaTable(path).count() == IN_TABLE,
            job,
        )
    topic = job.config.source_topic
    in_table = Counter(default_partition(key(n), 2) for n in range(IN_TABLE))
    write(job, range(IN_TABLE, IN_TABLE + LATER))
    cut = [TopicPartition(topic, n, in_table[n] - (LEFT if n == 0 else 0)) for n in (0, 1)]
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for done in admin.delete_records(cut).values():
        done.result(30)

    pipeline = f"""
sources:
  orders:
    topic: {topic}
    history: {{format: delta, path: {path}, written_by: {one}/Orders, {COLUMNS}}}
sinks: {{copies: copies_{two}}}
processors:
- {{id: Count, type: count, from: [orders], to: [sink]}}
- {{id: Copy, type: forward, from: [orders], to: [copies]}}
"""
    tables = f"{{paths: [{lake}]}}"
    with engine(reading, bootstrap_servers, two, pipeline, tables=tables, **fast) as job:
        job.start_job_manager()
        for point in POINTS:
            (faults / point).write_text("stop")
            running = job.start_task_manager(0, 1, {DIRECTORY_VARIABLE: str(faults)})
            until((faults / f"{point}.taken").exists, job)
            signal_session(running, signal.SIGKILL)
        job.start_task_manager(0, 1)
        numbers = [
            n for p in (0, 1) for n in range(IN_TABLE + LATER) if default_partition(key(n), 2) == p
        ]
        job.wait_until_done(dict.fromkeys([job.config.sink_topic, f"copies_{two}"], len(numbers)))

        copies = [(k, json.loads(v or b"")) for k, v in job.read(f"copies_{two}")]
        assert copies == [(key(n), value(n)) for n in numbers]
        counts = Counter[bytes]()
        expected = []
        for n in numbers:
            counts[key(n)] += 1
            expected.append((key(n), b"%d" % counts[key(n)]))
        assert job.read(job.config.sink_topic) == expected
