"""The console over HTTP: a real server on the loopback, asked without a browser."""

from __future__ import annotations

import http.client
import json
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest
import structlog

from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.console.assets import read_assets
from kafka_pipeline.console.board import Tap
from kafka_pipeline.console.connections import MOST_CONNECTIONS
from kafka_pipeline.console.hub import MOST_LISTENERS
from kafka_pipeline.console.server import ConsoleServer, running_console
from kafka_pipeline.console.views.snapshot import Snapshot
from kafka_pipeline.console.views.views import VIEWS
from tests.console_job import FakeJob
from tests.console_sample import SampleJob, config

SECURITY = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


class Broken(Exception):
    """What a broken part of the console raises."""


@contextmanager
def served(next_snapshot: Callable[[], Snapshot], *names: str) -> Iterator[ConsoleServer]:
    server = ConsoleServer(replace(config(), console_names=names), next_snapshot, FakeJob())
    server.start()
    try:
        yield server
    finally:
        server.stop()
        assert not server._thread.is_alive()


@pytest.fixture(scope="module")
def console() -> Iterator[ConsoleServer]:
    job = SampleJob()
    job.run(10)
    with served(lambda: job.run(1), "console.example") as server:
        yield server


def connected(server: ConsoleServer) -> http.client.HTTPConnection:
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", server.address)
    assert found
    return http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)


def ask(
    server: ConsoleServer, path: str, method: str = "GET", host: str | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    with closing(connected(server)) as connection:
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer, answer.read()


@pytest.mark.parametrize("view", [*VIEWS, "processors/Price"])
def test_each_view_has_an_address(console: ConsoleServer, view: str) -> None:
    answer, body = ask(console, f"/api/{view}")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body)["summary"]["job_name"] == "shop"


@pytest.mark.parametrize(
    "path",
    ["/api/nothing", "/api/", "/api/processors/Nobody", "/nothing.html", "/../app.py", "/static/"],
)
def test_other_addresses_are_not_there(console: ConsoleServer, path: str) -> None:
    answer, body = ask(console, path)
    assert answer.status == 404
    assert json.loads(body)["error"]


@pytest.mark.parametrize("path", ["/", *(f"/{name}" for name in read_assets())])
def test_each_file_of_the_pages_is_served(console: ConsoleServer, path: str) -> None:
    answer, body = ask(console, path)
    asset = read_assets()[path[1:] or "index.html"]
    assert (answer.status, answer.headers["Content-Type"]) == (200, asset.type)
    assert body == asset.content


def test_no_file_names_another_host() -> None:
    for name, asset in read_assets().items():
        if name.endswith((".png", ".txt")):
            continue
        text = asset.content.decode()
        if name.startswith("vendor/"):
            # The licences in front say where a library comes from.
            text = re.sub(r"/\*!.*?\*/", "", text, flags=re.DOTALL)
        assert not re.search(r"(?i)\b(?:https?|wss?|ftp):|[\"'(]//", text), name


def test_pages_have_no_script_or_style_of_their_own() -> None:
    page = read_assets()["index.html"].content.decode()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page))
    for name, asset in read_assets().items():
        if name.endswith(".js") and not name.startswith("vendor/"):
            text = asset.content.decode()
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text)


@pytest.mark.parametrize("path", ["/", "/api/graph", "/api/nothing"])
def test_answers_are_closed_to_other_sites(console: ConsoleServer, path: str) -> None:
    answer, _ = ask(console, path)
    assert {name: answer.headers[name] for name in SECURITY} == SECURITY
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert "Server" not in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_only_get_is_answered(console: ConsoleServer, method: str) -> None:
    answer, _ = ask(console, "/api/graph", method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")
    assert answer.headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("console.example", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("[::1]:80", 421),
        ("[", 421),
    ],
)
def test_only_known_host_names_are_answered(console: ConsoleServer, host: str, status: int) -> None:
    answer, _ = ask(console, "/api/summary", host=host)
    assert answer.status == status
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def events(answer: http.client.HTTPResponse) -> Iterator[Any]:
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


def test_live_view_is_sent_again_with_each_snapshot(console: ConsoleServer) -> None:
    with closing(connected(console)) as connection:
        connection.request("GET", "/api/live?view=lag")
        answer = connection.getresponse()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert answer.headers["X-Frame-Options"] == "DENY"
        found = events(answer)
        numbers = [next(found)["summary"]["number"] for _ in range(3)]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]


def test_a_live_view_is_not_kept_back_by_a_proxy(console: ConsoleServer) -> None:
    with closing(connected(console)) as connection:
        connection.request("GET", "/api/live?view=summary")
        assert connection.getresponse().headers["X-Accel-Buffering"] == "no"


def test_the_live_view_of_a_processor_that_is_not_there_ends_at_once(
    console: ConsoleServer,
) -> None:
    """A page sees no status of a stream, and asked again without end."""
    answer, body = ask(console, "/api/live?view=processors/Nobody")
    assert (answer.status, body) == (200, b"event: gone\ndata: {}\n\n")


@pytest.mark.parametrize("path", ["/api/live", "/api/live?view=nothing"])
def test_there_is_no_live_view_of_anything_else(console: ConsoleServer, path: str) -> None:
    answer, _ = ask(console, path)
    assert answer.status == 404


