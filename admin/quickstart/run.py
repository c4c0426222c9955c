"""The quickstart from the first process to the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.admin.broker.ports import find_free
from kafka_pipeline.admin.cluster_watcher import ClusterWatcher
from kafka_pipeline.admin.quickstart import local_job, outage
from kafka_pipeline.admin.quickstart.display import Display
from kafka_pipeline.admin.quickstart.flights import Flights, fetch_flights, read_flights
from kafka_pipeline.admin.quickstart.flow import LOAD_S, Flow, PacedLoader
from kafka_pipeline.admin.quickstart.local_job import LocalJob
from kafka_pipeline.admin.quickstart.local_run import run_with_kafka
from kafka_pipeline.admin.quickstart.report import report
from kafka_pipeline.admin.quickstart.sink_follower import SinkFollower
from kafka_pipeline.admin.quickstart.verdict import OutRecord, Verdict, expect, judge
from kafka_pipeline.admin.samples import quickstart_pipeline
from kafka_pipeline.admin.signals import Signals
from kafka_pipeline.common.cluster_status import ClusterStatus
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.bulk import read_committed

TASK_MANAGERS = 2
THREADS = 2

_CONFIG = """\
server_ip: "127.0.0.1"
server_port: {port}
job_name: "quickstart"
tm_number: {task_managers}
parallelism: 2
replication_factor: 1
source_topic: "flights"
sink_topic: "flights_by_airport"
heartbeat_interval_ms: 1000
console_port: {console_port}
"""


@dataclass(frozen=True, slots=True)
class Options:
    """The user's options."""

    kill: bool = True
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When a TaskManager was killed, and when results arrived in each partition."""

    killed_at_s: float | None
    arrivals_s: Sequence[Sequence[float]]


def run(options: Options, display: Display, signals: Signals) -> bool:
    """Run everything; return whether the results are right.

    Must be called in the main thread. Raises `PipelineError` if there is no verdict. In any case,
    no process of the run is left, except for the broker if the user wants to keep it.
    """
    archive = fetch_flights()

    def work(folder: Path, broker: LocalCluster) -> bool:
        return _run(options, display, signals, broker, folder, archive)

    return run_with_kafka("quickstart", work, display, signals, keep=options.keep)


def _run(
    options: Options,
    display: Display,
    signals: Signals,
    broker: LocalCluster,
    folder: Path,
    archive: Path,
) -> bool:
    flights = read_flights(archive)
    job = _prepare(folder, broker, flights)
    seen, problems = job.run(display, signals, lambda: _flow(options, display, job, flights))
    display.event("reading all results back, read_committed")
    verdict = _judge(job, flights)
    lost = None
    if seen.killed_at_s is not None:
        interval_s = job.config.heartbeat_interval_ms / 1000
        lost = outage.measure(seen.arrivals_s, seen.killed_at_s, interval_s)
    display.text(report(verdict, flights, lost, problems))
    return verdict.is_right and not problems


def _prepare(folder: Path, broker: LocalCluster, flights: Flights) -> LocalJob:
    """Write the files; return the job that they make."""
    config_file, pipeline_file = folder / "config.yaml", folder / "pipeline.yaml"
    port = broker.nodes[0].port
    (console_port,) = find_free(1)
    config_file.write_text(
        _CONFIG.format(port=port, task_managers=TASK_MANAGERS, console_port=console_port)
    )
    airports_file = folder / "airports.csv"
    airports_file.write_bytes(flights.airports)
    pipeline_file.write_text(quickstart_pipeline().format(airports=airports_file))
    return local_job.prepare(folder, config_file, pipeline_file, THREADS)


def _flow(options: Options, display: Display, job: LocalJob, flights: Flights) -> Arrivals:
    """Feed the records; return when a TaskManager was killed, and when results arrived."""
    with ExitStack() as stack:
        watcher = ClusterWatcher(job.config)
        stack.callback(watcher.close)
        job.wait_until_all_run(watcher)
        display.event(f"the console: http://{job.config.console_host}:{job.config.console_port}/")
        records = flights.records
        to_arrive = expect(flights.outcomes).counts.total()
        display.event(f"all tasks run; loading {len(records):,} flights over {LOAD_S:.0f} s")
        follower = SinkFollower(job.config, {job.config.sink_topic: job.config.parallelism})
        stack.callback(follower.close)
        loader = PacedLoader(job.config, records)
        flow = Flow(loader.load, len(records), follower, to_arrive, watcher, display)
        killed_at_s: float | None = None

        def kill(status: ClusterStatus) -> None:
            nonlocal killed_at_s
            if options.kill:
                killed_at_s = job.kill_owner_of_state(status, display)

        came = flow.run(check=job.require_alive, half_way=kill)
        display.event("all results came" if came else "for a minute no result came: giving up")
        return Arrivals(killed_at_s, list(follower.arrivals_s.values()))


def _judge(job: LocalJob, flights: Flights) -> Verdict:
    pipeline = job.pipeline
    dead = [topic for each in pipeline.processors if (topic := pipeline.dead_letter_topic(each))]
    outputs = _read(job.config, pipeline.names.sink)
    letters = [record for topic in dead for record in _read(job.config, topic)]
    return judge(flights.outcomes, outputs, letters)


def _read(config: Config, topic: str) -> list[OutRecord]:
    return [
        OutRecord(batch.partition, key, value, (batch.headers[i] or ()) if batch.headers else ())
        for batch in read_committed(config, topic, config.parallelism)
        for i, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True))
    ]
