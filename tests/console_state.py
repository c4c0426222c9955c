"""TaskManagers that answer queries of state over HTTP, about stores whose content a test gives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

from kafka_pipeline.common.process.http_server import HttpAnswer, HttpServer
from kafka_pipeline.streams.partitioning import default_partition

PARTITIONS = 4
COUNTS = {
    "store": "counts",
    "type": "key-value",
    "key_serde": "string",
    "value_serde": "int64",
    "keys_readable": True,
    "values_readable": True,
}
WINDOWS = {**COUNTS, "store": "windows", "type": "window"}


@dataclass
class FakeState:
    """The state of the processor Cities: `entries` by store and partition, `about` its stores.

    `asked` has the queries that came: store, partition, kind and parameters.
    """

    entries: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=dict)
    about: tuple[dict[str, Any], ...] = (COUNTS, WINDOWS)
    standby: bool = False
    asked: list[tuple[str, int, str, dict[str, str]]] = field(default_factory=list)

    def put(self, key: str, value: Any, store: str = "counts", **more: Any) -> int:
        """Add an entry to the partition where Java clients put the key; return that."""
        partition = default_partition(key.encode(), PARTITIONS)
        self.entries.setdefault((store, partition), []).append({"key": key, "value": value, **more})
        return partition

    def answer(self, target: str, headers: Mapping[str, str]) -> HttpAnswer:
        """Answer as a TaskManager that has all tasks."""
        del headers
        path, _, query = target.partition("?")
        if path == "/state":
            tasks = [{**self._place(n), "stores": list(self.about)} for n in range(PARTITIONS)]
            return _page(HTTPStatus.OK, {"tasks": tasks})
        _, _, _, store, number, kind = map(unquote, path.split("/"))
        given = dict(parse_qsl(query))
        self.asked.append((store, int(number), kind, given))
        rows = self.entries.get((store, int(number)), [])
        place = {**self._place(int(number)), "store": store}
        if kind == "get":
            key = bytes.fromhex(given["key_hex"]).decode()
            found = [row for row in rows if row.get("key") == key]
            return _page(HTTPStatus.OK, {**place, "entries": found, "more": False})
        begin = int(given.get("page", "0"), 16)
        end = begin + int(given["limit"])
        following = f"{end:02x}" if end < len(rows) else None
        return _page(HTTPStatus.OK, {**place, "entries": rows[begin:end], "next": following})

    def _place(self, partition: int) -> dict[str, Any]:
        lag = 7 if self.standby else 0
        place = {"partition": partition, "standby": self.standby, "lag": lag}
        return {"processor": "Cities", **place}


@contextmanager
def answered(state: FakeState) -> Iterator[str]:
    """Serve a state; yield its address."""
    server = HttpServer("state", "127.0.0.1", 0, state.answer)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        server.close()


def _page(status: HTTPStatus, body: dict[str, Any]) -> HttpAnswer:
    return HttpAnswer(status, json.dumps(body).encode())
