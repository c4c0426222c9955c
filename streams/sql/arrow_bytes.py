"""Schemas and tables of Arrow as bytes and as text."""

from __future__ import annotations

import base64

import pyarrow as pa


def write(table: pa.Table) -> memoryview:
    """Return a table as an Arrow IPC stream."""
    parts = (table.schema, *table.to_batches())
    return memoryview(b"".join(part.serialize() for part in parts))


def read(data: bytes | memoryview) -> pa.Table:
    """Return the table of an Arrow IPC stream, without a copy. Raises `pa.ArrowException`."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def packed(schema: pa.Schema) -> str:
    """Return a schema as text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def unpacked(text: str) -> pa.Schema:
    """Return the schema that `packed` made text of."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
