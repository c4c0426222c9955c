"""What a query computes ends when the worker that asked for it is gone."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.common.config.references import HostReferences
from kafka_pipeline.streams.sql.columns import table_of
from kafka_pipeline.streams.sql.queries import RunningQuery
from kafka_pipeline.streams.sql.spec import Queries, QuerySpec, SparkLostError
from kafka_pipeline.taskmanager.query_server import QueryServer
from kafka_pipeline.taskmanager.remote_queries import RemoteQueries
from tests.queries import FUNCTIONS, ROWS, batch, run

pytestmark = [pytest.mark.integration, pytest.mark.long]

KEY = b"secret"
TIMEOUT_S = 60


class ByJobs:
    """Opens queries whose batches are jobs, as on a cluster."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def open(self, spec: QuerySpec) -> RunningQuery:
        query = self._queries.open(spec)
        assert isinstance(query, RunningQuery)
        plans = query.work.plans
        plans._is_local, plans._java = False, plans._server.java.query(False)
        query.plan = query._make_plan(query.plan.rows)
        return query

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queries, name)


@pytest.mark.parametrize("by_jobs", [False, True])
def test_query_that_never_ends_is_cancelled_with_its_worker(
    queries: Queries, tmp_path: Path, by_jobs: bool
) -> None:
    """A Python function that sleeps, right after a batch with which it has not."""
    served: Any = ByJobs(queries) if by_jobs else queries
    server = QueryServer("127.0.0.1", KEY, served, HostReferences())
    remote = RemoteQueries(("127.0.0.1", server.port), KEY)
    began = tmp_path / "began"
    os.mkfifo(began)
    hanging = remote.open(QuerySpec(function=f"{FUNCTIONS}:hanging", config={"fifo": str(began)}))
    assert len(run(hanging, ROWS)) == len(ROWS)
    lost = threading.Event()

    def work() -> None:
        table, _ = table_of(batch([*ROWS, ("k", "hang")]), 0, hanging.columns, "string")
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
