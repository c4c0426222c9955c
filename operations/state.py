"""Asks the TaskManagers of a running job for the state of its tasks."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus, TaskInfo
from kafka_pipeline.common.errors import ConfigError, UnavailableError, shorten
from kafka_pipeline.common.printable import printable
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.errors import InvalidArgumentError, SerializationError
from kafka_pipeline.streams.partitioning import default_partition

_REQUEST_TIMEOUT_S = 10.0
_ROUTE_TIMEOUT_S = 15.0
"""How long a task is looked for while it moves or starts."""
_POLL_S = 0.2
_CHUNK_BYTES = 65_536
_MOST_BYTES = 256_000_000
_FIELDS = frozenset(("tasks", "entries", "error"))
"""Each answer of a TaskManager has one of these."""

_REFUSALS = (
    *(HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND),
    HTTPStatus.REQUEST_URI_TOO_LONG,
)
"""The statuses of queries that would be refused again."""

_Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store of a processor, as a TaskManager describes it, and the tasks that have it."""

    processor: str
    partitions: int
    about: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The store's name."""
        return str(self.about["store"])

    def key(self, text: str) -> bytes:
        """Return the bytes of a key. Raises `ConfigError` if the text is none."""
        try:
            if not self.about["keys_readable"]:
                serde = self.about["key_serde"]
                raise ConfigError(
                    f"keys of the store {self.name} have the serde {serde}, which is user code: "
                    "give the bytes of the key in hexadecimal"
                )
            return serdes.key_bytes(serdes.by_name(self.about["key_serde"]), text)
        except (SerializationError, InvalidArgumentError) as error:
            raise ConfigError(str(error)) from error


class _WaitError(Exception):
    """The task cannot be asked now; the message says why. Look at the heartbeats again."""


class Heartbeats(Protocol):
    """Follows the heartbeats of a job; see `ClusterWatcher`."""

    def read(self, wait_s: float) -> None:
        """Read the heartbeats that have arrived, waiting up to `wait_s` for the first one."""

    def status(self) -> ClusterStatus:
        """Return the status of the cluster, according to the heartbeats read so far."""


