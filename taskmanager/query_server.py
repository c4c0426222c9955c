"""The driver's side of the query channel."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any, Protocol

import pyarrow as pa
import structlog

from kafka_pipeline.common.code.error_words import described
from kafka_pipeline.common.config.references import References
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.sql.arrow_bytes import read
from kafka_pipeline.streams.sql.prepared_calls import Plans
from kafka_pipeline.streams.sql.spec import EndedQueryError, QueryError, QuerySpec, SparkLostError
from kafka_pipeline.taskmanager.listening import ConnectionServer
from kafka_pipeline.taskmanager.query_channel import receive, send, send_at_once

_WATCH_S = 1.0

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
        send_at_once(connection)
        with closing(connection):
            try:
                request, _ = receive(connection)
                if "expand" in request:
                    send(connection, self._expanded(request))
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
            send(connection, _failure(error))
            return
        with closing(query):
            self._open[connection] = query
            try:
                session = _Session(query)
                given = {"socket": query.socket_path, "is_fixed": query.is_fixed}
                send(connection, {**query.described, **given, "plans": session.plans})
                while True:
                    send(connection, *session.answer(*receive(connection)))
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


def _is_gone(connection: Connection) -> bool:
    """Whether the other end has hung up; leaves unread data in place."""
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
            return not duplicate.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
