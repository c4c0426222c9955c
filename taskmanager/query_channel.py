"""Queries across processes: tasks have the driver plan queries, and run the plans in its JVM.

Each task with a query has its own TCP connection to the driver, authenticated like the driver
channel. The driver has a thread for each connection, so heartbeats and commands never wait for a
query. A message is a line of JSON, which bytes may follow.

    worker → driver   {"open": "<QuerySpec>"}    driver → worker   {"plans": {"run": …}, …}

A query with GROUP BY is opened with `{"groups": "<QuerySpec>"}`, a join of two inputs with
`{"join": "<QuerySpec>"}`, and one with `OVER (…)` with `{"over": "<QuerySpec>"}`. Their answers
also have a shape. The plans are those of the calls in `prepared_calls.py`.

With a local master, the answer has the path of the `socket` on which the JVM takes batches, and the
driver's Python has no part in them. On a cluster, where the worker may be on another host, it sends
the driver `{"do": "ask"}` and the same request, and the driver asks the JVM.

Unless `is_fixed`, the worker asks for the plans before each batch: `{"do": "plans"}` is answered by
`{}` if they are still the same. `{"do": "parser", "of": "run"}` returns the `plan` that reads the
values for another one. `{"do": "replace", "table": name}` and an Arrow IPC stream of rows replace a
global table; the answer is `{}`.

A connection may instead ask the driver to expand the references in a value, with the values on the
driver's host: `{"expand": value, "what": name}` is answered by `{"expanded": value}`.

Any answer may instead be `{"rejected": reason}`, which becomes a `QueryError`, or an
`EndedQueryError` if `ended`; or `{"lost": reason}`. `shown` is the reason without the parts that
quote records. When either side hangs up, the query is closed and its running computation is
cancelled.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache, partial
from multiprocessing.connection import Connection
from typing import Any, Protocol

import pyarrow as pa
import structlog

from kafka_pipeline.common.code.error_words import described
from kafka_pipeline.common.config.references import References
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.sql.arrow_bytes import read, write
from kafka_pipeline.streams.sql.compiled_plan import CompiledPlan
from kafka_pipeline.streams.sql.join_shape import JoinShape
from kafka_pipeline.streams.sql.over_shape import OverShape
from kafka_pipeline.streams.sql.plan_calls import BatchSocket
from kafka_pipeline.streams.sql.prepared_calls import (
    AggregationCalls,
    JoinCalls,
    OverCalls,
    Plans,
    PreparedCalls,
    QueryCalls,
)
from kafka_pipeline.streams.sql.spec import EndedQueryError, QueryError, QuerySpec, SparkLostError
from kafka_pipeline.streams.sql.split_results import SplitResults
from kafka_pipeline.streams.sql.state_shape import StateShape
from kafka_pipeline.taskmanager.listening import ConnectionServer, connect

_WATCH_S = 1.0
_LOOK_S = 0.5

logger = structlog.get_logger()


class Served(Protocol):
    """A query whose plans are in this process. One thread at a time, but for `cancel`."""

    @property
    def socket_path(self) -> str:
        """The path of the socket that takes batches for the plans; "" if workers cannot use it."""

    @property
    def is_fixed(self) -> bool:
        """Whether `newest_plans` are always the same."""

    @property
    def described(self) -> dict[str, Any]:
        """What a worker needs to know of it besides its plans, as JSON values."""

    @property
    def known_plans(self) -> Plans:
        """See `PreparedCalls`."""

    def newest_plans(self) -> Plans:
        """See `PreparedCalls`. Raises `QueryError` and `SparkLostError`."""

    def ask(self, request: bytes | memoryview) -> memoryview:
        """See `Ask`."""

    def replace(self, name: str, rows: pa.Table) -> None:
        """See `Prepared`."""

    def cancel(self) -> None:
        """End from another thread what runs; later calls fail too."""

    def close(self) -> None:
        """See `Prepared`."""


class ServedQueries(Protocol):
    """Opens queries that run in this process."""

    def open(self, spec: QuerySpec) -> Served:
        """See `Queries`."""

    def open_aggregation(self, spec: QuerySpec) -> Served:
        """See `Queries`."""

    def open_join(self, spec: QuerySpec) -> Served:
        """See `Queries`."""

    def open_over(self, spec: QuerySpec) -> Served:
        """See `Queries`."""


class QueryServer:
    """The driver's side: runs the queries of workers, each on its own thread."""

    def __init__(
        self, host: str, authkey: bytes, queries: ServedQueries, references: References
    ) -> None:
        """Listen on a free port of `host`."""
        self._queries = queries
        self._references = references
        self._open: dict[Connection, Served] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="query-watch", daemon=True).start()
        self._server = ConnectionServer("query", host, authkey, self._serve)

    @property
    def port(self) -> int:
        """The port that workers connect to."""
        return self._server.port

    def close(self) -> None:
        """Stop listening. Connections end when this process or the worker's ends."""
        self._closed.set()
        self._server.close()

    def _watch(self) -> None:
        """Cancel what is asked for workers that are gone: it holds a slot and may never end."""
        while not self._closed.wait(_WATCH_S):
            for connection, query in self._open.copy().items():
                if _is_gone(connection):
                    _cancel(query)

    def _serve(self, connection: Connection) -> None:
        _send_at_once(connection)
        with closing(connection):
            try:
                request, _ = _receive(connection)
                if "expand" in request:
                    _send(connection, self._expanded(request))
                else:
                    self._serve_query(connection, request)
            except (EOFError, OSError):
                pass  # the worker hung up

    def _expanded(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"expanded": self._references.expanded(request["expand"], request["what"])}
        except Exception as error:
            return _failure(error)

    def _serve_query(self, connection: Connection, request: dict[str, Any]) -> None:
        try:
            query = self._opened(request)
        except Exception as error:
            _send(connection, _failure(error))
            return
        with closing(query):
            self._open[connection] = query
            try:
                session = _Session(query)
                given = {"socket": query.socket_path, "is_fixed": query.is_fixed}
                _send(connection, {**query.described, **given, "plans": session.plans})
                while True:
                    _send(connection, *session.answer(*_receive(connection)))
            finally:
                del self._open[connection]
                _cancel(query)  # the JVM may still compute what the worker has asked it for

    def _opened(self, request: dict[str, Any]) -> Served:
        ((kind, text),) = request.items()
        opens = {
            "open": self._queries.open,
            "groups": self._queries.open_aggregation,
            "join": self._queries.open_join,
            "over": self._queries.open_over,
        }
        return opens[kind](QuerySpec.from_json(text))


