"""One broker, its topics, and the jobs that run on it, one at a time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import yaml
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.contender import Contender, Job, Running
from benchmarks.records import Check, Numbers, WrongOutputError
from benchmarks.resources import cpu_s
from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.admin.broker.secrets_folder import ADMIN, FOLDER
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError, PipelineError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import BulkWriter, Row, TimedRow
from kafka_pipeline.common.kafka.clients import retry
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.topics import RECORDS, TopicSpec

PARTITIONS = 2
FETCH_RECORDS = 20_000
STALL_S = 120.0
"""An engine's run has failed if nothing new comes out for this long."""
_WAIT_S = 0.2
_WRITE_TIMEOUT_S = 120
_DELETE_TIMEOUT_S = 30
# Sinks and state topics of gigabytes come and go, so deleted data must be gone at once.
_BROKER_SETTINGS = {"log.segment.delete.delay.ms": 1_000}


class Bench:
    """A separate broker, and the tools that all runs share."""

    def __init__(
        self,
        folder: Path,
        cluster: LocalCluster,
        kafka: Mapping[str, str],
        partitions: int = PARTITIONS,
    ) -> None:
        """Use a running cluster; `folder` holds the folders of the jobs.

        `kafka` is the section of config.yaml with which a client may do everything. The topics have
        this number of partitions.
        """
        self.folder = folder
        self.partitions = partitions
        self.servers = cluster.bootstrap_servers
        self.kafka = {"bootstrap.servers": self.servers, **kafka}
        process = cluster.process(1)
        assert process is not None
        self._broker = process.pid
        host, _, port = self.servers.rpartition(":")
        self.config = Config(
            server_ip=host,
            server_port=int(port),
            tm_number=1,
            parallelism=partitions,
            replication_factor=1,
            source_topic="source",
            sink_topic="sink",
            kafka=self.kafka,
        )
        self.admin = Admin(self.config)
        self._deleter = AdminClient({**self.kafka, "log_level": 0})
        self._numbers = count()

    def broker_cpu_s(self) -> float:
        """Return the CPU time of the broker so far, in seconds."""
        return cpu_s([self._broker])

    def make_topic(self, name: str) -> None:
        """Create a topic, which keeps records of any time."""
        self.admin.ensure_topics([TopicSpec(name, self.partitions, 1, RECORDS)])

    def write(self, topic: str, rows: Iterator[Row]) -> None:
        """Append records to a topic, and wait until the broker has them."""
        writer = BulkWriter(self.config, topic)
        writer.write(rows)
        writer.flush(_WRITE_TIMEOUT_S)

    def write_at(self, topic: str, rows: Iterator[TimedRow]) -> None:
        """Append records with timestamps, in ms, to a topic, as `write` does."""
        writer = BulkWriter(self.config, topic)
        writer.write_at(rows)
        writer.flush(_WRITE_TIMEOUT_S)

    def written(self, topic: str) -> int:
        """Return the sum of a topic's end offsets, which count records and transaction markers."""
        places = [(topic, number) for number in range(self.partitions)]
        return sum(self.admin.high_watermarks(places).values())

    def committed(self, group: str, topic: str) -> Callable[[], int]:
        """Return a function that returns the sum of the positions that a group has committed."""
        consumer = Consumer({**self.kafka, "group.id": group, "log_level": 0})
        places = [TopicPartition(topic, number) for number in range(self.partitions)]

        def committed() -> int:
            # On a new broker, no coordinator is known before the first group has committed.
            found = retry(lambda left_s: consumer.committed(places, timeout=left_s), STALL_S)
            return sum(max(place.offset, 0) for place in found)

        return committed

    @contextmanager
    def run(
        self,
        contender: Contender,
        kind: str,
        source: str | None = None,
        *,
        instances: int = 1,
        threads: int = 2,
    ) -> Iterator[JobRun]:
        """Create what a job needs; end its processes and delete its topics afterwards.

        Without `source`, the job gets its own empty source topic. The body starts the job. If Kafka
        or a contender fails, this raises `PipelineError` with the last lines of the logs.
        """
        kept = set(self.admin.topics())
        name = f"{kind}-{next(self._numbers)}".replace("-", "_")
        folder = self.folder / name
        folder.mkdir()
        job = Job(
            kind=kind,
            name=name,
            servers=self.servers,
            source=source or f"source_{name}",
            sink=f"sink_{name}",
            folder=folder,
            instances=instances,
            threads=threads,
        )
        run = JobRun(self, contender, job)
        try:
            try:
                for topic in {job.source, job.sink} - kept:
                    self.make_topic(topic)
                yield run
            finally:
                run.close()
                job.wipe_state()
                self._delete(set(self.admin.topics()) - kept)
        except (PipelineError, EngineError, KafkaException) as error:
            raise PipelineError(f"{error}\n{run.logs()}") from error

    def _delete(self, topics: set[str]) -> None:
        deletable = [topic for topic in topics if not topic.startswith("__")]
        if deletable:
            for future in self._deleter.delete_topics(deletable).values():
                future.result(_DELETE_TIMEOUT_S)


