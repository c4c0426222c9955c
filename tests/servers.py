"""Runs servers of others on this machine, and finds ports for them."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    """Return a port of the loopback interface at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def takes_connections(port: int) -> bool:
    """Whether somebody listens at a port of the loopback interface."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def serving(
    command: Sequence[str],
    answers: Callable[[], bool],
    log_file: Path,
    *,
    env: Mapping[str, str] | None = None,
    within_s: float = 120,
) -> Iterator[None]:
    """Run a server in the folder of its log, once it `answers`, and kill it at the end."""
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=log_file.parent,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        until_s = time.monotonic() + within_s
        while not answers():
            assert process.poll() is None, f"the server has ended: {log_file.read_text()}"
            assert time.monotonic() < until_s, f"the server does not answer: {log_file.read_text()}"
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait(30)
