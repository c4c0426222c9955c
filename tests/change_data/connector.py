"""A connector of Debezium in a JVM of its own, and the records that it gives."""

from __future__ import annotations

import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import NamedTuple

from benchmarks.peers.streams_java import JavaProgram, build_program
from kafka_pipeline.admin.broker.jars import JarSet
from tests import postgres
from tests.mysql_server import server as mysql

_HERE = Path(__file__).parent


def _jars(database: str, version: str, folder: Path) -> JarSet:
    name = f"debezium-connector-{database}-{version}"
    return JarSet(
        title=f"Debezium {version} for {database}",
        folder=name,
        ivy_file=folder / "ivy.xml",
        main_jar=f"{name}.jar",
        digests=folder / "jars.sha256",
    )


JARS = _jars("postgres", "3.6.1.Final", _HERE)
MYSQL_JARS = _jars("mysql", "3.6.1.Final", _HERE / "mysql")
MARIADB_JARS = _jars("mariadb", "3.5.0.Final", _HERE / "mariadb")
"""The versions are those in each ivy.xml."""

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


def compile_connector(folder: Path, jars: JarSet = JARS) -> JavaProgram:
    """Fetch the jars, if they are not there, and compile the program into a folder.

    Raises `UnavailableError`, with the reason, if there is no JDK, or no network for the jars.
    """
    return build_program([_SOURCE], folder, jars)


def of_postgres(database: postgres.Database) -> dict[str, str]:
    """Return the settings of a connector for the table `orders` of a PostgreSQL."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(database.server.port),
        "database.user": postgres.USER,
        "database.password": postgres.PASSWORD,
        "database.dbname": database.name,
        "plugin.name": "pgoutput",
        "table.include.list": "public.orders",
    }


def of_binlog(database: mysql.Database, folder: Path) -> dict[str, str]:
    """Return the settings of a connector for the table `orders` of a MySQL or a MariaDB.

    It keeps the history of the table's columns in `folder`, and writes its position at once.
    """
    server = database.server
    name = "mariadb.MariaDb" if server.is_mariadb else "mysql.MySql"
    return {
        "connector.class": f"io.debezium.connector.{name}Connector",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": mysql.USER,
        "database.password": mysql.PASSWORD,
        "database.server.id": "4711",
        "database.include.list": database.name,
        "table.include.list": f"{database.name}.orders",
        "offset.flush.interval.ms": "0",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / "history"),
    }


class Connector:
    """A connector for the database that `source` says, which keeps its position in `folder`.

    It makes a snapshot, and then reads changes. Unless `source` says so, it writes its position
    after the snapshot, and then not for an hour. Records are JSON or Avro, whose converter needs
    `settings` and its jars.
    """

    def __init__(
        self,
        program: JavaProgram,
        folder: Path,
        source: Mapping[str, str],
        settings: Mapping[str, str] = {},
        *,
        in_avro: bool = False,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._offsets = folder / "offsets"
        properties = {
            "name": "shop",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self._offsets),
            "offset.flush.interval.ms": "3600000",
            "topic.prefix": PREFIX,
            "provide.transaction.metadata": "true",
            "poll.interval.ms": "10",
            **source,
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

    def position(self) -> bytes:
        """Return the position that it has written, once that is after its snapshot."""
        until_s = time.monotonic() + 60
        while not self._offsets.exists() or b'"snapshot' in (found := self._offsets.read_bytes()):
            assert time.monotonic() < until_s, "no position within 60 s"
            time.sleep(0.05)
        return found

    def kill(self, position: bytes | None = None) -> None:
        """End it at once, as a crash does; with a `position`, it has written no later one."""
        self._process.kill()
        self._process.wait(30)
        if position is not None:
            self._offsets.write_bytes(position)
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
