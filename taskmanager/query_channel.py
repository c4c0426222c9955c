"""Queries across processes: tasks send batches to the driver's Spark session and get results.

Each task with a query has its own TCP connection to the driver, authenticated like the driver
channel. The driver has a thread for each connection, so heartbeats and commands never wait for a
batch. A message is a line of JSON followed by an Arrow IPC stream.

    worker → driver   {"open": "<QuerySpec>"}       driver → worker   {"columns": […]}
    worker → driver   {"do": "run"} and records     driver → worker   {} and the output

`do` may also be `parts`, for the columns of results that the worker cannot take from the records.

The worker keeps tables that follow topics. After the records, it sends the rows that a batch needs,
with their sizes in bytes: `{"do": "run", "lookups": {"customers": 1234}}`. `{"do": "replace",
"table": name}` and rows replace a global table; the answer is `{}`.

A query with GROUP BY is opened with `{"groups": "<QuerySpec>"}`. The answer also has its shape, and
`do` is `partial` or `merge`. A join of two inputs is opened with `{"join": "<QuerySpec>"}`, and
`do` is `left`, `right`, `matches` or `results`. One with `OVER (…)` is opened with
`{"over": "<QuerySpec>"}`, and `do` is `rows` or `results`.

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any, Protocol

import pyarrow as pa
import structlog

from kafka_pipeline.common.code.error_words import described
from kafka_pipeline.common.config.references import References
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.sql.arrow_bytes import read, write
from kafka_pipeline.streams.sql.join_shape import JoinShape, PreparedJoin
from kafka_pipeline.streams.sql.json_fields import JsonFields
from kafka_pipeline.streams.sql.over_shape import OverShape, PreparedOver
from kafka_pipeline.streams.sql.spec import (
    EndedQueryError,
    QueryError,
    QuerySpec,
    SparkLostError,
    SparkQuery,
)
from kafka_pipeline.streams.sql.split_results import SplitResults
from kafka_pipeline.streams.sql.state_shape import PreparedAggregation, StateShape
from kafka_pipeline.taskmanager.listening import ConnectionServer, connect

_CALLS_OF_OVER = ("rows", "results")
_CALLS_OF_JOINS = ("left", "right", "matches", "results")
_WATCH_S = 1.0
_LOOK_S = 0.5

logger = structlog.get_logger()


class _Cancellable(Protocol):
    def cancel(self) -> None:
        """End a call from another thread; the call then raises `SparkLostError`."""


class ServedQuery(SparkQuery, _Cancellable, Protocol):
    """A query that runs in this process."""


class ServedAggregation(PreparedAggregation, _Cancellable, Protocol):
    """A query with GROUP BY that runs in this process."""


class ServedJoin(PreparedJoin, _Cancellable, Protocol):
    """A join of two inputs that runs in this process."""


class ServedOver(PreparedOver, _Cancellable, Protocol):
    """A query with `OVER (…)` that runs in this process."""


class ServedQueries(Protocol):
    """Opens queries that run in this process."""

    def open(self, spec: QuerySpec) -> ServedQuery:
        """See `Queries`."""

    def open_aggregation(self, spec: QuerySpec) -> ServedAggregation:
        """See `Queries`."""

    def open_join(self, spec: QuerySpec) -> ServedJoin:
        """See `Queries`."""

    def open_over(self, spec: QuerySpec) -> ServedOver:
        """See `Queries`."""


class QueryServer:
    """The driver's side: runs the queries of workers, each on its own thread."""

    def __init__(
        self, host: str, authkey: bytes, queries: ServedQueries, references: References
    ) -> None:
        """Listen on a free port of `host`."""
        self._queries = queries
        self._references = references
        self._open: dict[Connection, _Cancellable] = {}
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
        """Cancel the computations of workers that are gone: each holds a slot and may never end."""
        while not self._closed.wait(_WATCH_S):
            for connection, query in self._open.copy().items():
                if _is_gone(connection):
                    try:
                        query.cancel()
                    except Exception as error:  # Spark may be gone too
                        logger.warning("query cannot be cancelled", reason=str(error))

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
        query: ServedQuery | ServedAggregation | ServedJoin | ServedOver
        calls: dict[str, Callable[..., pa.Table]]
        answer: dict[str, Any]
        fields: Any
        try:
            if "join" in request:
                query = self._queries.open_join(QuerySpec.from_json(request["join"]))
                fields = [each and each.to_json() for each in query.fields]
                answer = {"shape": query.shape.to_json()}
                calls = {name: getattr(query, name) for name in _CALLS_OF_JOINS}
            elif "over" in request:
                query = self._queries.open_over(QuerySpec.from_json(request["over"]))
                fields = query.fields and query.fields.to_json()
                answer = {"shape": query.shape.to_json()}
                calls = {name: getattr(query, name) for name in _CALLS_OF_OVER}
            elif "groups" in request:
                query = self._queries.open_aggregation(QuerySpec.from_json(request["groups"]))
                fields = query.fields and query.fields.to_json()
                answer = {"shape": query.shape.to_json()}
                calls = {"partial": query.partial, "merge": query.merge}
            else:
                query = self._queries.open(QuerySpec.from_json(request["open"]))
                fields = query.fields and query.fields.to_json()
                answer = {"split": query.split and query.split.to_json()}
                calls = {"run": query.run, "parts": query.parts}
        except Exception as error:
            _send(connection, _failure(error))
            return
        with closing(query):
            self._open[connection] = query
            try:
                _send(connection, {"columns": query.columns, "fields": fields, **answer})
                while True:
                    request, data = _receive(connection)
                    if request["do"] == "replace":
                        _send(connection, *_replaced(query, request["table"], data))
                        continue
                    call = calls[request["do"]]
                    _send(connection, *_answer(call, data, request.get("lookups", {})))
            finally:
                del self._open[connection]


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
        connection, answer = self._opened({"open": spec.to_json()})
        fields = JsonFields.from_json(answer["fields"])
        split = SplitResults.from_json(answer["split"])
        return RemoteQuery(connection, tuple(answer["columns"]), fields, split)

    def open_aggregation(self, spec: QuerySpec) -> RemoteAggregation:
        """See `Queries`."""
        connection, answer = self._opened({"groups": spec.to_json()})
        shape = StateShape.from_json(answer["shape"])
        fields = JsonFields.from_json(answer["fields"])
        return RemoteAggregation(connection, tuple(answer["columns"]), fields, shape)

    def open_join(self, spec: QuerySpec) -> RemoteJoin:
        """See `Queries`."""
        connection, answer = self._opened({"join": spec.to_json()})
        left, right = answer["columns"]
        of_left, of_right = map(JsonFields.from_json, answer["fields"])
        shape = JoinShape.from_json(answer["shape"])
        return RemoteJoin(connection, (left, right), (of_left, of_right), shape)

    def open_over(self, spec: QuerySpec) -> RemoteOver:
        """See `Queries`."""
        connection, answer = self._opened({"over": spec.to_json()})
        shape = OverShape.from_json(answer["shape"])
        fields = JsonFields.from_json(answer["fields"])
        return RemoteOver(connection, tuple(answer["columns"]), fields, shape)

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


