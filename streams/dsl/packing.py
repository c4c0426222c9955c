"""Packs several byte strings into one, for stores and topics of the DSL itself."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.record import Headers

_LENGTH = struct.Struct(">i")
_NONE = _LENGTH.pack(-1)


def pack(parts: Sequence[bytes | None]) -> bytes:
    """Return the parts one after the other, each after its length; `None` has the length -1."""
    pieces: list[bytes] = []
    for part in parts:
        if part is None:
            pieces.append(_NONE)
        else:
            pieces += (_LENGTH.pack(len(part)), part)
    return b"".join(pieces)


def unpack(data: bytes) -> list[bytes | None]:
    """Return the parts that `pack` was given; raises `SerializationError` for other bytes."""
    parts: list[bytes | None] = []
    position, end = 0, len(data)
    try:
        while position < end:
            (length,) = _LENGTH.unpack_from(data, position)
            position += 4
            if length < 0:
                parts.append(None)
                continue
            parts.append(data[position : position + length])
            position += length
    except struct.error:
        position = end + 1
    if position != end:
        raise SerializationError("these bytes were not packed, or are cut off")
    return parts


def pack_headers(headers: Headers) -> list[bytes | None]:
    """Return names and values of headers as parts for `pack`."""
    parts: list[bytes | None] = []
    for name, value in headers:
        parts += (name.encode(), value)
    return parts


def unpack_headers(parts: Sequence[bytes | None]) -> Headers:
    """Return the headers that `pack_headers` was given."""
    return [
        ((name or b"").decode(), value) for name, value in zip(parts[::2], parts[1::2], strict=True)
    ]
