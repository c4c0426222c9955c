"""What a query computes ends when the worker that asked for it is gone."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from kafka_pipeline.common.config.references import HostReferences
from kafka_pipeline.streams.sql.columns import table_of
from kafka_pipeline.streams.sql.spec import Queries, QuerySpec, SparkLostError
from kafka_pipeline.taskmanager.query_channel import QueryServer, RemoteQueries
from tests.queries import FUNCTIONS, ROWS, batch, run

pytestmark = [pytest.mark.integration, pytest.mark.long]

KEY = b"secret"
TIMEOUT_S = 60


def test_query_that_never_ends_is_cancelled_with_its_worker(
    queries: Queries, tmp_path: Path
) -> None:
    """A Python function that sleeps."""
    server = QueryServer("127.0.0.1", KEY, queries, HostReferences())  # type: ignore[arg-type]
    remote = RemoteQueries(("127.0.0.1", server.port), KEY)
    began = tmp_path / "began"
    os.mkfifo(began)
    hanging = remote.open(QuerySpec(function=f"{FUNCTIONS}:hanging", config={"fifo": str(began)}))
    lost = threading.Event()

    def work() -> None:
        table, _ = table_of(batch(ROWS), 0, hanging.columns, "string")
        with pytest.raises(SparkLostError):
            hanging.run(table)
        lost.set()

    threading.Thread(target=work).start()
    assert began.read_text() == "began"
    with socket.socket(fileno=os.dup(hanging._connection.fileno())) as killed:
        killed.shutdown(socket.SHUT_RDWR)
    other = remote.open(QuerySpec("SELECT value FROM input"))
    assert len(run(other, ROWS)) == len(ROWS)
    other.close()
    assert lost.wait(TIMEOUT_S)
    server.close()
