"""A connector of Debezium in a JVM of its own, and the records that it gives."""

from __future__ import annotations

import subprocess
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import NamedTuple

from benchmarks.peers.streams_java import JavaProgram, build_program
from kafka_pipeline.admin.broker.jars import JarSet
from tests.postgres import PASSWORD, USER, Database

VERSION = "3.6.1.Final"
"""The version of Debezium in ivy.xml."""

JARS = JarSet(
    title=f"Debezium {VERSION}",
    folder=f"debezium-connector-postgres-{VERSION}",
    ivy_file=Path(__file__).with_name("ivy.xml"),
    main_jar=f"debezium-connector-postgres-{VERSION}.jar",
    digests=Path(__file__).with_name("jars.sha256"),
)

PREFIX = "shop"
"""The beginning of all topics."""

TRANSACTIONS = f"{PREFIX}.transaction"
"""The topic of the markers of transactions."""

_SOURCE = Path(__file__).with_name("Connector.java")


class Given(NamedTuple):
    """A record that a connector gives."""

    topic: str
    key: bytes | None
    value: bytes | None


def compile_connector(folder: Path) -> JavaProgram:
    """Fetch the jars, if they are not there, and compile the program into a folder.

    Raises `UnavailableError`, with the reason, if there is no JDK, or no network for the jars.
    """
    return build_program([_SOURCE], folder, JARS)


class Connector:
    """A connector for the table `orders` of a PostgreSQL, which keeps its position in `folder`.

    It makes a snapshot, and then reads changes. It writes its position after the snapshot, and then
    not for an hour. Records are JSON or Avro, whose converter needs `settings` and its jars.
    """

    def __init__(
        self,
        program: JavaProgram,
        folder: Path,
        database: Database,
        settings: Mapping[str, str] = {},
        *,
        in_avro: bool = False,
    ) -> None:
        folder.mkdir(exist_ok=True)
        properties = {
            "name": "shop",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "3600000",
            "database.hostname": "127.0.0.1",
            "database.port": str(database.server.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.dbname": database.name,
            "plugin.name": "pgoutput",
            "topic.prefix": PREFIX,
            "table.include.list": "public.orders",
            "provide.transaction.metadata": "true",
            "poll.interval.ms": "10",
            **settings,
        }
        file = folder / "connector.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        with (folder / "connector.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *program.command("-Xmx512m", "-XX:TieredStopAtLevel=1"),
                    *(str(file), "avro" if in_avro else "json"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._given: Queue[Given] = Queue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def records(self, within_s: float) -> Iterator[Given]:
        """Yield records as they come. Raises TimeoutError if none comes within a time."""
        while True:
            try:
                yield self._given.get(timeout=within_s)
            except Empty:
                raise TimeoutError(f"no record within {within_s} s") from None

    def kill(self) -> None:
        """End it at once, as a crash does: its position is as it was when it began."""
        self._process.kill()
        self._process.wait(30)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            topic, key, value = line.split()
            self._given.put(Given(topic, _bytes(key), _bytes(value)))


def _bytes(coded: str) -> bytes | None:
    return None if coded == "-" else b64decode(coded)
