"""A Spark cluster on the loopback interface: a standalone Master and some Workers, as processes."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kafka_pipeline.admin.broker.ports import LOOPBACK, find_free
from kafka_pipeline.common.process.java import find_java

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 10.0


@dataclass
class SparkCluster:
    """What is known of a cluster that runs."""

    master: str
    json_url: str
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def status(self) -> Any:
        """Return the Master's view of its Workers and applications."""
        return get_json(self.json_url)

    def logs(self) -> str:
        """Return the ends of all logs, for a failing test."""
        files = [*self.folder.glob("*.log"), *self.folder.glob("work*/*/*/stderr")]
        return "\n".join(
            f"--- {file.relative_to(self.folder)}\n{file.read_text(errors='replace')[-2000:]}"
            for file in files
        )


@contextmanager
def spark_cluster(
    folder: Path, workers: int, cores: int, settings: Mapping[str, str]
) -> Iterator[SparkCluster]:
    """Run a Master and Workers with `cores` each; they, and their executors, end afterwards.

    The processes see neither this project's source nor the environment's PYTHONPATH.
    """
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    properties = folder / "cluster.conf"
    properties.touch(mode=0o600)
    properties.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    port, ui = find_free(2)
    cluster = SparkCluster(f"spark://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{ui}/json/", folder)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }

    def start(kind: str, name: str, *arguments: str) -> None:
        main = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        common = ["--host", LOOPBACK, "--properties-file", str(properties)]
        with (folder / f"{name}.log").open("wb") as log:
            cluster.processes.append(
                subprocess.Popen(
                    [home / "bin" / "spark-class", main, *common, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env=environment,
                )
            )

    try:
        start("Master", "master", "--port", str(port), "--webui-port", str(ui))
        for number in range(workers):
            size = ["--cores", str(cores), "--memory", "3g"]
            place = [
                "--port",
                "0",
                "--webui-port",
                "0",
                "--work-dir",
                str(folder / f"work{number}"),
            ]
            start("Worker", f"worker{number}", *size, *place, cluster.master)
        wait_for_workers(cluster, workers)
        yield cluster
    finally:
        end(cluster.processes)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in reversed(processes):
        process.terminate()
    for process in processes:
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_workers(cluster: SparkCluster, workers: int) -> None:
    """Wait until the Master knows so many Workers."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            if cluster.status()["aliveworkers"] == workers:
                return
        except OSError:
            assert all(process.poll() is None for process in cluster.processes), cluster.logs()
        time.sleep(0.2)
    raise AssertionError(f"the cluster is not up\n{cluster.logs()}")


def get_json(url: str) -> Any:
    """Return what a web interface of Spark answers."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)
