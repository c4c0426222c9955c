"""The example's job, and whether its results are those of pandas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Column, Table
from rich.text import Text

from examples.flights import answers
from examples.flights.data import Entry, read, records
from examples.flights.results import HourlyDelays, Row, delays_of, delays_of_sql, enriched_of
from kafka_pipeline.admin.quickstart import local_job
from kafka_pipeline.admin.quickstart.display import Display
from kafka_pipeline.admin.quickstart.flights import fetch_flights
from kafka_pipeline.admin.quickstart.local_run import CheckedRun, RunOptions, run_checked
from kafka_pipeline.admin.quickstart.verdict import Checked, compare
from kafka_pipeline.admin.signals import Signals
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import BulkWriter, read_committed
from kafka_pipeline.common.topics import TopicSpec

FOLDER = Path(__file__).parent
_THREADS = 2

INPUTS = {"flights": 1, "weather": 1, "planes": 2, "airports": 1}
"""The number of partitions of each topic that is read.

Flights and weather have one: the order within a partition is the only order that Kafka keeps.
"""
OUTPUTS = {"delays": 2, "enriched_flights": 2}
LATE = {"late_flights": 2}

# Records have times of 2013, and Kafka would soon delete them as too old.
_FOREVER = {"retention.ms": "-1"}
_LOAD_TIMEOUT_S = 60.0

_CONFIG = """\
server_ip: "127.0.0.1"
server_port: {port}
job_name: "flights"
tm_number: 2
parallelism: 2
replication_factor: 1
source_topic: "flights"
sink_topic: "delays"
heartbeat_interval_ms: 1000
python_path: ["{folder}"]
modules: ["flights_topology"]
"""
_RIGHT = "RIGHT: every result is there once, and equals that of pandas."
_LARGEST = 5


def run(
    options: RunOptions, days: int | None, sql: bool, display: Display, signals: Signals
) -> bool:
    """Run everything; return whether the results are right. See `run_checked`.

    `days` cuts the year off after so many days. `sql` runs the pipeline of queries in place of the
    topology.
    """
    tables = read(fetch_flights(), days)

    def prepare(folder: Path, port: int, display: Display) -> CheckedRun:
        config_file = folder / "config.yaml"
        config_file.write_text(_CONFIG.format(port=port, folder=FOLDER))
        pipeline_file = FOLDER / ("pipeline_sql.yaml" if sql else "pipeline.yaml")
        job = local_job.prepare(folder, config_file, pipeline_file, _THREADS)
        entries = records(tables)
        _load(job.config, entries)
        sizes = ", ".join(f"{len(found):,} {topic}" for topic, found in entries.items())
        display.event(f"loaded {sizes}")
        display.event("asking pandas")
        delays, enriched = answers.delays(tables), answers.enriched(tables)
        flights = len(entries["flights"])
        return CheckedRun(
            job,
            OUTPUTS,
            to_load=flights,
            to_arrive=len(delays) + len(enriched),
            load=lambda _: flights,
            check=lambda: _check(job.config, sql, delays, enriched),
        )

    return run_checked("flights", prepare, options, display, signals)


def _load(config: Config, entries: Mapping[str, Sequence[Entry]]) -> None:
    """Make the topics, and write all records."""
    topics = INPUTS | OUTPUTS | LATE
    Admin(config).ensure_topics(
        [TopicSpec(topic, partitions, 1, _FOREVER) for topic, partitions in topics.items()]
    )
    for topic, found in entries.items():
        writer = BulkWriter(config, topic)
        writer.write_at((entry.key, entry.value, entry.timestamp) for entry in found)
        writer.flush(_LOAD_TIMEOUT_S)


def _check(
    config: Config, sql: bool, delays: answers.Answers, enriched: answers.Answers
) -> Checked:
    found = (delays_of_sql if sql else delays_of)(_read(config, "delays"))
    comparisons = [
        compare("delays", found, delays.items()),
        compare(
            "enriched flights", enriched_of(_read(config, "enriched_flights")), enriched.items()
        ),
        compare("late flights", _read(config, "late_flights"), ()),
    ]
    return Checked(
        [(each.what, f"{each.found:,}", f"pandas says {each.expected:,}") for each in comparisons],
        _airlines(found),
        [problem for each in comparisons for problem in each.problems],
        _RIGHT,
    )


def _read(config: Config, topic: str) -> list[Row]:
    return [
        row
        for batch in read_committed(config, topic, (OUTPUTS | LATE)[topic])
        for row in zip(batch.keys, batch.values, batch.timestamps, strict=True)
    ]


def _airlines(delays: Sequence[HourlyDelays]) -> Table:
    """Return the largest airlines with their delays, summed over the hours."""
    table = Table(
        "airline",
        Column("flights", justify="right"),
        Column("mean delay at arrival", justify="right"),
        title="Largest airlines",
        title_justify="left",
    )
    flights, arrived, minutes = Counter[str](), Counter[str](), Counter[str]()
    for (airline, _), (all_of_hour, arrived_of_hour, minutes_of_hour) in delays:
        flights[airline] += all_of_hour
        arrived[airline] += arrived_of_hour
        minutes[airline] += minutes_of_hour
    for airline, count in flights.most_common(_LARGEST):
        mean = minutes[airline] / max(1, arrived[airline])
        table.add_row(Text(airline), f"{count:,}", f"{mean:.1f} min")
    return table
