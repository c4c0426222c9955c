"""A real REST catalog of Iceberg, on this machine: that of Iceberg's tests, with its data in S3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.peers.streams_java import build_program
from kafka_pipeline.admin.broker.jars import JarSet
from tests.object_store.server import BUCKET, ObjectStore
from tests.servers import free_port, serving, takes_connections

VERSION = "1.10.1"
"""The version of Iceberg in ivy.xml."""

JARS = JarSet(
    title=f"Iceberg {VERSION}",
    folder=f"iceberg-core-{VERSION}",
    ivy_file=Path(__file__).with_name("ivy.xml"),
    main_jar=f"iceberg-core-{VERSION}-tests.jar",
    digests=Path(__file__).with_name("jars.sha256"),
)


class RestCatalog:
    """A catalog that runs; it takes any token."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running(folder: Path, store: ObjectStore) -> Iterator[RestCatalog]:
    """Run a catalog with its database and its log in a folder, once it answers.

    Raises `UnavailableError` if there is no JDK, or no network for the jars.
    """
    classes = folder / "classes"
    classes.mkdir()
    program = build_program([Path(__file__).with_name("RestCatalog.java")], classes, JARS)
    catalog = RestCatalog(free_port())
    found = store.environment()
    properties = {
        "uri": f"jdbc:sqlite:{folder}/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": f"s3://{BUCKET}/warehouse",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": found["AWS_ENDPOINT_URL"],
        "s3.path-style-access": "true",
        "s3.access-key-id": found["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": found["AWS_SECRET_ACCESS_KEY"],
        "client.region": found["AWS_REGION"],
    }
    command = [
        *program.command("-Xmx512m", "-XX:TieredStopAtLevel=1"),
        *(str(catalog.port), *(f"{key}={value}" for key, value in properties.items())),
    ]
    with serving(command, partial(takes_connections, catalog.port), folder / "catalog.log"):
        yield catalog