@dataclass(slots=True)
class JobRun:
    """A contender's job, which can be started, stopped and started again."""

    bench: Bench
    contender: Contender
    job: Job
    _running: Running | None = field(default=None, init=False)

    @property
    def running(self) -> Running:
        """The processes of the job, which must have been started."""
        assert self._running is not None
        return self._running

    def start(self) -> Running:
        """Start the job in the background."""
        self._running = self.contender.start(self.job)
        return self._running

    def stop(self) -> None:
        """Let the job finish, and wait for it."""
        self.running.stop()
        self._running = None

    def close(self) -> None:
        """End everything that still runs, at once."""
        if self._running is not None:
            self._running.close()

    def require_alive(self) -> None:
        """Raise `PipelineError` if a process ended by itself."""
        if self._running is not None:
            self._running.require_alive()

    def logs(self) -> str:
        """Return the last lines of the logs of the running processes."""
        return self._running.logs() if self._running is not None else ""

    @contextmanager
    def sink(self, check: Check) -> Iterator[Sink]:
        """Read the committed records of the sink from the beginning."""
        with closing(PartitionReader(self.bench.config, "benchmark")) as reader:
            places = [(self.job.sink, number) for number in range(self.bench.partitions)]
            reader.assign(dict.fromkeys(places, 0))
            yield Sink(self, reader, check)


@dataclass(frozen=True, slots=True)
class Outputs:
    """The records that one fetch returned for one partition, and when the reader got them."""

    batch: RecordBatch
    numbers: Numbers
    arrived_ns: int
    """The time of arrival, by `time.time_ns`."""


@dataclass(slots=True)
class Sink:
    """The outputs of a run, checked as they are read."""

    _run: JobRun
    _reader: PartitionReader
    _check: Check
    _positions: dict[int, int] = field(default_factory=dict, init=False)

    def read(self) -> list[Outputs]:
        """Return the outputs that have arrived, after waiting briefly for them."""
        fetched = self._reader.fetch(FETCH_RECORDS, _WAIT_S)
        arrived_ns = time.time_ns()
        for (topic, number), reason, _ in fetched.errors:
            raise PipelineError(f"{topic}[{number}] cannot be read: {reason}")
        found = []
        for batch in fetched.batches:
            found.append(Outputs(batch, self._check.add(batch), arrived_ns))
            self._positions[batch.partition] = batch.offsets[-1] + 1
        for (_, partition), offset in fetched.ends:
            self._positions[partition] = max(self._positions.get(partition, 0), offset)
        return found

    def read_until(
        self,
        is_done: Callable[[], bool],
        look: Callable[[Outputs], None] = lambda _: None,
        stall_s: float = STALL_S,
    ) -> None:
        """Pass all outputs to `look` until `is_done` returns true.

        Raises `WrongOutputError` when an output is wrong, or none comes for `stall_s`.
        """
        moved_s = time.monotonic()
        while not is_done():
            found = self.read()
            for outputs in found:
                look(outputs)
            if found:
                moved_s = time.monotonic()
            elif time.monotonic() - moved_s > stall_s:
                raise WrongOutputError(f"nothing came for {stall_s:.0f} s: {self._check.missing()}")
            self._run.require_alive()

    def read_complete(self) -> None:
        """Read until all expected outputs have come."""
        self.read_until(lambda: self._check.is_complete)

    def stop_and_read_rest(self) -> None:
        """Stop the job, and check its remaining outputs: there may be no more than expected."""
        self._run.stop()
        bench = self._run.bench
        places = [(self._run.job.sink, number) for number in range(bench.partitions)]
        ends = bench.admin.high_watermarks(places)
        deadline_s = time.monotonic() + STALL_S
        while any(self._positions.get(partition, 0) < end for (_, partition), end in ends.items()):
            self.read()
            if time.monotonic() > deadline_s:
                raise WrongOutputError("the sink cannot be read to its end")
        if not self._check.is_complete:
            raise WrongOutputError(self._check.missing())


@contextmanager
def bench(*, is_secure: bool = False, partitions: int = PARTITIONS) -> Iterator[Bench]:
    """Start a broker in a temporary folder, and delete all of it afterwards.

    On a secured one, all clients are the administrator, by SASL_SSL with a password.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        cluster = LocalCluster(folder / "kafka", settings=_BROKER_SETTINGS, is_secure=is_secure)
        cluster.start()
        try:
            kafka = _admin_settings(cluster.directory) if is_secure else {}
            yield Bench(folder, cluster, kafka, partitions)
        finally:
            cluster.stop()


def _admin_settings(directory: Path) -> Mapping[str, str]:
    file = directory / FOLDER / f"{ADMIN}.yaml"
    settings: Mapping[str, str] = yaml.safe_load(file.read_text())["kafka"]
    return settings
