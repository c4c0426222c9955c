"""What every request must be, and what every answer says, whatever is behind it."""

from __future__ import annotations

import json
from collections.abc import Iterable

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

logger = structlog.get_logger()


class Guard:
    """Lets GET requests to known hosts pass, and answers errors with 500.

    A page of another site can make its own name lead to this host (DNS rebinding). The browser then
    lets that page read what is here, but the request still has the other name in `Host`.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        """Guard an application that is known by the names in `hosts`, without ports."""
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        host = _without_port(Headers(scope=scope).get("host", ""))
        if host not in self._hosts:
            reason = "the console is not known by this host name: see console_names in config.yaml"
            await _refuse(send_with_headers, 421, reason)
            return
        if scope["method"] != "GET":
            await _refuse(send_with_headers, 405, "the console is read-only: only GET is answered")
            return
        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            logger.exception("the console failed", path=scope["path"], reason=str(error))
            if not started:
                await _refuse(
                    send_with_headers, 500, "the console failed: the JobManager's log says why"
                )


def _without_port(host: str) -> str:
    """Return the name in a `Host` header, such as `localhost` or `::1`."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"error": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 405:
        headers.append((b"allow", b"GET"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
