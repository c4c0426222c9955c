"""The web pages of a daemon: /metrics, /healthz and /readyz, on a port of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus

from kafka_pipeline.common.http_server import HttpAnswer, HttpServer
from kafka_pipeline.common.monitoring.exposition import Exposition, Samples

Problems = Callable[[], list[str]]
"""Returns what is wrong, as sentences for people; nothing if all is well."""

_STARTING = "the daemon is starting"


class Pages:
    """Serves the pages on threads of their own; what they show is asked for with each request."""

    def __init__(self, host: str, port: int, health: Problems) -> None:
        """Listen on a port, 0 for a free one.

        Until `show`, there are no metrics, and the daemon is not ready. Raises as `HttpServer`.
        """
        self._health = health
        self._ready: Problems = lambda: [_STARTING]
        self._exposition = Exposition(lambda: ())
        self._server = HttpServer("metrics", host, port, self._answer)

    @property
    def port(self) -> int:
        """The port that the pages are on."""
        return self._server.port

    def show(self, samples: Samples, ready: Problems) -> None:
        """Show these metrics from now on, and whether the daemon is ready."""
        self._exposition, self._ready = Exposition(samples), ready

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    def _answer(self, path: str, headers: Mapping[str, str]) -> HttpAnswer:
        match path.partition("?")[0]:
            case "/metrics":
                return HttpAnswer(HTTPStatus.OK, *self._exposition.page(headers.get("accept", "")))
            case "/healthz":
                return _verdict(self._health())
            case "/readyz":
                return _verdict(self._ready())
        known = "the pages are /metrics, /healthz and /readyz"
        return HttpAnswer(HTTPStatus.NOT_FOUND, _body("not found", [known]))


def _verdict(problems: list[str]) -> HttpAnswer:
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    return HttpAnswer(status, _body("failing" if problems else "ok", problems))


def _body(status: str, problems: list[str]) -> bytes:
    return json.dumps({"status": status, "problems": problems}).encode() + b"\n"
