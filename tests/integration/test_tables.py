"""Tables that a job writes while its process is killed, as others count their rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import OperationalError

from kafka_pipeline.common.process.fault_points import DIRECTORY_VARIABLE
from tests.engine import Engine, engine, kill_worker
from tests.object_store.server import BUCKET, ObjectStore
from tests.postgres import PASSWORD, USER, Database
from tests.rest_catalog.server import RestCatalog
from tests.tiers import long_but_the_first
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

RECORDS = 3_000
POISON = 100
"""Each record with such a number, or a multiple of it, does not fit."""
KEYS = 700
"""How many rows there are if numbers are keys, modulo this."""
POINTS = ("before-write", "after-write")
PIPELINE = """
- id: Orders
  type: table
  schema: "n BIGINT NOT NULL, k INT NOT NULL"
  record_columns: {partition: p, offset: o}
  commit_interval_ms: 300
  on_error: dead_letter
"""
DELTA = "  format: delta\n  path: lake/orders\n"
PARQUET = "  format: parquet\n  path: lake/orders\n"
ICEBERG = """
  format: iceberg
  catalog: {type: sql, uri: "sqlite:///lake/catalog.db", warehouse: lake}
  table: shop.orders
"""
POSTGRES = """
  format: postgres
  url: URL
  table: orders
  user: "${SHOP_USER}"
  password: "${SHOP_PASSWORD}"
"""
UPSERT = "  mode: upsert\n  key: k\n"
COUNT = "SELECT count(*), count(DISTINCT n), count(DISTINCT (p, o)), max(n), sum(n) FROM "
MOST_WAIT_S = 120


def value(number: int) -> bytes:
    if number % POISON == 0:
        return b"poison %d" % number
    return b'{"n": %d, "k": %d}' % (number, number % KEYS)


def counted(rows: pa.Table) -> tuple[int, ...]:
    counts = duckdb.connect().register("rows", rows).execute(f"{COUNT} rows").fetchone()
    assert counts is not None
    return counts


def in_delta(folder: Path) -> tuple[int, ...]:
    """Return how many rows, numbers and places in Kafka there are, the last number and the sum."""
    path = folder / "lake" / "orders"
    if not DeltaTable.is_deltatable(str(path)):
        return 0, 0, 0, 0, 0
    return counted(DeltaTable(str(path)).to_pyarrow_table())


def in_iceberg(folder: Path) -> tuple[int, ...]:
    """Return the same."""
    file = folder / "lake" / "catalog.db"
    if not file.exists():
        return 0, 0, 0, 0, 0
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{file}")
    try:
        return counted(catalog.load_table("shop.orders").scan().to_arrow())
    except (NoSuchTableError, OperationalError):
        return 0, 0, 0, 0, 0
    finally:
        catalog.close()


def in_s3_delta(place: str) -> tuple[int, ...]:
    """Return the same."""
    if not DeltaTable.is_deltatable(place):
        return 0, 0, 0, 0, 0
    return counted(DeltaTable(place).to_pyarrow_table())


def in_rest(catalog: RestCatalog, table: str) -> tuple[int, ...]:
    """Return the same."""
    where = {
        "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "s3.region": os.environ["AWS_REGION"],
    }
    with load_catalog("default", type="rest", uri=catalog.uri, **where) as loaded:
        try:
            return counted(loaded.load_table(table).scan().to_arrow())
        except NoSuchTableError:
            return 0, 0, 0, 0, 0


def in_parquet(folder: Path) -> tuple[int, ...]:
    """Return the same, as DuckDB finds it by a pattern of names."""
    if not [*folder.glob("lake/orders/*.parquet")]:
        return 0, 0, 0, 0, 0
    files = f"'{folder}/lake/orders/*.parquet'"
    counts = duckdb.connect().execute(f"{COUNT} {files}").fetchone()
    assert counts is not None
    return counts if counts[0] else (0, 0, 0, 0, 0)


def in_postgres(database: Database) -> tuple[int, ...]:
    """Return the same."""
    if database.run("SELECT to_regclass('orders')") == [(None,)]:
        return 0, 0, 0, 0, 0
    counts: tuple[int, ...] = database.run(f"{COUNT} orders")[0]
    return counts


def write(job: Engine, start: int) -> None:
    # Records with the same key must be in the same partition.
    job.write((b"%d" % (n % KEYS), value(n)) for n in range(start, start + RECORDS))


def wait(condition: Callable[[], bool], job: Engine) -> None:
    # To read a table takes the processor from those who write it.
    wait_until(condition, MOST_WAIT_S, every_s=0.5, shows=job.logs)


def check(
    folder: Path,
    bootstrap_servers: str,
    name: str,
    pipeline: str,
    found: Callable[[], tuple[int, ...]],
    *,
    upserts: bool,
    **settings: object,
) -> None:
    """Kill the process before and after a commit of the table, and count what is there."""
    faults = folder / "faults"
    faults.mkdir()
    environment = {DIRECTORY_VARIABLE: str(faults), "SHOP_USER": USER, "SHOP_PASSWORD": PASSWORD}
    settings = {"tm_number": 1, "heartbeat_interval_ms": 500, **settings}
    name = f"tables_{name}_{os.getpid()}"
    with engine(folder, bootstrap_servers, name, pipeline, **settings) as job:
        job.start_job_manager()
        running = job.start_task_manager(0, 1, environment)
        write(job, 1)
        wait(lambda: found()[3] == RECORDS - 1, job)
        for round_, point in enumerate(POINTS, 1):
            (faults / "new").write_text("stop")
            (faults / "new").rename(faults / point)
            write(job, 1 + round_ * RECORDS)
            wait((faults / f"{point}.taken").exists, job)
            kill_worker(running)
        count = (1 + len(POINTS)) * RECORDS
        job.wait_until_done({job.names.dead_letter("Orders"): count // POISON})
        good = {n for n in range(1, 1 + count) if n % POISON}
        kept = {n % KEYS: n for n in sorted(good)}.values() if upserts else good
        wait(lambda: found()[3] == count - 1, job)
        assert found() == (len(kept), len(kept), len(kept), count - 1, sum(kept))
        letters = [v for _, v in job.read(job.names.dead_letter("Orders"))]
        poison = [value(n) for n in range(1, 1 + count) if n % POISON == 0]
        assert sorted(letters, key=str) == sorted(poison, key=str)


@pytest.mark.parametrize("upserts", long_but_the_first([False, True]))
def test_each_record_is_in_a_delta_table_once_although_its_process_is_killed(
    tmp_path: Path, bootstrap_servers: str, upserts: bool
) -> None:
    check(
        tmp_path,
        bootstrap_servers,
        f"delta_{upserts}".lower(),
        PIPELINE + DELTA + UPSERT * upserts,
        lambda: in_delta(tmp_path),
        upserts=upserts,
        tables="{write_paths: [lake]}",
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "place", "found"),
    [("iceberg", ICEBERG, in_iceberg), ("parquet", PARQUET, in_parquet)],
    ids=["iceberg", "parquet"],
)
def test_each_record_is_in_a_table_once_although_its_process_is_killed(
    tmp_path: Path,
    bootstrap_servers: str,
    name: str,
    place: str,
    found: Callable[[Path], tuple[int, ...]],
) -> None:
    check(
        tmp_path,
        bootstrap_servers,
        name,
        PIPELINE + place,
        lambda: found(tmp_path),
        upserts=False,
        tables="{write_paths: [lake]}",
    )


@pytest.fixture
def in_store(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the object store in the environment, as operators do."""
    for name, value in object_store.environment().items():
        monkeypatch.setenv(name, value)


