"""The web pages of a daemon, over HTTP."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.monitoring.metric import Sample, gauge
from kafka_pipeline.common.monitoring.monitoring import LoopWatch, Monitoring, Pages
from kafka_pipeline.common.process import http_server
from kafka_pipeline.common.process.http_server import MOST_CONNECTIONS, HttpAnswer, HttpServer
from tests.small_config import SMALL_CONFIG

LAG = gauge("lag", "records that wait")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "config.yaml").write_text(SMALL_CONFIG)
    return load_config(tmp_path / "config.yaml")


class Daemon:
    """Pages on a free port, and what they show."""

    def __init__(self) -> None:
        self.ill: list[str] = []
        self.unready: list[str] = []
        self.pages = Pages("127.0.0.1", 0, lambda: self.ill)

    def show(self) -> None:
        self.pages.show(lambda: [LAG.sample(3)], lambda: self.unready)

    def get(self, path: str) -> tuple[int, str, str]:
        """Return the status, the content type and the body of a page."""
        connection = HTTPConnection("127.0.0.1", self.pages.port, timeout=10)
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, response.headers["Content-Type"], body

    def verdict(self, path: str) -> tuple[int, Any]:
        status, content_type, body = self.get(path)
        assert content_type == "application/json"
        return status, json.loads(body)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.pages.close()


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/readyz", 503)])
def test_head_has_the_status_and_no_body(daemon: Daemon, path: str, status: int) -> None:
    """Some supervisors and load balancers ask so; the answer was 501."""
    with socket.create_connection(("127.0.0.1", daemon.pages.port), timeout=10) as sender:
        sender.sendall(f"HEAD {path} HTTP/1.0\r\n\r\n".encode())
        head, _, body = b"".join(iter(partial(sender.recv, 4096), b"")).partition(b"\r\n\r\n")
    assert head.split()[1] == str(status).encode()
    assert b"\r\nContent-Length: " in head
    assert body == b""


def test_a_daemon_that_starts_lives_but_is_not_ready(daemon: Daemon) -> None:
    assert daemon.verdict("/healthz") == (200, {"status": "ok", "problems": []})
    status, body = daemon.verdict("/readyz")
    assert (status, body["problems"]) == (503, ["the daemon is starting"])
    assert "kafka_pipeline_" not in daemon.get("/metrics")[2]


def test_a_daemon_that_runs_is_ready_and_shows_its_metrics(daemon: Daemon) -> None:
    daemon.show()
    assert daemon.verdict("/readyz") == (200, {"status": "ok", "problems": []})
    status, content_type, body = daemon.get("/metrics?x=1")
    assert (status, content_type.partition(";")[0]) == (200, "text/plain")
    assert "\nkafka_pipeline_lag 3.0\n" in body


def test_what_is_wrong_is_said(daemon: Daemon) -> None:
    daemon.show()
    daemon.unready.append("no JobManager")
    assert daemon.verdict("/readyz") == (503, {"status": "failing", "problems": ["no JobManager"]})
    assert daemon.verdict("/healthz")[0] == 200
    daemon.ill.append("the loop hangs")
    assert daemon.verdict("/healthz")[0] == 503


def test_another_page_is_not_found_and_the_answer_names_those_that_exist(daemon: Daemon) -> None:
    status, body = daemon.verdict("/")
    assert status == 404
    assert "/metrics" in body["problems"][0]


def test_a_page_that_cannot_be_made_is_an_error_of_this_request_only(daemon: Daemon) -> None:
    def broken() -> list[Sample]:
        raise RuntimeError("the model is broken")

    daemon.pages.show(broken, list)
    assert daemon.get("/metrics")[0] == 500
    assert daemon.verdict("/readyz")[0] == 200


def test_readers_that_hang_up_harm_nobody(daemon: Daemon) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", daemon.pages.port)) as connection:
            connection.sendall(b"GET /metrics")
    assert daemon.verdict("/healthz")[0] == 200


def test_strangers_that_say_nothing_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would have a thread and a file of the daemon, without limit."""
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_S", 600)
    daemon = Daemon()
    with ExitStack() as stack:
        stack.callback(daemon.pages.close)
        place = ("127.0.0.1", daemon.pages.port)
        strangers = [
            stack.enter_context(socket.create_connection(place, timeout=30))
            for _ in range(MOST_CONNECTIONS + 6)
        ]
        assert daemon.get("/healthz")[0] == 200
        assert [stranger.recv(1) for stranger in strangers[:7]] == [b""] * 7
        strangers[-1].settimeout(0.1)
        with pytest.raises(TimeoutError):
            strangers[-1].recv(1)


