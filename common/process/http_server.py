"""Serves pages of a daemon over HTTP: GET and HEAD only, on threads of their own."""

from __future__ import annotations

import errno
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import structlog

from kafka_pipeline.common.errors import ConfigError, UnavailableError

REQUEST_TIMEOUT_S = 10.0
"""How long a reader may take for its whole request, and then for the answer."""
MOST_CONNECTIONS = 64
"""The most connections of a server, each with a thread and a file of the daemon."""

logger = structlog.get_logger()


class HttpAnswer(NamedTuple):
    """The answer to a request."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"


Answer = Callable[[str, Mapping[str, str]], HttpAnswer]
"""Returns the page for a path with its query, and the request's headers with lower-case names."""


class HttpServer:
    """A server with a port of its own. An exception of `answer` fails only the one request.

    If there are too many connections, the oldest without a request is closed, or else the oldest: a
    reader asks within milliseconds, and a stranger may never do.
    """

    def __init__(self, name: str, host: str, port: int, answer: Answer) -> None:
        """Listen on a port, 0 for a free one; `name` is the prefix of its keys, such as `metrics`.

        Raises `UnavailableError` if another process listens there, `ConfigError` if this host does
        not have the address.
        """
        try:
            self._server = _Server(host, port, answer)
        except OSError as error:
            raise _refusal(name, host, port, error) from error
        threading.Thread(target=self._server.serve_forever, name=name, daemon=True).start()

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, host: str, port: int, answer: Answer) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self.answer = answer
        self._open: dict[socket.socket, None] = {}  # oldest first
        self._asking: dict[socket.socket, float] = {}
        """When those were made whose requests are not complete, oldest first."""
        self._changing = threading.Lock()
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve on a thread; make room if there are too many connections."""
        with self._changing:
            if len(self._open) >= MOST_CONNECTIONS:
                self._end(next(iter(self._asking or self._open)))
            self._open[request], self._asking[request] = None, time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Hang up."""
        with self._changing:
            self._forget(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections whose requests take too long; called at least twice a second."""
        with self._changing:
            since_s = time.monotonic() - REQUEST_TIMEOUT_S
            for late in [each for each, began_s in self._asking.items() if began_s < since_s]:
                self._end(late)

    def asked(self, request: socket.socket) -> None:
        """Note that a request is complete."""
        with self._changing:
            self._asking.pop(request, None)

    def _end(self, request: socket.socket) -> None:
        self._forget(request)
        with suppress(OSError):  # it has hung up itself
            request.shutdown(socket.SHUT_RDWR)

    def _forget(self, request: socket.socket) -> None:
        self._open.pop(request, None)
        self._asking.pop(request, None)

    def server_bind(self) -> None:
        # The base class would look up the host's name, which may take long.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.address_family == socket.AF_INET6:
            # So that `::` takes IPv4, too, whatever the host's default.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: the reader has hung up."""


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S
    server: _Server

    def do_GET(self) -> None:
        self._reply()

    def do_HEAD(self) -> None:
        self._reply(with_body=False)

    def _reply(self, *, with_body: bool = True) -> None:
        self.server.asked(self.connection)
        headers = {name.lower(): value for name, value in self.headers.items()}
        page = _page_or_error(self.server.answer, self.path, headers)
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if with_body:
            self.wfile.write(page.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a scrape every few seconds is not news."""


def _page_or_error(answer: Answer, path: str, headers: Mapping[str, str]) -> HttpAnswer:
    try:
        return answer(path, headers)
    except Exception:
        logger.exception("a page could not be made", path=path.partition("?")[0])
        body = {"status": "failing", "problems": ["see the daemon's log"]}
        return HttpAnswer(HTTPStatus.INTERNAL_SERVER_ERROR, json.dumps(body).encode() + b"\n")


def _refusal(name: str, host: str, port: int, error: OSError) -> ConfigError | UnavailableError:
    if error.errno == errno.EADDRINUSE:
        variable = f"{name.upper()}_PORT"
        return UnavailableError(
            f"{name}_port {port} of {host} is taken, perhaps by another daemon on this host that "
            "reads the same config.yaml. Give each daemon a port of its own, such as "
            f"{name}_port: ${{{variable}:-9400}} and {variable}=9401 in the environment of this "
            "one; or use 0 for a free port, which is logged."
        )
    return ConfigError(
        f"{name}_port {port} cannot be opened at {name}_host {host} ({error.strerror}): "
        "correct them in config.yaml."
    )
