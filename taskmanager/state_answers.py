"""Answers queries of state in a PipelineThread's worker, from the committed state of its tasks.

Queries have threads of their own and run no user code: they do not wait for turns and commits, nor
these for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import structlog

from kafka_pipeline.common.process.spare_threads import SpareThreads
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.errors import SerializationError, StateStoreError
from kafka_pipeline.streams.stores import StoreBuilder
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from kafka_pipeline.streams.stores.committed import ReadLimitError
from kafka_pipeline.streams.stores.layout import MAX_TIME
from kafka_pipeline.streams.stores.lookup import (
    MOST_ROWS,
    KeyRange,
    TimeRange,
    described,
    look_up,
    page,
)
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.channel_messages import Answer, Ask
from kafka_pipeline.taskmanager.running_task import RunningTask

MOST_AT_ONCE = 4
"""The number of queries that a worker answers at a time; it refuses more."""
MOST_READ = 10_000
MOST_READ_S = 2.0
"""The limits of stored entries and of time for the reads of one query, after which its page
ends."""

_DEFAULT_ROWS = 100
_TEXT_KEYS = (serdes.string, serdes.bytes, serdes.integer, serdes.uuid, serdes.json)
_KNOWN = {
    "get": ("key", "key_hex", "from_ms", "to_ms", "as_of_ms", "limit"),
    "scan": (
        *("from_key", "from_key_hex", "to_key", "to_key_hex", "prefix", "prefix_hex"),
        *("limit", "page"),
    ),
}

logger = structlog.get_logger()


class _RefusedError(Exception):
    """The query cannot be answered; `status` is the HTTP status."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class StateAnswers:
    """Looks up state in the tasks of a PipelineThread."""

    def __init__(
        self,
        tasks: Mapping[TaskId, AssignedTask],
        lag_of: Callable[[TaskId], int | None],
        send: Callable[[Answer], None],
    ) -> None:
        """Answer with `send`. `tasks` changes on another thread; `lag_of` returns a task's lag."""
        self._tasks = tasks
        self._lag_of = lag_of
        self._send = send
        self._threads = SpareThreads("state")
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)

    def take(self, ask: Ask) -> None:
        """Start answering; does not block."""
        if not self._free.acquire(blocking=False):
            busy = f"{MOST_AT_ONCE} queries are in progress: ask again"
            self._send(_refusal(ask, HTTPStatus.SERVICE_UNAVAILABLE, busy))
            return
        self._threads.submit(lambda: self._serve(ask))

    def _serve(self, ask: Ask) -> None:
        try:
            try:
                answer = self.answer(ask)
            finally:
                # Before the answer, or the next query of the same client might be refused.
                self._free.release()
            self._send(answer)
        except Exception:
            logger.exception("a query of state failed", task=str(ask.task), store=ask.store)
            reason = "see the log of the TaskManager"
            self._send(_refusal(ask, HTTPStatus.INTERNAL_SERVER_ERROR, reason))

    def answer(self, ask: Ask) -> Answer:
        """Return the answer to a query, which reads for two seconds at most."""
        try:
            if ask.task is None:
                return Answer(ask.number, HTTPStatus.OK, {"tasks": self._described()})
            return Answer(ask.number, HTTPStatus.OK, self._found(ask, ask.task))
        except _RefusedError as refused:
            return _refusal(ask, refused.status, str(refused))
        except SerializationError as error:
            return _refusal(ask, HTTPStatus.BAD_REQUEST, str(error))
        except ReadLimitError:
            reason = "too many entries would have to be read: give a shorter interval of time"
            return _refusal(ask, HTTPStatus.BAD_REQUEST, reason)
        except StateStoreError as error:
            # The task has just been closed, or is starting again.
            return _refusal(ask, HTTPStatus.SERVICE_UNAVAILABLE, f"{ask.task}: {error}: ask again")

    def _described(self) -> list[dict[str, Any]]:
        """Return the stores of all running tasks."""
        # A copy: the loop's thread changes the dict meanwhile.
        found = [(task, assigned.running) for task, assigned in dict(self._tasks).items()]
        return [
            {**self._place(task), "stores": [*map(described, running.stores.definitions)]}
            for task, running in found
            if running is not None
        ]

    def _place(self, task: TaskId) -> dict[str, Any]:
        return {
            "processor": task.processor,
            "partition": task.partition,
            "standby": bool(task.standby),
            "lag": self._lag_of(task),
        }

    def _found(self, ask: Ask, task: TaskId) -> dict[str, Any]:
        assigned = self._tasks.get(task)
        running = None if assigned is None else assigned.running
        if running is None:
            reason = f"{task} does not run yet, or not any more: ask again"
            raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        builder, store = _store(running, ask)
        head = {**self._place(task), "store": builder.name}
        _require_known(ask)
        most = min(_number(ask, "limit", _DEFAULT_ROWS, 1), MOST_ROWS)
        if ask.kind == "get":
            key = _key(builder, ask, "key")
            if key is None:
                raise _RefusedError(HTTPStatus.BAD_REQUEST, "key or key_hex is missing")
            times = TimeRange(
                _number(ask, "from_ms", 0),
                _number(ask, "to_ms", MAX_TIME),
                _number(ask, "as_of_ms", 0) if "as_of_ms" in ask.parameters else None,
            )
            _require_times(builder, ask)
            with store.committed(MOST_READ, MOST_READ_S) as view:
                rows, more = look_up(builder, view, key, times, most)
            return {**head, "entries": rows, "more": more}
        wanted = KeyRange(
            _key(builder, ask, "from_key") or b"",
            _key(builder, ask, "to_key"),
            _prefix(builder, ask),
        )
        start = _hex(ask, "page") if "page" in ask.parameters else None
        with store.committed(MOST_READ, MOST_READ_S) as view:
            found = page(builder, view, wanted, start, most)
        following = None if found.next is None else found.next.hex()
        return {**head, "entries": found.rows, "next": following}


