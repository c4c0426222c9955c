"""Passes HTTP between clients and a server on this machine, and breaks requests as a test says."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BufferedReader

from tests.relay import Relay

_NO_BODY = (b"204", b"304")


@dataclass
class Breaks:
    """What becomes of the next requests of some kind.

    `status` is what the client gets, and 0 a connection that is closed without an answer. The
    server gets the request if it is `carried_out`.
    """

    method: str
    path: str
    """A regular expression for a part of the path."""
    status: int = 0
    carried_out: bool = False
    times: int = 1
    broken: int = field(default=0, init=False)
    """How often that happened."""


@dataclass(frozen=True)
class _Message:
    start: bytes
    headers: Mapping[bytes, bytes]
    """By names in small letters."""
    raw: bytes
    """The start and the headers as they came."""


class HttpRelay(Relay):
    """A relay whose clients and server speak HTTP."""

    def __init__(self, server_port: int) -> None:
        self.breaks: Breaks | None = None
        self.left_out: tuple[bytes, ...] = ()
        """Headers of requests that the server does not get, in small letters."""
        super().__init__(server_port)

    def serve(self, client: socket.socket) -> None:
        with (
            suppress(OSError, EOFError),
            client,
            client.makefile("rb") as requests,
        ):
            while True:
                request = _read_head(requests)
                if b"100-continue" in request.headers.get(b"expect", b""):
                    client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = _read_body(requests, request, is_answer=False)
                broken = self._broken(request)
                if broken is None or broken.carried_out:
                    answer = self._asked(request, body)
                if broken is None:
                    client.sendall(answer)
                elif broken.status == 0:
                    return
                else:
                    line = f"HTTP/1.1 {broken.status} Broken\r\nContent-Length: 0\r\n\r\n"
                    client.sendall(line.encode())

    def _asked(self, request: _Message, body: bytes) -> bytes:
        # A connection of its own, since a server may close one that was idle.
        address = ("127.0.0.1", self.server_port)
        with socket.create_connection(address) as server, server.makefile("rb") as answers:
            server.sendall(self._without(request) + body)
            return _read_answer(answers, request)

    def _broken(self, request: _Message) -> Breaks | None:
        breaks = self.breaks
        method, path, _ = request.start.decode().split(" ")
        if breaks is None or breaks.broken == breaks.times:
            return None
        if method != breaks.method or not re.search(breaks.path, path):
            return None
        breaks.broken += 1
        return breaks

    def _without(self, request: _Message) -> bytes:
        lines = request.raw.split(b"\r\n")
        kept = [line for line in lines if line.partition(b":")[0].lower() not in self.left_out]
        return b"\r\n".join(kept)


def _read_head(reader: BufferedReader) -> _Message:
    lines = []
    while (line := reader.readline()) not in (b"\r\n", b""):
        lines.append(line)
    if not lines or not line:
        raise EOFError
    pairs = (each.partition(b":") for each in lines[1:])
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    return _Message(lines[0].rstrip(), headers, b"".join(lines) + b"\r\n")


def _read_body(reader: BufferedReader, message: _Message, *, is_answer: bool) -> bytes:
    if message.headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        parts = []
        while True:
            line = reader.readline()
            size = int(line.split(b";")[0], 16)
            parts += [line, reader.read(size)]
            if size:
                parts.append(reader.readline())
                continue
            while (trailer := reader.readline()) not in (b"\r\n", b""):
                parts.append(trailer)
            return b"".join([*parts, trailer])
    if (length := message.headers.get(b"content-length")) is not None:
        return reader.read(int(length))
    return reader.read() if is_answer else b""


def _read_answer(reader: BufferedReader, request: _Message) -> bytes:
    answer = _read_head(reader)
    while answer.start.split(b" ")[1].startswith(b"1"):
        answer = _read_head(reader)
    if request.start.startswith(b"HEAD ") or answer.start.split(b" ")[1] in _NO_BODY:
        return answer.raw
    return answer.raw + _read_body(reader, answer, is_answer=True)
