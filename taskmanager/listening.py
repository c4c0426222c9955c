"""Authenticated connections between the driver and its workers."""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

import structlog

HANDSHAKE_TIMEOUT_S = 10
"""How long the other end may be silent before it has proved that it knows the key."""
_PAUSE_S = 1.0
if sys.platform == "darwin":
    _KEEPIDLE = socket.TCP_KEEPALIVE
else:
    _KEEPIDLE = socket.TCP_KEEPIDLE
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, _KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)

logger = structlog.get_logger()


class ConnectionServer:
    """Listens on a free port, and serves each connection on its own thread."""

    def __init__(
        self, name: str, host: str, authkey: bytes, serve: Callable[[Connection], None]
    ) -> None:
        """Start listening; `name` is for the log and the threads. `serve` closes its connection."""
        self._name = name
        self._authkey = authkey
        self._serve = serve
        self._closed = threading.Event()
        self._socket = socket.create_server((host, 0))
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    @property
    def port(self) -> int:
        """The port that workers connect to."""
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Stop listening. Connections end when this process or the worker's ends."""
        self._closed.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._socket.close()

    def _accept(self) -> None:
        """Accept connections until `close`; an error with one connection does not stop this."""
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError as error:
                if self._closed.wait(_PAUSE_S):
                    return
                # For example, this process has too many files open.
                logger.warning(
                    f"the {self._name} channel accepts no connections", reason=str(error)
                )
                continue
            connection = _connection(accepted)
            thread = threading.Thread(
                target=self._welcome, args=(connection,), name=self._name, daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # there are too many threads
                connection.close()
                logger.warning(
                    f"the {self._name} channel accepts no connections", reason=str(error)
                )

    def _welcome(self, connection: Connection) -> None:
        try:
            _set_timeout(connection, HANDSHAKE_TIMEOUT_S)
            deliver_challenge(connection, self._authkey)
            answer_challenge(connection, self._authkey)
            _set_timeout(connection, 0)
        except Exception as error:  # garbage, silence, another key
            connection.close()
            logger.warning(
                f"unauthenticated connection to the {self._name} channel", reason=str(error)
            )
            return
        self._serve(connection)


def connect(address: tuple[str, int], authkey: bytes) -> Connection:
    """Return a connection to a `ConnectionServer`; raises `OSError` if none answers in 10 s."""
    connection = _connection(socket.create_connection(address, HANDSHAKE_TIMEOUT_S))
    try:
        _set_timeout(connection, HANDSHAKE_TIMEOUT_S)
        answer_challenge(connection, authkey)
        deliver_challenge(connection, authkey)
        _set_timeout(connection, 0)
    except Exception as error:  # garbage, silence, another key
        connection.close()
        host, port = address
        reason = str(error) or type(error).__name__
        raise ConnectionError(f"{host}:{port} is not this driver, or is stuck: {reason}") from error
    return connection


def _connection(connected: socket.socket) -> Connection:
    connected.setblocking(True)
    # Without keepalive, a host that vanishes would go unnoticed.
    for level, option, value in _KEEPALIVE:
        connected.setsockopt(level, option, value)
    return Connection(connected.detach())


def _set_timeout(connection: Connection, seconds: int) -> None:
    """Make reads and writes that take longer fail with `OSError`; 0 removes the limit."""
    with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            duplicate.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))
