"""The proxy between clients and a broker, with an echo server in the broker's place."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from queue import Empty, Queue

import pytest

from tests.chaos.proxy import HOST, Link

TIMEOUT_S = 30
A_WHILE_S = 0.3


class EchoServer(socketserver.ThreadingTCPServer):
    """Sends back what it gets, and puts it into `heard`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self) -> None:
        self.heard: Queue[bytes] = Queue()
        super().__init__((HOST, 0), EchoHandler)


class EchoHandler(socketserver.BaseRequestHandler):
    server: EchoServer

    def handle(self) -> None:
        try:
            while data := self.request.recv(65_536):
                self.server.heard.put(data)
                self.request.sendall(data)
        except ConnectionError:
            pass


@pytest.fixture
def server() -> Iterator[EchoServer]:
    with EchoServer() as echo:
        thread = threading.Thread(target=echo.serve_forever, args=(0.01,))
        thread.start()
        yield echo
        echo.shutdown()
        thread.join()


@pytest.fixture
def link(server: EchoServer) -> Iterator[Link]:
    with Link(server.server_address[1]) as opened:
        yield opened


def connect(link: Link) -> socket.socket:
    return socket.create_connection((HOST, link.port), timeout=TIMEOUT_S)


def receive(client: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        data = client.recv(size - len(received))
        assert data, "the connection ended too early"
        received += data
    return received


def echo(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return receive(client, len(data))


def is_silent(client: socket.socket) -> bool:
    client.settimeout(A_WHILE_S)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(TIMEOUT_S)
    return False


def is_broken(client: socket.socket) -> bool:
    try:
        client.sendall(b"x")
        return client.recv(1) == b""
    except ConnectionError:
        return True


def refuses(link: Link) -> bool:
    """Whether a new connection is reset, as soon as it is made or a little later."""
    try:
        client = connect(link)
    except ConnectionError:
        return True
    with client:
        return is_broken(client)


def test_bytes_come_back_as_they_were(link: Link) -> None:
    data = bytes(range(256)) * 20_000
    with connect(link) as client:
        thread = threading.Thread(target=client.sendall, args=(data,))
        thread.start()
        assert receive(client, len(data)) == data
        thread.join()


def test_many_connections_keep_their_bytes_apart(link: Link) -> None:
    clients = [connect(link) for _ in range(100)]
    for number, client in enumerate(clients):
        client.sendall(b"%04d" % number)
    assert [receive(client, 4) for client in clients] == [b"%04d" % n for n in range(100)]
    for client in clients:
        client.close()


def test_end_of_one_direction_is_passed_on_and_nothing_is_lost(link: Link) -> None:
    data = b"last words" * 10_000
    with connect(link) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        assert receive(client, len(data)) == data
        assert client.recv(1) == b""


def test_slow_reader_still_gets_all_after_the_end(link: Link, server: EchoServer) -> None:
    data = bytes(1_000_000)
    with socket.socket() as client:
        client.settimeout(TIMEOUT_S)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((HOST, link.port))
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        heard = 0
        while heard < len(data):
            heard += len(server.heard.get(timeout=TIMEOUT_S))
        time.sleep(A_WHILE_S)  # Time to break the connection, for a proxy that would.
        assert receive(client, len(data)) == data
        assert client.recv(1) == b""


def test_connection_is_reset_while_nobody_listens_behind() -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
    with Link(port) as link:
        assert refuses(link)


def test_delay_works_on_open_connections_and_keeps_the_order(link: Link) -> None:
    with connect(link) as client:
        assert echo(client, b"before") == b"before"
        link.delay(50)
        started = time.monotonic()
        client.sendall(b"first ")
        client.sendall(b"second ")
        assert echo(client, b"third") + receive(client, 13) == b"first second third"
        assert time.monotonic() - started >= 0.1


def test_mend_frees_what_was_delayed(link: Link) -> None:
    link.delay(3_600_000)
    with connect(link) as client:
        client.sendall(b"held")
        assert is_silent(client)
        link.mend()
        assert receive(client, 4) == b"held"


def test_throttle_limits_all_connections_together(link: Link) -> None:
    with connect(link) as one, connect(link) as other:
        link.throttle(100_000)
        started = time.monotonic()
        one.sendall(b"a" * 10_000)
        other.sendall(b"b" * 10_000)
        assert receive(one, 10_000) + receive(other, 10_000) == b"a" * 10_000 + b"b" * 10_000
        # The last slice is passed at once, and paid for afterwards.
        assert time.monotonic() - started >= 0.2 - 2 / 50


def test_mend_ends_the_throttle(link: Link) -> None:
    link.throttle(1)
    with connect(link) as client:
        client.sendall(b"slowly")
        assert receive(client, 1) == b"s"
        link.mend()
        assert receive(client, 5) == b"lowly"


def test_broker_that_cannot_answer_still_hears(link: Link, server: EchoServer) -> None:
    with connect(link) as client:
        echo(client, b"before")
        server.heard.get(timeout=TIMEOUT_S)
        link.block(to_broker=False, to_client=True)
        client.sendall(b"hello")
        assert server.heard.get(timeout=TIMEOUT_S) == b"hello"
        assert is_silent(client)
        link.mend()
        assert receive(client, 5) == b"hello"


def test_broker_that_cannot_hear_gets_it_later(link: Link, server: EchoServer) -> None:
    with connect(link) as client:
        echo(client, b"before")
        server.heard.get(timeout=TIMEOUT_S)
        link.block(to_broker=True, to_client=False)
        client.sendall(b"hello")
        with pytest.raises(Empty):
            server.heard.get(timeout=A_WHILE_S)
        link.mend()
        assert receive(client, 5) == b"hello"


def test_blocked_link_takes_new_connections_and_says_nothing(link: Link) -> None:
    link.block(to_broker=True, to_client=True)
    with connect(link) as client:
        client.sendall(b"hello")
        assert is_silent(client)
        link.mend()
        assert receive(client, 5) == b"hello"


@pytest.mark.parametrize("linger", [(0, 0), (1, 0)], ids=["closed", "reset"])
def test_client_does_not_learn_of_the_brokers_end_through_a_blocked_link(
    linger: tuple[int, int],
) -> None:
    with socket.create_server((HOST, 0)) as listener, Link(listener.getsockname()[1]) as link:
        client = connect(link)
        broker, _ = listener.accept()
        link.block(to_broker=False, to_client=True)
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", *linger))
        broker.close()
        client.sendall(b"is anybody there?")
        assert is_silent(client)
        link.mend()
        assert is_broken(client)
        client.close()


def test_cut_breaks_open_and_new_connections_until_it_is_mended(link: Link) -> None:
    with connect(link) as client:
        echo(client, b"before")
        link.cut()
        assert is_broken(client)
    assert refuses(link)
    link.mend()
    with connect(link) as client:
        assert echo(client, b"after") == b"after"


def test_cut_breaks_blocked_connections_too(link: Link) -> None:
    with connect(link) as client:
        link.block(to_broker=True, to_client=True)
        link.cut()
        assert is_broken(client)


def test_closed_link_gives_its_port_back(server: EchoServer) -> None:
    link = Link(server.server_address[1])
    link.start()
    client = connect(link)
    echo(client, b"before")
    link.close()
    assert is_broken(client)
    client.close()
    with pytest.raises(ConnectionRefusedError):
        connect(link)
