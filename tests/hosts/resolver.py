"""A name server for the hosts of a test: it knows their names, and can be silent or late."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

_PORT = 53
_POLL_S = 0.2
_HEADER = struct.Struct(">HHHHHH")
_ANSWER = struct.Struct(">HHHIH")
_IS_ANSWER, _IS_UNKNOWN = 0x8580, 0x8583
_ADDRESS_TYPE, _INTERNET = 1, 1
_POINTER_TO_NAME = 0xC00C
_KEEP_S = 1


class Resolver:
    """Answers queries for IPv4 addresses over UDP (RFC 1035), from a thread of its own."""

    def __init__(self, address: str) -> None:
        """Listen on port 53 of an address of the network that this thread is in."""
        self.addresses: dict[str, str] = {}
        """What names stand for; other names do not exist."""
        self.delay_s = 0.0
        """How late answers are."""
        self.is_silent = False
        """Whether there are no answers at all."""
        self.queries = 0
        """How many queries have come."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, _PORT))
        self._socket.settimeout(_POLL_S)
        self._ends = False
        self._thread = threading.Thread(target=self._run, name="resolver", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; no query is answered from now on."""
        self._ends = True
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._ends:
            with suppress(TimeoutError):
                query, client = self._socket.recvfrom(512)
                self.queries += 1
                if not self.is_silent:
                    # Late answers do not wait for each other.
                    timer = threading.Timer(self.delay_s, self._answer, (query, client))
                    timer.daemon = True
                    timer.start()

    def _answer(self, query: bytes, client: tuple[str, int]) -> None:
        with suppress(OSError):
            self._socket.sendto(answer_to(query, self.addresses), client)


def answer_to(query: bytes, addresses: dict[str, str]) -> bytes:
    """Return the answer to a query with one question, as all resolvers send it."""
    number, *_ = _HEADER.unpack_from(query)
    labels, place = [], _HEADER.size
    while length := query[place]:
        labels.append(query[place + 1 : place + 1 + length].decode("ascii", "replace"))
        place += 1 + length
    end = place + 5
    question = query[_HEADER.size : end]
    (kind,) = struct.unpack_from(">H", query, place + 1)
    address = addresses.get(".".join(labels).lower())
    if address is None or kind != _ADDRESS_TYPE:
        # A name without an address of this kind exists all the same.
        flags = _IS_UNKNOWN if address is None else _IS_ANSWER
        return _HEADER.pack(number, flags, 1, 0, 0, 0) + question
    record = _ANSWER.pack(_POINTER_TO_NAME, _ADDRESS_TYPE, _INTERNET, _KEEP_S, 4)
    header = _HEADER.pack(number, _IS_ANSWER, 1, 1, 0, 0)
    return header + question + record + socket.inet_aton(address)
