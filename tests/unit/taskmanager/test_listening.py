"""Unauthenticated connections, and those of workers at the same time."""

from __future__ import annotations

import multiprocessing
import resource
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection

import pytest
from structlog.testing import capture_logs

from kafka_pipeline.taskmanager import listening
from kafka_pipeline.taskmanager.listening import MOST_STRANGERS, ConnectionServer, connect

KEY = b"secret"
TIMEOUT_S = 30


def echo(connection: Connection) -> None:
    with connection:
        connection.send_bytes(connection.recv_bytes())


@pytest.fixture
def server() -> Iterator[ConnectionServer]:
    server = ConnectionServer("test", "127.0.0.1", KEY, echo)
    yield server
    server.close()


def address(server: ConnectionServer) -> tuple[str, int]:
    return "127.0.0.1", server.port


def require_service(server: ConnectionServer) -> None:
    with connect(address(server), KEY) as connection:
        connection.send_bytes(b"hello")
        assert connection.poll(TIMEOUT_S)
        assert connection.recv_bytes() == b"hello"


def send_slowly(connection: socket.socket) -> None:
    """Send a long message a byte at a time, never a timeout apart, until the other side hangs up.

    Each wait ends early once that happens.
    """
    connection.settimeout(0.1)
    for byte in struct.pack("!i", 200) + bytes(200):
        try:
            connection.sendall(bytes([byte]))
            if not connection.recv(1000):
                return
        except TimeoutError:
            continue
        except OSError:
            return
    raise AssertionError("nobody has hung up")


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"\0",
        b"\0\0\0\x04spam",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff\x7f" + b"\0" * 7,
        b"",
    ],
)
def test_garbage_of_a_stranger_leaves_the_server_as_it_is(
    server: ConnectionServer, garbage: bytes
) -> None:
    stranger = socket.create_connection(address(server), TIMEOUT_S)
    with stranger, suppress(OSError):  # hung up on
        stranger.sendall(garbage)
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(1000):
            pass
    require_service(server)


def test_silent_stranger_keeps_nobody_waiting(server: ConnectionServer) -> None:
    with socket.create_connection(address(server), TIMEOUT_S):
        require_service(server)


def test_silent_stranger_is_hung_up_on(
    server: ConnectionServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_TIMEOUT_S", 0.5)
    with socket.create_connection(address(server), TIMEOUT_S) as stranger:
        while stranger.recv(1000):
            pass


def test_stranger_who_sends_a_byte_now_and_then_is_hung_up_on(
    server: ConnectionServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_TIMEOUT_S", 0.5)
    with socket.create_connection(address(server), TIMEOUT_S) as stranger:
        stranger.recv(1000)
        send_slowly(stranger)


@pytest.mark.parametrize("length", [257, 2**31 - 1, -1, -2])
def test_stranger_who_announces_a_large_message_is_hung_up_on(
    server: ConnectionServer, length: int
) -> None:
    with socket.create_connection(address(server), TIMEOUT_S) as stranger, suppress(OSError):
        stranger.sendall(struct.pack("!iQ", length, 2**40))
        while stranger.recv(1000):
            pass


def test_the_oldest_of_many_strangers_makes_room_for_a_worker(server: ConnectionServer) -> None:
    before = threading.active_count()
    with capture_logs() as logs, ExitStack() as strangers:
        several = [
            strangers.enter_context(socket.create_connection(address(server), TIMEOUT_S))
            for _ in range(2 * MOST_STRANGERS)
        ]
        require_service(server)
        assert several[0].recv(1)
        with suppress(ConnectionError):
            while several[0].recv(1000):
                pass
        deadline_s = time.monotonic() + TIMEOUT_S
        while threading.active_count() > before + MOST_STRANGERS:
            assert time.monotonic() < deadline_s
    dropped = [log["count"] for log in logs if "newer ones have come" in log["reason"]]
    assert sorted(dropped)[:7] == [1, 2, 4, 8, 16, 32, 64]


def test_worker_gets_in_while_strangers_connect_without_end(server: ConnectionServer) -> None:
    has_too_many, stop = threading.Event(), threading.Event()

    def connect_without_end() -> None:
        held = deque[socket.socket]()
        while not stop.is_set():
            with suppress(OSError):
                stranger = socket.create_connection(address(server), TIMEOUT_S)
                held.append(stranger)
                # Each waits for the server's challenge. Otherwise, on a busy machine, so many would
                # come before the server's next turn that a worker in between would be the oldest.
                stranger.recv(1)
            if len(held) > MOST_STRANGERS:
                has_too_many.set()
                held.popleft().close()
        for each in held:
            each.close()

    threads = [threading.Thread(target=connect_without_end) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert has_too_many.wait(TIMEOUT_S)
        for _ in range(5):
            require_service(server)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_strangers_of_a_kind_are_logged_ever_more_rarely(server: ConnectionServer) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S

    def counts() -> list[int]:
        # Threads of other tests may still log.
        return sorted(log["count"] for log in logs if "digest" in log["reason"])

    with capture_logs() as logs:
        for _ in range(9):
            with pytest.raises(ConnectionError):
                connect(address(server), b"wrong")
        while len(counts()) < 4:
            assert time.monotonic() < deadline_s
        require_service(server)
    assert counts() == [1, 2, 4, 8]
    assert logs[0]["event"] == "unauthenticated connection to the test channel"


def test_who_has_another_key_is_refused(server: ConnectionServer) -> None:
    with pytest.raises(ConnectionError, match=f"127.0.0.1:{server.port} is not this driver"):
        connect(address(server), b"wrong")
    require_service(server)


def serve_without_free_files() -> None:
    """Run a server, and let its process open nothing for a while."""
    listening._PAUSE_S = 0.01
    server = ConnectionServer("test", "127.0.0.1", KEY, echo)
    # The kernel has set a file aside for the call of `accept` that waits already: two connections.
    first, waiting = socket.socket(), socket.socket()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Nothing more can be opened, whichever numbers of files are free.
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    first.connect(address(server))
    waiting.connect(address(server))
    assert not threading.Event().wait(0.1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    waiting.settimeout(TIMEOUT_S)
    assert waiting.recv(1)
    first.close()
    waiting.close()
    require_service(server)
    server.close()


def test_server_without_free_files_serves_again_when_some_are_free() -> None:
    # In a process of its own: threads of other tests may need files too.
    process = multiprocessing.get_context("spawn").Process(target=serve_without_free_files)
    process.start()
    process.join(TIMEOUT_S)
    assert process.exitcode == 0


def test_client_gives_up_where_bytes_come_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve() -> None:
            accepted, _ = other.accept()
            with accepted:
                send_slowly(accepted)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ConnectionError, match="is not this driver, or is stuck"):
            connect(other.getsockname(), KEY)
        thread.join()


@pytest.mark.parametrize("answer", [b"\0\0\0\x04spam", b"HTTP/1.0 400 Bad Request\r\n", b""])
def test_client_gives_up_where_something_else_listens(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as other:
        accepted = []

        def serve() -> None:
            accepted.append(other.accept()[0])
            accepted[0].sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ConnectionError, match="is not this driver"):
            connect(other.getsockname(), KEY)
        thread.join()
        accepted[0].close()


def test_closed_server_takes_nobody_in(server: ConnectionServer) -> None:
    place = address(server)
    server.close()
    with pytest.raises(OSError, match="refused"):
        connect(place, KEY)