def test_readers_that_wait_for_their_answer_stay_while_strangers_make_room() -> None:
    """An answer about much state may take seconds."""
    began, ends = threading.Semaphore(0), threading.Event()

    def answer(path: str, _: Mapping[str, str]) -> HttpAnswer:
        began.release()
        assert path != "/slow" or ends.wait(30)
        return HttpAnswer(HTTPStatus.OK, b"all")

    server = HttpServer("state", "127.0.0.1", 0, answer)
    place = ("127.0.0.1", server.port)
    with ExitStack() as stack:
        stack.callback(server.close)
        reader = stack.enter_context(socket.create_connection(place, timeout=30))
        reader.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
        assert began.acquire(timeout=30)
        strangers = [
            stack.enter_context(socket.create_connection(place, timeout=30))
            for _ in range(MOST_CONNECTIONS)
        ]
        assert strangers[0].recv(1) == b""
        ends.set()
        assert b"".join(iter(partial(reader.recv, 4096), b"")).endswith(b"all")


def test_request_that_trickles_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, so the time limit of a read does not end it."""
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_S", 600)  # that of each read
    daemon = Daemon()
    with socket.create_connection(("127.0.0.1", daemon.pages.port), timeout=20) as stranger:
        stranger.sendall(b"GET /healthz HTTP/1.0\r\nX: ")
        assert daemon.verdict("/healthz")[0] == 200
        monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_S", 0)
        with suppress(ConnectionError):
            assert stranger.recv(1) == b""
    daemon.pages.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")
def test_all_addresses_of_ipv6_are_those_of_ipv4_too() -> None:
    pages = Pages("::", 0, list)
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, pages.port), timeout=30) as reader:
            reader.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert reader.recv(12) == b"HTTP/1.0 200"
    pages.close()


def test_a_port_that_is_taken_is_named_with_what_to_do(daemon: Daemon, config: Config) -> None:
    second = replace(config, metrics_port=daemon.pages.port)
    with pytest.raises(UnavailableError, match=rf"metrics_port {daemon.pages.port} .*is taken"):
        Monitoring(second)


def test_an_address_of_another_host_is_refused(config: Config) -> None:
    # 192.0.2.1 is for documentation (RFC 5737): no host has it.
    elsewhere = replace(config, metrics_port=0, metrics_host="192.0.2.1")
    with pytest.raises(ConfigError, match=r"metrics_host 192\.0\.2\.1"):
        Monitoring(elsewhere)


def test_daemons_with_port_0_get_a_port_each(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    several = [Monitoring(replace(config, metrics_port=0)) for _ in range(2)]
    for monitoring in several:
        monitoring.close()
    lines = [line for line in capsys.readouterr().out.splitlines() if "metrics are shown" in line]
    assert len(set(lines)) == 2


def test_without_a_port_nothing_listens(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_pipeline.common.monitoring.monitoring.Pages", None)
    monitoring = Monitoring(config)
    monitoring.begin(lambda: (), list)
    monitoring.turned()
    monitoring.close()


def test_a_loop_that_does_not_turn_is_noticed(config: Config) -> None:
    now_s = [0.0]
    watch = LoopWatch(config, clock=lambda: now_s[0])
    now_s[0] = 10_000
    assert watch.problems() == []  # it has not begun yet
    watch.turned()
    now_s[0] += 90
    assert watch.problems() == []
    now_s[0] += 1
    assert watch.problems() == ["the main loop has not turned for 91 s; it may take 90"]
    watch.turned()
    assert watch.problems() == []
