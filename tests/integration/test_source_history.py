"""A source whose first records are in a table alone, in a task whose process is killed."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from deltalake import DeltaTable

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.process.fault_points import DIRECTORY_VARIABLE
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.engine import engine, kill_worker
from tests.tasks import Job, Record, run_once
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

IN_TABLE, LATER = 4_000, 1_000
KEYS = 70
LEFT = 30
"""How many records of partition 0 are both in the table and in the topic."""
COLUMNS = "record_columns: {key: k, timestamp: at, partition: p, offset: o}"
WRITER = f"""
- id: P
  type: table
  format: delta
  path: PATH
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


def write(job: Job, numbers: range) -> None:
    # Brokers of tests soon delete what is old.
    now = wall_clock_ms()
    job.write(
        *(Record(key(n), encoded(n), now, None, default_partition(key(n), 2)) for n in numbers)
    )


def encoded(n: int) -> bytes:
    return json.dumps(value(n)).encode()


def write_table(job: Job, pipeline: Path, path: Path) -> None:
    """Have the tasks of a table write what is in the topic."""
    job.config = replace(job.config, tables=TableSettings(write_paths=(str(path.parent),)))
    pipeline.write_text(WRITER.replace("PATH", str(path)))
    (processor,) = load_pipeline(pipeline, job.config).processors
    for partition in (0, 1):
        run_once(job.task(job.replica(processor.spec, partition=partition)))
    assert DeltaTable(str(path)).count() == IN_TABLE


def test_each_record_counts_once_although_its_process_is_killed_at_the_seam(
    tmp_path: Path, bootstrap_servers: str, job: Job
) -> None:
    reading, faults = (tmp_path / name for name in ("reading", "faults"))
    for folder in (reading, faults):
        folder.mkdir()
    lake, topic = tmp_path / "lake", job.config.source_topic
    write(job, range(IN_TABLE))
    write_table(job, tmp_path / "writer.yaml", lake / "orders")
    in_table = Counter(default_partition(key(n), 2) for n in range(IN_TABLE))
    write(job, range(IN_TABLE, IN_TABLE + LATER))
    cut = [TopicPartition(topic, n, in_table[n] - (LEFT if n == 0 else 0)) for n in (0, 1)]
    for done in job.admin_client.delete_records(cut).values():
        done.result(30)

    pipeline = f"""
sources:
  orders:
    topic: {topic}
    history: {{format: delta, path: {lake}/orders, written_by: {job.config.job_name}/P, {COLUMNS}}}
sinks: {{copies: copies_{topic}}}
processors:
- {{id: Count, type: count, from: [orders], to: [sink]}}
- {{id: Copy, type: forward, from: [orders], to: [copies]}}
"""
    settings = {"tm_number": 1, "heartbeat_interval_ms": 500, "commit_interval_ms": 50}
    tables, name = f"{{paths: [{lake}]}}", f"history_{os.getpid()}"
    with engine(reading, bootstrap_servers, name, pipeline, tables=tables, **settings) as made:
        made.start_job_manager()
        (faults / POINTS[0]).write_text("stop")
        running = made.start_task_manager(0, 1, {DIRECTORY_VARIABLE: str(faults)})
        for point, then in zip(POINTS, (*POINTS[1:], None), strict=True):
            wait_until((faults / f"{point}.taken").exists, MOST_WAIT_S, shows=made.logs)
            if then is not None:
                (faults / then).write_text("stop")
            kill_worker(running)
        numbers = [
            n for p in (0, 1) for n in range(IN_TABLE + LATER) if default_partition(key(n), 2) == p
        ]
        sink, copies = made.config.sink_topic, f"copies_{topic}"
        made.wait_until_done(dict.fromkeys([sink, copies], len(numbers)))

        found = [(k, json.loads(v or b"")) for k, v in made.read(copies)]
        assert found == [(key(n), value(n)) for n in numbers]
        counts = Counter[bytes]()
        expected = []
        for n in numbers:
            counts[key(n)] += 1
            expected.append((key(n), b"%d" % counts[key(n)]))
        assert made.read(sink) == expected
