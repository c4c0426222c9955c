"""Runs a plan that Spark's JVM holds: a request with Arrow batches, and an answer with others.

A request has the plan's id, whether it is interpreted, and for each of its leaves the number of
batches, and the length and content of each. An answer has a status, its size, and the length and
content of each batch, or of the text of an error. Numbers have 4 bytes in a request and 8 in an
answer, whose batches thus begin where 8 bytes do.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from kafka_pipeline.streams.sql.spec import SparkLostError

MOST_INTERPRETED = 65_536
"""The bytes of the tables of a batch that is interpreted, rather than compiled first."""

Ask = Callable[[bytes | memoryview], memoryview]
"""Sends a request to Spark's JVM and returns the answer. Raises `SparkLostError` if it is gone."""

_HEAD = struct.Struct("!qq")
_LENGTH = struct.Struct("!q")
_DONE, _FAILED, _FAILED_IN_PYTHON, _CANCELLED = range(4)


class JavaError(Exception):
    """An error in Spark's JVM, or in a Python function that it called."""

    def __init__(self, text: str, *, is_of_python: bool) -> None:
        """Take the class and the message of the innermost cause that Spark can name."""
        super().__init__(text)
        self.is_of_python = is_of_python


class BatchSocket:
    """A connection to the `BatchServer` of a JVM on this host."""

    def __init__(self, path: str) -> None:
        """Connect. Raises `SparkLostError` if nobody listens at the path."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise _gone(error) from error

    def ask(self, request: bytes | memoryview) -> memoryview:
        """See `Ask`. The connection is of no use after an error."""
        try:
            self._socket.sendall(request)
            head = self._read(bytearray(_HEAD.size), 0)
            whole = bytearray(_HEAD.size + _HEAD.unpack(head)[1])
            whole[: _HEAD.size] = head
            return self._read(whole, _HEAD.size)
        except (EOFError, OSError) as error:
            raise _gone(error) from error

    def close(self) -> None:
        """Hang up, which an object that is not used any more does by itself."""
        self._socket.close()

    def __del__(self) -> None:
        self.close()

    def _read(self, data: bytearray, at: int) -> memoryview:
        """Return `data`, of which all from a place on is read."""
        found = memoryview(data)
        while at < len(data):
            count = self._socket.recv_into(found[at:])
            if not count:
                raise EOFError("it has hung up")
            at += count
        return found


class PlanInJvm:
    """A plan with this id, which the driver keeps in its JVM. One thread at a time."""

    def __init__(self, id_: str, ask: Ask) -> None:
        self.id = id_
        self._ask = ask

    def of(self, tables: Sequence[pa.Table]) -> list[memoryview]:
        """Return the Arrow batches that the plan gives with these rows in its leaves, in order.

        Raises `JavaError`, and `SparkLostError` if the plan or Spark is gone.
        """
        answer = self._ask(self._request(tables))
        status = _HEAD.unpack_from(answer)[0]
        parts = _cut(answer[_HEAD.size :])
        if status == _DONE:
            return parts
        text = bytes(parts[0]).decode()
        if status == _CANCELLED:
            raise SparkLostError("the query was cancelled")
        raise JavaError(text, is_of_python=status == _FAILED_IN_PYTHON)

    def _request(self, tables: Sequence[pa.Table]) -> bytes:
        # `nbytes` looks into each column, and takes 20 times as long.
        size = sum(table.get_total_buffer_size() for table in tables)
        name = self.id.encode()
        parts: list[Any] = [
            struct.pack(f"!H{len(name)}s?i", len(name), name, size <= MOST_INTERPRETED, len(tables))
        ]
        for table in tables:
            batches = [batch.serialize() for batch in table.combine_chunks().to_batches()]
            parts.append(struct.pack("!i", len(batches)))
            for batch in batches:
                parts += [struct.pack("!i", batch.size), batch]
        return b"".join(parts)


def _cut(data: memoryview) -> list[memoryview]:
    parts, at = [], 0
    while at < len(data):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(data, at)[0]
        parts.append(data[start:at])
    return parts


def _gone(error: Exception) -> SparkLostError:
    return SparkLostError(f"Spark's JVM is gone: {error}")
