"""Moves the replicas of partitions, which no client library here can (KIP-455)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence

Partition = tuple[str, int]
_ALTER_PARTITION_REASSIGNMENTS, _VERSION, _CORRELATION = 45, 0, 1
_NO_TAGS = b"\0"
_TIMEOUT_MS = 30_000


class ReassignmentError(Exception):
    """Kafka refuses to move replicas; the message has its error codes."""


def reassign(bootstrap_servers: str, replicas: Mapping[Partition, Sequence[int]]) -> None:
    """Give partitions these replicas, the preferred leader first. Kafka copies what is missing.

    Returns when Kafka has taken the wish. Raises `ReassignmentError`, or OSError if the first
    server is not there.
    """
    topics: dict[str, dict[int, Sequence[int]]] = {}
    for (topic, number), brokers in replicas.items():
        topics.setdefault(topic, {})[number] = brokers
    body = struct.pack(">i", _TIMEOUT_MS) + _array(
        _text(topic)
        + _array(
            struct.pack(">i", number) + _array(struct.pack(">i", b) for b in brokers) + _NO_TAGS
            for number, brokers in partitions.items()
        )
        + _NO_TAGS
        for topic, partitions in topics.items()
    )
    header = struct.pack(">hhih", _ALTER_PARTITION_REASSIGNMENTS, _VERSION, _CORRELATION, -1)
    errors = _errors(_exchange(bootstrap_servers, header + _NO_TAGS + body + _NO_TAGS))
    if errors:
        raise ReassignmentError(f"Kafka refuses to move replicas: {errors}")


def _exchange(bootstrap_servers: str, request: bytes) -> bytes:
    host, _, port = bootstrap_servers.partition(",")[0].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_MS / 1000) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            (length,) = struct.unpack(">i", stream.read(4))
            return stream.read(length)


def _errors(answer: bytes) -> list[tuple[str, int, int]]:
    """Return topic, partition and error code of what was refused; the topic is empty for all."""
    # The correlation id, its tags, and for how long the client was throttled.
    (code,) = struct.unpack_from(">h", answer, 9)
    errors = [("", -1, code)] if code else []
    _, place = _read_text(answer, 11)
    topics, place = _read_number(answer, place)
    for _ in range(topics - 1):
        topic, place = _read_text(answer, place)
        partitions, place = _read_number(answer, place)
        for _ in range(partitions - 1):
            number, code = struct.unpack_from(">ih", answer, place)
            _, place = _read_text(answer, place + 6)
            place += len(_NO_TAGS)
            if code:
                errors.append((topic, number, code))
        place += len(_NO_TAGS)
    return errors


def _array(items: Iterable[bytes]) -> bytes:
    listed = list(items)
    return _number(len(listed) + 1) + b"".join(listed)


def _text(text: str) -> bytes:
    return _number(len(text) + 1) + text.encode()


def _number(value: int) -> bytes:
    """Return a number in seven bits per byte, the lowest ones first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _read_number(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _read_text(data: bytes, place: int) -> tuple[str, int]:
    length, place = _read_number(data, place)
    end = place + max(length - 1, 0)
    return data[place:end].decode(), end
