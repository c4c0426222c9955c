"""Kafka Streams as a contender: fetched by Ivy, compiled here, run with its defaults."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contender import Job, Running, launch
from benchmarks.peers.streams_java import VERSION, build_program

_SOURCES = [
    Path(__file__).with_name(f"{name}.java")
    for name in ("KafkaStreamsPeer", "NexmarkQueries", "TheodoliteJobs", "JsonValues")
]


class KafkaStreams:
    """One JVM per instance, with one stream thread per thread."""

    title = f"Kafka Streams {VERSION}"

    def prepare(self, folder: Path) -> None:
        """Fetch the jars and compile the jobs."""
        self._program = build_program(_SOURCES, folder / "kafka-streams-classes")

    def start(self, job: Job) -> Running:
        """Start the JVMs."""
        instances = [
            [launch(job, f"{number}_kafka_streams", self._command(job, number))]
            for number in range(job.instances)
        ]
        return Running(instances, group=job.name)

    def _command(self, job: Job, instance: int) -> list[str]:
        return [
            *self._program.command(),
            *(job.kind, job.servers, job.name, job.source, job.sink),
            *(str(job.state_dir(instance)), str(job.threads)),
        ]
