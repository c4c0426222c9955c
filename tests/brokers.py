"""The Kafka clusters that tests can run against."""

from __future__ import annotations

import fcntl
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from kafka_pipeline.admin.broker.jars import BROKER, JarSet
from kafka_pipeline.admin.broker.local_cluster import LocalCluster, delete_data

_ROOT = Path(__file__).parents[1]
_OF_PROJECT = {"label": "com.docker.compose.project=kafka-pipeline"}
_HEALTHY_TIMEOUT_S = 120.0

SETTINGS: Mapping[str, str | int] = {
    # Kafka deletes records whose timestamps are older than a week; by default, it looks for them
    # once in 5 minutes, so a test that writes such records would fail only now and then.
    "log.retention.check.interval.ms": 1_000,
    "log.initial.task.delay.ms": 1_000,
    # Everybody may do everything, but where a test takes a right away.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""The settings of brokers that many tests share."""


@contextmanager
def local_cluster(
    directory: Path,
    num_brokers: int = 1,
    settings: Mapping[str, str | int] = {},
    jar_set: JarSet = BROKER,
) -> Iterator[str]:
    """Run Kafka from the jars on free ports; nothing stays of it."""
    cluster = LocalCluster(
        directory,
        num_brokers=num_brokers,
        settings=settings,
        is_short_lived=True,
        jar_set=jar_set,
    )
    cluster.start()
    try:
        yield cluster.bootstrap_servers
    finally:
        cluster.stop()
        # pytest keeps the folders of the last runs, and the data may be large.
        delete_data(directory)


@contextmanager
def shared_cluster(directory: Path) -> Iterator[str]:
    """Run the Kafka of all processes of a test run; those that share the folder share it.

    The first one starts it, which takes some seconds, and the last one stops it. If one of them is
    lost, it is not stopped.
    """
    directory.mkdir(exist_ok=True)
    brokers = directory / "brokers"
    with _counted(directory / "users", 1):
        cluster = LocalCluster.find(brokers)
        if cluster is None:
            cluster = LocalCluster(brokers, settings=SETTINGS, is_short_lived=True)
            cluster.start()
    try:
        yield cluster.bootstrap_servers
    finally:
        with _counted(directory / "users", -1) as users:
            if not users:
                cluster.stop()
                delete_data(brokers)


@contextmanager
def _counted(file: Path, change: int) -> Iterator[int]:
    """Change a number in a file, which no other process can do meanwhile; an error leaves it."""
    with file.open("a+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.seek(0)
        count = int(stream.read() or 0) + change
        yield count
        stream.truncate(0)
        stream.write(str(count))


@contextmanager
def docker_cluster() -> Iterator[str]:
    """Run the containers of docker-compose.yaml; what was there before is there afterwards."""
    # Not at the top: a local broker needs no Docker library.
    import docker

    with closing(docker.from_env()) as client:
        if client.containers.list(filters=_OF_PROJECT):
            yield _wait_until_healthy(client)
            return
        kept_volumes = {volume.name for volume in client.volumes.list(filters=_OF_PROJECT)}
        try:
            subprocess.run([_ROOT / "kafka-docker.sh", "start"], check=True)
            yield _wait_until_healthy(client)
        finally:
            for container in client.containers.list(all=True, filters=_OF_PROJECT):
                container.remove(force=True)
            for network in client.networks.list(filters=_OF_PROJECT):
                network.remove()
            for volume in client.volumes.list(filters=_OF_PROJECT):
                if volume.name not in kept_volumes:
                    volume.remove()


# Any, because the Docker library has no types.
def _wait_until_healthy(client: Any) -> str:
    """Return the addresses of the brokers once all of them serve clients."""
    deadline_s = time.monotonic() + _HEALTHY_TIMEOUT_S
    while any(c.health != "healthy" for c in client.containers.list(filters=_OF_PROJECT)):
        if time.monotonic() >= deadline_s:
            raise TimeoutError(f"the containers are not healthy after {_HEALTHY_TIMEOUT_S} s")
        time.sleep(0.5)
    servers = {
        f"{binding['HostIp']}:{binding['HostPort']}"
        for container in client.containers.list(filters=_OF_PROJECT)
        for bindings in container.ports.values()
        for binding in bindings or []
    }
    return ",".join(sorted(servers))