class _Remote:
    """A computation in the driver, over a connection of its own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def replace(self, name: str, rows: pa.Table) -> None:
        """See `SparkQuery.replace`."""
        _ask(self._connection, {"do": "replace", "table": name}, (write(rows),))

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _call(self, name: str, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        request: dict[str, Any] = {"do": name}
        rows = {looked_up: write(found) for looked_up, found in lookups.items()}
        if rows:
            request["lookups"] = {looked_up: data.nbytes for looked_up, data in rows.items()}
        _, data = _ask(self._connection, request, (write(table), *rows.values()))
        return read(data)


class RemoteQuery(_Remote):
    """A query that runs in the driver. See `SparkQuery`."""

    def __init__(
        self,
        connection: Connection,
        columns: tuple[str, ...],
        fields: JsonFields | None,
        split: SplitResults | None,
    ) -> None:
        super().__init__(connection)
        self.columns = columns
        self.fields = fields
        self.split = split

    def run(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        """See `SparkQuery`."""
        return self._call("run", table, lookups)

    def parts(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        """See `SparkQuery`."""
        return self._call("parts", table, lookups)


class RemoteAggregation(_Remote):
    """A query with GROUP BY that runs in the driver. See `PreparedAggregation`."""

    def __init__(
        self,
        connection: Connection,
        columns: tuple[str, ...],
        fields: JsonFields | None,
        shape: StateShape,
    ) -> None:
        super().__init__(connection)
        self.columns = columns
        self.fields = fields
        self.shape = shape

    def partial(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        """See `PreparedAggregation`."""
        return self._call("partial", table, lookups)

    def merge(self, rows: pa.Table) -> pa.Table:
        """See `PreparedAggregation`."""
        return self._call("merge", rows)


class RemoteJoin(_Remote):
    """A join of two inputs that runs in the driver. See `PreparedJoin`."""

    def __init__(
        self,
        connection: Connection,
        columns: tuple[Sequence[str], Sequence[str]],
        fields: tuple[JsonFields | None, JsonFields | None],
        shape: JoinShape,
    ) -> None:
        super().__init__(connection)
        self.columns = columns
        self.fields = fields
        self.shape = shape

    def left(self, records: pa.Table) -> pa.Table:
        """See `PreparedJoin`."""
        return self._call("left", records)

    def right(self, records: pa.Table) -> pa.Table:
        """See `PreparedJoin`."""
        return self._call("right", records)

    def matches(self, pairs: pa.Table) -> pa.Table:
        """See `PreparedJoin`."""
        return self._call("matches", pairs)

    def results(self, pairs: pa.Table) -> pa.Table:
        """See `PreparedJoin`."""
        return self._call("results", pairs)


class RemoteOver(_Remote):
    """A query with `OVER (…)` that runs in the driver. See `PreparedOver`."""

    def __init__(
        self,
        connection: Connection,
        columns: tuple[str, ...],
        fields: JsonFields | None,
        shape: OverShape,
    ) -> None:
        super().__init__(connection)
        self.columns = columns
        self.fields = fields
        self.shape = shape

    def rows(self, records: pa.Table) -> pa.Table:
        """See `PreparedOver`."""
        return self._call("rows", records)

    def results(self, rows: pa.Table) -> pa.Table:
        """See `PreparedOver`."""
        return self._call("results", rows)


def _ask(
    connection: Connection,
    request: dict[str, Any],
    data: Sequence[memoryview] = (),
    meanwhile: Callable[[], None] | None = None,
) -> tuple[dict[str, Any], memoryview]:
    try:
        _send(connection, request, *data)
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


def _answer(
    call: Callable[..., pa.Table], data: memoryview, sizes: Mapping[str, int]
) -> tuple[dict[str, Any], *tuple[memoryview, ...]]:
    """Call with the table and the lookup tables that follow it in `data`, of these `sizes`."""
    try:
        end = len(data) - sum(sizes.values())
        table, lookups = read(data[:end]), {}
        for name, size in sizes.items():
            lookups[name] = read(data[end : end + size])
            end += size
        found = call(table, lookups) if lookups else call(table)
        return {}, write(found)
    except Exception as error:
        return (_failure(error),)


def _replaced(
    query: ServedQuery | ServedAggregation | ServedJoin | ServedOver, name: str, data: memoryview
) -> tuple[dict[str, Any]]:
    try:
        # Copied, since the message's buffer is reused by the next one.
        query.replace(name, read(bytes(data)))
        return ({},)
    except Exception as error:
        return (_failure(error),)


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


def _send(connection: Connection, header: dict[str, Any], *data: memoryview) -> None:
    # One message: with two, the second would wait for the acknowledgement of the first.
    line = json.dumps(header).encode() + b"\n"
    connection.send_bytes(b"".join((line, *data)))


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
