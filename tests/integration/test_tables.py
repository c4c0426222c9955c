"""A Delta table that a job writes while its TaskManager is killed, as DuckDB counts its rows."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from kafka_pipeline.common.process.fault_points import DIRECTORY_VARIABLE
from tests.engine import Engine, engine, signal_session

pytestmark = pytest.mark.integration

RECORDS = 3_000
POISON = 100
"""Each record with such a number, or a multiple of it, does not fit."""
PIPELINE = """
- id: Orders
  type: table
  format: delta
  path: lake/orders
  schema: "n BIGINT NOT NULL"
  record_columns: {partition: p, offset: o}
  commit_interval_ms: 300
  on_error: dead_letter
"""
MOST_WAIT_S = 120


def value(number: int) -> bytes:
    return b"poison %d" % number if number % POISON == 0 else b'{"n": %d}' % number


def found(folder: Path) -> tuple[int, int, int]:
    """Return the number of rows, of different numbers, and of different places in Kafka."""
    path = folder / "lake" / "orders"
    if not DeltaTable.is_deltatable(str(path)):
        return 0, 0, 0
    rows = DeltaTable(str(path)).to_pyarrow_table()
    query = "SELECT count(*), count(DISTINCT n), count(DISTINCT (p, o)) FROM rows"
    counts = duckdb.connect().register("rows", rows).execute(query).fetchone()
    assert counts is not None
    return counts


def write(job: Engine, start: int) -> None:
    job.write((b"%d" % n, value(n)) for n in range(start, start + RECORDS))


def wait_for_rows(folder: Path, count: int, job: Engine) -> None:
    wait_until(lambda: found(folder)[0] >= count, job)


def wait_until(condition: Callable[[], bool], job: Engine) -> None:
    until_s = time.monotonic() + MOST_WAIT_S
    while not condition():
        assert time.monotonic() < until_s, job.logs()
        time.sleep(0.1)


@pytest.mark.parametrize("point", ["before-write", "after-write"])
def test_each_record_is_in_the_table_once_although_a_task_manager_is_killed(
    tmp_path: Path, bootstrap_servers: str, point: str
) -> None:
    faults = tmp_path / "faults"
    faults.mkdir()
    name = f"tables_{point.partition('-')[0]}_{os.getpid()}"
    settings = {
        "tm_number": 1,
        "heartbeat_interval_ms": 500,
        "tables": "{write_paths: [lake]}",
    }
    with engine(tmp_path, bootstrap_servers, name, PIPELINE, **settings) as job:
        job.start_job_manager()
        killed = job.start_task_manager(0, 1, {DIRECTORY_VARIABLE: str(faults)})
        write(job, 1)
        wait_for_rows(tmp_path, RECORDS - RECORDS // POISON, job)
        (faults / "new").write_text("stop")
        (faults / "new").rename(faults / point)
        write(job, 1 + RECORDS)
        wait_until((faults / f"{point}.taken").exists, job)
        signal_session(killed, signal.SIGKILL)
        job.start_task_manager(0, 1)
        write(job, 1 + 2 * RECORDS)
        rows = 3 * (RECORDS - RECORDS // POISON)
        wait_for_rows(tmp_path, rows, job)
        job.wait_until_done({job.names.dead_letter("Orders"): 3 * RECORDS // POISON})
        assert found(tmp_path) == (rows, rows, rows)
        letters = [v for _, v in job.read(job.names.dead_letter("Orders"))]
        poison = [value(n) for n in range(1, 1 + 3 * RECORDS) if n % POISON == 0]
        assert sorted(letters, key=str) == sorted(poison, key=str)