@pytest.mark.long
@pytest.mark.usefixtures("in_store")
@pytest.mark.parametrize("upserts", [False, True])
def test_each_record_is_in_a_delta_table_in_s3_once_although_its_process_is_killed(
    tmp_path: Path, bootstrap_servers: str, upserts: bool
) -> None:
    place = f"s3://{BUCKET}/{tmp_path.name}/orders"
    check(
        tmp_path,
        bootstrap_servers,
        f"s3_{upserts}".lower(),
        PIPELINE + f"  format: delta\n  path: {place}\n" + UPSERT * upserts,
        lambda: in_s3_delta(place),
        upserts=upserts,
        tables=f'{{write_paths: ["s3://{BUCKET}"]}}',
    )


@pytest.mark.long
@pytest.mark.usefixtures("in_store")
def test_each_record_is_in_a_table_of_a_rest_catalog_once_although_its_process_is_killed(
    tmp_path: Path, bootstrap_servers: str, rest_catalog: RestCatalog
) -> None:
    table = f"{tmp_path.name}.orders"
    place = (
        f"  format: iceberg\n  table: {table}\n"
        f'  catalog: {{type: rest, uri: "{rest_catalog.uri}"}}\n'
    )
    check(
        tmp_path,
        bootstrap_servers,
        "rest",
        PIPELINE + place,
        lambda: in_rest(rest_catalog, table),
        upserts=False,
        tables=f'{{write_urls: ["{rest_catalog.uri}"]}}',
    )


@pytest.mark.long
@pytest.mark.parametrize("upserts", [True, False])
def test_each_record_is_in_postgresql_once_although_its_process_is_killed(
    tmp_path: Path, bootstrap_servers: str, database: Database, upserts: bool
) -> None:
    check(
        tmp_path,
        bootstrap_servers,
        f"postgres_{upserts}".lower(),
        PIPELINE + POSTGRES.replace("URL", database.url) + UPSERT * upserts,
        lambda: in_postgres(database),
        upserts=upserts,
        tables=f'{{write_urls: ["{database.url}"]}}',
        secrets="{variables: [SHOP_USER, SHOP_PASSWORD]}",
    )
