"""A YARN on the loopback interface: a ResourceManager and NodeManagers in one JVM."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.peers.streams_java import build_program
from kafka_pipeline.admin.broker.jars import JarSet
from kafka_pipeline.admin.broker.ports import LOOPBACK
from kafka_pipeline.common.errors import UnavailableError
from tests.spark_cluster import get_json

VERSION = "3.5.0"
"""The version of Hadoop in ivy.xml, which is that of the client among pyspark's jars."""

JARS = JarSet(
    title=f"Hadoop {VERSION}",
    folder=f"hadoop-client-minicluster-{VERSION}",
    ivy_file=Path(__file__).with_name("ivy.xml"),
    main_jar=f"hadoop-client-minicluster-{VERSION}.jar",
    digests=Path(__file__).with_name("jars.sha256"),
)

QUEUE = "streaming"
"""The only queue."""

START_TIMEOUT_S = 120.0
_MASTER, _EXECUTOR = "ExecutorLauncher", "YarnCoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class YarnCluster:
    """What is known of a cluster that runs."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs in its environment."""
        return {"HADOOP_CONF_DIR": str(self.folder / "conf")}

    def applications(self) -> dict[str, str]:
        """Return the state of each application, by its id: ACCEPTED, RUNNING, FAILED, …"""
        settings = ElementTree.parse(self.folder / "conf" / "yarn-site.xml").getroot()
        values = {entry.findtext("name"): entry.findtext("value") for entry in settings}
        address = values["yarn.resourcemanager.webapp.address"]
        found = get_json(f"http://{address}/ws/v1/cluster/apps")["apps"] or {"app": []}
        return {app["id"]: app["state"] for app in found["app"]}

    def application_masters(self) -> list[int]:
        """Return the process ids of the ApplicationMasters that run."""
        return self._javas(_MASTER)

    def executors(self) -> list[int]:
        """Return the process ids of the executors that run."""
        return self._javas(_EXECUTOR)

    def _javas(self, main: str) -> list[int]:
        answer = subprocess.run(
            ["ps", "-ewwo", "pid=,args="], capture_output=True, text=True, check=True
        )
        # The shells of a container name the class, too.
        rows = (line.split(None, 2) for line in answer.stdout.splitlines())
        return [
            int(pid)
            for pid, program, *arguments in rows
            if program.endswith("/java")
            and any(main in text and str(self.folder) in text for text in arguments)
        ]

    def logs(self) -> str:
        """Return the ends of all logs, for a failing test."""
        files = [*self.folder.glob("*.log"), *self.folder.rglob("container_*/std*")]
        return "\n".join(
            f"--- {file.relative_to(self.folder)}\n{file.read_text(errors='replace')[-3000:]}"
            for file in files
        )


@contextmanager
def yarn_cluster(folder: Path, nodes: int, memory_mb: int) -> Iterator[YarnCluster]:
    """Run a ResourceManager, and NodeManagers with so much memory each.

    Raises `UnavailableError` if there is no JDK, no network for the jars, or if this host's name is
    not an address of the loopback interface, as NodeManagers and executors listen there.
    """
    _check_host_name()
    classes = folder / "classes"
    classes.mkdir()
    program = build_program([Path(__file__).with_name("MiniYarn.java")], classes, JARS)
    command = program.command("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    with (folder / "yarn.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, str(folder), str(nodes), str(memory_mb), QUEUE],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    cluster = YarnCluster(folder)
    try:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not (folder / "conf" / "yarn-site.xml").exists():
            assert process.poll() is None, cluster.logs()
            assert time.monotonic() < deadline_s, f"the cluster is not up\n{cluster.logs()}"
            time.sleep(0.2)
        yield cluster
    finally:
        process.kill()
        process.communicate()


def _check_host_name() -> None:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        address = str(error)
    if not address.startswith("127."):
        raise UnavailableError(
            f"YARN listens at the host's own name, and {name} is not {LOOPBACK}: {address}"
        )
