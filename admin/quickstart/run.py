"""The quickstart from the first process to the verdict."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from admin.broker.local_cluster import LocalCluster
from admin.cluster_status import ClusterStatus
from admin.cluster_watcher import ClusterWatcher
from admin.daemons import Daemon, command_path
from admin.quickstart import outage
from admin.quickstart.display import Display
from admin.quickstart.flights import Flights, fetch_flights, read_flights
from admin.quickstart.flow import LOAD_S, Flow
from admin.quickstart.report import report
from admin.quickstart.verdict import OutRecord, Verdict, expect, judge
from admin.samples import sample
from admin.signals import Signals
from common.config import Config, load_config
from common.errors import UnavailableError
from common.kafka.bulk import read_committed
from common.pipeline import Pipeline
from common.tasks import TaskId
from streams.pipeline.load import load_pipeline

TASK_MANAGERS = 2
THREADS = 2

_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.1

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
"""


@dataclass(frozen=True, slots=True)
class Options:
    """The user's options."""

    kill: bool = True
    keep: bool = False


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The files and processes of a run."""

    config: Config
    pipeline: Pipeline
    job_manager: Daemon
    task_managers: Sequence[Daemon]

    @property
    def daemons(self) -> Sequence[Daemon]:
        return (*self.task_managers, self.job_manager)


def run(options: Options, display: Display, signals: Signals) -> bool:
    """Run everything; return whether the results are right.

    Must be called in the main thread. Raises `PipelineError` if there is no verdict. In any case,
    no process of the run is left, except for the broker if the user wants to keep it.
    """
    archive = fetch_flights()
    folder = Path(tempfile.mkdtemp(prefix="kafka-pipeline-quickstart-"))
    try:
        with ExitStack() as stack:
            broker = LocalCluster(folder / "broker")
            stack.callback(broker.stop)
            stack.callback(signals.ignore)
            is_right = _run(options, display, signals, broker, folder, archive)
            if options.keep:
                stack.pop_all()
    except Exception:
        display.text(f"The files and logs of the run are in {folder}")
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if options.keep:
        _say_what_stays(display, broker, folder)
    elif is_right:
        shutil.rmtree(folder)
    else:
        display.text(f"The files and logs of the run are in {folder}")
    return is_right


def _run(
    options: Options,
    display: Display,
    signals: Signals,
    broker: LocalCluster,
    folder: Path,
    archive: Path,
) -> bool:
    display.event("starting Kafka")
    broker.start()
    display.event(f"Kafka runs at {broker.bootstrap_servers}")
    flights = read_flights(archive)
    cluster = _prepare(folder, broker, flights)
    try:
        with ExitStack() as stack:
            for daemon in cluster.daemons:
                display.event(f"$ {daemon}")
                daemon.start(signals)
            killed_at_s, arrivals_s = _flow(options, display, stack, cluster, flights)
            display.finish()
            display.event("stopping the JobManager and the TaskManagers")
            problems = _stop(cluster.daemons)
    except BaseException:
        signals.ignore()
        _end(cluster.daemons)
        raise
    display.event("reading all results back, read_committed")
    verdict = _judge(cluster, flights)
    lost = None
    if killed_at_s is not None:
        interval_s = cluster.config.heartbeat_interval_ms / 1000
        lost = outage.measure(arrivals_s, killed_at_s, interval_s)
    display.text(report(verdict, flights, lost, problems))
    return verdict.is_right and not problems


def _prepare(folder: Path, broker: LocalCluster, flights: Flights) -> _Cluster:
    """Write the files; return them with the daemons to start."""
    config_file, pipeline_file = folder / "config.yaml", folder / "pipeline.yaml"
    port = broker.nodes[0].port
    config_file.write_text(_CONFIG.format(port=port, task_managers=TASK_MANAGERS))
    airports_file = folder / "airports.csv"
    airports_file.write_bytes(flights.airports)
    pipeline_file.write_text(sample("quickstart.yaml").format(airports=airports_file))
    config = load_config(config_file)

    def daemon(command: str, name: str, *arguments: object) -> Daemon:
        line = [str(command_path(command)), *map(str, arguments)]
        return Daemon(name, line, folder / f"{name.replace(' ', '_')}.log")

    return _Cluster(
        config,
        load_pipeline(pipeline_file, config),
        daemon("jobmanager", "jobmanager", config_file, pipeline_file),
        [
            daemon("taskmanager", f"taskmanager {tm_id}", tm_id, THREADS, config_file)
            for tm_id in range(TASK_MANAGERS)
        ],
    )


def _flow(
    options: Options,
    display: Display,
    stack: ExitStack,
    cluster: _Cluster,
    flights: Flights,
) -> tuple[float | None, Sequence[Sequence[float]]]:
    """Feed the records; return when a TaskManager was killed, and when results arrived."""
    watcher = ClusterWatcher(cluster.config)
    stack.callback(watcher.close)
    _wait_until_all_run(watcher, cluster)
    records = flights.records
    to_arrive = expect(flights.outcomes).counts.total()
    display.event(f"all tasks run; loading {len(records):,} flights over {LOAD_S:.0f} s")
    flow = Flow(cluster.config, records, to_arrive, watcher, display)
    stack.callback(flow.close)
    killed_at_s: float | None = None

    def kill(status: ClusterStatus) -> None:
        nonlocal killed_at_s
        if options.kill:
            victim = cluster.task_managers[_owner_of_state(cluster.pipeline, status)]
            victim.kill()
            killed_at_s = time.monotonic()
            display.event(f"$ kill -9 {victim.pid}    # {victim.name}", "bold red")

    came = flow.run(check=lambda: _require_alive(cluster), half_way=kill)
    display.event("all results came" if came else "for a minute no result came: giving up")
    return killed_at_s, flow.arrivals_s


def _wait_until_all_run(watcher: ClusterWatcher, cluster: _Cluster) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while not watcher.status().all_run:
        _require_alive(cluster)
        if time.monotonic() >= deadline_s:
            raise UnavailableError(f"not all tasks run after {_START_TIMEOUT_S:.0f} s")
        watcher.read(_POLL_S)


def _owner_of_state(pipeline: Pipeline, status: ClusterStatus) -> int:
    """Return a TaskManager with a store, which the next owner of its tasks must restore."""
    stateful = {TaskId(each.id, 0) for each in pipeline.processors if each.is_stateful}
    owners = (info.owner for info in status.tasks if info.task in stateful)
    return next((owner for owner in owners if owner is not None), 0)


def _require_alive(cluster: _Cluster) -> None:
    for daemon in cluster.daemons:
        daemon.require_alive()


def _stop(daemons: Sequence[Daemon]) -> list[str]:
    """Stop all daemons gracefully; return what went wrong."""
    running = [daemon for daemon in daemons if daemon.exit_code is None]
    _end(daemons)
    return [
        f"{daemon.name} ended with exit code {daemon.exit_code} when it was stopped"
        for daemon in running
        if daemon.exit_code != 0
    ]


def _end(daemons: Sequence[Daemon]) -> None:
    """Stop all daemons, and kill those that still run after a while."""
    for daemon in daemons:
        daemon.terminate()
    deadline_s = time.monotonic() + _STOP_TIMEOUT_S
    for daemon in daemons:
        daemon.wait(deadline_s - time.monotonic())
        daemon.end()


def _judge(cluster: _Cluster, flights: Flights) -> Verdict:
    pipeline = cluster.pipeline
    dead = [topic for each in pipeline.processors if (topic := pipeline.dead_letter_topic(each))]
    outputs = _read(cluster.config, pipeline.names.sink)
    letters = [record for topic in dead for record in _read(cluster.config, topic)]
    return judge(flights.outcomes, outputs, letters)


def _read(config: Config, topic: str) -> list[OutRecord]:
    return [
        OutRecord(batch.partition, key, value, (batch.headers[i] or ()) if batch.headers else ())
        for batch in read_committed(config, topic, config.parallelism)
        for i, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True))
    ]


def _say_what_stays(display: Display, broker: LocalCluster, folder: Path) -> None:
    display.text(
        f"\nKafka still runs at {broker.bootstrap_servers}; the files and logs are in {folder}.\n"
        f"Stop it:  {command_path('pipeline')} broker stop --dir {broker.directory} --delete-data"
    )