class StateClient:
    """Finds who has a task by the heartbeats, and asks that TaskManager over HTTP."""

    def __init__(self, heartbeats: Heartbeats, timeout_s: float = math.inf) -> None:
        """Take heartbeats, of which the last ones have been read.

        Nobody is asked after `timeout_s`, so no call takes more than 10 s longer: a TaskManager has
        that long to answer.
        """
        self._heartbeats = heartbeats
        self._until_s = time.monotonic() + timeout_s

    def listed(self) -> list[_Json]:
        """Return the stores of all tasks and standbys that run, each with who has it.

        Raises `UnavailableError` if a TaskManager that is up does not answer, and `ConfigError` if
        none of them answers queries of state.
        """
        found, silent = self.listed_and_silent()
        if silent is not None:
            raise silent
        return found

    def listed_and_silent(self) -> tuple[list[_Json], UnavailableError | None]:
        """Return what `listed` does, and the error of a TaskManager that does not answer."""
        found: list[_Json] = []
        silent: UnavailableError | None = None
        for tm_id, address in sorted(_addresses(self._status()).items()):
            try:
                status, body = self._get(address, "/state")
                if status != HTTPStatus.OK:
                    raise UnavailableError(f"TaskManager {tm_id} ({address}): {body['error']}")
            except UnavailableError as error:
                silent = error
                continue
            found += [
                {
                    "processor": task["processor"],
                    **about,
                    "partition": task["partition"],
                    "standby": task["standby"],
                    "lag": task["lag"],
                    "task_manager": tm_id,
                    "address": address,
                }
                for task in body["tasks"]
                for about in task["stores"]
            ]
        return sorted(found, key=_place), silent

    def store(self, processor: str, name: str | None) -> StoreInfo:
        """Return a store of a processor; without a name, the only one.

        Waits up to 15 s for a task of the processor that runs. Raises `ConfigError` if there is no
        such store, or if there are several and none is named, and `UnavailableError` if no task of
        the processor runs.
        """
        tasks = [info.task for info in self._status().tasks]
        partitions = sum(task.processor == processor for task in tasks)
        if not partitions:
            known = {task.processor for task in tasks}
            hint = did_you_mean(processor, known)
            raise ConfigError(f'the job has no processor "{processor}"{hint}')
        until_s = self._route_until_s()
        while True:
            found, silent = self.listed_and_silent()
            stores = {each["store"]: each for each in found if each["processor"] == processor}
            infos = [info for info in self._status().tasks if info.task.processor == processor]
            do_run = silent is None and all(_has(info, TaskState.RUNNING) for info in infos)
            if stores or do_run:
                break
            if time.monotonic() >= until_s:
                reason = f": {silent}" if silent is not None else ""
                raise UnavailableError(f"no task of {processor} can be asked{reason}")
            self._heartbeats.read(_POLL_S)
        if not stores:
            raise ConfigError(f"{processor} has no stores")
        if name is None and len(stores) > 1:
            raise ConfigError(f"{processor} has several stores: give --store {' or '.join(stores)}")
        chosen = next(iter(stores)) if name is None else name
        if chosen not in stores:
            hint = did_you_mean(chosen, stores) or f": it has {', '.join(stores)}"
            raise ConfigError(f'{processor} has no store "{chosen}"{hint}')
        return StoreInfo(processor, partitions, stores[chosen])

    def get(self, store: StoreInfo, key: bytes, partition: int | None, times: _Json) -> _Json:
        """Return the answer about a key, of the partition that has it.

        That is the one where Java clients put the key. If nothing is there, the others are asked
        too: another client may have chosen another one, or the processor another key. Raises as
        `_ask`.
        """
        likely = default_partition(key, store.partitions) if partition is None else partition
        others = [n for n in range(store.partitions) if n != likely] if partition is None else []
        query = {"key_hex": key.hex(), **times}
        first = self._ask(store, likely, "get", query)
        if first["entries"]:
            return first
        answers = (self._ask(store, number, "get", query) for number in others)
        return next((answer for answer in answers if answer["entries"]), first)

    def scan(
        self, store: StoreInfo, partitions: Sequence[int], query: _Json, limit: int
    ) -> Iterator[_Json]:
        """Yield pages of entries, `limit` entries at most, partition by partition.

        Raises as `_ask`.
        """
        left = limit
        for number in partitions:
            following: str | None = ""
            while left and following is not None:
                answer = self.page(store, number, query, left, following)
                left -= len(answer["entries"])
                following = answer["next"]
                yield answer

    def page(self, store: StoreInfo, partition: int, query: _Json, limit: int, at: str) -> _Json:
        """Return a page of entries of a partition; `at` is the `next` of the last one, or "".

        Raises as `_ask`.
        """
        place = {"page": at} if at else {}
        return self._ask(store, partition, "scan", {**query, **place, "limit": limit})

    def _ask(self, store: StoreInfo, partition: int, kind: str, query: _Json) -> _Json:
        """Return the answer of who has a task: its owner, or else a standby.

        Raises `ConfigError` if the query is refused, and `UnavailableError` if nobody who has the
        task answers within 15 s.
        """
        if not 0 <= partition < store.partitions:
            raise ConfigError(
                f"{store.processor} has no partition {partition}: it has {store.partitions}"
            )
        place = "/".join(quote(part, safe="") for part in (store.processor, store.name))
        path = f"/state/{place}/{partition}/{kind}?{urlencode(query)}"
        task = TaskId(store.processor, partition)
        until_s = self._route_until_s()
        while True:
            try:
                return self._ask_once(task, path)
            except _WaitError as error:
                if time.monotonic() >= until_s:
                    raise UnavailableError(f"{task} cannot be asked: {error}") from error
            self._heartbeats.read(_POLL_S)

    def _ask_once(self, task: TaskId, path: str) -> _Json:
        status = self._status()
        addresses = _addresses(status)
        reason = f"{_state_of(status, task)}, and it has no standby"
        for info in _candidates(status, task):
            assert info.owner is not None
            address = addresses.get(info.owner)
            if address is None:
                reason = f"TaskManager {info.owner} does not answer queries of state"
                continue
            try:
                code, body = self._get(address, path)
            except UnavailableError as error:
                reason = str(error)
                continue
            if code == HTTPStatus.OK:
                return {**body, "task_manager": info.owner}
            reason = f"TaskManager {info.owner} ({address}): {body['error']}"
            # A standby does not have the stores that are in memory.
            has_less = code == HTTPStatus.NOT_FOUND and bool(info.task.standby)
            if code in _REFUSALS and not has_less:
                raise ConfigError(reason)
        raise _WaitError(reason)

    def _get(self, address: str, path: str) -> tuple[int, _Json]:
        """See `_get` of the module. Raises `UnavailableError` also if time is up."""
        if time.monotonic() >= self._until_s:
            raise UnavailableError(f"{address} was not asked: the TaskManagers take too long")
        return _get(address, path)

    def _route_until_s(self) -> float:
        return min(time.monotonic() + _ROUTE_TIMEOUT_S, self._until_s)

    def _status(self) -> ClusterStatus:
        self._heartbeats.read(0)
        return self._heartbeats.status()


