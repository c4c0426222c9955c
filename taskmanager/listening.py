"""Authenticated connections between the driver and its workers."""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import cast

import structlog

from kafka_pipeline.common.monitoring.counted_log import CountedLog

HANDSHAKE_TIMEOUT_S = 10.0
"""The time in which both ends must prove that they know the key."""
MOST_STRANGERS = 128
"""The most connections without that proof that a server keeps."""
_PAUSE_S = 1.0
_LENGTH = struct.Struct("!i")
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
    """Listens on a free port, and serves each connection on its own thread.

    Connections that are not yet authenticated have a limit and a deadline. If there are too many,
    the oldest is closed: a worker authenticates within milliseconds, strangers never do.
    """

    def __init__(
        self, name: str, host: str, authkey: bytes, serve: Callable[[Connection], None]
    ) -> None:
        """Start listening; `name` is for the log and the threads. `serve` closes its connection."""
        self._name = name
        self._authkey = authkey
        self._serve = serve
        self._refused = CountedLog(logger, f"unauthenticated connection to the {name} channel")
        self._closed = threading.Event()
        self._strangers: dict[socket.socket, str] = {}
        """Connections that are not authenticated yet, oldest first, each with the reason why it was
        closed, if it was."""
        self._changing = threading.Condition()
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
            self._make_room()
            with self._changing:
                self._strangers[accepted] = ""
            thread = threading.Thread(
                target=self._welcome, args=(accepted,), name=self._name, daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # there are too many threads
                self._forget(accepted)
                accepted.close()
                logger.warning(
                    f"the {self._name} channel accepts no connections", reason=str(error)
                )

    def _make_room(self) -> None:
        """Close the oldest stranger if there are too many, and wait for its thread."""
        with self._changing:
            while len(self._strangers) >= MOST_STRANGERS:
                oldest = next(iter(self._strangers))
                self._strangers[oldest] = f"{MOST_STRANGERS} newer ones have come"
                with suppress(OSError):  # it has hung up itself
                    oldest.shutdown(socket.SHUT_RDWR)
                self._changing.wait()

    def _forget(self, accepted: socket.socket) -> str:
        with self._changing:
            self._changing.notify_all()
            return self._strangers.pop(accepted)

    def _welcome(self, accepted: socket.socket) -> None:
        handshake = _Handshake(accepted, time.monotonic() + HANDSHAKE_TIMEOUT_S)
        try:
            handshake.deliver(self._authkey)
            handshake.answer(self._authkey)
        except Exception as error:  # garbage, silence, another key
            reason = self._forget(accepted) or str(error)
            accepted.close()
            self._refused.add(reason)
            return
        self._forget(accepted)
        try:
            connection = _connection(accepted)
        except OSError:  # the worker has hung up
            accepted.close()
            return
        self._serve(connection)


def connect(address: tuple[str, int], authkey: bytes) -> Connection:
    """Return a connection to a `ConnectionServer`; raises `OSError` if none answers in 10 s."""
    deadline_s = time.monotonic() + HANDSHAKE_TIMEOUT_S
    connected = socket.create_connection(address, HANDSHAKE_TIMEOUT_S)
    try:
        handshake = _Handshake(connected, deadline_s)
        handshake.answer(authkey)
        handshake.deliver(authkey)
        return _connection(connected)
    except Exception as error:  # garbage, silence, another key
        connected.close()
        host, port = address
        reason = str(error) or type(error).__name__
        raise ConnectionError(f"{host}:{port} is not this driver, or is stuck: {reason}") from error


class _Handshake:
    """Exchanges messages in the format of `Connection`, with one deadline for all of them.

    A socket's timeout applies to each read, so that an occasional byte would keep a `Connection`
    waiting forever.
    """

    def __init__(self, connected: socket.socket, deadline_s: float) -> None:
        self._socket = connected
        self._deadline_s = deadline_s

    def deliver(self, authkey: bytes) -> None:
        """Make the other end prove that it knows the key. Raises an error if it cannot."""
        deliver_challenge(cast("Connection", self), authkey)

    def answer(self, authkey: bytes) -> None:
        """Prove to the other end that this one knows the key. Raises an error if it is refused."""
        answer_challenge(cast("Connection", self), authkey)

    def send_bytes(self, data: bytes) -> None:
        """Send a short message."""
        self._limit()
        self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def recv_bytes(self, most: int) -> bytes:
        """Return a message. Raises `OSError` if it has more than `most` bytes."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if not 0 <= length <= most:
            raise OSError("bad message length")
        return self._read(length)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            self._limit()
            some = self._socket.recv(size - len(data))
            if not some:
                raise EOFError("the other end has hung up")
            data += some
        return data

    def _limit(self) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left_s)


def _connection(connected: socket.socket) -> Connection:
    connected.setblocking(True)
    # Without keepalive, a host that vanishes would go unnoticed.
    for level, option, value in _KEEPALIVE:
        connected.setsockopt(level, option, value)
    return Connection(connected.detach())
