"""The console's answers to failed requests, and access to records and state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kafka_pipeline.common.errors import ConfigError, PipelineError, UnavailableError
from kafka_pipeline.console.access import Access
from kafka_pipeline.console.guard import address_of
from kafka_pipeline.console.worker import BusyError, TooSlowError

Handler = Callable[[Request], Awaitable[Response]]


class Contents:
    """Access to records and state: with the token, if config.yaml allows it at all."""

    def __init__(self, access: Access, *, are_shown: bool) -> None:
        self._access = access
        self.are_shown = are_shown
        """Whether anybody may see them."""

    async def refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that may not see them; `None` if it may."""
        if not self.are_shown:
            reason = "the console shows no records or state: see console_records in config.yaml"
            return JSONResponse({"error": reason}, 403)
        refusal = await self._access.refusal(
            request.headers.get("authorization"), address_of(request.scope)
        )
        if refusal is None:
            return None
        return JSONResponse({"error": refusal.reason}, refusal.status, dict(refusal.headers))


def answering(handler: Handler) -> Handler:
    """Return a handler that turns errors for users into answers with a fitting HTTP status."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except PipelineError as error:
            return JSONResponse({"error": str(error)}, _status(error))

    return answer


def _status(error: PipelineError) -> int:
    match error:
        case BusyError():
            return 409
        case TooSlowError():
            return 504
        case ConfigError():
            return 400
        case UnavailableError():
            return 503
    return 409
