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
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from kafka_pipeline.streams.sql.spec import EndedQueryError, QueryError, SparkLostError

_LOOK_S = 0.5


def ask(
    connection: Connection,
    request: dict[str, Any],
    data: bytes | memoryview = b"",
    meanwhile: Callable[[], None] | None = None,
) -> tuple[dict[str, Any], memoryview]:
    """Send a request and return the answer, with the bytes that follow it.

    `meanwhile` is called twice a second until then, and its errors are raised. Also raises
    `QueryError` and `SparkLostError`, as the answer says, or if the driver is gone.
    """
    try:
        send(connection, request, data)
        while meanwhile is not None and not connection.poll(_LOOK_S):
            meanwhile()
        answer, content = receive(connection)
    except (EOFError, OSError) as error:
        raise SparkLostError(f"the driver is gone: {error}") from error
    if "rejected" in answer:
        kind = EndedQueryError if answer["ended"] else QueryError
        raise kind(answer["rejected"], shown=answer["shown"])
    if "lost" in answer:
        raise SparkLostError(answer["lost"], shown=answer["shown"])
    return answer, content


def send(connection: Connection, header: dict[str, Any], data: bytes | memoryview = b"") -> None:
    """Send a line of JSON, and the bytes that follow it. Raises `OSError`."""
    # One message: with two, the second would wait for the acknowledgement of the first.
    connection.send_bytes(b"".join((json.dumps(header).encode(), b"\n", data)))


def receive(connection: Connection) -> tuple[dict[str, Any], memoryview]:
    """Return what the other side sent. Raises `EOFError` and `OSError` if it hung up."""
    message = memoryview(connection.recv_bytes())
    end = message.obj.index(b"\n")  # type: ignore[attr-defined]
    return json.loads(bytes(message[:end])), message[end + 1 :]


def send_at_once(connection: Connection) -> None:
    """Switch off Nagle's algorithm, which delays small packets."""
    with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
