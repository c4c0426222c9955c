"""A PostgreSQL for tests: on this machine, in a folder and on a port of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from tests.servers import free_port

USER, PASSWORD = "ann", "correct horse"
_WAIT_S = 30


class Server:
    """A server with databases for tests; `start` and `stop` as often as a test needs."""

    def __init__(self, binaries: Path, folder: Path, *, is_durable: bool) -> None:
        self._binaries, self._data = binaries, folder / "data"
        self._fsync = "on" if is_durable else "off"
        # PostgreSQL does not run as root.
        self._owner = "nobody" if os.geteuid() == 0 else None
        if self._owner is not None:
            os.chown(folder, pwd.getpwnam(self._owner).pw_uid, -1)
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        subprocess.run(
            [
                *(binaries / "initdb", "-D", self._data, "-U", USER, "-E", "UTF8"),
                *("--locale=C", "-A", "scram-sha-256", f"--pwfile={password}", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            user=self._owner,
            cwd="/",
        )
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        sockets = ["listen_addresses=127.0.0.1", "unix_socket_directories="]
        # A connector of Debezium reads changes of the level `logical`.
        settings = [*sockets, f"fsync={self._fsync}", "wal_level=logical"]
        self._process = subprocess.Popen(
            [
                *(self._binaries / "postgres", "-D", self._data, "-p", str(self.port)),
                *(word for setting in settings for word in ("-c", setting)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._owner,
            cwd="/",
        )
        until_s = time.monotonic() + _WAIT_S
        while True:
            try:
                self.run("SELECT 1")
            except psycopg.OperationalError:
                assert self._process.poll() is None, "the server has ended"
                assert time.monotonic() < until_s, "the server does not answer"
                time.sleep(0.05)
            else:
                return

    def stop(self, by: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT closes connections, SIGQUIT ends it as a crash does."""
        if self._process is not None:
            self._process.send_signal(by)
            self._process.wait(_WAIT_S)
            self._process = None

    def new_database(self) -> Database:
        """Create a database."""
        name = f"shop{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return Database(self, name)

    def run(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run a statement by itself; return its rows, if it has any."""
        with self.connect(database) as connection:
            connection.autocommit = True
            found = connection.execute(statement.encode())
            return [] if found.description is None else found.fetchall()

    def connect(self, database: str) -> psycopg.Connection:
        """Return a connection, each of whose transactions begins with its first statement."""
        url = f"postgresql://127.0.0.1:{self.port}/{database}"
        return psycopg.connect(url, user=USER, password=PASSWORD)


class Database:
    """A database of a `Server`."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.url = f"postgresql://127.0.0.1:{server.port}/{name}"

    def run(self, statement: str) -> list[Any]:
        """Run a statement; return its rows, if it has any."""
        return self.server.run(statement, self.name)

    def connect(self) -> psycopg.Connection:
        """Return a connection; see `Server`."""
        return self.server.connect(self.name)


def installed() -> Path | None:
    """Return the folder with `initdb` and `postgres`; `None` if they are not installed."""
    initdb = shutil.which("initdb") or next(iter(glob("/usr/lib/postgresql/*/bin/initdb")), None)
    return None if initdb is None else Path(initdb).resolve().parent


@contextmanager
def running(binaries: Path, *, is_durable: bool = False) -> Iterator[Server]:
    """Run a server; unless it is durable, it does not wait for the disk."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-pipeline-postgres-"))
    server = Server(binaries, folder, is_durable=is_durable)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
