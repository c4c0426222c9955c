"""The tables of `--kind tables`, and what they must have: the rows of one topic.

Two tables replace rows and read what a processor sends them. The other two add rows, and read the
same from a topic that stays. The topic says what all of them must have. Those that add rows reject
deletions, which must be dead letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import duckdb
import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from kafka_pipeline.common.kafka.bulk import read_committed
from tests.chaos.numbered_results import Tally
from tests.engine import Engine
from tests.postgres import PASSWORD, USER, Database

ROWS_TOPIC = "rows_chaos"
LOGIN = {
    "CHAOS_USER": USER,
    "CHAOS_PASSWORD": PASSWORD,
    "CHAOS_QUOTED_PASSWORD": quote(PASSWORD),
}
"""The variables with the login of the database, for TaskManagers."""
_SCHEMA = "n BIGINT NOT NULL, note STRING, price DECIMAL(10, 2)"
_COLUMNS = ("k", "n", "note", "price")
_PLACED = (*_COLUMNS, "p", "o")
_TABLE = f"""type: table
  schema: "{_SCHEMA}"
  on_error: dead_letter"""
_UPSERT = f"{_TABLE}\n  mode: upsert\n  key: k\n  record_columns: {{key: k}}"
_APPEND = f"{_TABLE}\n  from: [rows]\n  record_columns: {{key: k, partition: p, offset: o}}"
_DELTA = f"""
- id: Delta
  {_UPSERT}
  commit_interval_ms: 1000
  format: delta
  path: lake/delta
- id: Parquet
  {_APPEND}
  commit_interval_ms: 500
  format: parquet
  path: lake/parquet
"""
_POSTGRES = f"""
- id: Postgres
  {_UPSERT}
  commit_interval_ms: 500
  format: postgres
  url: URL
  table: kept
  user: "${{CHAOS_USER}}"
  password: "${{CHAOS_PASSWORD}}"
- id: Iceberg
  {_APPEND}
  commit_interval_ms: 2000
  format: iceberg
  table: chaos.rows
  catalog:
    type: sql
    uri: URI
    warehouse: lake/iceberg
"""


def processors(base: int, url: str) -> str:
    """Return the processors of the pipeline, with a database's tables if it has a `url`."""
    upserts = "Delta, Postgres" if url else "Delta"
    rows = "type: 'tests.user_code.table_rows:Rows'"
    uri = url.replace("://", "://${CHAOS_USER}:${CHAOS_QUOTED_PASSWORD}@")
    return (
        f"\n- {{id: Rows, {rows}, config: {{base: {base}}}, to: [written, {upserts}], "
        f"on_error: dead_letter}}{_DELTA}"
        + (_POSTGRES.replace("URL", url).replace("URI", f'"{uri}"') if url else "")
    )


def settings(url: str) -> Mapping[str, object]:
    """Return what config.yaml allows."""
    urls = f', write_urls: ["{url}"]' if url else ""
    return {
        "tables": f"{{write_paths: [lake]{urls}}}",
        "secrets": f"{{variables: [{', '.join(LOGIN)}]}}",
    }


class Wanted(NamedTuple):
    """What a topic says that tables have: rows as tuples, each with how often it is there."""

    appended: Counter[Any]
    """The columns of `_PLACED`."""
    kept: Counter[Any]
    """The columns of `_COLUMNS`, after all changes."""
    deletions: Counter[Any]
    """The keys of deletions."""

    @property
    def records(self) -> int:
        """The number of records in the topic."""
        return self.appended.total() + self.deletions.total()


def wanted_of(records: Iterable[tuple[int, int, bytes, bytes | None]]) -> Wanted:
    """Return what records lead to, given as partition, offset, key and value, in their order."""
    appended: Counter[Any] = Counter()
    deletions: Counter[Any] = Counter()
    kept: dict[str, Any] = {}
    decode = msgspec.json.Decoder(_Row).decode
    for partition, offset, key, value in records:
        name = key.decode()
        if value is None:
            deletions[name] += 1
            kept.pop(name, None)
        else:
            row = decode(value)
            kept[name] = (name, row.n, row.note, row.price)
            appended[(*kept[name], partition, offset)] += 1
    return Wanted(appended, Counter(kept.values()), deletions)


