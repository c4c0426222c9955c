"""The routes that look up state, for requests that may see it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.console.answers import Contents, Handler, answering
from kafka_pipeline.console.guard import address_of
from kafka_pipeline.console.requests import KeyQuery, RangeQuery, parse_key_query, parse_range_query
from kafka_pipeline.console.worker import Worker
from kafka_pipeline.operations.state import Heartbeats, StateClient, StoreInfo, shown

_ASK_TIMEOUT_S = 15.0
"""How long TaskManagers are asked; the last one may take 10 s more."""
_READ_TIMEOUT_S = 30.0
_MOST_READS = 2

logger = structlog.get_logger()


class StateLookups:
    """Asks TaskManagers for the state of their tasks. For one event loop."""

    def __init__(self, heartbeats: Heartbeats, contents: Contents) -> None:
        """Find the TaskManagers by heartbeats, whose methods are called on other threads."""
        self._heartbeats = heartbeats
        self._contents = contents
        self._reader = Worker("console state", _MOST_READS, _READ_TIMEOUT_S)

    @property
    def routes(self) -> list[Route]:
        """The routes."""
        handlers = {
            "/api/state": self._list,
            "/api/state/get": self._get,
            "/api/state/scan": self._scan,
        }
        return [
            Route(path, answering(self._allowed(of)), methods=["GET"])
            for path, of in handlers.items()
        ]

    def _allowed(self, handler: Handler) -> Handler:
        """Return a handler that refuses requests that may not see state."""

        async def answer(request: Request) -> Response:
            return await self._contents.refusal(request) or await handler(request)

        return answer

    async def _list(self, request: Request) -> Response:
        del request
        found = await self._reader.run(lambda: stores(*self._client().listed_and_silent()))
        return JSONResponse(found)

    async def _get(self, request: Request) -> Response:
        query = parse_key_query(request.query_params)
        _log(request, query)
        return JSONResponse(await self._reader.run(partial(self._look_up, query)))

    async def _scan(self, request: Request) -> Response:
        query = parse_range_query(request.query_params)
        _log(request, query)
        return JSONResponse(await self._reader.run(partial(self._page, query)))

    def _look_up(self, query: KeyQuery) -> dict[str, Any]:
        client = self._client()
        store = client.store(query.processor, query.store)
        times = {**query.times, "limit": query.limit}
        return entries(client.get(store, _key(store, query.key), query.partition, times))

    def _page(self, query: RangeQuery) -> dict[str, Any]:
        client = self._client()
        store = client.store(query.processor, query.store)
        bounds: dict[str, Any] = {}
        for name, bound in query.bounds.items():
            if name == "prefix" and isinstance(bound, str):
                bounds[name] = bound  # part of a key is not a key: the TaskManager reads it
            else:
                bounds[f"{name}_hex"] = _key(store, bound).hex()
        found = client.page(store, query.partition, bounds, query.limit, query.page)
        return entries(found)

    def _client(self) -> StateClient:
        return StateClient(self._heartbeats, _ASK_TIMEOUT_S)


def _key(store: StoreInfo, key: bytes | str) -> bytes:
    return store.key(key) if isinstance(key, str) else key


def _log(request: Request, query: KeyQuery | RangeQuery) -> None:
    logger.info(
        "state is shown in the console",
        address=address_of(request.scope),
        processor=query.processor,
        store=query.store,
    )


LONGEST_TEXT = 20_000

_ABOUT = ("type", "key_serde", "value_serde", "keys_readable", "values_readable")
_PLACE = ("partition", "task_manager", "standby", "lag")
_TIMES = ("window", "timestamp_ms", "valid_from_ms", "valid_to_ms")


def stores(rows: Iterable[dict[str, Any]], silent: UnavailableError | None) -> dict[str, Any]:
    """Return each store once, with the owners of its partitions, from a list of `StateClient`.

    `problem` is the error of a TaskManager that does not answer, if any.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row["processor"], row["store"])
        about = {
            "processor": row["processor"],
            "store": row["store"],
            **{name: row[name] for name in _ABOUT},
            "partitions": [],
        }
        partitions = found.setdefault(key, about)["partitions"]
        partitions.append({name: row[name] for name in _PLACE})
    return {"stores": list(found.values()), "problem": None if silent is None else str(silent)}


def entries(answer: dict[str, Any]) -> dict[str, Any]:
    """Return a TaskManager's answer with keys and values as text of a limited length."""
    rows = [
        {
            "key": shown(row, "key", LONGEST_TEXT),
            "value": shown(row, "value", LONGEST_TEXT),
            **{name: row[name] for name in _TIMES if name in row},
        }
        for row in answer["entries"]
    ]
    return {**answer, "entries": rows}
