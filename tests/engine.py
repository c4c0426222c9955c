"""The engine as users run it: its commands as processes, for integration tests and benchmarks."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path

from kafka_pipeline.admin.daemons import Daemon, command_path, session_members
from kafka_pipeline.admin.signals import Signals
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.committed import offsets_of
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import BulkWriter, Row, read_committed
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.in_process import run_pipeline

START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 20.0


class Engine:
    """One job on a Kafka that runs already; every process that it starts ends with it."""

    def __init__(
        self, folder: Path, bootstrap_servers: str, job_name: str, pipeline: str, **settings: object
    ) -> None:
        """Write config.yaml and pipeline.yaml into `folder`; nothing starts yet."""
        host, _, port = bootstrap_servers.partition(",")[0].rpartition(":")
        self._folder = folder
        self._pipeline_file = folder / "pipeline.yaml"
        self._settings: dict[str, object] = {
            "server_ip": host,
            "server_port": port,
            "job_name": job_name,
            "tm_number": 2,
            "parallelism": 2,
            "replication_factor": 1,
            "source_topic": f"source_{job_name}",
            "sink_topic": f"sink_{job_name}",
            **settings,
        }
        self.config_file = self.write_config("config")
        self.config: Config = load_config(self.config_file)
        self.names = self.config.topic_names
        self.write_pipeline(pipeline)
        self._admin = Admin(self.config)
        self._signals = Signals()
        self._daemons: list[Daemon] = []
        self._watcher: ClusterWatcher | None = None
        self.commands: Path | None = None
        """The folder of the commands that start daemons; `None` for those of this environment."""
        self._writer: BulkWriter | None = None

    def write_config(self, name: str, **settings: object) -> Path:
        """Write `<name>.yaml` with settings over those of the job; return its path."""
        lines = self._settings | settings
        file = self._folder / f"{name}.yaml"
        file.write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
        return file

    def write_pipeline(self, pipeline: str) -> None:
        """Write pipeline.yaml, for the JobManagers that start from now on."""
        self._pipeline_file.write_text(pipeline)
        self.pipeline: Pipeline = load_pipeline(self._pipeline_file, self.config)

    def start_job_manager(
        self,
        environment: Mapping[str, str] | None = None,
        *options: str,
        with_pipeline: bool = True,
        config_file: Path | None = None,
        within: Sequence[str] = (),
    ) -> Daemon:
        """Start `jobmanager` with pipeline.yaml; `environment` adds to this process's.

        Without, it runs what the job is to run. `within` is a command that becomes the one that
        follows it, as `nsenter` does.
        """
        config = config_file or self.config_file
        files = [config, self._pipeline_file] if with_pipeline else [config]
        arguments = [*options, *map(str, files)]
        return self._start("jobmanager", arguments, environment, within)

    def run_command(self, name: str, *arguments: str, with_pipeline: bool = False) -> str:
        """Run a `pipeline` command on config.yaml, perhaps pipeline.yaml; return what it prints.

        The name may be of two words, as that of `savepoint create`.
        """
        files = [self.config_file, self._pipeline_file] if with_pipeline else [self.config_file]
        return run_pipeline(*name.split(), *map(str, files), *arguments)

    def start_task_manager(
        self,
        tm_id: int,
        threads: int = 2,
        environment: Mapping[str, str] | None = None,
        config_file: Path | None = None,
        within: Sequence[str] = (),
    ) -> Daemon:
        """Start `taskmanager` with an id, as `start_job_manager` does."""
        arguments = [str(tm_id), str(threads), str(config_file or self.config_file)]
        return self._start("taskmanager", arguments, environment, within)

    def write(self, rows: Iterable[Row]) -> None:
        """Write records to the source topic, and wait until Kafka has them."""
        writer = self._source_writer()
        writer.write(rows)
        writer.flush(timeout_s=30)

    def read(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Return the committed records of a topic, partition by partition."""
        batches = read_committed(self.config, topic, self.config.parallelism)
        batches.sort(key=lambda batch: (batch.partition, batch.offsets[0]))
        return [row for b in batches for row in zip(b.keys, b.values, strict=True)]

    def write_at(self, rows: Iterable[tuple[bytes, bytes, int]]) -> None:
        """Write records with timestamps to the source topic, and wait until Kafka has them."""
        writer = self._source_writer()
        writer.write_at(rows)
        writer.flush(timeout_s=30)

    def read_with_times(self, topic: str) -> list[tuple[bytes | None, bytes | None, int]]:
        """Return the committed records of a topic as `read` does, with their timestamps."""
        batches = read_committed(self.config, topic, self.config.parallelism)
        batches.sort(key=lambda batch: (batch.partition, batch.offsets[0]))
        columns = [(b.keys, b.values, b.timestamps) for b in batches]
        return [row for column in columns for row in zip(*column, strict=True)]

    def wait_until(
        self, condition: Callable[[ClusterStatus], bool], timeout_s: float = START_TIMEOUT_S
    ) -> ClusterStatus:
        """Follow the heartbeats until they show what is wanted; return them."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            if self._watcher is None:
                time.sleep(0.1)
                if self._admin.partition_counts([self.names.heartbeat]):
                    self._watcher = ClusterWatcher(self.config)
                continue
            self._watcher.read(0.1)
            if condition(self._watcher.status()):
                return self._watcher.status()
        shown = self._watcher.status() if self._watcher else "no heartbeat topic"
        raise AssertionError(
            f"not within {timeout_s:.0f} s; the last status: {shown}\n{self.logs()}"
        )

    def wait_until_done(self, records_of: dict[str, int], timeout_s: float = 120) -> None:
        """Wait until topics have that many committed records."""
        partitions = {
            topic: [(topic, number) for number in range(self.config.parallelism)]
            for topic in records_of
        }
        deadline_s = time.monotonic() + timeout_s
        found: dict[str, int] = {}
        while time.monotonic() < deadline_s:
            # Ends also count the markers of transactions, and what is open. To read a topic costs
            # much more than to ask for them, so it is only read once there may be enough.
            ends = self._admin.high_watermarks([*chain(*partitions.values())])
            found = {topic: sum(ends[at] for at in partitions[topic]) for topic in records_of}
            if all(found[topic] >= count for topic, count in records_of.items()):
                found = {topic: len(self.read(topic)) for topic in records_of}
                if all(found[topic] >= count for topic, count in records_of.items()):
                    return
            time.sleep(0.2)
        raise AssertionError(f"wanted {records_of}, got {found}\n{self.logs()}")

    def wait_until_all_is_read(self, timeout_s: float = 300) -> None:
        """Wait until each task has committed all records of its inputs, internal topics included.

        Nobody may write to the sources meanwhile.
        """
        deadline_s = time.monotonic() + timeout_s
        before: dict[Partition, int] | None = None
        while time.monotonic() < deadline_s:
            ends, unread = self._read_up_to()
            # What was read after the end of another input was looked up may have added to it.
            if not unread and ends == before:
                return
            before = ends
            time.sleep(0.2)
        raise AssertionError(f"not read within {timeout_s:.0f} s: {unread}\n{self.logs()}")

    def _read_up_to(self) -> tuple[dict[Partition, int], list[str]]:
        """Return the offsets after the last records of all inputs, and what is not read there."""
        ends: dict[Partition, int] = {}
        unread = []
        for node in self.pipeline.processors:
            topics = self.pipeline.in_topics(node)
            inputs = [(topic, n) for topic in topics for n in range(self.config.parallelism)]
            with closing(PartitionReader(self.config, self.names.consumer_group(node.id))) as group:
                committed = offsets_of(group.committed(inputs, START_TIMEOUT_S))
            for topic in topics:
                # The end of a partition is no measure, as it counts the ends of transactions.
                for batch in read_committed(self.config, topic, self.config.parallelism):
                    place = (topic, batch.partition)
                    ends[place] = max(ends.get(place, 0), batch.offsets[-1] + 1)
            unread += [
                f"{node.id}: {place} from {committed.get(place, 0)} to {ends[place]}"
                for place in inputs
                if committed.get(place, 0) < ends.get(place, 0)
            ]
        return ends, unread

    def logs(self) -> str:
        """Return the ends of all logs, for a failing test."""
        return "\n".join(
            f"--- {daemon.name}\n" + daemon.log_file.read_text(errors="replace")[-4000:]
            for daemon in self._daemons
        )

    def close(self) -> None:
        """End all processes: by SIGTERM, and after a while by SIGKILL."""
        if self._watcher is not None:
            self._watcher.close()
        for daemon in self._daemons:
            daemon.terminate()
        for daemon in self._daemons:
            daemon.wait(END_TIMEOUT_S)
            daemon.end()

    def _source_writer(self) -> BulkWriter:
        if self._writer is None:
            # Kept: a new idempotent producer takes half a second to get its id.
            self._writer = BulkWriter(self.config, self.config.source_topic)
        return self._writer

    def _start(
        self,
        command: str,
        arguments: list[str],
        environment: Mapping[str, str] | None,
        within: Sequence[str],
    ) -> Daemon:
        number = len(self._daemons)
        log_file = self._folder / f"{number}_{command}.log"
        path = command_path(command) if self.commands is None else self.commands / command
        words = [*within, str(path), *arguments]
        daemon = Daemon(f"{number} {command}", words, log_file, environment)
        daemon.start(self._signals)
        self._daemons.append(daemon)
        return daemon


@contextmanager
def engine(
    folder: Path, bootstrap_servers: str, job_name: str, pipeline: str, **settings: object
) -> Iterator[Engine]:
    """Make an engine and end its processes afterwards."""
    made = Engine(folder, bootstrap_servers, job_name, pipeline, **settings)
    try:
        yield made
    finally:
        made.close()


def all_run(task_managers: Iterable[int]) -> Callable[[ClusterStatus], bool]:
    """Return the condition that all tasks run, and that each of these TaskManagers has some."""
    wanted = set(task_managers)

    def condition(status: ClusterStatus) -> bool:
        owners = {task.owner for task in status.tasks}
        return status.all_run and owners == wanted

    return condition


def run_on_two(job: Engine) -> Daemon:
    """Run the job on two TaskManagers; return its JobManager."""
    job_manager = job.start_job_manager()
    for tm_id in (0, 1):
        job.start_task_manager(tm_id)
    job.wait_until(all_run([0, 1]))
    return job_manager


def workers(log_file: Path) -> list[int]:
    """Return the processes of all PipelineThreads that a TaskManager has logged, oldest first."""
    pids = re.findall(r"PipelineThread runs .*pid=([0-9]+)", log_file.read_text())
    return [int(pid) for pid in pids]


def kill_worker(task_manager: Daemon) -> None:
    """Kill the process of the last PipelineThread that started; another one takes its place."""
    os.kill(workers(task_manager.log_file)[-1], signal.SIGKILL)


def signal_session(daemon: Daemon, number: signal.Signals) -> None:
    """Send a signal to a daemon and all that it started."""
    assert daemon.pid is not None
    for pid in list(session_members(daemon.pid)):
        with suppress(ProcessLookupError):  # It ended since the list was made.
            os.kill(pid, number)
