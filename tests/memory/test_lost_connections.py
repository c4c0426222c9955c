"""A task whose connection to PostgreSQL is lost around a COMMIT, on brokers in memory."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kafka_pipeline.common.kafka.clients import TransactionFailedError
from tests.memory.table_jobs import IcebergJob, Job, PostgresJob
from tests.postgres import Database

_BYTES = 65_536


class Relay:
    """Passes bytes between clients and a server; when told to, closes connections at a COMMIT."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.loses = ""
        """`the answer` to a COMMIT that the server has carried out, `the commit` itself, or
        nothing."""
        self.lost = 0
        """How often that happened."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._server_port)) as server:
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(_BYTES)
                    loses = self.loses if source is client and b"COMMIT\0" in data else ""
                    self.lost += bool(loses)
                    if not data or loses == "the commit":
                        return
                    (server if source is client else client).sendall(data)
                    if loses:
                        server.recv(_BYTES)
                        return


@pytest.fixture
def relay(database: Database) -> Iterator[Relay]:
    """A relay to the database, whose URL becomes that of the relay."""
    relay = Relay(database.server.port)
    database.url = database.url.replace(str(database.server.port), str(relay.port))
    yield relay
    relay.close()


@pytest.mark.parametrize("loses", ["the answer", "the commit"])
@pytest.mark.parametrize("format_", ["postgres", "postgres, upserts", "iceberg"])
def test_a_row_is_there_once_if_a_connection_is_lost_at_a_commit(
    tmp_path: Path, database: Database, relay: Relay, format_: str, loses: str
) -> None:
    job: Job
    if format_ == "iceberg":
        job = IcebergJob(tmp_path, uri=database.url)
    elif format_ == "postgres":
        job = PostgresJob(tmp_path, database)
    else:
        job = PostgresJob(tmp_path, database, "n BIGINT NOT NULL", mode="upsert", key=("n",))
    job.write(1, b"poison", 2)
    owner = job.started()
    relay.loses = loses
    with pytest.raises(TransactionFailedError):
        owner.commit()
    owner.drop()
    relay.loses = ""
    assert relay.lost == 1
    assert (job.position, job.committed) == (3 if loses == "the answer" else None, None)
    job.write(3)
    job.run()
    assert job.rows() == [(0, 1), (2, 2), (3, 3)]
    assert job.letters == [b"poison"]
    assert job.position == job.committed == 4
