"""The example from the first process to the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from examples.flights import answers
from examples.flights.data import Entry, Tables, read_tables, records
from examples.flights.report import report
from examples.flights.verdict import (
    Row,
    compare,
    delays_of,
    delays_of_sql,
    enriched_of,
    none_of,
)
from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.admin.cluster_watcher import ClusterWatcher
from kafka_pipeline.admin.quickstart import local_job, outage
from kafka_pipeline.admin.quickstart.display import Display
from kafka_pipeline.admin.quickstart.flights import fetch_flights
from kafka_pipeline.admin.quickstart.flow import Flow
from kafka_pipeline.admin.quickstart.local_job import LocalJob
from kafka_pipeline.admin.quickstart.local_run import run_with_kafka
from kafka_pipeline.admin.quickstart.outage import Outage
from kafka_pipeline.admin.quickstart.sink_follower import SinkFollower
from kafka_pipeline.admin.signals import Signals
from kafka_pipeline.common.cluster_status import ClusterStatus
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import BulkWriter, read_committed
from kafka_pipeline.common.topics import TopicSpec

FOLDER = Path(__file__).parent
THREADS = 2

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


@dataclass(frozen=True, slots=True)
class Options:
    """The user's options.

    `days` cuts the year off after so many days. `sql` runs the pipeline of queries in place of the
    topology.
    """

    kill: bool = True
    keep: bool = False
    days: int | None = None
    sql: bool = False


def run(options: Options, display: Display, signals: Signals) -> bool:
    """Run everything; return whether the results are right.

    Must be called in the main thread. Raises `PipelineError` if there is no verdict. In any case,
    no process of the run is left, except for the broker if the user wants to keep it.
    """
    tables = read_tables(fetch_flights(), options.days)

    def work(folder: Path, broker: LocalCluster) -> bool:
        return _run(options, display, signals, folder, broker, tables)

    return run_with_kafka("flights", work, display, signals, keep=options.keep)


def _run(
    options: Options,
    display: Display,
    signals: Signals,
    folder: Path,
    broker: LocalCluster,
    tables: Tables,
) -> bool:
    config_file = folder / "config.yaml"
    config_file.write_text(_CONFIG.format(port=broker.nodes[0].port, folder=FOLDER))
    pipeline_file = FOLDER / ("pipeline_sql.yaml" if options.sql else "pipeline.yaml")
    job = local_job.prepare(folder, config_file, pipeline_file, THREADS)
    entries = records(tables)
    _load(job.config, entries)
    sizes = ", ".join(f"{len(found):,} {topic}" for topic, found in entries.items())
    display.event(f"loaded {sizes}")
    display.event("asking pandas")
    delays, enriched = answers.delays(tables), answers.enriched(tables)
    to_arrive = len(delays) + len(enriched)
    lost, problems = job.run(
        display,
        signals,
        lambda: _follow(options, display, job, len(entries["flights"]), to_arrive),
    )
    display.event("reading all results back, read_committed")
    read_delays = delays_of_sql if options.sql else delays_of
    found = read_delays(_read(job.config, "delays"))
    comparisons = [
        compare("delays", found, delays),
        compare("enriched flights", enriched_of(_read(job.config, "enriched_flights")), enriched),
        none_of("late flights", _read(job.config, "late_flights")),
    ]
    display.text(report(found, comparisons, lost, problems))
    return not problems and not any(comparison.problems for comparison in comparisons)


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


def _follow(
    options: Options, display: Display, job: LocalJob, flights: int, to_arrive: int
) -> Outage | None:
    """Wait for the results; return how long they stayed away after the kill, if there was one."""
    with ExitStack() as stack:
        watcher = ClusterWatcher(job.config)
        stack.callback(watcher.close)
        follower = SinkFollower(job.config, OUTPUTS)
        stack.callback(follower.close)
        killed_at_s: float | None = None

        def kill(status: ClusterStatus) -> None:
            nonlocal killed_at_s
            if options.kill:
                killed_at_s = job.kill_owner_of_state(status, display)

        job.wait_until_all_run(watcher)
        display.event("all tasks run")
        flow = Flow(lambda _: flights, flights, follower, to_arrive, watcher, display)
        came = flow.run(check=job.require_alive, half_way=kill)
        display.event("all results came" if came else "for a minute no result came: giving up")
        if killed_at_s is None:
            return None
        interval_s = job.config.heartbeat_interval_ms / 1000
        return outage.measure(list(follower.arrivals_s.values()), killed_at_s, interval_s)


def _read(config: Config, topic: str) -> list[Row]:
    return [
        row
        for batch in read_committed(config, topic, (OUTPUTS | LATE)[topic])
        for row in zip(batch.keys, batch.values, batch.timestamps, strict=True)
    ]
