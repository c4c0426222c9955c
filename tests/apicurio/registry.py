"""A real schema registry with Confluent's API, on this machine: Apicurio's, with H2 in memory."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from kafka_pipeline.admin.broker.jars import JarSet, fetch_jars
from kafka_pipeline.common.process.java import find_java
from tests.servers import free_port, serving

VERSION = "2.6.13.Final"
"""The version of Apicurio in ivy.xml."""

JARS = JarSet(
    title=f"Apicurio {VERSION}",
    folder=f"apicurio-registry-{VERSION}",
    ivy_file=Path(__file__).with_name("ivy.xml"),
    main_jar=f"apicurio-registry-app-{VERSION}-all.tar.gz",
    digests=Path(__file__).with_name("jars.sha256"),
)

CONVERTER = "converter.apicurio.registry"
"""The beginning of the settings of the converter in a connector of Debezium."""


class Registry:
    """A registry that runs; its schemas are gone when it ends."""

    def __init__(self, port: int, jars: Path) -> None:
        self.port, self.jars = port, jars

    @property
    def url(self) -> str:
        """The address of its API that is Confluent's."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    @property
    def of_converter(self) -> dict[str, str]:
        """The settings of a connector that writes Avro as Confluent's serializers do."""
        return {
            f"{CONVERTER}.url": f"http://127.0.0.1:{self.port}/apis/registry/v2",
            f"{CONVERTER}.auto-register": "true",
            f"{CONVERTER}.find-latest": "true",
            f"{CONVERTER}.as-confluent": "true",
            f"{CONVERTER}.headers.enabled": "false",
            f"{CONVERTER}.use-id": "contentId",
        }


@contextmanager
def running(folder: Path, within_s: float = 180) -> Iterator[Registry]:
    """Run a registry out of a folder, once it answers.

    Raises `UnavailableError` if there is no Java, or no network for the jars.
    """
    java = find_java()
    jars = fetch_jars(JARS, java)
    with tarfile.open(jars / JARS.main_jar) as archive:
        archive.extractall(folder, filter="data")
    (runner,) = folder.glob("*-runner.jar")
    registry = Registry(free_port(), jars)
    command = [str(java.executable), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-jar", str(runner)]
    environment = {
        **os.environ,
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(registry.port),
    }
    with serving(
        command,
        partial(_answers, registry),
        folder / "registry.log",
        env=environment,
        within_s=within_s,
    ):
        yield registry


def _answers(registry: Registry) -> bool:
    try:
        with urlopen(f"{registry.url}/subjects", timeout=5):
            return True
    except (URLError, OSError):
        return False
