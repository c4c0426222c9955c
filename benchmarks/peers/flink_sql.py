"""Flink SQL as a contender, in a separate environment, with its connector from Maven Central."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contender import Job, Running, launch
from benchmarks.peers.pip_environment import PipEnvironment
from kafka_pipeline.admin.broker.jars import JarSet, fetch_jars
from kafka_pipeline.common.process.java import find_java

VERSION = "2.2.1"
"""After a change, `./scripts/lock.sh` renews its lock."""
CONNECTOR_VERSION = "5.0.0-2.2"
"""The version in ivy.xml."""

_FILES = Path(__file__).with_name("flink")
JARS = JarSet(
    title=f"Kafka connector of Flink {CONNECTOR_VERSION}",
    folder=f"flink-sql-connector-kafka-{CONNECTOR_VERSION}",
    ivy_file=_FILES / "ivy.xml",
    main_jar=f"flink-sql-connector-kafka-{CONNECTOR_VERSION}.jar",
    digests=_FILES / "jars.sha256",
)
_ENVIRONMENT = PipEnvironment(
    title=f"Flink {VERSION}",
    folder=f"flink-{VERSION}",
    lock=Path(__file__).parents[2] / "locks" / "flink.lock",
    otherwise="leave this peer out, by an option that --help shows",
)
_APPLICATION = Path(__file__).with_name("flink_application.py")


class FlinkSql:
    """One process with a cluster of Flink in it, which has a slot for each thread."""

    title = f"Flink SQL {VERSION}"

    def prepare(self, folder: Path) -> None:
        """Install Flink once, into an environment in the cache folder, and fetch the connector."""
        self._java = find_java()
        self._python = _ENVIRONMENT.python()
        self._connector = fetch_jars(JARS, self._java) / JARS.main_jar

    def start(self, job: Job) -> Running:
        """Start the process; more than one instance would need a cluster of its own."""
        command = [
            *(str(self._python), str(_APPLICATION)),
            *(job.kind, job.servers, job.name, job.source, job.sink),
            *(str(job.instances * job.threads), self._connector.as_uri()),
        ]
        environment = {"JAVA_HOME": str(self._java.home), "FLINK_LOG_DIR": str(job.folder)}
        return Running([[launch(job, "0_flink", command, environment)]], group=job.name)
