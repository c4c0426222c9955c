"""The rate of a backfill: `python -m benchmarks.backfill [--records N] [--rounds N]`.

The command reads records from Parquet, runs `count`, and writes Parquet, on `local[2]` with two
partitions. It is timed from the call to its end, both with and without the start of Spark. The
yardstick is a bare loop in two processes, which reads the same file into Python values and writes
it back. The results are compared with a model. Ratios are against the bare loop of the same round:
machines differ and are noisy, but ratios carry over.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEYS = 10_000
ROW_GROUP = 500_000
CONFIG = """
server_ip: 127.0.0.1
server_port: 9092
tm_number: 1
parallelism: 2
replication_factor: 1
source_topic: in
sink_topic: out
spark: {master: "local[2]"}
"""
PIPELINE = "- {id: Counter, type: count, to: [sink]}\n"


def generate(path: Path, records: int) -> None:
    """Write records with 16-digit decimal values and 10,000 keys, 10 records per millisecond."""
    with pq.ParquetWriter(path, columns(np.arange(1)).schema) as file:
        for start in range(0, records, ROW_GROUP):
            numbers = np.arange(start, min(records, start + ROW_GROUP))
            file.write_table(columns(numbers))


def columns(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
    """Return the records with these numbers."""
    return pa.table(
        {
            "key": pa.array((numbers * 7919 % KEYS).astype(str)).cast(pa.binary()),
            "value": pa.array(np.char.zfill(numbers.astype(str), 16)).cast(pa.binary()),
            "timestamp": pa.array(1_700_000_000_000 + numbers // 10),
        }
    )


def copy_half(source: Path, target: Path, half: int) -> None:
    """Read every second row group into Python values, and write them back."""
    with pq.ParquetFile(source) as file, pq.ParquetWriter(target, file.schema_arrow) as writer:
        for group in range(half, file.metadata.num_row_groups, 2):
            rows = file.read_row_group(group, use_threads=False).to_pydict()
            writer.write_table(pa.table(rows, schema=file.schema_arrow))


def bare_loop(source: Path, folder: Path) -> float:
    """Return the seconds that two processes take for the whole file."""
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=copy_half, args=(source, folder / f"bare-{half}.parquet", half))
        for half in range(2)
    ]
    started_s = time.monotonic()
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            sys.exit(f"the bare loop failed with exit code {process.exitcode}")
    return time.monotonic() - started_s


def backfill(source: Path, folder: Path) -> tuple[float, float]:
    """Run the command; return its total seconds, and its seconds from the first byte of work on."""
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    target, work = folder / "results", folder / "results.backfill"
    for path in (target, work):
        shutil.rmtree(path, ignore_errors=True)
    code = "from kafka_pipeline.admin.cli import main; main()"
    arguments = ["backfill", "config.yaml", "pipeline.yaml", "--from", source, "--to", target]
    started_s = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], cwd=folder)
    began_s = None
    while process.poll() is None:
        if began_s is None and any(work.glob("read-in/*")):
            began_s = time.monotonic()
        time.sleep(0.01)
    ended_s = time.monotonic()
    if process.returncode or began_s is None:
        sys.exit(f"the backfill failed with exit code {process.returncode}")
    return ended_s - started_s, ended_s - began_s


def verify(folder: Path, records: int) -> None:
    """Exit with an error unless every key was counted without a gap, in timestamp order."""
    seen = 0
    for number in range(2):
        table = pq.read_table(folder / "results" / "out" / f"{number}.parquet")
        frame = table.select(["key", "value"]).to_pandas()
        expected = frame.groupby("key").cumcount() + 1
        if not (frame["value"].astype(int) == expected).all():
            sys.exit("the counts differ from the model")
        seen += len(frame)
    if seen != records:
        sys.exit(f"{seen} results of {records} records")


def main() -> None:
    """Measure, verify, and print a line for each round."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    records = arguments.records
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "in.parquet"
        generate(source, records)
        print("round   bare loop  backfill  of it  without Spark's start  of it   load")
        for number in range(arguments.rounds):
            load = os.getloadavg()[0]
            bare_s = bare_loop(source, folder)
            whole_s, work_s = backfill(source, folder)
            verify(folder, records)
            print(
                f"{number + 1:5} {records / bare_s:11,.0f} {records / whole_s:9,.0f} "
                f"{bare_s / whole_s:6.2f} {records / work_s:22,.0f} {bare_s / work_s:6.2f} "
                f"{load:6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
