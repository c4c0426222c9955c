"""A JVM that holds plans, without Spark: each returns the batches of its first leaf twice."""

from __future__ import annotations

import io
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO

DONE, FAILED, FAILED_IN_PYTHON, CANCELLED = range(4)


def answered(status: int, *parts: bytes) -> bytes:
    """Return an answer of `BatchServer.java`."""
    content = b"".join(struct.pack("!q", len(part)) + part for part in parts)
    return struct.pack("!qq", status, len(content)) + content


class FakeJvm:
    """Answers requests from any connection."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool, list[int]]] = []
        """The plans that were run, whether interpreted, and the numbers of batches of leaves."""
        self.instead: Callable[[bytes], bytes | None] = lambda batch: None
        """Returns an answer in place of results, for the first batch."""

    def ask(self, request: bytes | memoryview) -> memoryview:
        """See `Ask`."""
        given = io.BytesIO(request)
        answer = self._answer(given)
        assert given.read() == b""
        return memoryview(answer)

    def listen(self, path: Path) -> socket.socket:
        """Take requests at a path; return the socket, which the caller closes."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with closing(connection), connection.makefile("rb") as given, suppress(OSError):
            while given.peek(1):
                connection.sendall(self._answer(given))

    def _answer(self, given: BinaryIO) -> bytes:
        def number() -> int:
            return int.from_bytes(given.read(4))

        id_ = given.read(int.from_bytes(given.read(2))).decode()
        is_interpreted = given.read(1) == b"\1"
        leaves = [[given.read(number()) for _ in range(number())] for _ in range(number())]
        self.asked.append((id_, is_interpreted, [len(leaf) for leaf in leaves]))
        batches = leaves[0]
        failed = self.instead(batches[0]) if batches else None
        return answered(DONE, *batches, *batches) if failed is None else failed
