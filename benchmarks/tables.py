"""Rows per second into tables, and memory: `python -m benchmarks.tables [--records N]`.

Two tasks in one TaskManager write a backlog of records with five fields into tables of each format,
next to Kafka and the database on the same machine. The database waits for its disk.
The rate counts what is committed after the first commit, so that no start is measured, and so does
CPU time, in seconds per million rows. CPU time and memory are those of all processes of the
TaskManager, memory after the first commit, and the most. The rows are counted at the end.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from benchmarks.command import exit_after, positive, say
from benchmarks.resources import cpu_s, memory_mb
from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.common.committed import offsets_of
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import Row
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.topics import TopicSpec
from tests.engine import Engine, engine
from tests.postgres import PASSWORD, USER, installed, running

PARTITIONS = 2
SCHEMA = "id BIGINT NOT NULL, name STRING, price DECIMAL(10, 2), at TIMESTAMP, paid BOOLEAN"
PIPELINE = f"""
- id: Orders
  type: table
  schema: "{SCHEMA}"
  commit_interval_ms: 10000
"""
ICEBERG = """
  format: iceberg
  table: shop.orders
  catalog: {type: sql, uri: "sqlite:///lake/catalog.db", warehouse: lake}
"""
LIMIT_S = 900
SAMPLE_S = 0.5


@dataclass(frozen=True, slots=True)
class Case:
    """A table to write: the rest of pipeline.yaml, and what counts its rows."""

    name: str
    pipeline: str
    tables: str
    count: Callable[[Path], int]


@dataclass(frozen=True, slots=True)
class Measured:
    """The rate after the first commit, CPU s of a million rows, and memory in MB.

    The first two are `None` if there were so few records that the first commits had all of them.
    """

    rate: float | None
    cpu_s: float | None
    first_mb: float
    most_mb: float


def records(number: int) -> Iterator[Row]:
    """Yield records of a shop; each key comes once."""
    for n in range(number):
        value = (
            b'{"id": %d, "name": "customer %d", "price": %d.%02d, '
            b'"at": "2026-03-01T10:%02d:%02dZ", "paid": %s}'
        ) % (n, n % 10_007, n % 1000, n % 100, n // 60 % 60, n % 60, b"true" if n % 3 else b"false")
        yield b"%d" % n, value


def measure(job: Engine, number: int) -> Measured:
    """Write a backlog, run the job, and wait until all of it is committed."""
    source = job.config.source_topic
    Admin(job.config).ensure_topics([TopicSpec(source, PARTITIONS, 1)])
    job.write(records(number))
    job.start_job_manager()
    daemon = job.start_task_manager(0, threads=PARTITIONS)
    assert daemon.pid is not None
    places = [(source, partition) for partition in range(PARTITIONS)]
    first_s = first_cpu_s = 0.0
    first = 0
    sizes: list[float] = []
    until_s = time.monotonic() + LIMIT_S
    with closing(PartitionReader(job.config, job.names.consumer_group("Orders"))) as group:
        while True:
            done = sum(offsets_of(group.committed(places, LIMIT_S)).values())
            now_s = time.monotonic()
            if done and not sizes:
                first_s, first, first_cpu_s = now_s, done, cpu_s([daemon.pid])
            if done:
                sizes.append(memory_mb([daemon.pid]))
            if done == number:
                break
            assert now_s < until_s, job.logs()
            time.sleep(SAMPLE_S)
    if first == number:
        return Measured(None, None, sizes[0], max(sizes))
    rows, cpu = number - first, cpu_s([daemon.pid]) - first_cpu_s
    return Measured(rows / (now_s - first_s), cpu / rows * 1e6, sizes[0], max(sizes))


def cases(stack: ExitStack) -> Iterator[Case]:
    """Yield the tables; those of a database last, once it runs."""

    def in_delta(folder: Path) -> int:
        return len(DeltaTable(str(folder / "lake")).to_pyarrow_table(columns=["id"]))

    def in_parquet(folder: Path) -> int:
        return sum(pq.read_metadata(file).num_rows for file in folder.glob("lake/*.parquet"))

    def in_iceberg(folder: Path) -> int:
        uri = f"sqlite:///{folder}/lake/catalog.db"
        with load_catalog("default", type="sql", uri=uri) as catalog:
            return catalog.load_table("shop.orders").scan().count()

    delta = "  format: delta\n  path: lake\n"
    parquet = "  format: parquet\n  path: lake\n"
    upsert = "  mode: upsert\n  key: id\n"
    folder = "{write_paths: [lake]}"
    yield Case("delta", PIPELINE + delta, folder, in_delta)
    yield Case("parquet", PIPELINE + parquet, folder, in_parquet)
    yield Case("iceberg", PIPELINE + ICEBERG, folder, in_iceberg)
    yield Case("delta, upsert", PIPELINE + delta + upsert, folder, in_delta)
    binaries = installed()
    if binaries is None:
        say("PostgreSQL is not installed: initdb and postgres, as in Debian's package postgresql")
        return
    server = stack.enter_context(running(binaries, is_durable=True))
    for mode, more in (("", ""), (", upsert", upsert)):
        database = server.new_database()

        def in_postgres(_folder: Path, run: Callable[..., list[tuple[int]]] = database.run) -> int:
            return run("SELECT count(*) FROM orders")[0][0]

        place = (
            f"  format: postgres\n  url: {database.url}\n  table: orders\n  user: {USER}\n"
            '  password: "${BENCH_PASSWORD}"\n'
        )
        urls = f'{{write_urls: ["{database.url}"]}}'
        yield Case(f"postgres{mode}", PIPELINE + place + more, urls, in_postgres)


def main() -> int:
    """Measure each table in a job of its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=positive, default=6_000_000)
    parser.add_argument("--only", help="the case to measure, such as delta; all by default")
    options = parser.parse_args()
    os.environ["BENCH_PASSWORD"] = PASSWORD
    print(f"{'table':<18}{'rows/s':>10}{'CPU s':>10}{'first MB':>10}{'most MB':>10}  rows")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        cluster = LocalCluster(Path(folder, "kafka"))
        cluster.start()
        stack.callback(cluster.stop)
        for number, case in enumerate(cases(stack)):
            if options.only not in (None, case.name):
                continue
            home = Path(folder, f"job_{number}")
            home.mkdir()
            settings = {
                "tm_number": 1,
                "parallelism": PARTITIONS,
                "tables": case.tables,
                "secrets": "{variables: [BENCH_PASSWORD]}",
                # A merge of a million rows may take longer than the default allows a commit to.
                "transaction_timeout_ms": 120_000,
            }
            name = f"tables_{number}"
            with engine(home, cluster.bootstrap_servers, name, case.pipeline, **settings) as job:
                found = measure(job, options.records)
            rows = case.count(home)
            assert rows == options.records, f"{rows:,} rows of {options.records:,} records"
            rate = "too few" if found.rate is None else f"{found.rate:,.0f}"
            cpu = "" if found.cpu_s is None else f"{found.cpu_s:.2f}"
            sizes = f"{found.first_mb:>10,.0f}{found.most_mb:>10,.0f}"
            print(f"{case.name:<18}{rate:>10}{cpu:>10}{sizes}  exact", flush=True)
    return 0


if __name__ == "__main__":
    exit_after(main)
