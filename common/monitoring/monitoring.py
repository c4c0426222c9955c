"""Serves /metrics, /healthz and /readyz of a daemon, if `metrics_port` is set."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus

import structlog

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.monitoring.exposition import Exposition, Samples
from kafka_pipeline.common.process.http_server import HttpAnswer, HttpServer

Problems = Callable[[], list[str]]
"""Returns problems, as sentences for people; empty if all is well."""

_STARTING = "the daemon is starting"


class Pages:
    """Serves the pages on threads of their own; each request gets their current content."""

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
        """The port of the pages."""
        return self._server.port

    def show(self, samples: Samples, ready: Problems) -> None:
        """Show these metrics from now on; `ready` decides whether the daemon is ready."""
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


_TIMEOUTS = 2
_MARGIN_S = 60.0
"""A JobManager may wait 60 s, plus a transaction, until Kafka has accepted its first command."""


class LoopWatch:
    """Notices when a daemon's main loop hangs. The loop calls `turned`, any thread the rest.

    Before the first round, nothing is wrong: a daemon that cannot start ends by itself. The limit
    is longer than any call of the loop may block while Kafka is away, as a supervisor that then
    restarts the daemon would only make things worse.
    """

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = _TIMEOUTS * config.transaction_timeout_ms / 1000 + _MARGIN_S
        self._clock = clock
        self._turned_s: float | None = None

    def turned(self) -> None:
        """Record that the loop has started another round."""
        self._turned_s = self._clock()

    def problems(self) -> list[str]:
        """Return what is wrong, as sentences for people."""
        if self._turned_s is None:
            return []
        age_s = self._clock() - self._turned_s
        if age_s <= self._limit_s:
            return []
        return [f"the main loop has not turned for {age_s:.0f} s; it may take {self._limit_s:.0f}"]


logger = structlog.get_logger()


class Monitoring:
    """The pages of a daemon; without a `metrics_port`, there are none, and all calls do nothing."""

    def __init__(self, config: Config) -> None:
        """Listen; call this before anything that takes long. Raises as `Pages`."""
        self._watch = LoopWatch(config)
        self._pages: Pages | None = None
        if config.metrics_port is not None:
            host = config.metrics_host
            self._pages = Pages(host, config.metrics_port, self._watch.problems)
            logger.info("metrics are shown", host=host, port=self._pages.port)

    def begin(self, samples: Samples, ready: Problems) -> None:
        """Show the daemon's metrics, and from now on whether it is ready."""
        if self._pages is not None:
            self._pages.show(samples, ready)

    def turned(self) -> None:
        """Record that the main loop has started another round."""
        self._watch.turned()

    def close(self) -> None:
        """Stop listening."""
        if self._pages is not None:
            self._pages.close()
