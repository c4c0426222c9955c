"""TCP ports of the loopback interface."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from kafka_pipeline.common.errors import UnavailableError

LOOPBACK = "127.0.0.1"
MAX_PORT = 65_535

# Below the range from which systems pick the ports of outgoing connections (32768 on Linux, 49152
# on macOS). A client that keeps retrying a stopped broker on a port in that range eventually
# connects to itself by chance, and then holds the port that the broker needs back.
_FREE_PORTS = range(20_000, 32_000)
_ATTEMPTS = 1_000
_TIMEOUT_S = 1.0


def accepts(port: int) -> bool:
    """Tell whether a server accepts connections on a port of the loopback interface."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def is_free(port: int) -> bool:
    """Tell whether a server could listen on a port of the loopback interface.

    Raises:
        PermissionError: this user may not listen on that port.
    """
    # On macOS, bind succeeds even if a server listens on all interfaces; connecting reveals it.
    if accepts(port):
        return False
    with socket.socket() as probe:
        # As Kafka does: connections of an earlier run that linger in TIME_WAIT do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except PermissionError:
            raise
        except OSError:
            return False
    return True


def find_free(count: int, *, excluded: Collection[int] = ()) -> list[int]:
    """Return `count` different ports that are free now and not among `excluded`.

    Raises:
        UnavailableError: almost no port is free.
    """
    found: list[int] = []
    for _ in range(_ATTEMPTS):
        if len(found) == count:
            return found
        port = random.choice(_FREE_PORTS)
        if port not in found and port not in excluded and is_free(port):
            found.append(port)
    raise UnavailableError(
        f"no {count} free TCP ports were found on {LOOPBACK} between {_FREE_PORTS[0]} and "
        f"{_FREE_PORTS[-1]}: end programs that listen there"
    )