class _Session:
    """Answers what a worker asks about its query."""

    def __init__(self, query: Served) -> None:
        self._query = query
        self._sent = query.known_plans

    @property
    def plans(self) -> dict[str, Any]:
        """The plans that the worker has, as JSON values."""
        return {name: plan.to_json() for name, plan in self._sent.items()}

    def answer(
        self, request: dict[str, Any], data: memoryview
    ) -> tuple[dict[str, Any], bytes | memoryview]:
        """Return an answer, and the bytes that follow it."""
        try:
            match request["do"]:
                case "ask":
                    return {}, self._query.ask(data)
                case "plans":
                    before, self._sent = self._sent, self._query.newest_plans()
                    return {} if before == self._sent else {"plans": self.plans}, b""
                case "parser":
                    parser = self._sent[request["of"]].parser
                    assert parser is not None
                    return {"plan": parser().to_json()}, b""
                case "replace":
                    self._query.replace(request["table"], read(data))
                    return {}, b""
                case unknown:
                    raise ValueError(f"a query cannot do {unknown}")
        except Exception as error:
            return _failure(error), b""


class RemoteQueries:
    """The worker's side of `QueryServer`."""

    def __init__(
        self,
        address: tuple[str, int],
        authkey: bytes,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        self._address = address
        self._authkey = authkey
        self._meanwhile = meanwhile

    def while_waiting(self, meanwhile: Callable[[], None]) -> RemoteQueries:
        """Return a copy whose `open` calls `meanwhile` twice a second and raises its errors.

        `open` may take long: tables may be large, and a database may never answer.
        """
        return RemoteQueries(self._address, self._authkey, meanwhile)

    def open(self, spec: QuerySpec) -> RemoteQuery:
        """See `Queries`."""
        return RemoteQuery(*self._opened({"open": spec.to_json()}))

    def open_aggregation(self, spec: QuerySpec) -> RemoteAggregation:
        """See `Queries`."""
        return RemoteAggregation(*self._opened({"groups": spec.to_json()}))

    def open_join(self, spec: QuerySpec) -> RemoteJoin:
        """See `Queries`."""
        return RemoteJoin(*self._opened({"join": spec.to_json()}))

    def open_over(self, spec: QuerySpec) -> RemoteOver:
        """See `Queries`."""
        return RemoteOver(*self._opened({"over": spec.to_json()}))

    def expanded(self, value: Any, what: str) -> Any:
        """See `References`; the values are those on the driver's host. Also raises as `open`."""
        try:
            connection, answer = self._opened({"expand": value, "what": what})
        except QueryError as error:
            raise ConfigError(str(error)) from None
        connection.close()
        return answer["expanded"]

    def _opened(self, request: dict[str, Any]) -> tuple[Connection, dict[str, Any]]:
        try:
            connection = connect(self._address, self._authkey)
        except OSError as error:
            raise SparkLostError(f"the driver takes no queries: {error}") from error
        try:
            _send_at_once(connection)
            answer, _ = _ask(connection, request, meanwhile=self._meanwhile)
            return connection, answer
        except BaseException:
            connection.close()
            raise


class _Remote(PreparedCalls):
    """A query that the driver plans; see `PreparedCalls`."""

    def __init__(self, connection: Connection, answer: Mapping[str, Any]) -> None:
        """Take a connection of its own, and the answer to the request that opened it."""
        self._connection = connection
        self._is_fixed = answer["is_fixed"]
        try:
            self._socket = BatchSocket(answer["socket"]) if answer["socket"] else None
        except SparkLostError:
            connection.close()
            raise
        self._plans = self._read(answer["plans"])

    @property
    def known_plans(self) -> Plans:
        """See `PreparedCalls`."""
        return self._plans

    def newest_plans(self) -> Plans:
        """See `PreparedCalls`."""
        if not self._is_fixed:
            answer, _ = _ask(self._connection, {"do": "plans"})
            if answer:
                self._plans = self._read(answer["plans"])
        return self._plans

    def replace(self, name: str, rows: pa.Table) -> None:
        """See `SparkQuery.replace`."""
        _ask(self._connection, {"do": "replace", "table": name}, write(rows))

    def close(self) -> None:
        """Hang up."""
        self._connection.close()
        if self._socket is not None:
            self._socket.close()

    def _read(self, plans: Mapping[str, Any]) -> Plans:
        return {name: self._plan(plan, name) for name, plan in plans.items()}

    def _plan(self, plan: Mapping[str, Any], name: str) -> CompiledPlan:
        ask = self._ask_driver if self._socket is None else self._socket.ask
        return CompiledPlan.from_json(plan, ask, cache(partial(self._parser, name)))

    def _ask_driver(self, request: bytes | memoryview) -> memoryview:
        return _ask(self._connection, {"do": "ask"}, request)[1]

    def _parser(self, name: str) -> CompiledPlan:
        answer, _ = _ask(self._connection, {"do": "parser", "of": name})
        return self._plan(answer["plan"], name)


class RemoteQuery(_Remote, QueryCalls):
    """See `SparkQuery`."""

    def __init__(self, connection: Connection, answer: Mapping[str, Any]) -> None:
        super().__init__(connection, answer)
        self.split = SplitResults.from_json(answer["split"])


class RemoteAggregation(_Remote, AggregationCalls):
    """See `PreparedAggregation`."""

    def __init__(self, connection: Connection, answer: Mapping[str, Any]) -> None:
        super().__init__(connection, answer)
        self.shape = StateShape.from_json(answer["shape"])


class RemoteJoin(_Remote, JoinCalls):
    """See `PreparedJoin`."""

    def __init__(self, connection: Connection, answer: Mapping[str, Any]) -> None:
        super().__init__(connection, answer)
        self.shape = JoinShape.from_json(answer["shape"])


class RemoteOver(_Remote, OverCalls):
    """See `PreparedOver`."""

    def __init__(self, connection: Connection, answer: Mapping[str, Any]) -> None:
        super().__init__(connection, answer)
        self.shape = OverShape.from_json(answer["shape"])


def _ask(
    connection: Connection,
    request: dict[str, Any],
    data: bytes | memoryview = b"",
    meanwhile: Callable[[], None] | None = None,
) -> tuple[dict[str, Any], memoryview]:
    try:
        _send(connection, request, data)
        while meanwhile is not None and not connection.poll(_LOOK_S):
            meanwhile()
        answer, content = _receive(connection)
    except (EOFError, OSError) as error:
        raise SparkLostError(f"the driver is gone: {error}") from error
    if "rejected" in answer:
        kind = EndedQueryError if answer["ended"] else QueryError
        raise kind(answer["rejected"], shown=answer["shown"])
    if "lost" in answer:
        raise SparkLostError(answer["lost"], shown=answer["shown"])
    return answer, content


def _cancel(query: Served) -> None:
    try:
        query.cancel()
    except Exception as error:  # Spark may be gone too
        logger.warning("query cannot be cancelled", reason=str(error))


def _failure(error: Exception) -> dict[str, Any]:
    if isinstance(error, QueryError | ConfigError):
        ended = isinstance(error, EndedQueryError)
        return {"rejected": str(error), "shown": error.shown, "ended": ended}
    if not isinstance(error, SparkLostError):
        logger.error("unexpected error in a query", exc_info=error)
    return {
        "lost": described(error, with_values=True),
        "shown": described(error, with_values=False),
    }


def _send(connection: Connection, header: dict[str, Any], data: bytes | memoryview = b"") -> None:
    # One message: with two, the second would wait for the acknowledgement of the first.
    connection.send_bytes(b"".join((json.dumps(header).encode(), b"\n", data)))


def _receive(connection: Connection) -> tuple[dict[str, Any], memoryview]:
    message = memoryview(connection.recv_bytes())
    end = message.obj.index(b"\n")  # type: ignore[attr-defined]
    return json.loads(bytes(message[:end])), message[end + 1 :]


def _is_gone(connection: Connection) -> bool:
    """Whether the other end has hung up; leaves unread data in place."""
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
            return not duplicate.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _send_at_once(connection: Connection) -> None:
    """Switch off Nagle's algorithm, which delays small packets."""
    with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