def compared(wanted: Counter[Any], found: Counter[Any]) -> Tally:
    """Compare what should be there with what is."""
    more = found - wanted
    repeated = sum(count for row, count in more.items() if row in wanted)
    return Tally(lost=(wanted - found).total(), repeated=repeated, wrong=more.total() - repeated)


class Tables:
    """The tables of a job, whose files are in its folder."""

    def __init__(self, folder: Path, database: Database | None) -> None:
        """Without a `database`, there are only Delta and Parquet."""
        self._lake = folder / "lake"
        self.database = database
        self.url = "" if database is None else database.url

    def tally(self, job: Engine, written: int) -> Tally:
        """Compare all tables with the topic, which must have as many records as were `written`."""
        found, records = self._look(job)
        missing = written - records
        return Tally(max(missing, 0), max(-missing, 0)).plus(
            Tally(*map(sum, zip(*(compared(*both) for both in found.values()), strict=True)))
        )

    def differences(self, job: Engine) -> list[str]:
        """Return a sentence for each table that differs, with some of the rows."""
        found, records = self._look(job)
        return [
            f"{name}: {compared(wanted, there)}; lacks {list(wanted - there)[:3]}, "
            f"has {list(there - wanted)[:3]} in addition"
            for name, (wanted, there) in found.items()
            if wanted != there
        ] or [f"tables are as their topic says, which has {records} records"]

    def _look(self, job: Engine) -> tuple[dict[str, tuple[Counter[Any], Counter[Any]]], int]:
        """Return what each table should have and what it has, and the records of the topic."""
        batches = read_committed(job.config, ROWS_TOPIC, job.config.parallelism)
        batches.sort(key=lambda batch: (batch.partition, batch.offsets[0]))
        wanted = wanted_of(
            (batch.partition, offset, key or b"", value)
            for batch in batches
            for offset, key, value in zip(batch.offsets, batch.keys, batch.values, strict=True)
        )
        return self.look(wanted, partial(_letters, job)), wanted.records

    def look(
        self, wanted: Wanted, letters: Callable[[str], Counter[Any]]
    ) -> dict[str, tuple[Counter[Any], Counter[Any]]]:
        """Return what each table should have and what it has; `letters` returns dead letters."""
        none: Counter[Any] = Counter()
        found = {
            "Delta": (wanted.kept, self._delta()),
            "Parquet": (wanted.appended, self._parquet()),
            "letters of Delta": (none, letters("Delta")),
            "letters of Parquet": (wanted.deletions, letters("Parquet")),
        }
        if self.database is not None:
            found |= {
                "Postgres": (wanted.kept, self._postgres(self.database)),
                "Iceberg": (wanted.appended, self._iceberg()),
                "letters of Postgres": (none, letters("Postgres")),
                "letters of Iceberg": (wanted.deletions, letters("Iceberg")),
            }
        return found

    def _delta(self) -> Counter[Any]:
        return _rows(DeltaTable(str(self._lake / "delta")).to_pyarrow_table(), _COLUMNS)

    def _parquet(self) -> Counter[Any]:
        folder = self._lake / "parquet"
        if not any(folder.glob("*.parquet")):
            return Counter()
        names = ", ".join(_PLACED)
        files = f"SELECT {names} FROM '{folder}/*.parquet'"
        return Counter(duckdb.connect().execute(files).fetchall())

    def _postgres(self, database: Database) -> Counter[Any]:
        return Counter(database.run(f"SELECT {', '.join(_COLUMNS)} FROM kept"))

    def _iceberg(self) -> Counter[Any]:
        login = f"://{USER}:{quote(PASSWORD)}@"
        uri = self.url.replace("postgresql://", f"postgresql+psycopg{login}")
        with load_catalog("default", type="sql", uri=uri) as catalog:
            return _rows(catalog.load_table("chaos.rows").scan().to_arrow(), _PLACED)


class _Row(msgspec.Struct):
    n: int
    note: str | None
    price: Decimal


def _rows(table: pa.Table, names: Iterable[str]) -> Counter[Any]:
    return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))


def _letters(job: Engine, processor: str) -> Counter[Any]:
    """Return the keys of a processor's dead letters."""
    topic = job.names.dead_letter(processor)
    batches = read_committed(job.config, topic, job.config.parallelism)
    return Counter((key or b"").decode() for batch in batches for key in batch.keys)
