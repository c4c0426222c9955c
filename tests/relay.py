"""What relays between clients and a server on this machine share: how they take connections."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from contextlib import suppress


class Relay(ABC):
    """Listens on a port of the loopback interface, for a server on another one."""

    def __init__(self, server_port: int) -> None:
        """Take connections; what `serve` needs must be there before."""
        self.server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @abstractmethod
    def serve(self, client: socket.socket) -> None:
        """Pass on what a client sends, and answers, on a thread of its own."""

    def close(self) -> None:
        """Take no more connections; it may be closed already."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # or `accept` would take one more
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self.serve, args=[client], daemon=True).start()
