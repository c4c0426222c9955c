"""The console as a Starlette application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from kafka_pipeline.console.access import Access
from kafka_pipeline.console.assets import INDEX, Asset
from kafka_pipeline.console.guard import RequestGuard
from kafka_pipeline.console.hub import Hub
from kafka_pipeline.console.views.views import PROCESSOR

_JSON = "application/json"
_KEEP_ALIVE_S = 15.0


def application(
    hub: Hub,
    others: Iterable[Route],
    access: Access,
    assets: Mapping[str, Asset],
    hosts: Iterable[str],
) -> ASGIApp:
    """Return the console of a hub, with the routes in `others`, for requests to these hosts."""

    async def live(request: Request) -> Response:
        view = request.query_params.get("view", "")
        if hub.view(view) is None and not view.startswith(PROCESSOR):
            return _missing(f"there is no view {view!r}")
        if not hub.join():
            reason = "too many browsers listen: close some pages of the console"
            return JSONResponse({"error": reason}, 503)
        return LiveView(hub, view)

    async def view(request: Request) -> Response:
        name = request.path_params["view"]
        found = hub.view(name)
        if found is None:
            return _missing(f"there is no view {name!r}")
        return Response(found, media_type=_JSON)

    async def page(request: Request) -> Response:
        asset = assets.get(request.path_params["path"] or INDEX)
        if asset is None:
            return _missing("there is no such page")
        return Response(asset.content, headers={"Content-Type": asset.type})

    routes = [
        *others,
        Route("/api/live", live, methods=["GET"]),
        Route("/api/{view:path}", view, methods=["GET"]),
        Route("/{path:path}", page, methods=["GET"]),
    ]
    return RequestGuard(Starlette(routes=routes), hosts, access)


def _missing(reason: str) -> Response:
    return JSONResponse({"error": reason}, 404)


class LiveView(StreamingResponse):
    """Sends a view to one listener whenever there is a new snapshot.

    A slow listener skips snapshots. The stream ends with the event `gone` if there is no such view,
    as of a processor that was removed from the pipeline: browsers do not show the status of a
    stream to their pages.
    """

    def __init__(self, hub: Hub, view: str) -> None:
        # Otherwise, nginx would keep events until a buffer is full.
        headers = {"X-Accel-Buffering": "no"}
        super().__init__(_events(hub, view), headers=headers, media_type="text/event-stream")
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the listener goes away; it must have joined the hub."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hub.leave()


async def _events(hub: Hub, view: str) -> AsyncIterator[bytes]:
    number = -1
    while not hub.is_closed:
        if hub.number != number:
            number, found = hub.number, hub.view(view)
            if found is None:
                yield b"event: gone\ndata: {}\n\n"
                return
            yield b"data: " + found + b"\n\n"
        elif not await hub.wait(_KEEP_ALIVE_S):
            yield b": still there\n\n"
