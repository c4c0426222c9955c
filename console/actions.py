"""The routes that need the token: actions, and records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kafka_pipeline.common.errors import ConfigError, PipelineError
from kafka_pipeline.common.typed_json import as_json
from kafka_pipeline.console.access import Access
from kafka_pipeline.console.action_log import ActionLog, action_line
from kafka_pipeline.console.answers import Contents, answering
from kafka_pipeline.console.guard import address_of
from kafka_pipeline.console.job import Ask, Deal, Job
from kafka_pipeline.console.requests import (
    AskRequest,
    DealRequest,
    parse_body,
    parse_letter_query,
    parse_record_query,
)
from kafka_pipeline.console.shared_reads import SharedReads
from kafka_pipeline.console.views.letters import letter, letters
from kafka_pipeline.console.views.rehearsal import rehearsal
from kafka_pipeline.console.worker import Worker
from kafka_pipeline.operations.dead_letters import LetterId

ACTION_TIMEOUT_S = 120.0
READ_TIMEOUT_S = 30.0
_MOST_READS = 2
_MOST_BODY_BYTES = 65_536

logger = structlog.get_logger()


class Actions:
    """Answers requests about the job in Kafka, one action at a time. For one event loop."""

    def __init__(self, job: Job, access: Access, contents: Contents, log: ActionLog) -> None:
        """Act on a job, and add each action to a log."""
        self._job = job
        self._access = access
        self._contents = contents
        self._log = log
        self._latest_letters = SharedReads("console letters", job.letters)
        self._rehearsals = SharedReads("console rehearsal", job.rehearsal)
        self._actor = Worker("console action", 1, ACTION_TIMEOUT_S)
        self._reader = Worker("console reader", _MOST_READS, READ_TIMEOUT_S)
        # A worker of its own: requests without a token must not delay those that need one.
        self._letter_reader = Worker("console letter", _MOST_READS, READ_TIMEOUT_S)

    @property
    def routes(self) -> list[Route]:
        """The routes."""
        handlers = {
            "/api/access": self._may,
            "/api/dead_letters": self._letters,
            "/api/dead_letters/{id}": self._letter,
            "/api/records": self._records,
            "/api/rehearsal": self._rehearsal,
        }
        return [
            *(Route(path, answering(of), methods=["GET"]) for path, of in handlers.items()),
            Route("/api/sign_in", answering(self._sign_in), methods=["POST"]),
            Route("/api/actions/{name}", answering(self._act), methods=["POST"]),
        ]

    async def _may(self, request: Request) -> Response:
        """Return what a page may offer."""
        del request
        may = {"actions": self._access.is_possible, "records": self._contents.are_shown}
        return JSONResponse(may)

    async def _sign_in(self, request: Request) -> Response:
        """Confirm the token, which the guard has already checked."""
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
        """Carry out an action; log it before and after, and add it to the history."""
        said = {"action": name, "address": address}
        wanted = {key: value for key, value in as_json(asked).items() if key != "confirmed"}
        logger.info("an action of the console begins", **said, wanted=wanted)
        named = (name, asked.processors, asked.ids if isinstance(asked, DealRequest) else ())
        try:
            found = await self._actor.run(call)
        except PipelineError as error:
            logger.warning("an action of the console failed", **said, reason=str(error))
            self._log.add(action_line(*named), address, str(error))
            raise
        except Exception:
            # The guard logs it, with where it was raised.
            self._log.add(action_line(*named), address, "see the JobManager's log")
            raise
        finally:
            self._latest_letters.forget()
        logger.info("an action of the console was done", **said, result=found)
        self._log.add(action_line(*named, found.get("count")), address)
        return found

    async def _letters(self, request: Request) -> Response:
        query = parse_letter_query(request.query_params)
        latest = await self._latest_letters.current()
        return JSONResponse(letters(latest.found, query, latest.read_at_ms))

    async def _letter(self, request: Request) -> Response:
        """Return a letter; its key and value only for requests that may see records."""
        try:
            id_ = LetterId.parse(request.path_params["id"])
        except ValueError as error:
            raise ConfigError(str(error)) from error
        with_record = self._wants_records(request)
        if with_record and (refusal := await self._contents.refusal(request)) is not None:
            return refusal
        latest = await self._latest_letters.current()
        known = {each.id: each.handled for each in latest.found.letters}
        found = await self._letter_reader.run(partial(self._job.letter, id_))
        shown = letter(found, with_record=with_record)
        return JSONResponse({**shown, "handled": known.get(id_) or None})

    async def _rehearsal(self, request: Request) -> Response:
        """Return the last rehearsal; keys and values only for requests that may see records."""
        with_records = self._wants_records(request)
        if with_records and (refusal := await self._contents.refusal(request)) is not None:
            return refusal
        latest = await self._rehearsals.current()
        return JSONResponse(
            {
                "read_at_ms": latest.read_at_ms,
                **rehearsal(latest.found, with_records=with_records),
            }
        )

    def _wants_records(self, request: Request) -> bool:
        """Whether a request has a token for records, where they are shown at all."""
        return self._contents.are_shown and "authorization" in request.headers

    async def _records(self, request: Request) -> Response:
        refusal = await self._contents.refusal(request)
        if refusal is not None:
            return refusal
        query = parse_record_query(request.query_params)
        logger.info(
            "records are shown in the console",
            address=address_of(request.scope),
            topic=query.topic,
        )
        return JSONResponse(await self._reader.run(partial(self._job.records, query)))


async def _body(request: Request) -> bytes:
    """Return the body. Raises `ConfigError` if it is too large."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BODY_BYTES:
            raise ConfigError(f"the body has more than {_MOST_BODY_BYTES:,} bytes")
    return body