def _refusal(ask: Ask, status: HTTPStatus, reason: str) -> Answer:
    return Answer(ask.number, status, {"error": reason})


def _store(running: RunningTask, ask: Ask) -> tuple[StoreBuilder[Any, Any], BytesStore]:
    """Return the definition and the bytes of the requested store."""
    stores = running.stores
    names = [builder.name for builder in stores.definitions]
    for builder in stores.definitions:
        if builder.name == ask.store:
            if builder.name not in stores.stores:
                raise StateStoreError("the store is closed")
            return builder, stores.stores[builder.name]
    has = f"it has {', '.join(names)}" if names else "it has none"
    reason = f'{ask.task} has no store "{ask.store}" here: {has}'
    raise _RefusedError(HTTPStatus.NOT_FOUND, reason)


def _require_known(ask: Ask) -> None:
    known = _KNOWN[ask.kind]
    unknown = sorted(ask.parameters.keys() - {*known})
    if unknown:
        reason = f'unknown parameter "{unknown[0]}": {ask.kind} takes {", ".join(known)}'
        raise _RefusedError(HTTPStatus.BAD_REQUEST, reason)


def _require_times(builder: StoreBuilder[Any, Any], ask: Ask) -> None:
    """Refuse times that the type of the store does not support."""
    has_interval = builder.family in ("window", "session")
    wrong = [
        name
        for name, is_right in (
            ("from_ms", has_interval),
            ("to_ms", has_interval),
            ("as_of_ms", builder.family == "versioned-key-value"),
        )
        if name in ask.parameters and not is_right
    ]
    if wrong:
        reason = f"{wrong[0]} is not for the store {builder.name}, whose type is {builder.family}"
        raise _RefusedError(HTTPStatus.BAD_REQUEST, reason)


def _number(ask: Ask, name: str, default: int, low: int = 0) -> int:
    text = ask.parameters.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) >= low):
        reason = f'{name} is "{text}": it must be a whole number from {low} up'
        raise _RefusedError(HTTPStatus.BAD_REQUEST, reason)
    return min(int(text), MAX_TIME)


def _hex(ask: Ask, name: str) -> bytes:
    try:
        return bytes.fromhex(ask.parameters[name])
    except ValueError:
        reason = f'{name} is "{ask.parameters[name]}": it must be hexadecimal'
        raise _RefusedError(HTTPStatus.BAD_REQUEST, reason) from None


def _key(builder: StoreBuilder[Any, Any], ask: Ask, name: str) -> bytes | None:
    """Return a key that is given as text or in hexadecimal; `None` if it is not given."""
    if f"{name}_hex" in ask.parameters:
        return _hex(ask, f"{name}_hex")
    text = ask.parameters.get(name)
    return None if text is None else serdes.key_bytes(builder.key_serde, text)


def _prefix(builder: StoreBuilder[Any, Any], ask: Ask) -> bytes:
    if "prefix_hex" in ask.parameters:
        return _hex(ask, "prefix_hex")
    text = ask.parameters.get("prefix", "")
    if text and not (serdes.is_built_in(builder.key_serde) and builder.key_serde in _TEXT_KEYS):
        reason = f"keys of the serde {builder.key_serde.name} are not text: give prefix_hex"
        raise _RefusedError(HTTPStatus.BAD_REQUEST, reason)
    return text.encode()
