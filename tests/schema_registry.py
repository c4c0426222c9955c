"""A schema registry for tests, which speaks as much of Confluent's HTTP API as is needed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest


def require_packages() -> None:
    """Skip the test unless the extra `schemaregistry` is installed."""
    for package in ("fastavro", "jsonschema", "google.protobuf", "authlib", "httpx2"):
        pytest.importorskip(package, reason="needs the extra schemaregistry")


@contextmanager
def standing_in() -> Iterator[StandIn]:
    """Run a registry; skip the test unless the extra `schemaregistry` is installed."""
    require_packages()
    stand_in = StandIn()
    with stand_in.server:
        thread = threading.Thread(
            target=stand_in.server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        thread.start()
        try:
            yield stand_in
        finally:
            stand_in.server.shutdown()
            thread.join()


class StandIn:
    """A schema registry: schemas by id and by subject.

    `status` makes it answer with an error, and `page` with that in place of JSON, as proxies do.
    """

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.ids: dict[tuple[str, str], int] = {}
        self.requests: list[str] = []
        self.status = 0
        self.page: str | None = None
        self.is_compatible = True
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(*stand_in.get(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(*stand_in.post(self.path, json.loads(body)))

            def answer(self, status: int, answer: dict[str, Any]) -> None:
                stand_in.requests.append(f"{self.command} {self.path.partition('?')[0]}")
                page = stand_in.page
                data = (json.dumps(answer) if page is None else page).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Keep the test's output clean."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Answer `/schemas/ids/<id>`, ids from 1, and `/subjects/<name>/versions/<version>`."""
        place = path.partition("?")[0]
        if self.status:
            return self.status, {"error_code": self.status, "message": "told to"}
        if place.startswith("/subjects/"):
            _, _, subject, _, version = place.split("/")
            ids = [id_ for (of, _), id_ in self.ids.items() if of == subject]
            index = -1 if version == "latest" else int(version) - 1
            if not ids or index >= len(ids):
                return 404, {"error_code": 40401, "message": "Schema not found"}
            return 200, self.registered(subject, ids[index])
        id_ = int(place.rpartition("/")[2])
        if not 1 <= id_ <= len(self.schemas):
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, self.schemas[id_ - 1]

    def post(self, path: str, schema: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Register with `/subjects/<subject>/versions`, look up with `/subjects/<subject>`.

        `/compatibility/…` answers what `is_compatible` says.
        """
        if path.startswith("/compatibility/") and not self.status:
            return 200, {"is_compatible": self.is_compatible}
        _, _, subject, *versions = path.partition("?")[0].split("/")
        if self.status:
            return self.status, {"error_code": self.status, "message": "told to"}
        known = (subject, schema["schema"])
        if known not in self.ids:
            if not versions:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            self.schemas.append(schema)
            self.ids[known] = len(self.schemas)
        return 200, self.registered(subject, self.ids[known])

    def registered(self, subject: str, id_: int) -> dict[str, Any]:
        """Return a schema with its version, from 1, among those of a subject."""
        version = [known for (of, _), known in self.ids.items() if of == subject].index(id_) + 1
        return {"id": id_, "subject": subject, "version": version, **self.schemas[id_ - 1]}


def order_type(name: str = "Order") -> Any:
    """Return a class as protoc generates it, of a message with the integer `amount`.

    Its file has another one, `Payment`, with the same field.
    """
    from google.protobuf import (  # type: ignore[import-untyped,unused-ignore]
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    for each in ("Order", "Payment"):
        message = file.message_type.add(name=each)
        message.field.add(name="amount", number=1, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
