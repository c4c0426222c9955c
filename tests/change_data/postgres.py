"""A PostgreSQL of a test's own, on the loopback interface, that logs changes for a connector."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_STARTS_WITHIN_S = 30
_SETTINGS = (
    "listen_addresses = '127.0.0.1'\n"
    "wal_level = logical\n"
    "max_wal_senders = 4\n"
    "max_replication_slots = 4\n"
    "fsync = off\n"
)


def find_programs() -> Path | None:
    """Return the folder of the programs of PostgreSQL's server; `None` if it is not installed."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql")
    found_in = [each for each in versions.glob("*/bin") if (each / "initdb").is_file()]
    return max(found_in, key=lambda each: int(each.parent.name), default=None)


class Postgres:
    """A server with one database, `shop`, whose user `postgres` needs no password.

    PostgreSQL does not run as root, so a root has it run as the system's user `postgres`.
    """

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._user = "postgres" if os.getuid() == 0 else None
        # The folder of a test may be readable by root alone.
        self._folder = folder = Path(tempfile.mkdtemp(prefix="kafka-pipeline-changes-"))
        self._data = folder / "data"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        if self._user is not None:
            shutil.chown(folder, self._user)
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8")
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(f"{_SETTINGS}port = {self.port}\n")
            settings.write(f"unix_socket_directories = '{self._data}'\n")
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [programs / "postgres", "-D", self._data],
                user=self._user,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        try:
            self._wait()
            self.execute("CREATE DATABASE shop", database="postgres")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def execute(self, *statements: str, database: str = "shop") -> str:
        """Run statements, each in a transaction of its own unless they say otherwise."""
        commands = [part for each in statements for part in ("-c", each)]
        return self._run(*self._psql(database), *commands)

    def query(self, select: str) -> Any:
        """Return the rows of a SELECT as the database writes them in JSON."""
        text = f"SELECT coalesce(json_agg(found), '[]') FROM ({select}) AS found"
        return json.loads(self.execute(text))

    def session(self) -> Session:
        """Return a session, in which a transaction may stay open."""
        return Session(
            subprocess.Popen(
                [self._programs / "psql", *self._psql("shop")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )

    def close(self) -> None:
        """Stop, and delete the data."""
        # With SIGINT, it ends its own processes first.
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)
        shutil.rmtree(self._folder)

    def _psql(self, database: str) -> list[str]:
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database]
        return [*place, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]

    def _wait(self) -> None:
        until = time.monotonic() + _STARTS_WITHIN_S
        while True:
            try:
                self.execute("SELECT 1", database="postgres")
            except subprocess.CalledProcessError:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.1)
            else:
                return

    def _run(self, program: str, *arguments: str) -> str:
        """Run a program of PostgreSQL; without its name, psql."""
        command = [program, *arguments]
        if program.startswith("-"):
            command = ["psql", *command]
        command[0] = str(self._programs / command[0])
        user = self._user if command[0].endswith("initdb") else None
        run = subprocess.run(
            command, user=user, cwd="/", capture_output=True, text=True, check=False
        )
        if run.returncode:
            raise subprocess.CalledProcessError(run.returncode, command, run.stdout, run.stderr)
        return run.stdout


class Session:
    """A session of psql; each call waits until its statements are done."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def execute(self, *statements: str) -> list[str]:
        """Run statements; return the lines of their results."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        for each in statements:
            stdin.write(f"{each};\n")
        stdin.write("\\echo done\n")
        stdin.flush()
        lines = []
        while (line := stdout.readline()) != "done\n":
            assert line, "psql has ended: a statement failed"
            lines.append(line.strip())
        return lines

    def close(self) -> None:
        """End the session."""
        self._process.communicate()
