"""The query channel, with queries that need no Spark."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from streams.spark.spec import QueryError, QuerySpec, SparkLostError
from taskmanager.query_channel import QueryServer, RemoteQueries

KEY = b"secret"
TIMEOUT_S = 30
TABLE = pa.table({"value": ["a", "b"]})


class Doubling:
    """A query that returns its records twice, and fails as the value of the first one says."""

    columns = ("value",)

    def __init__(self) -> None:
        self.closed = threading.Event()

    def run(self, table: pa.Table) -> pa.Table:
        first = table["value"][0].as_py()
        if first == "rejected":
            raise QueryError("no good")
        if first == "unexpected":
            raise ValueError("what")
        return pa.concat_tables([table, table])

    def close(self) -> None:
        self.closed.set()


class FakeQueries:
    """Opens a query, or fails as its text says."""

    def __init__(self) -> None:
        self.opened: list[tuple[QuerySpec, Doubling]] = []

    def open(self, spec: QuerySpec) -> Doubling:
        if spec.query == "refused":
            raise QueryError("it sorts")
        if spec.query == "lost":
            raise SparkLostError("no JVM")
        query = Doubling()
        self.opened.append((spec, query))
        return query


@pytest.fixture
def queries() -> FakeQueries:
    return FakeQueries()


@pytest.fixture
def server(queries: FakeQueries) -> Iterator[QueryServer]:
    server = QueryServer("127.0.0.1", KEY, queries)
    yield server
    server.close()


@pytest.fixture
def remote(server: QueryServer) -> RemoteQueries:
    return RemoteQueries(("127.0.0.1", server.port), KEY)


def test_query_runs_in_the_driver_and_its_output_comes_back(
    queries: FakeQueries, remote: RemoteQueries
) -> None:
    spec = QuerySpec("SELECT", tables={"t": {"format": "csv"}}, config={"a": [1]})
    query = remote.open(spec)
    assert query.columns == ("value",)
    assert query.run(TABLE)["value"].to_pylist() == ["a", "b", "a", "b"]
    large = pa.table({"value": ["x" * 100] * 100_000})
    assert len(query.run(large)) == 200_000
    ((found, running),) = queries.opened
    assert found == spec
    query.close()
    assert running.closed.wait(TIMEOUT_S)


def test_each_query_has_a_connection_of_its_own(
    queries: FakeQueries, remote: RemoteQueries
) -> None:
    first, second = remote.open(QuerySpec("1")), remote.open(QuerySpec("2"))
    first.close()
    assert queries.opened[0][1].closed.wait(TIMEOUT_S)
    assert len(second.run(TABLE)) == 4
    second.close()


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [("refused", QueryError, "^it sorts$"), ("lost", SparkLostError, "no JVM")],
)
def test_query_that_cannot_be_opened_is_reported_as_what_it_is(
    remote: RemoteQueries, text: str, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        remote.open(QuerySpec(text))


def test_batch_that_is_rejected_leaves_the_query_open(remote: RemoteQueries) -> None:
    query = remote.open(QuerySpec("1"))
    with pytest.raises(QueryError, match=r"^no good$"):
        query.run(pa.table({"value": ["rejected"]}))
    assert len(query.run(TABLE)) == 4
    query.close()


def test_unexpected_error_is_no_records_fault(remote: RemoteQueries) -> None:
    query = remote.open(QuerySpec("1"))
    with pytest.raises(SparkLostError, match="ValueError: what"):
        query.run(pa.table({"value": ["unexpected"]}))
    query.close()


def test_driver_that_is_gone_fails_the_task_and_no_record(remote: RemoteQueries) -> None:
    query = remote.open(QuerySpec("1"))
    query._connection.close()
    with pytest.raises(SparkLostError, match="the driver is gone"):
        query.run(TABLE)


def test_driver_that_does_not_listen_fails_the_task() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(SparkLostError, match="takes no queries"):
            RemoteQueries(silent.getsockname(), KEY).open(QuerySpec("1"))


def test_stranger_is_refused(server: QueryServer, remote: RemoteQueries) -> None:
    with pytest.raises(SparkLostError):
        RemoteQueries(("127.0.0.1", server.port), b"wrong").open(QuerySpec("1"))
    remote.open(QuerySpec("1")).close()
