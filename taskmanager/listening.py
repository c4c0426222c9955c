"""Takes connections in on a port of the driver, from those alone who know the key."""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener

import structlog

logger = structlog.get_logger()


class ConnectionServer:
    """Listens on a free port, and serves each connection on a thread of its own."""

    def __init__(
        self, name: str, host: str, authkey: bytes, serve: Callable[[Connection], None]
    ) -> None:
        """Begin; `name` is for the log and the threads. `serve` closes its connection."""
        self._name = name
        self._serve = serve
        self._listener = Listener((host, 0), authkey=authkey)
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    @property
    def port(self) -> int:
        """The port that workers connect to."""
        _, port = self._listener.address
        return int(port)

    def close(self) -> None:
        """Stop listening. The connections end with the process, or with the workers'."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError):
                logger.warning(f"a stranger tried the {self._name} channel")
                continue
            except OSError:  # closed
                return
            threading.Thread(
                target=self._serve, args=(connection,), name=self._name, daemon=True
            ).start()
