"""CPU time per row of each part of a table's writing: `python -m benchmarks.table_parts`.

There is no Kafka. Records with five fields, those of `benchmarks.tables`, become columns as in a
task, and these are written into each format as one commit. Of PostgreSQL, what the task itself
does is measured, not the server. Times are CPU times of the process in ns per row, the least of
some rounds, so that other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from benchmarks.command import exit_after, positive
from benchmarks.tables import SCHEMA, records
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.tables.columns import columns_of
from kafka_pipeline.streams.tables.delta import DeltaTable
from kafka_pipeline.streams.tables.iceberg import IcebergTable
from kafka_pipeline.streams.tables.parquet import ParquetTable
from kafka_pipeline.streams.tables.postgres_values import as_csv, first_misfit
from kafka_pipeline.streams.tables.rows import RowReader
from kafka_pipeline.streams.tables.table import Table

BATCH = 5_000
COLUMNS = columns_of(SCHEMA, {})


def batches(number: int) -> list[Batch]:
    """Return records as a task gets them."""
    rows = list(records(number))
    starts = range(0, number, BATCH)
    return [
        Batch([key for key, _ in run], [value for _, value in run], [0] * len(run))
        for run in (rows[start : start + BATCH] for start in starts)
    ]


def opened(folder: Path) -> dict[str, Table]:
    """Make an empty table of each format that has files."""
    catalog = {"name": "default", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
    catalog["warehouse"] = f"file://{folder}/iceberg"

    def spec(format_: str, **more: object) -> TableSinkSpec:
        return TableSinkSpec(format=format_, schema=SCHEMA, **more)  # type: ignore[arg-type]

    delta, parquet = (spec(name, path=str(folder / name)) for name in ("delta", "parquet"))
    iceberg = spec("iceberg", catalog=catalog, table="shop.orders")
    return {
        "Delta": DeltaTable(delta, COLUMNS, "bench"),
        "Parquet": ParquetTable(parquet, COLUMNS, "bench"),
        "Iceberg": IcebergTable(iceberg, COLUMNS, "bench"),
    }


def for_postgres(rows: Sequence[pa.RecordBatch]) -> None:
    """Do what a task does with rows before PostgreSQL gets them."""
    for each in rows:
        first_misfit(each, ())
        as_csv(each)


def least_ns(action: Callable[[], object], rounds: int, rows: int) -> float:
    """Return the least CPU time of some rounds, in ns per row."""
    taken_s = []
    for _ in range(rounds):
        began_s = time.process_time()
        action()
        taken_s.append(time.process_time() - began_s)
    return min(taken_s) / rows * 1e9


def main() -> int:
    """Measure each part, and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=positive, default=500_000)
    parser.add_argument("--rounds", type=positive, default=5)
    options = parser.parse_args()
    given = batches(options.records)
    reader = RowReader(COLUMNS, 0)
    rows = [reader.read(batch)[0] for batch in given]

    def show(part: str, action: Callable[[], object]) -> None:
        found = least_ns(action, options.rounds, options.records)
        print(f"{part:<28}{found:>8,.0f} ns", flush=True)

    show("JSON becomes columns", lambda: [reader.read(batch) for batch in given])
    with tempfile.TemporaryDirectory() as folder:
        for name, table in opened(Path(folder)).items():

            def commit(table: Table = table) -> None:
                former = table.position()
                table.write(rows, (former or 0) + options.records, former)

            show(f"a commit to {name}", commit)
    show("CSV for PostgreSQL", lambda: for_postgres(rows))
    return 0


if __name__ == "__main__":
    exit_after(main)
