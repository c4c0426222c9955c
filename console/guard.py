"""Checks every request, and adds security headers to every answer, for any application."""

from __future__ import annotations

import json
from collections.abc import Iterable

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kafka_pipeline.common.code.error_words import described
from kafka_pipeline.console.access import Access, Refusal

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


class RequestGuard:
    """Passes valid requests to known hosts on, and answers unexpected errors with 500.

    GET passes. POST passes only with the console's token, as JSON, and not from a page of another
    site. Browsers never send the token by themselves, as they would send a cookie; the other checks
    are a second safeguard.

    A page of another site can make its own name resolve to this host (DNS rebinding). The browser
    then lets that page read the console's answers, but the request still has the other name in
    `Host`.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], access: Access) -> None:
        """Guard an application with the host names in `hosts`, without ports."""
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._access = access

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

        refusal = await self._refusal(scope)
        if refusal is not None:
            await _refuse(send_with_headers, refusal)
            return
        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            logger.exception(
                "the console failed", path=scope["path"], reason=described(error, with_values=False)
            )
            if not started:
                reason = "the console failed: the JobManager's log says why"
                await _refuse(send_with_headers, Refusal(500, reason))

    async def _refusal(self, scope: Scope) -> Refusal | None:
        """Return why a request is refused; `None` if it may pass."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _without_port(host) not in self._hosts:
            reason = "the console is not known by this host name: see console_names in config.yaml"
            return Refusal(421, reason)
        if scope["method"] == "GET":
            return None
        if not self._access.is_possible:
            reason = "the console is read-only: without console_token_file, only GET is answered"
            return Refusal(405, reason, (("Allow", "GET"),))
        if scope["method"] != "POST":
            return Refusal(405, "only GET and POST are answered", (("Allow", "GET, POST"),))
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return Refusal(415, "the body of an action must be application/json")
        if not _is_from_here(headers, host):
            return Refusal(403, "actions are not taken from pages of other sites")
        return await self._access.refusal(headers.get("authorization"), address_of(scope))


def address_of(scope: Scope) -> str:
    """Return the sender's address of a request, for the log."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


def _is_from_here(headers: Headers, host: str) -> bool:
    """Whether a request comes from a page of the console, or from no page at all, such as curl's.

    Browsers send `Origin` with each POST. Its scheme may be https if a proxy serves that.
    """
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get("origin")
    return origin is None or origin.lower() in {f"{s}://{host.lower()}" for s in ("http", "https")}


def _without_port(host: str) -> str:
    """Return the name in a `Host` header, such as `localhost` or `::1`."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


async def _refuse(send: Send, refusal: Refusal) -> None:
    body = json.dumps({"error": refusal.reason}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *((name.lower().encode(), value.encode()) for name, value in refusal.headers),
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
