"""Kafka Streams as a contender: fetched by Ivy, compiled here, run with its defaults."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from admin.broker.jars import JarSet, fetch_jars
from admin.broker.server import LOG_SETTINGS
from benchmarks.contender import Job, Running, launch
from common.errors import UnavailableError
from common.java import MIN_JAVA_VERSION, Java, find_java

VERSION = "4.3.0"
"""The version in ivy.xml."""

_SOURCE = Path(__file__).with_name("KafkaStreamsPeer.java")
_JARS = JarSet(
    title=f"Kafka Streams {VERSION}",
    folder=f"kafka-streams-{VERSION}",
    ivy_file=Path(__file__).with_name("ivy.xml"),
    main_jar=f"kafka-streams-{VERSION}.jar",
)


class KafkaStreams:
    """One JVM per instance, with one stream thread per thread."""

    title = f"Kafka Streams {VERSION}"

    def prepare(self, folder: Path) -> None:
        """Fetch the jars, and compile the jobs if there is a javac."""
        self._java = find_java()
        self._jars = fetch_jars(_JARS, self._java)
        self._classes = folder / "kafka-streams-classes"
        self._is_compiled = self._compile()

    def start(self, job: Job) -> Running:
        """Start the JVMs."""
        instances = [
            [launch(job, f"{number}_kafka_streams", self._command(job, number))]
            for number in range(job.instances)
        ]
        return Running(instances)

    def _compile(self) -> bool:
        compiler = _compiler(self._java)
        if compiler is None:
            require_source_launcher(self._java)
            return False
        command = [
            *(str(compiler), "--release", str(MIN_JAVA_VERSION), "-d", str(self._classes)),
            *("-cp", f"{self._jars}/*", str(_SOURCE)),
        ]
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if run.returncode != 0:
            raise UnavailableError(f"{_SOURCE.name} could not be compiled:\n{run.stderr}")
        return True

    def _command(self, job: Job, instance: int) -> list[str]:
        class_path = f"{self._jars}/*"
        if self._is_compiled:
            class_path += f":{self._classes}"
        return [
            str(self._java.executable),
            f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
            *("-cp", class_path),
            _SOURCE.stem if self._is_compiled else str(_SOURCE),
            *(job.kind, job.servers, job.name, job.source, job.sink),
            *(str(job.state_dir(instance)), str(job.threads)),
        ]


def _compiler(java: Java) -> Path | None:
    beside_java = java.home / "bin" / "javac"
    if beside_java.is_file():
        return beside_java
    on_path = shutil.which("javac")
    return Path(on_path) if on_path else None


def require_source_launcher(java: Java) -> None:
    """Raise `UnavailableError` unless `java` can run a source file, which a JRE cannot."""
    run = subprocess.run(
        [str(java.executable), "--list-modules"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if not any(line.startswith("jdk.compiler@") for line in run.stdout.splitlines()):
        raise UnavailableError(
            "the jobs for Kafka Streams are Java sources, and there is neither a javac nor the "
            f"module jdk.compiler in {java.home}: install a JDK (Debian, Ubuntu: `apt install "
            f"openjdk-{MIN_JAVA_VERSION}-jdk-headless`), or leave this peer out (--peer quix)"
        )
