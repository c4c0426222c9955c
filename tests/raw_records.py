"""Writes records that no client library would write, by speaking Kafka's protocol by hand."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

RawRecord = tuple[bytes | None, bytes | None, Sequence[tuple[bytes, bytes | None]]]
"""Key, value and headers."""

MESSAGE_TOO_LARGE = 10
_NOT_YET = (3, 6)
"""Unknown topic, not its leader: errors of a broker about a topic that was just created."""

_PRODUCE, _VERSION = 0, 3
_CRC_32C = 0x82F63B78


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_CRC_32C if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()


def record_batch(records: Sequence[RawRecord], timestamp: int = 1) -> bytes:
    """Return a record batch of format 2; all records have one timestamp, in milliseconds."""
    content = b"".join(_record(offset, *record) for offset, record in enumerate(records))
    last = len(records) - 1
    # Attributes, last offset, first and last time, producer (none), its epoch and sequence.
    checked = struct.pack(">hiqqqhii", 0, last, timestamp, timestamp, -1, -1, -1, len(records)) + (
        content
    )
    body = struct.pack(">ibI", -1, 2, _crc_32c(checked)) + checked
    return struct.pack(">qi", 0, len(body)) + body


def write_batch(bootstrap_servers: str, topic: str, partition: int, batch: bytes) -> int:
    """Send a batch to the only broker of a cluster; return its error code, 0 for none."""
    while (error := _send(bootstrap_servers, topic, partition, batch)) in _NOT_YET:
        time.sleep(0.05)
    return error


def _send(bootstrap_servers: str, topic: str, partition: int, batch: bytes) -> int:
    host, _, port = bootstrap_servers.rpartition(":")
    body = (
        struct.pack(">hhih", _PRODUCE, _VERSION, 0, -1)
        + struct.pack(">hhii", -1, -1, 10_000, 1)
        + _text(topic)
        + struct.pack(">iii", 1, partition, len(batch))
        + batch
    )
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        reader = connection.makefile("rb")
        (size,) = struct.unpack(">i", reader.read(4))
        answer = reader.read(size)
    # Correlation id, number of topics, the topic, number of partitions, the partition.
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + len(_text(topic)) + 4 + 4)
    return int(error)


def _record(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[bytes, bytes | None]],
) -> bytes:
    body = b"\0" + _varint(0) + _varint(offset) + _field(key) + _field(value)
    body += _varint(len(headers))
    body += b"".join(_field(name) + _field(content) for name, content in headers)
    return _varint(len(body)) + body


def _field(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _varint(number: int) -> bytes:
    rest = number * 2 if number >= 0 else -number * 2 - 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _crc_32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