def test_too_many_listeners_are_refused_and_make_room_when_they_go() -> None:
    job = SampleJob()
    with served(lambda: job.run(1)) as server:
        listeners = [connected(server) for _ in range(MOST_LISTENERS)]
        for listener in listeners:
            listener.request("GET", "/api/live?view=summary")
            assert next(events(listener.getresponse()))
        refused, body = ask(server, "/api/live?view=summary")
        assert (refused.status, "too many" in json.loads(body)["error"]) == (503, True)
        for listener in listeners:
            listener.close()
        while server._hub._listeners == MOST_LISTENERS:
            ask(server, "/api/summary")
        assert ask_live(server) == 200


def test_strangers_that_say_nothing_make_room_and_do_not_end_what_others_see() -> None:
    """uvicorn 157: it waits for a request without limit, and answers 503 meanwhile."""
    job = SampleJob()
    with served(lambda: job.run(1)) as server, ExitStack() as stack:
        listener = stack.enter_context(closing(connected(server)))
        listener.request("GET", "/api/live?view=summary")
        found = events(listener.getresponse())
        place = server._socket.getsockname()
        strangers = [
            stack.enter_context(socket.create_connection(place, timeout=60))
            for _ in range(MOST_CONNECTIONS + 20)
        ]
        strangers[-1].sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert ask(server, "/api/summary")[0].status == 200
        assert [stranger.recv(1) for stranger in strangers[:20]] == [b""] * 20
        assert [next(found)["summary"]["job_name"] for _ in range(3)] == ["shop"] * 3


def test_garbage_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    job = SampleJob()
    with served(lambda: job.run(1)) as server:
        for message in (b"\xac\xed\x00\x05\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade"):
            with socket.create_connection(server._socket.getsockname(), timeout=60) as stranger:
                stranger.sendall(message + b": y\r\nConnection: upgrade\r\n\r\n")
                assert stranger.recv(100)
    assert caplog.messages == []


def ask_live(server: ConsoleServer) -> int:
    with closing(connected(server)) as connection:
        connection.request("GET", "/api/live?view=summary")
        return connection.getresponse().status


def test_a_view_is_encoded_once_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    job, encoded = SampleJob(), []
    snapshot = job.run(5)

    def encode(of: Snapshot, view: str) -> bytes:
        encoded.append((of.number, view))
        return b"{}"

    monkeypatch.setattr("kafka_pipeline.console.hub.encode", encode)
    with served(lambda: snapshot) as server:
        monkeypatch.setattr(server._hub, "publish", lambda _: None)
        for _ in range(5):
            assert ask(server, "/api/tasks")[1] == b"{}"
    assert encoded == [(snapshot.number, "tasks")]


def test_an_error_in_a_view_is_logged_and_answered_with_500(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = SampleJob()

    def encode(_of: Snapshot, view: str) -> bytes:
        if view == "lag":
            raise Broken("no lag today")
        return b"{}"

    monkeypatch.setattr("kafka_pipeline.console.hub.encode", encode)
    with served(lambda: job.run(1)) as server, structlog.testing.capture_logs() as logs:
        answer, body = ask(server, "/api/lag")
        assert answer.status == 500
        assert "no lag today" not in body.decode()
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert ask(server, "/api/graph")[0].status == 200
    assert ("/api/lag", "Broken: no lag today") in [
        (log.get("path"), log.get("reason")) for log in logs
    ]


def test_a_snapshot_that_cannot_be_made_leaves_the_last_one() -> None:
    job, failed = SampleJob(), threading.Event()
    first = job.run(3)
    snapshots = iter([first])

    def next_snapshot() -> Snapshot:
        for snapshot in snapshots:
            return snapshot
        failed.set()
        raise Broken("a strange record")

    with served(next_snapshot) as server:
        assert failed.wait(60)
        body = json.loads(ask(server, "/api/summary")[1])
    assert body["summary"]["number"] == first.number


def test_a_console_that_stops_sends_its_listeners_away() -> None:
    job = SampleJob()
    with served(lambda: job.run(1)) as server:
        connection = connected(server)
        connection.request("GET", "/api/live?view=summary")
        answer = connection.getresponse()
        assert next(events(answer))
    assert all(event["summary"] for event in events(answer))
    connection.close()


def test_without_a_port_there_is_no_console() -> None:
    with running_console(replace(config(), console_port=None)) as tap:
        assert tap is None


def test_the_job_manager_gets_a_tap_to_fill() -> None:
    with running_console(config()) as tap:
        assert isinstance(tap, Tap)


def test_a_port_that_is_taken_is_said_with_the_setting() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(UnavailableError, match=rf"port {port} \(console_host and console_port"),
            running_console(replace(config(), console_port=port)),
        ):
            pass


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")
def test_all_addresses_of_ipv6_are_those_of_ipv4_too() -> None:
    job = SampleJob()
    job.run(10)
    everywhere = replace(config(), console_host="::")
    server = ConsoleServer(everywhere, lambda: job.run(1), FakeJob())
    server.start()
    port = int(server.address.rstrip("/").rpartition(":")[2])
    for host in ("127.0.0.1", "::1"):
        with closing(http.client.HTTPConnection(host, port, timeout=60)) as connection:
            connection.request("GET", "/", headers={"Host": "localhost"})
            assert connection.getresponse().status == 200
    server.stop()


def test_missing_packages_are_said_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with (
        pytest.raises(ConfigError, match=r"pip install 'kafka-pipeline\[console\]'"),
        running_console(config()),
    ):
        pass
