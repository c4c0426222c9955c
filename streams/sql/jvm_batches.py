"""Brings Arrow batches into Spark's JVM and back: small ones in a call, others through a socket.

A socket takes a thread of the JVM, a secret and several calls. A call has the bytes as text, which
takes longer the more there are.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.util import _load_from_socket

from kafka_pipeline.streams.sql.catalyst import Catalyst

MOST_IN_CALL = 65_536
"""The bytes of the tables of a batch that are brought in calls, results included."""

_MOST_KEPT = 16 * MOST_IN_CALL
"""A larger buffer of results is not kept for the next batch."""


class JvmBatches:
    """Carries batches between this process and the JVM of a session. One thread at a time."""

    def __init__(self, session: SparkSession, make: Catalyst) -> None:
        # Looked up once: each name of a package or class is a call to the JVM.
        jvm: Any = session._jvm
        self._context: Any = session.sparkContext
        self._seq = make.seq
        self._read = jvm.PythonSQLUtils.readArrowStreamFromFile
        self._server = jvm.ArrowIteratorServer
        self._serve = jvm.PythonRDD.serveIterator
        self._write = jvm.PythonRDD.writeIteratorToStream
        self._new_buffer = jvm.java.io.ByteArrayOutputStream
        self._new_stream = jvm.java.io.DataOutputStream
        self._begin()

    def put(self, table: pa.Table, *, is_small: bool) -> Any:
        """Return a table as a Scala Seq of Arrow batches, at least one."""
        batches = table.combine_chunks().to_batches()
        if not batches:
            batches = [pa.RecordBatch.from_pylist([], schema=table.schema)]
        if is_small:
            return self._seq([batch.serialize().to_pybytes() for batch in batches])
        serializer = ArrowStreamSerializer()
        return self._context._serialize_to_jvm(
            batches, serializer, self._read, self._server
        ).toSeq()

    def take(self, batches: Any, *, is_small: bool) -> list[bytes]:
        """Return the Arrow batches of a Scala Iterator."""
        if not is_small:
            return received(self._serve(batches.toSeq().iterator(), "results of a query"))
        try:
            self._write(batches, self._stream)
            # As text, since py4j decodes bytes one by one, in Python.
            text: str = self._buffer.toString("ISO-8859-1")
        finally:
            self._buffer.reset()
        if len(text) > _MOST_KEPT:
            self._begin()
        return _cut(text.encode("latin-1"))

    def _begin(self) -> None:
        self._buffer = self._new_buffer()
        self._stream = self._new_stream(self._buffer)


def _cut(data: bytes) -> list[bytes]:
    """Return the items of what Spark writes: their lengths (4 bytes) and contents."""
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