def shown(row: Mapping[str, Any], name: str, most: int) -> str:
    """Return the `key` or the `value` of an entry in one line of `most` characters.

    A value of a former format is followed by that.
    """
    of_format = f" (format {row['format']})" if name == "value" and "format" in row else ""
    if f"{name}_hex" in row:
        return shorten(f"0x{row[f'{name}_hex']}", most) + of_format
    value = row[f"{name}_text"] if f"{name}_text" in row else row[name]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return printable(shorten(text, most)) + of_format


def _candidates(status: ClusterStatus, task: TaskId) -> list[TaskInfo]:
    """Return who may be asked for a task: its owner if the task runs, then its standbys."""
    owners = [i for i in status.tasks if i.task == task and _has(i, TaskState.RUNNING)]
    copies = [i for i in status.standbys if i.task.active == task and _has(i, TaskState.STANDBY)]
    return owners + copies


def _state_of(status: ClusterStatus, task: TaskId) -> str:
    """Say why a task cannot be asked."""
    for info in status.tasks:
        if info.task == task and info.is_held:
            return "its processor is paused"
        if info.task == task and info.status is not None:
            return f"it is {info.status.state} on TaskManager {info.owner}"
        if info.task == task:
            return info.reason
    return "the job does not have it any more"


def _has(info: TaskInfo, state: TaskState) -> bool:
    return info.owner is not None and info.status is not None and info.status.state is state


def _addresses(status: ClusterStatus) -> dict[int, str]:
    """Return where the TaskManagers that are up answer queries. Raises `ConfigError` if nowhere."""
    up = status.managers_up
    found = {info.id: info.state_address for info in up if info.state_address}
    if up and not found:
        raise ConfigError(
            "no TaskManager answers queries of state: set state_port in config.yaml, such as "
            "state_port: 0, and restart them"
        )
    return found


def _get(address: str, path: str) -> tuple[int, _Json]:
    """Return status and body of a page; raise `UnavailableError` if there is no proper answer."""
    host, _, port = address.rpartition(":")
    try:
        with closing(HTTPConnection(host.strip("[]"), int(port), _REQUEST_TIMEOUT_S)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            body = json.loads(_content(response))
        if not isinstance(body, dict) or _FIELDS.isdisjoint(body):
            raise ValueError("its answer is not that of a TaskManager")
        return response.status, body
    except (OSError, HTTPException, ValueError, OverflowError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise UnavailableError(f"{address} does not answer queries of state: {reason}") from error


def _content(response: HTTPResponse) -> bytes:
    """Return the body. Raises `ValueError` if it is too large or too slow: reports may lie."""
    body, until_s = bytearray(), time.monotonic() + _REQUEST_TIMEOUT_S
    while part := response.read1(_CHUNK_BYTES):
        body += part
        if len(body) > _MOST_BYTES or time.monotonic() > until_s:
            raise ValueError("its answer is too large, or takes too long")
    return bytes(body)


def _place(row: _Json) -> tuple[str, str, int, bool, int]:
    return (
        *(row["processor"], row["store"], row["partition"]),
        *(row["standby"], row["task_manager"]),
    )
