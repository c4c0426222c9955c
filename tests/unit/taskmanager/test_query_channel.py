"""The query channel, with queries that need no Spark."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_pipeline.common.config.references import HostReferences
from kafka_pipeline.common.config.secret_settings import SecretSettings
from kafka_pipeline.common.errors import ConfigError, OwnError
from kafka_pipeline.common.pipelines.specs import JoinSpec, WindowSpec
from kafka_pipeline.streams.sql.compiled_plan import INPUT, CompiledPlan
from kafka_pipeline.streams.sql.join_shape import JoinShape
from kafka_pipeline.streams.sql.json_fields import JsonFields
from kafka_pipeline.streams.sql.over_shape import OverShape
from kafka_pipeline.streams.sql.plan_calls import PlanInJvm
from kafka_pipeline.streams.sql.spec import EndedQueryError, QueryError, QuerySpec, SparkLostError
from kafka_pipeline.streams.sql.split_results import Member, SplitResults
from kafka_pipeline.streams.sql.state_shape import StateShape
from kafka_pipeline.taskmanager import query_channel, query_server
from kafka_pipeline.taskmanager.query_server import QueryServer
from kafka_pipeline.taskmanager.remote_queries import RemoteQueries, RemoteQuery
from tests.fake_jvm import CANCELLED, FAILED, FakeJvm, answered

KEY = b"secret"
TIMEOUT_S = 30
TABLE = pa.table({"value": ["a", "b"]})
REJECTED = pa.table({"value": ["rejected"]})
FIELDS = JsonFields(pa.schema([("a", pa.int32()), ("b", pa.string())]), ("b",))


class Served:
    """A query with plans for some calls."""

    def __init__(
        self, spec: QuerySpec, jvm: FakeJvm, socket_path: str, calls: tuple[str, ...]
    ) -> None:
        self._spec = spec
        self._jvm = jvm
        self._calls = calls
        self.socket_path = socket_path
        self.began = threading.Event()
        self.cancelled = threading.Event()
        self.closed = threading.Event()
        self.replaced: list[tuple[str, pa.Table]] = []
        self.is_fixed = not spec.global_tables
        self.fails: Exception | None = None
        self.plan_again()

    def plan_again(self) -> None:
        """Make other plans, whose ids are the names of their calls and a number."""
        number = len(self.replaced)
        self.known_plans = {name: self._plan(f"{name}{number}") for name in self._calls}

    def _plan(self, id_: str) -> CompiledPlan:
        leaves = {INPUT: TABLE.schema, "b": TABLE.schema}
        has_parser = self._spec.format == "json" and id_ != "parser"
        parser = partial(self._plan, "parser") if has_parser else None
        plan = PlanInJvm(id_, self.ask)
        return CompiledPlan(("value",), leaves, TABLE.schema, plan, FIELDS, parser)

    def newest_plans(self) -> dict[str, CompiledPlan]:
        if self.fails is not None:
            raise self.fails
        return self.known_plans

    def ask(self, request: bytes | memoryview) -> memoryview:
        return self._jvm.ask(request)

    def instead(self, batch: bytes) -> bytes | None:
        self.began.set()
        if b"hangs" in batch:
            assert self.cancelled.wait(TIMEOUT_S)
            return answered(CANCELLED, b"interrupted")
        if b"rejected" in batch:
            return answered(FAILED, b"a.OddException: [DIVIDE_BY_ZERO] no good 4111 SQLSTATE: 22")
        return None

    def replace(self, name: str, rows: pa.Table) -> None:
        if name == "unknown":
            raise QueryError("no such table")
        self.replaced.append((name, rows))
        self.plan_again()

    def cancel(self) -> None:
        self.cancelled.set()

    def close(self) -> None:
        self.closed.set()


SPLIT = SplitResults((Member("b", "c"), Member("__members_1")), True, False, ("b", "__record"))


SHAPE = StateShape(
    values=pa.schema([]),
    groups=pa.schema([("g", pa.string()), ("w", pa.timestamp("us", tz="UTC"))]),
    buffers=pa.schema([pa.field("n", pa.int64(), nullable=False)]),
    output=pa.schema([("value", pa.binary())]),
    window=WindowSpec(size_ms=2, slide_ms=1),
    window_column="w",
    order_column="",
    last_time="n",
    key_column="key",
    is_distinct=False,
    best=0,
    ranked="",
    loses_rows=False,
    empty=pa.table({"n": pa.array([0], pa.int64())}),
    content="{}",
)


JOIN_SHAPE = JoinShape(
    rows=(pa.schema([("left0", pa.string())]), pa.schema([("right0", pa.int64())])),
    join=JoinSpec(left="a", right="b", keeps=("left",), before_ms=5, after_ms=-3),
    is_checked=True,
    columns=(["key string"], ["n bigint"]),
)


OVER_SHAPE = OverShape(
    rows=pa.schema([("partition0", pa.string()), ("column0", pa.int64())]),
    partitions=1,
    rows_before=9,
    range_ms=60_000,
    columns=["key string", "n bigint"],
    key_column="partition0",
)


class FakeQueries:
    """Opens a query, or fails if its text asks for it."""

    def __init__(self, socket_path: str) -> None:
        self.jvm = FakeJvm()
        self._socket_path = socket_path
        self.opened: list[tuple[QuerySpec, Any]] = []
        self.opened_one = threading.Event()
        self.answers = threading.Event()
        self.answers.set()

    def _opened(self, spec: QuerySpec, *calls: str, **described: object) -> Any:
        if spec.query == "refused":
            raise QueryError("it sorts")
        if spec.query == "lost":
            raise SparkLostError("no JVM")
        query: Any = Served(spec, self.jvm, self._socket_path, calls)
        query.described = described
        if not self.opened:  # what is hung in belongs to the first query of a test
            self.jvm.instead = query.instead
        self.opened.append((spec, query))
        self.opened_one.set()
        return query

    def open_aggregation(self, spec: QuerySpec) -> Any:
        return self._opened(spec, "partial", "merge", shape=SHAPE.to_json())

    def open_join(self, spec: QuerySpec) -> Any:
        return self._opened(spec, "left", "right", "matches", "results", shape=JOIN_SHAPE.to_json())

    def open_over(self, spec: QuerySpec) -> Any:
        return self._opened(spec, "rows", "results", shape=OVER_SHAPE.to_json())

    def open(self, spec: QuerySpec) -> Any:
        assert self.answers.wait(TIMEOUT_S)
        return self._opened(spec, "run", "parts", split=SPLIT.to_json())


@pytest.fixture(params=["of one host", "of a cluster"])
def queries(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeQueries]:
    """Queries whose batches go to the JVM directly, or by way of the driver."""
    path = tmp_path / "batches"
    made = FakeQueries(str(path) if request.param == "of one host" else "")
    with made.jvm.listen(path):
        yield made


@pytest.fixture
def server(queries: FakeQueries, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryServer]:
    monkeypatch.setattr(query_server, "_WATCH_S", 0.01)
    allowed = HostReferences(SecretSettings(("A",)), "TaskManager 0 at host7", {"A": "hunter2"})
    server = QueryServer("127.0.0.1", KEY, queries, allowed)
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
    assert (query.columns, query.fields, query.split) == (("value",), FIELDS, SPLIT)
    assert query.run(TABLE)["value"].to_pylist() == ["a", "b", "a", "b"]
    assert len(query.parts(TABLE)) == 4
    assert [id_ for id_, _, _ in queries.jvm.asked] == ["run0", "parts0"]
    large = pa.table({"value": ["x" * 100] * 100_000})
    assert len(query.run(large)) == 200_000
    ((found, running),) = queries.opened
    assert found == spec
    query.close()
    assert running.closed.wait(TIMEOUT_S)


def test_references_have_the_values_of_the_drivers_host(
    remote: RemoteQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A", "of the worker")
    assert remote.expanded({"a": ["${A}", 1]}, "P.config") == {"a": ["hunter2", 1]}
    with pytest.raises(ConfigError, match=r"^TaskManager 0 at host7: P\.config\.b: .* variable B"):
        remote.expanded({"b": "${A}${B}"}, "P.config")
    gone = RemoteQueries(("127.0.0.1", 1), KEY)
    with pytest.raises(SparkLostError):
        gone.expanded({}, "P.config")


def test_query_with_groups_makes_rows_and_merges_them(
    queries: FakeQueries, remote: RemoteQueries
) -> None:
    query = remote.open_aggregation(QuerySpec("SELECT"))
    assert (query.columns, query.fields, query.shape) == (("value",), FIELDS, SHAPE)
    assert query.partial(TABLE)["value"].to_pylist() == ["a", "b", "a", "b"]
    assert len(query.merge(TABLE)) == 4
    assert [id_ for id_, _, _ in queries.jvm.asked] == ["partial0", "merge0"]
    with pytest.raises(QueryError, match=r"^no good 4111$"):
        query.partial(REJECTED)
    query.close()
    assert queries.opened[0][1].closed.wait(TIMEOUT_S)
    with pytest.raises(QueryError, match=r"^it sorts$"):
        remote.open_aggregation(QuerySpec("refused"))


def test_join_makes_rows_of_both_sides_and_results_of_pairs(
    queries: FakeQueries, remote: RemoteQueries
) -> None:
    query = remote.open_join(QuerySpec("SELECT"))
    assert (query.columns, query.shape) == ((("value",), ("value",)), JOIN_SHAPE)
    assert query.fields == (FIELDS, FIELDS)
    for name in ("left", "right", "matches", "results"):
        assert getattr(query, name)(TABLE)["value"].to_pylist() == ["a", "b", "a", "b"]
        assert queries.jvm.asked[-1][0] == f"{name}0"
    with pytest.raises(QueryError, match=r"^no good 4111$"):
        query.results(REJECTED)
    query.close()
    assert queries.opened[0][1].closed.wait(TIMEOUT_S)
    with pytest.raises(QueryError, match=r"^it sorts$"):
        remote.open_join(QuerySpec("refused"))


def test_over_makes_rows_of_records_and_results_of_rows(
    queries: FakeQueries, remote: RemoteQueries
) -> None:
    query = remote.open_over(QuerySpec("SELECT"))
    assert (query.columns, query.fields, query.shape) == (("value",), FIELDS, OVER_SHAPE)
    for name in ("rows", "results"):
        assert getattr(query, name)(TABLE)["value"].to_pylist() == ["a", "b", "a", "b"]
        assert queries.jvm.asked[-1][0] == f"{name}0"
    query.close()
    assert queries.opened[0][1].closed.wait(TIMEOUT_S)
    with pytest.raises(QueryError, match=r"^it sorts$"):
        remote.open_over(QuerySpec("refused"))


def test_rows_of_tables_come_with_the_records(queries: FakeQueries, remote: RemoteQueries) -> None:
    query = remote.open(QuerySpec("SELECT"))
    assert len(query.run(TABLE, {"b": TABLE.slice(1), "other": TABLE})) == 4
    grouping = remote.open_aggregation(QuerySpec("SELECT"))
    assert len(grouping.partial(TABLE, {"b": TABLE})) == 4
    query.run(TABLE)
    assert [leaves for _, _, leaves in queries.jvm.asked] == [[1, 1], [1, 1], [1, 0]]


def test_global_tables_are_replaced(queries: FakeQueries, remote: RemoteQueries) -> None:
    for query in (remote.open(QuerySpec("1")), remote.open_aggregation(QuerySpec("2"))):
        query.replace("a", TABLE)
        with pytest.raises(QueryError, match=r"^no such table$"):
            query.replace("unknown", TABLE)
        query.replace("b", TABLE.slice(0, 0))
    expected = [("a", TABLE), ("b", TABLE.slice(0, 0))]
    assert [running.replaced for _, running in queries.opened] == [expected, expected]


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


def test_whoever_waits_for_a_query_may_give_up(
    queries: FakeQueries, remote: RemoteQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NotWantedError(Exception):
        pass

    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise NotWantedError

    monkeypatch.setattr(query_channel, "_LOOK_S", 0.01)
    queries.answers.clear()
    with pytest.raises(NotWantedError):
        remote.while_waiting(look).open(QuerySpec("slow"))
    assert looks == 3
    queries.answers.set()
    assert queries.opened_one.wait(TIMEOUT_S)
    assert queries.opened[0][1].closed.wait(TIMEOUT_S)


def test_batch_that_is_rejected_leaves_the_query_open(remote: RemoteQueries) -> None:
    query = remote.open(QuerySpec("1"))
    with pytest.raises(QueryError, match=r"^no good 4111$") as raised:
        query.run(REJECTED)
    assert raised.value.shown == "DIVIDE_BY_ZERO"
    assert len(query.run(TABLE)) == 4
    query.close()


CHANGING = QuerySpec("1", global_tables={"t": ""})


def test_plans_for_other_rows_of_tables_run_from_then_on(
    queries: FakeQueries, remote: RemoteQueries
) -> None:
    for spec in (QuerySpec("1"), CHANGING):
        query = remote.open(spec)
        query.run(TABLE)
        query.run(TABLE)
        query.replace("t", TABLE)
        query.run(TABLE)
        query.close()
    ids = [id_ for id_, _, _ in queries.jvm.asked]
    assert ids == ["run0", "run0", "run0", "run0", "run0", "run1"]


def test_values_that_only_spark_reads_are_parsed_by_a_plan_of_its_own(
    queries: FakeQueries, remote: RemoteQueries
) -> None:
    query = remote.open(QuerySpec("1", format="json"))
    for _ in range(2):
        assert len(query.run(TABLE)) == 8
    ids = [id_ for id_, _, _ in queries.jvm.asked]
    assert ids == ["parser", "run0", "parser", "run0"]
    query.run(pa.table({"b": ["x"]}))
    assert len(queries.jvm.asked) == 5


def test_unexpected_error_is_no_records_fault(queries: FakeQueries, remote: RemoteQueries) -> None:
    query = remote.open(CHANGING)
    queries.opened[0][1].fails = ValueError("what")
    with pytest.raises(SparkLostError, match="ValueError: what"):
        query.run(TABLE)
    query.close()


@pytest.mark.parametrize(
    ("error", "words", "shown"),
    [
        (QueryError("4111 is no good", shown="no good"), "4111 is no good", "no good"),
        (EndedQueryError("ended the process"), "ended the process", "ended the process"),
        (
            SparkLostError("4111 is lost", shown="lost"),
            "SparkLostError: 4111 is lost",
            "SparkLostError: lost",
        ),
    ],
)
def test_errors_come_with_and_without_what_they_quote(
    queries: FakeQueries, remote: RemoteQueries, error: OwnError, words: str, shown: str
) -> None:
    query = remote.open(CHANGING)
    queries.opened[0][1].fails = error
    with pytest.raises(type(error)) as raised:
        query.run(TABLE)
    assert (str(raised.value), raised.value.shown) == (words, shown)
    query.close()


def hanging_in(query: RemoteQuery) -> threading.Thread:
    """Return a thread that waits for a batch until it is lost."""

    def work() -> None:
        with pytest.raises(SparkLostError):
            query.run(pa.table({"value": ["hangs"]}))

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_what_runs_for_a_worker_that_is_gone_is_cancelled_and_nothing_else(
    queries: FakeQueries, remote: RemoteQueries
) -> None:
    hanging, other = remote.open(QuerySpec("1")), remote.open(QuerySpec("2"))
    (_, served), (_, served_other) = queries.opened
    thread = hanging_in(hanging)
    assert served.began.wait(TIMEOUT_S)
    with socket.socket(fileno=os.dup(hanging._connection.fileno())) as killed:
        killed.shutdown(socket.SHUT_RDWR)
    assert served.closed.wait(TIMEOUT_S)
    assert served.cancelled.is_set()
    thread.join()
    assert len(other.run(TABLE)) == 4
    assert not served_other.cancelled.is_set()
    other.close()


def test_query_that_takes_long_for_a_worker_that_waits_is_not_cancelled(
    queries: FakeQueries, remote: RemoteQueries
) -> None:
    query = remote.open(QuerySpec("1"))
    ((_, served),) = queries.opened
    thread = hanging_in(query)
    assert served.began.wait(TIMEOUT_S)
    assert not served.cancelled.wait(0.2)  # many times as long as the server waits
    served.cancel()
    thread.join()
    query.close()


def test_driver_that_is_gone_fails_the_task_and_no_record(remote: RemoteQueries) -> None:
    query = remote.open(CHANGING)
    query._connection.close()
    with pytest.raises(SparkLostError, match="the driver is gone"):
        query.run(TABLE)


def test_driver_that_does_not_listen_fails_the_task() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(SparkLostError, match="does not accept queries"):
            RemoteQueries(silent.getsockname(), KEY).open(QuerySpec("1"))


def test_stranger_is_refused(server: QueryServer, remote: RemoteQueries) -> None:
    with pytest.raises(SparkLostError):
        RemoteQueries(("127.0.0.1", server.port), b"wrong").open(QuerySpec("1"))
    remote.open(QuerySpec("1")).close()
