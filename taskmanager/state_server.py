"""Serves the state of a TaskManager's tasks over HTTP, for `pipeline state` and others.

The TaskManager's process has no stores: it asks the worker of the PipelineThread that runs the
task.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.process.http_server import HttpAnswer, HttpServer
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.channel_messages import Answer, Ask

ANSWER_TIMEOUT_S = 5.0
MOST_ASKED = 4
"""The most queries that wait for one worker; more are refused."""
LONGEST_PATH = 4096
"""Limited, so that a question always fits into the send buffer of a worker that takes more."""

_PATH = re.compile(r"/state/([^/]+)/([^/]+)/(0|[1-9][0-9]{0,9})/(get|scan)")
_PATHS = "/state and /state/<processor>/<store>/<partition>/get or /scan"
_WILDCARDS = ("0.0.0.0", "::")

Places = Callable[[], Mapping[TaskId, int]]
"""Returns the tasks of the TaskManager, each with its thread."""


class StateServer:
    """Answers queries of state on threads of its own, once `show` was called."""

    def __init__(self, host: str, port: int) -> None:
        """Listen on a port, 0 for a free one. Raises as `HttpServer`."""
        self._host = socket.gethostname() if host in _WILDCARDS else host
        self._names = {"localhost", host.lower(), self._host.lower()}
        self._places: Places = dict
        self._send: Callable[[int, Ask], bool] = lambda _thread, _ask: False
        self._lock = threading.Lock()
        self._number = 0
        self._waiting: dict[int, tuple[int, Future[Answer]]] = {}
        """The thread that each query was sent to, and the future of its answer, by the query's
        number."""
        self._server = HttpServer("state", host, port, self._page)

    @classmethod
    def of(cls, config: Config) -> StateServer | None:
        """Return a server if config.yaml asks for one."""
        if config.state_port is None:
            return None
        return cls(config.state_host, config.state_port)

    @property
    def address(self) -> str:
        """The host and port at which other hosts reach it, as in a URL."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._server.port}"

    def show(self, places: Places, send: Callable[[int, Ask], bool]) -> None:
        """Answer from now on; `send` passes questions to the workers of the tasks."""
        self._places, self._send = places, send

    def take(self, answer: Answer) -> None:
        """Pass an answer on to the request that waits for it, if it still does."""
        with self._lock:
            _, waiting = self._waiting.get(answer.number, (0, None))
        if waiting is not None:
            waiting.set_result(answer)

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    def _page(self, target: str, headers: Mapping[str, str]) -> HttpAnswer:
        if not self._is_known(headers.get("host", "")):
            # A page of another site can make its own name lead to this host (DNS rebinding).
            return _error(HTTPStatus.FORBIDDEN, "use the address of this host, or its host name")
        if len(target) > LONGEST_PATH:
            return _error(HTTPStatus.REQUEST_URI_TOO_LONG, f"at most {LONGEST_PATH} characters")
        path, _, query = target.partition("?")
        try:
            is_strict = bool(query)  # "" would be refused
            parameters = dict(
                parse_qsl(query, keep_blank_values=True, strict_parsing=is_strict, errors="strict")
            )
        except ValueError:
            return _error(HTTPStatus.BAD_REQUEST, "the part after ? is not a=b&c=d, in UTF-8")
        if path == "/state":
            return self._all()
        found = _PATH.fullmatch(path)
        if found is None:
            return _error(HTTPStatus.NOT_FOUND, f"the paths are {_PATHS}")
        wanted = TaskId(unquote(found[1]), int(found[3]))
        return self._one(wanted, found[4], unquote(found[2]), parameters)

    def _is_known(self, host: str) -> bool:
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower() in self._names
        return True

    def _all(self) -> HttpAnswer:
        """Return the stores of all tasks here."""
        tasks: list[Any] = []
        for thread in sorted(set(self._places().values())):
            answer = self._ask(thread, "stores", None, "", {})
            if answer.status != HTTPStatus.OK:
                return _page(answer)
            tasks += answer.body["tasks"]
        tasks.sort(key=lambda task: (task["processor"], task["partition"]))
        return _page(Answer(0, HTTPStatus.OK, {"tasks": tasks}))

    def _one(
        self, wanted: TaskId, kind: str, store: str, parameters: Mapping[str, str]
    ) -> HttpAnswer:
        places = self._places()
        # The task itself is preferred to a standby, which has no state of its own to offer.
        here = sorted(task for task in places if task.active == wanted)
        if not here:
            return _error(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this TaskManager does not have {wanted}: the heartbeats say which one does",
            )
        return _page(self._ask(places[here[0]], kind, here[0], store, parameters))

    def _ask(
        self,
        thread: int,
        kind: str,
        task: TaskId | None,
        store: str,
        parameters: Mapping[str, str],
    ) -> Answer:
        waiting = Future[Answer]()
        with self._lock:
            asked = sum(other == thread for other, _ in self._waiting.values())
            if asked >= MOST_ASKED:
                return _refusal(f"{MOST_ASKED} queries wait for this PipelineThread: ask again")
            self._number += 1
            number = self._number
            self._waiting[number] = (thread, waiting)
        try:
            if not self._send(thread, Ask(number, kind, task, store, parameters)):
                return _refusal("the PipelineThread is not up: ask again")
            return waiting.result(ANSWER_TIMEOUT_S)
        except FutureTimeoutError:
            return _refusal(
                f"the PipelineThread has not answered for {ANSWER_TIMEOUT_S:.0f} s: ask again",
                HTTPStatus.GATEWAY_TIMEOUT,
            )
        finally:
            with self._lock:
                del self._waiting[number]


def _refusal(reason: str, status: HTTPStatus = HTTPStatus.SERVICE_UNAVAILABLE) -> Answer:
    return Answer(0, status, {"error": reason})


def _page(answer: Answer) -> HttpAnswer:
    body = json.dumps(answer.body, ensure_ascii=False).encode(errors="backslashreplace")
    return HttpAnswer(HTTPStatus(answer.status), body + b"\n")


def _error(status: HTTPStatus, reason: str) -> HttpAnswer:
    return _page(Answer(0, status, {"error": reason}))
