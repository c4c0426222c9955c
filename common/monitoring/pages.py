"""The web pages of a daemon: /metrics, /healthz and /readyz, on a port of their own."""

from __future__ import annotations

import errno
import json
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import structlog

from common.errors import ConfigError, UnavailableError
from common.monitoring.exposition import Exposition, Samples

Problems = Callable[[], list[str]]
"""Returns what is wrong, as sentences for people; nothing if all is well."""

REQUEST_TIMEOUT_S = 10.0

_STARTING = "the daemon is starting"

logger = structlog.get_logger()


class Page(NamedTuple):
    """The answer to a request."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"


class Pages:
    """Serves the pages on threads of their own; what they show is asked for with each request."""

    def __init__(self, host: str, port: int, health: Problems) -> None:
        """Listen on a port, 0 for a free one.

        Until `show`, there are no metrics, and the daemon is not ready. Raises `UnavailableError`
        if another process listens there, `ConfigError` if this host does not have the address.
        """
        self._health = health
        self._ready: Problems = lambda: [_STARTING]
        self._exposition = Exposition(lambda: ())
        self._server = _listen(host, port, self._answer)
        threading.Thread(target=self._server.serve_forever, name="pages", daemon=True).start()

    @property
    def port(self) -> int:
        """The port that the pages are on."""
        return int(self._server.server_address[1])

    def show(self, samples: Samples, ready: Problems) -> None:
        """Show these metrics from now on, and whether the daemon is ready."""
        self._exposition, self._ready = Exposition(samples), ready

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str, accept: str) -> Page:
        match path.partition("?")[0]:
            case "/metrics":
                return Page(HTTPStatus.OK, *self._exposition.page(accept))
            case "/healthz":
                return _verdict(self._health())
            case "/readyz":
                return _verdict(self._ready())
        known = "the pages are /metrics, /healthz and /readyz"
        return Page(HTTPStatus.NOT_FOUND, _body("not found", [known]))


def _verdict(problems: list[str]) -> Page:
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    return Page(status, _body("failing" if problems else "ok", problems))


def _body(status: str, problems: list[str]) -> bytes:
    return json.dumps({"status": status, "problems": problems}).encode() + b"\n"


def _listen(host: str, port: int, answer: Callable[[str, str], Page]) -> ThreadingHTTPServer:
    """Return a server that listens; raises as `Pages`."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def server_bind(self) -> None:
            # The base class looks the host's name up, which may take long.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(self.server_address)
            self.server_address = self.socket.getsockname()

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Do nothing: the reader has hung up."""

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            page = _page_or_error(answer, self.path, self.headers.get("Accept", ""))
            self.send_response(page.status)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            self.wfile.write(page.body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: a scrape every few seconds is no news."""

    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        Server.address_family = found[0][0]
        return Server((host, port), Handler)
    except OSError as error:
        raise _refusal(host, port, error) from error


def _page_or_error(answer: Callable[[str, str], Page], path: str, accept: str) -> Page:
    try:
        return answer(path, accept)
    except Exception:
        logger.exception("a page could not be made", path=path)
        return Page(HTTPStatus.INTERNAL_SERVER_ERROR, _body("failing", ["see the daemon's log"]))


def _refusal(host: str, port: int, error: OSError) -> ConfigError | UnavailableError:
    if error.errno == errno.EADDRINUSE:
        return UnavailableError(
            f"metrics_port {port} of {host} is taken, perhaps by another daemon on this host that "
            "reads the same config.yaml. Give each daemon a port of its own, such as "
            "metrics_port: ${METRICS_PORT:-9400} and METRICS_PORT=9401 in the environment of this "
            "one; or use 0 for a free port, which is logged."
        )
    return ConfigError(
        f"metrics_port {port} cannot be opened at metrics_host {host} ({error.strerror}): "
        "correct them in config.yaml."
    )
