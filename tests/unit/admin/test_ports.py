"""Which ports count as free."""

from __future__ import annotations

import socket

from kafka_pipeline.admin.broker.ports import LOOPBACK, accepts, find_free, is_free


def test_a_port_with_a_listener_is_not_free() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        assert accepts(port)
        assert not is_free(port)
    assert not accepts(port)
    assert is_free(port)


def test_a_listener_on_all_interfaces_counts() -> None:
    with socket.create_server(("", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_a_port_that_is_bound_but_does_not_listen_is_not_free() -> None:
    with socket.socket() as holder:
        holder.bind((LOOPBACK, 0))
        assert not is_free(holder.getsockname()[1])


def test_free_ports_differ_and_lie_below_those_of_outgoing_connections() -> None:
    first = find_free(5)
    second = find_free(5, excluded=first)

    assert len({*first, *second}) == 10
    assert max(first + second) < 32_768
