"""The addresses that need the token: actions, and records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, get_args

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from common.errors import ConfigError, PipelineError, UnavailableError
from common.typed_json import as_json
from console.access import Access
from console.guard import address_of
from console.job import Ask, Deal, Job
from console.letter_board import LetterBoard
from console.requests import (
    AskRequest,
    DealRequest,
    parse_body,
    parse_letter_query,
    parse_record_query,
)
from console.views.letters import letter, letters
from console.worker import BusyError, TooSlowError, Worker
from operations.dead_letters import LetterId

ACTION_TIMEOUT_S = 120.0
READ_TIMEOUT_S = 30.0
_MOST_READS = 2
_MOST_BODY_BYTES = 65_536

_Handler = Callable[[Request], Awaitable[Response]]

logger = structlog.get_logger()


class Actions:
    """Answers what is asked of the job in Kafka: one action at a time. For one event loop."""

    def __init__(self, job: Job, access: Access, *, shows_records: bool) -> None:
        """Act on a job; records are shown to those with the token if it `shows_records`."""
        self._job = job
        self._access = access
        self._shows_records = shows_records
        self._board = LetterBoard(job)
        self._actor = Worker("console action", 1, ACTION_TIMEOUT_S)
        self._reader = Worker("console reader", _MOST_READS, READ_TIMEOUT_S)
        # Of its own: those without a token cannot keep others from what needs one.
        self._letter_reader = Worker("console letter", _MOST_READS, READ_TIMEOUT_S)

    @property
    def routes(self) -> list[Route]:
        """The addresses."""
        handlers = {
            "/api/access": self._may,
            "/api/dead_letters": self._letters,
            "/api/dead_letters/{id}": self._letter,
            "/api/records": self._records,
        }
        return [
            *(Route(path, _answering(of), methods=["GET"]) for path, of in handlers.items()),
            Route("/api/sign_in", _answering(self._sign_in), methods=["POST"]),
            Route("/api/actions/{name}", _answering(self._act), methods=["POST"]),
        ]

    async def _may(self, request: Request) -> Response:
        """Say what a page may offer."""
        del request
        may = {"actions": self._access.is_possible, "records": self._shows_records}
        return JSONResponse(may)

    async def _sign_in(self, request: Request) -> Response:
        """Say that the token is right: the guard has looked at it."""
        logger.info("somebody has signed in to the console", address=address_of(request.scope))
        return JSONResponse({"signed_in": True})

    async def _act(self, request: Request) -> Response:
        name, body = request.path_params["name"], await _body(request)
        call: Callable[[], dict[str, Any]]
        asked: AskRequest | DealRequest
        if name in get_args(Ask):
            asked = parse_body(AskRequest, body)
            call = partial(self._job.ask, name, asked.processors, dry_run=asked.dry_run)
        elif name in get_args(Deal):
            asked = parse_body(DealRequest, body)
            call = partial(self._job.deal, name, asked.wanted(), dry_run=asked.dry_run)
        else:
            return JSONResponse({"error": f"there is no action {name!r}"}, 404)
        if asked.dry_run:
            found = await self._reader.run(call)
        else:
            found = await self._carry_out(name, asked, call, address_of(request.scope))
        return JSONResponse({"action": name, "done": not asked.dry_run, **found})

    async def _carry_out(
        self,
        name: str,
        asked: AskRequest | DealRequest,
        call: Callable[[], dict[str, Any]],
        address: str,
    ) -> dict[str, Any]:
        """Make an action, and log it before and after."""
        said = {"action": name, "address": address}
        wanted = {key: value for key, value in as_json(asked).items() if key != "confirmed"}
        logger.info("an action of the console begins", **said, wanted=wanted)
        try:
            found = await self._actor.run(call)
        except PipelineError as error:
            logger.warning("an action of the console failed", **said, reason=str(error))
            raise
        finally:
            self._board.forget()
        logger.info("an action of the console was done", **said, result=found)
        return found

    async def _letters(self, request: Request) -> Response:
        query = parse_letter_query(request.query_params)
        found = await self._board.current()
        return JSONResponse(letters(found.list, query, found.read_at_ms))

    async def _letter(self, request: Request) -> Response:
        """Return a letter; with its key and value only for those who may see records."""
        try:
            id_ = LetterId.parse(request.path_params["id"])
        except ValueError as error:
            raise ConfigError(str(error)) from error
        with_record = False
        if self._shows_records and "authorization" in request.headers:
            refusal = await self._refusal(request)
            if refusal is not None:
                return refusal
            with_record = True
        known = {each.id: each.handled for each in (await self._board.current()).list.letters}
        found = await self._letter_reader.run(partial(self._job.letter, id_))
        shown = letter(found, with_record=with_record)
        return JSONResponse({**shown, "handled": known.get(id_) or None})

    async def _records(self, request: Request) -> Response:
        if not self._shows_records:
            reason = "the console shows no records: see console_records in config.yaml"
            return JSONResponse({"error": reason}, 403)
        refusal = await self._refusal(request)
        if refusal is not None:
            return refusal
        query = parse_record_query(request.query_params)
        logger.info(
            "records are shown in the console",
            address=address_of(request.scope),
            topic=query.topic,
        )
        return JSONResponse(await self._reader.run(partial(self._job.records, query)))

    async def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request without the right token, None if it has it."""
        refusal = await self._access.refusal(
            request.headers.get("authorization"), address_of(request.scope)
        )
        if refusal is None:
            return None
        return JSONResponse({"error": refusal.reason}, refusal.status, dict(refusal.headers))


def _answering(handler: _Handler) -> _Handler:
    """Return a handler that answers errors for users with a status of their own."""

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


async def _body(request: Request) -> bytes:
    """Return the body. Raises `ConfigError` if it is too large."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BODY_BYTES:
            raise ConfigError(f"the body has more than {_MOST_BODY_BYTES:,} bytes")
    return body
