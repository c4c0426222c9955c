"""The addresses of the console, as a Starlette application."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kafka_pipeline.console.access import Access
from kafka_pipeline.console.assets import INDEX, Asset
from kafka_pipeline.console.guard import Guard
from kafka_pipeline.console.hub import Hub
from kafka_pipeline.console.live import LiveView

_JSON = "application/json"


def application(
    hub: Hub,
    others: Iterable[Route],
    access: Access,
    assets: Mapping[str, Asset],
    hosts: Iterable[str],
) -> ASGIApp:
    """Return the console of a hub, and `others`, which answers requests to these hosts."""

    async def live(request: Request) -> Response:
        view = request.query_params.get("view", "")
        if hub.view(view) is None:
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
    return Guard(Starlette(routes=routes), hosts, access)


def _missing(reason: str) -> Response:
    return JSONResponse({"error": reason}, 404)
