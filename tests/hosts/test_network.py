"""The network of hosts: who reaches whom, what is silent, and that nothing stays of it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.hosts.network import Host, Network, NoHostsError, require_hosts
from tests.hosts.relay import Harm
from tests.leftovers_guard import marked

_SOON_S = 1.0
_ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 7))
print("ready", flush=True)
connection, _ = server.accept()
while data := connection.recv(65536):
    connection.sendall(data[:1])
"""
_RESOLVE = "import socket, sys; print(socket.gethostname(), socket.gethostbyname(sys.argv[1]))"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    try:
        with Network(tmp_path_factory.mktemp("network"), ["left", "right"]).open() as made:
            yield made
    except NoHostsError as error:
        pytest.skip(str(error))


@pytest.fixture
def connection(network: Network) -> Iterator[socket.socket]:
    """A connection from the observer to a server on the right host, which answers each message."""
    right = network.hosts["right"]
    command = [*right.within, sys.executable, "-c", _ECHO, right.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        with socket.create_connection((right.address, 7), timeout=5) as made:
            made.settimeout(_SOON_S)
            yield made
        server.kill()


def ask(connection: socket.socket) -> bool:
    """Whether an answer comes soon. Raises OSError if the connection is reset."""
    connection.sendall(b"?")
    with suppress(TimeoutError):
        return connection.recv(1) == b"?"
    return False


def answers_later(connection: socket.socket) -> bool:
    """Whether the answer comes once TCP has sent the message again."""
    connection.settimeout(10)
    return connection.recv(1) == b"?"


def resolved(host: Host, name: str) -> str:
    return host.run(sys.executable, "-c", _RESOLVE, name).strip()


def test_a_host_has_a_name_and_finds_others_by_theirs(network: Network) -> None:
    left, right = network.hosts["left"], network.hosts["right"]
    assert resolved(left, right.name) == f"{left.name} {right.address}"
    with pytest.raises(NoHostsError, match=r"Name or service not known"):
        resolved(left, "nobody.hosts.test")


def test_a_silent_resolver_is_waited_for_and_a_late_one_is_heard(network: Network) -> None:
    left, right = network.hosts["left"], network.hosts["right"]
    network.resolver.is_silent = True
    try:
        with pytest.raises(NoHostsError, match=r"Temporary failure in name resolution"):
            resolved(left, right.name)
    finally:
        network.resolver.is_silent = False
    network.resolver.delay_s = 0.5
    try:
        before_s = time.monotonic()
        assert resolved(left, right.name).endswith(right.address)
        assert time.monotonic() - before_s >= 0.5
    finally:
        network.resolver.delay_s = 0.0


def test_an_unplugged_host_is_silent_and_its_connections_survive(
    network: Network, connection: socket.socket
) -> None:
    assert ask(connection)
    with network.silent(network.hosts["right"]):
        assert not ask(connection)
    assert answers_later(connection)


@pytest.mark.parametrize("is_request", [True, False], ids=["to it", "from it"])
def test_one_direction_is_blocked_between_two_hosts(
    network: Network, connection: socket.socket, is_request: bool
) -> None:
    pair = [network.observer, network.hosts["right"]]
    sender, receiver = pair if is_request else pair[::-1]
    assert ask(connection)
    with network.blocked((sender, receiver)):
        assert not ask(connection)
        assert resolved(network.hosts["left"], receiver.name).endswith(receiver.address)
    assert answers_later(connection)


def test_a_narrow_host_is_as_slow_as_it_was_made(
    network: Network, connection: socket.socket
) -> None:
    with network.narrow(network.hosts["right"], 1000):
        before_s = time.monotonic()
        connection.settimeout(10)
        connection.sendall(bytes(250_000))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass
    # 2 Mbit at 1 Mbit/s, but for what the bucket lets through at once.
    assert 1.5 < time.monotonic() - before_s < 5


def test_a_harmed_host_is_late_and_loses_what_tcp_sends_again(
    network: Network, connection: socket.socket
) -> None:
    connection.settimeout(10)
    delays_s = []
    with network.harmed(network.hosts["right"], Harm(0.05, 30, 20, 0.05), seed=1):
        for _ in range(50):
            before_s = time.monotonic()
            connection.sendall(b"?")
            assert connection.recv(1) == b"?"
            delays_s.append(time.monotonic() - before_s)
    assert 0.02 <= min(delays_s) < 0.1
    assert max(delays_s) > 0.1, "nothing was lost"
    assert ask(connection)


def test_what_happens_to_a_frame_is_decided_by_the_seed() -> None:
    harm = Harm(0.05, 30, 20, 0.1)
    runs = [[harm.delays_s(random) for _ in range(1000)] for random in map(Random, (1, 1, 2))]
    assert runs[0] == runs[1] != runs[2]
    assert 20 <= sum(not delays for delays in runs[0]) <= 90
    assert 50 <= sum(len(delays) == 2 for delays in runs[0]) <= 150
    assert all(0.01 <= delay_s <= 0.05 for delays in runs[0] for delay_s in delays)


def test_a_host_that_moved_is_found_by_its_name(network: Network) -> None:
    left, right = network.hosts["left"], network.hosts["right"]
    former = right.address
    network.move(right)
    assert right.address != former
    assert resolved(left, right.name).endswith(right.address)
    with network.observer.entered(), socket.create_server((network.observer.address, 0)) as server:
        port = server.getsockname()[1]
        code = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"
        right.run(sys.executable, "-c", code, network.observer.address, str(port))


_MAKER = """
import os, signal, sys
from pathlib import Path
from random import Random
from tests.hosts.relay import Harm
from tests.hosts.network import Network
from tests.leftovers import Guard

Guard(0)
with Network(Path(sys.argv[1]), ["only"]).open() as network:
    pids = [host.pid for host in network.hosts.values()]
    print(os.environ["PIPELINE_TESTS"], *pids, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_of_a_network_whose_maker_is_killed(tmp_path: Path) -> None:
    try:
        require_hosts()
    except NoHostsError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [sys.executable, "-c", _MAKER, str(tmp_path)], capture_output=True, text=True, check=False
    )
    mark, *pids = done.stdout.split()
    assert len(pids) == 2, done.stderr
    deadline_s = time.monotonic() + 30
    while list(marked(mark)) or any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline_s, "hosts are left"
        time.sleep(0.05)
