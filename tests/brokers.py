"""The Kafka clusters that tests can run against."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from admin.local_broker import LocalCluster, delete_data

_ROOT = Path(__file__).parents[1]
_PROJECT = "kafka-pipeline"
_HEALTHY_TIMEOUT_S = 120.0


@contextmanager
def local_cluster(directory: Path, num_brokers: int = 1) -> Iterator[str]:
    """Run Kafka from the jars on free ports; nothing stays of it."""
    cluster = LocalCluster(directory, num_brokers=num_brokers)
    cluster.start()
    try:
        yield cluster.bootstrap_servers
    finally:
        cluster.stop()
        # pytest keeps the folders of the last runs, and the data may be large.
        delete_data(directory)


@contextmanager
def docker_cluster() -> Iterator[str]:
    """Run the containers of docker-compose.yaml; ones that were there before are left alone."""
    # Not at the top: whoever runs a local broker needs no Docker library.
    import docker

    client = docker.from_env()
    of_project = {"label": f"com.docker.compose.project={_PROJECT}"}
    try:
        were_there = bool(client.containers.list(filters=of_project))
        subprocess.run([_ROOT / "kafka-docker.sh", "start"], check=True)
        deadline_s = time.monotonic() + _HEALTHY_TIMEOUT_S
        while any(c.health != "healthy" for c in client.containers.list(filters=of_project)):
            if time.monotonic() >= deadline_s:
                raise TimeoutError(f"the containers are not healthy after {_HEALTHY_TIMEOUT_S} s")
            time.sleep(0.5)
        servers = {
            f"{binding['HostIp']}:{binding['HostPort']}"
            for container in client.containers.list(filters=of_project)
            for bindings in container.ports.values()
            for binding in bindings or []
        }
        try:
            yield ",".join(sorted(servers))
        finally:
            if not were_there:
                for container in client.containers.list(all=True, filters=of_project):
                    container.remove(force=True, v=True)
                for network in client.networks.list(filters=of_project):
                    network.remove()
                for volume in client.volumes.list(filters=of_project):
                    volume.remove()
    finally:
        client.close()
