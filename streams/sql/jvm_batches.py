"""Brings Arrow batches into Spark's JVM and back: small ones in a call, others through a socket.

A socket takes a thread of the JVM, a secret and several calls. A call has the bytes as text, which
takes longer the more there are.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.util import _load_from_socket

MOST_IN_CALL = 65_536
"""The bytes of the tables of a batch that are brought in calls."""


class JvmBatches:
    """Carries batches between this process and the JVM of a session. One thread at a time."""

    def __init__(self, session: SparkSession) -> None:
        # Looked up once: each name of a package or class is a call to the JVM.
        jvm: Any = session._jvm
        self._context: Any = session.sparkContext
        self._new_list, self._to_seq = jvm.java.util.ArrayList, jvm.PythonUtils.toSeq
        self._read = jvm.PythonSQLUtils.readArrowStreamFromFile
        self._server = jvm.ArrowIteratorServer
        self._serve = jvm.PythonRDD.serveIterator

    def put(self, table: pa.Table) -> Any:
        """Return a table as a Scala Seq of Arrow batches."""
        batches = table.combine_chunks().to_batches()
        if are_small([table]):
            listed = self._new_list()
            for batch in batches:
                listed.add(_bytes(batch))
            return self._to_seq(listed)
        serializer = ArrowStreamSerializer()
        return self._context._serialize_to_jvm(
            batches, serializer, self._read, self._server
        ).toSeq()

    def served(self, batches: Any) -> list[bytes]:
        """Return the Arrow batches of a Scala Iterator, through a socket."""
        return received(self._serve(batches, "results of a query"))


def are_small(tables: Sequence[pa.Table]) -> bool:
    """Whether tables are brought in a call."""
    # `nbytes` looks into each column, and takes 20 times as long.
    size: int = sum(table.get_total_buffer_size() for table in tables)
    return size <= MOST_IN_CALL


def framed(tables: Sequence[pa.Table]) -> bytes:
    """Return tables as TasksInPlace.java reads them: numbers of batches, lengths, and contents."""
    parts = []
    for table in tables:
        batches = table.combine_chunks().to_batches()
        parts.append(struct.pack("!i", len(batches)))
        for batch in batches:
            content = _bytes(batch)
            parts += [struct.pack("!i", len(content)), content]
    return b"".join(parts)


def cut(data: bytes) -> list[bytes]:
    """Return the items of what TasksInPlace.java writes: their lengths and contents."""
    items, at = [], 0
    while at < len(data):
        start = at + 4
        at = start + int.from_bytes(data[at:start])
        items.append(data[start:at])
    return items


def received(served: Any) -> list[bytes]:
    """Return what the JVM serves over a socket. Raises what the JVM raises while it sends."""
    with _load_from_socket(served, NoOpSerializer()) as items:
        found = list(items)
    # What Spark sends just ends if Spark does; this raises unless all was sent.
    served[2].getResult()
    return found


def _bytes(batch: pa.RecordBatch) -> bytes:
    content: bytes = batch.serialize().to_pybytes()
    return content
