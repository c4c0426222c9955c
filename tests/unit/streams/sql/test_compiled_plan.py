"""Results that come from Spark through a socket, which may break at any byte."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from kafka_pipeline.streams.sql.compiled_plan import INPUT, CompiledPlan
from kafka_pipeline.streams.sql.jvm_batches import received

SECRET = b"secret"
ROWS = pa.table({"n": pa.array(range(1000))})


def message(content: bytes) -> bytes:
    return struct.pack("!i", len(content)) + content


class Server:
    """Sends the first bytes of some batches, as a JVM that ends meanwhile does."""

    def __init__(self, share: float) -> None:
        stream = b"".join(message(b.serialize().to_pybytes()) for b in ROWS.to_batches(100))
        self._sent = stream[: round(len(stream) * share)]
        self._is_complete = share == 1
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._listener, self._listener.accept()[0] as connection:
            connection.recv(len(message(SECRET)), socket.MSG_WAITALL)
            connection.sendall(message(b"ok") + self._sent)

    def getResult(self) -> None:  # as Spark's class has it
        self._thread.join()
        if not self._is_complete:
            raise ConnectionError("the JVM is gone")

    def served(self) -> list[Any]:
        return [self._listener.getsockname()[1], SECRET.decode(), self]


class Served:
    """Computes nothing: the batches come from a `Server`."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def of(self, tables: Sequence[pa.Table]) -> list[bytes]:
        return received(self._server.served())


def run(share: float) -> pa.Table:
    results = Served(Server(share))
    return CompiledPlan(("n",), {INPUT: ROWS.schema}, ROWS.schema, results).run(ROWS)


def test_results_are_those_that_spark_sent() -> None:
    assert run(1).equals(ROWS)


@pytest.mark.parametrize("share", [0, 0.1, 0.33, 0.5, 0.999])
def test_results_that_break_off_are_an_error(share: float) -> None:
    """PySpark reads them as if they were all."""
    with pytest.raises(ConnectionError, match="the JVM is gone"):
        run(share)
