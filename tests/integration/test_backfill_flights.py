"""Flights as a backfill: the quickstart's pipeline as a job that streams, and queries as pandas."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights import answers
from examples.flights.data import read, records
from examples.flights.results import Row, delays_of_sql, enriched_of
from examples.flights.run import FOLDER
from kafka_pipeline.admin.quickstart.flights import fetch_flights, read_flights
from kafka_pipeline.admin.quickstart.verdict import compare
from kafka_pipeline.admin.samples import quickstart_pipeline
from kafka_pipeline.common.clock import wall_clock_ms
from tests.engine import all_run, engine
from tests.history import command, read_results

pytestmark = [pytest.mark.integration, pytest.mark.long]

FLIGHTS = 20_000
PARTITIONS = 3
TIMEOUT_S = 280
DAYS = 3
CONFIG = """
server_ip: "127.0.0.1"
server_port: 1
job_name: "flights"
tm_number: 1
parallelism: 2
replication_factor: 1
source_topic: "flights"
sink_topic: "delays"
"""

Results = Mapping[bytes | None, list[tuple[bytes | None, int]]]
"""The values and timestamps of each key, in their order."""


def by_key(rows: Iterable[tuple[bytes | None, bytes | None, int]]) -> Results:
    found: dict[bytes | None, list[tuple[bytes | None, int]]] = {}
    for key, value, timestamp in rows:
        found.setdefault(key, []).append((value, timestamp))
    return found


@pytest.mark.timeout(600)
def test_a_backfill_gives_what_the_job_gives_that_streams_record_for_record(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """All of a key comes from one partition of the source, so chance has no say in its order."""
    flights = read_flights(fetch_flights())
    airports = tmp_path / "airports.csv"
    airports.write_bytes(flights.airports)
    pipeline = quickstart_pipeline().format(airports=airports)
    delays = [delay for _, delay in flights.outcomes[:FLIGHTS] if delay is not None]
    job = f"flights_{os.getpid()}"
    with engine(
        tmp_path, bootstrap_servers, job, pipeline, tm_number=1, parallelism=PARTITIONS
    ) as made:
        made.start_job_manager()
        made.start_task_manager(0)
        made.wait_until(all_run([0]))
        # Of today, or the broker would delete them, as they are older than it keeps records.
        first_ms = wall_clock_ms() - 1_000 * FLIGHTS
        # Some come late.
        made.write_at(
            (key, line, first_ms + 1_000 * number - 1_500 * (number * 7_919 % 5))
            for number, (key, line) in enumerate(flights.records[:FLIGHTS])
        )
        sink, refused = made.config.sink_topic, made.names.dead_letter("Delays")
        counts = {sink: sum(map(bool, delays)), refused: delays.count(b"")}
        made.wait_until_done(counts, TIMEOUT_S)
        streamed = {topic: made.read_with_times(topic) for topic in counts}
        files = [str(made.config_file), str(tmp_path / "pipeline.yaml")]
        source = f"topic:{made.config.source_topic}"
    where = ["--from", source, "--to", str(tmp_path / "results")]
    subprocess.run(command("backfill", *files, *where), check=True, timeout=TIMEOUT_S)
    for topic, rows in streamed.items():
        assert len(rows) == counts[topic] > 0
        found = [
            row[:3]
            for number in range(PARTITIONS)
            for row in read_results(tmp_path / "results" / topic / f"{number}.parquet")
        ]
        assert by_key(found) == by_key(rows)


@pytest.mark.timeout(600)
def test_queries_over_files_of_history_give_what_pandas_gives(tmp_path: Path) -> None:
    """Aggregates in windows, tables that follow topics, and a global one; in two partitions."""
    tables = read(fetch_flights(), DAYS)
    where = []
    for topic, entries in records(tables).items():
        columns = {
            "key": pa.array([entry.key for entry in entries], pa.binary()),
            "value": pa.array([entry.value for entry in entries], pa.binary()),
            "timestamp": pa.array([entry.timestamp for entry in entries], pa.int64()),
        }
        pq.write_table(pa.table(columns), tmp_path / f"{topic}.parquet")
        where += ["--from", f"{topic}={tmp_path / topic}.parquet"]
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    to = tmp_path / "results"
    files = [str(config), str(FOLDER / "pipeline_sql.yaml")]
    subprocess.run(
        command("backfill", *files, *where, "--to", str(to)), check=True, timeout=TIMEOUT_S
    )

    def rows(topic: str) -> list[Row]:
        return [
            row[:3] for number in (0, 1) for row in read_results(to / topic / f"{number}.parquet")
        ]

    delays, flights = delays_of_sql(rows("delays")), enriched_of(rows("enriched_flights"))
    assert compare("delays", delays, answers.delays(tables).items()).problems == ()
    assert compare("flights", flights, answers.enriched(tables).items()).problems == ()
    assert rows("late_flights") == []
