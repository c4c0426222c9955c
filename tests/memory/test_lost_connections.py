"""A task whose connection to PostgreSQL is lost around a COMMIT, on brokers in memory."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pipeline.common.kafka.clients import TransactionFailedError
from tests.memory.table_jobs import IcebergJob, Job, PostgresJob
from tests.postgres import Database
from tests.relay import Relay

_BYTES = 65_536


class PostgresRelay(Relay):
    """Passes bytes on; when told to, closes connections at a COMMIT."""

    def __init__(self, server_port: int) -> None:
        self.loses = ""
        """`the answer` to a COMMIT that the server has carried out, `the commit` itself, or
        nothing."""
        self.lost = 0
        """How often that happened."""
        super().__init__(server_port)

    def serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self.server_port)) as server:
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
def relay(database: Database) -> Iterator[PostgresRelay]:
    """A relay to the database, whose URL becomes that of the relay."""
    relay = PostgresRelay(database.server.port)
    database.url = database.url.replace(str(database.server.port), str(relay.port))
    yield relay
    relay.close()


@pytest.mark.parametrize("loses", ["the answer", "the commit"])
@pytest.mark.parametrize("format_", ["postgres", "postgres, upserts", "iceberg"])
def test_a_row_is_there_once_if_a_connection_is_lost_at_a_commit(
    tmp_path: Path, database: Database, relay: PostgresRelay, format_: str, loses: str
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
