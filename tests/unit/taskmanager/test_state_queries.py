"""Queries of state: over HTTP, through the daemon's server, to tasks of a PipelineThread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kafka_pipeline import serdes
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.pipelines.specs import ClassSpec
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.stores import StoreBuilder, key_value, lookup, window
from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.taskmanager import state_answers, state_server
from kafka_pipeline.taskmanager.channel_messages import Answer, Ask
from kafka_pipeline.taskmanager.state_answers import MOST_AT_ONCE
from kafka_pipeline.taskmanager.state_server import StateServer
from kafka_pipeline.taskmanager.task_stores import TaskStores
from tests.unit.taskmanager.fakes import CONFIG, TIMEOUT_S, FakeChannel, FakeTask, Rig, batch

USER = ClassSpec(code="shop:A")
COUNTS = key_value("counts", serdes.string, serdes.int64, persistent=False, logged=False)
PANES = window(
    *("panes", serdes.string, serdes.int64),
    retention_ms=1000,
    window_size_ms=10,
    persistent=False,
    logged=False,
)
BUILDERS: tuple[StoreBuilder[Any, Any], ...] = (COUNTS, PANES)
P0, P1 = TaskId("P", 0), TaskId("P", 1)


class Job:
    """A PipelineThread whose tasks have stores, and the server of its TaskManager."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.server = StateServer("127.0.0.1", 0)
        self.take: Callable[[Answer], None] = self.server.take
        monkeypatch.setattr(FakeChannel, "send", lambda _, message: self._sent(message))
        self.rig = Rig(monkeypatch, replace(CONFIG, state_port=0))
        self.places: dict[TaskId, int] = {}
        self.is_up = True
        self.server.show(lambda: dict(self.places), self._ask)
        self._folder = folder

    def _ask(self, _thread: int, ask: Ask) -> bool:
        if self.is_up:
            self.rig.channel.on_ask(ask)
        return self.is_up

    def _sent(self, message: object) -> None:
        if isinstance(message, Answer):
            self.take(message)

    def run(self, task: TaskId, spec: ClassSpec | None = None) -> FakeTask:
        """Let a task run, with stores of its own."""
        self.places[task] = 0
        fake = self.rig.assign(task.partition, spec)
        fake.stores = TaskStores(BUILDERS, {}, StoreResources())
        fake.stores.open(self._folder, {}, {})
        thread = self.rig.thread
        self.rig.step_until(
            lambda: task in thread.tasks and thread.status(task).state is TaskState.RUNNING
        )
        return fake

    def get(self, path: str, host: str = "") -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", int(self.server.address.rpartition(":")[2]))
        connection.request("GET", path, headers={"Host": host} if host else {})
        response = connection.getresponse()
        body = json.loads(response.read())
        connection.close()
        assert response.headers["Content-Type"] == "application/json"
        return response.status, body

    def value(self, key: str = "a") -> Any:
        status, body = self.get(f"/state/P/counts/0/get?key={quote(key)}")
        assert status == 200, body
        return [row["value"] for row in body["entries"]]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Job]:
    made = Job(monkeypatch, tmp_path)
    yield made
    made.server.close()
    made.rig.thread.close()


def commit(task: FakeTask, **counts: int) -> None:
    put(task, **counts)
    task.stores.commit({})


def put(task: FakeTask, **counts: int) -> None:
    for key, count in counts.items():
        task.stores.stores["counts"].put(key.encode(), serdes.int64.serialize(count))


def test_a_query_sees_the_last_commit_and_nothing_of_the_open_transaction(job: Job) -> None:
    task = job.run(P0)
    assert job.value() == []
    put(task, a=1)
    assert job.value() == []
    task.stores.commit({})
    assert job.value() == [1]
    put(task, a=2)
    assert job.value() == [1]
    for store in task.stores.stores.values():
        store.rollback()
    assert job.value() == [1]
    _, body = job.get("/state/P/counts/0/get?key=a")
    assert body == {
        "processor": "P",
        "partition": 0,
        "standby": False,
        "lag": None,
        "store": "counts",
        "entries": [{"key": "a", "value": 1}],
        "more": False,
    }


def test_user_code_that_does_not_return_delays_no_query(job: Job) -> None:
    is_called, may_return = threading.Event(), threading.Event()
    task = job.run(P0, USER)
    commit(task, a=1)

    def hang() -> None:
        put(task, a=2)
        is_called.set()
        assert may_return.wait(TIMEOUT_S)

    task.on_turn = hang
    job.rig.reader.batches.append(batch(0))
    job.rig.step_until(is_called.is_set)
    assert job.value() == [1]
    may_return.set()
    job.rig.step_until(lambda: task.committed > 0)


def test_a_scan_goes_on_page_by_page(job: Job) -> None:
    commit(job.run(P0), **{f"k{n}": n for n in range(7)}, other=0)
    found: list[int] = []
    page = ""
    while page is not None:
        status, body = job.get(f"/state/P/counts/0/scan?prefix=k&limit=3{page and '&page=' + page}")
        assert status == 200
        found += [row["value"] for row in body["entries"]]
        page = body["next"]
    assert found == list(range(7))
    _, body = job.get("/state/P/counts/0/scan?from_key=k2&to_key_hex=6b34")
    assert [row["key"] for row in body["entries"]] == ["k2", "k3", "k4"]


def test_the_stores_of_all_tasks_that_run_are_listed(job: Job) -> None:
    job.run(P1)
    job.run(P0)
    status, body = job.get("/state")
    assert status == 200
    assert [(task["processor"], task["partition"]) for task in body["tasks"]] == [
        ("P", 0),
        ("P", 1),
    ]
    assert [store["store"] for store in body["tasks"][0]["stores"]] == ["counts", "panes"]


def test_a_task_that_is_elsewhere_is_misdirected_and_one_that_starts_may_be_asked_again(
    job: Job,
) -> None:
    assert job.get("/state/P/counts/0/get?key=a")[0] == 421
    may_start = threading.Event()
    job.places[P0] = 0
    task = job.rig.assign(0)
    task.on_start = lambda: may_start.wait(TIMEOUT_S)
    job.rig.step()
    status, body = job.get("/state/P/counts/0/get?key=a")
    assert (status, "P_0 does not run yet" in body["error"]) == (503, True)
    assert job.get("/state") == (200, {"tasks": []})
    may_start.set()


def test_a_task_that_leaves_answers_no_more(job: Job) -> None:
    task = job.run(P0)
    commit(task, a=1)
    task.stores.stores["counts"].close()
    assert job.get("/state/P/counts/0/get?key=a")[0] == 503
    task.stores.close()
    assert job.get("/state/P/counts/0/get?key=a")[0] == 503
    job.rig.revoke(task)
    job.rig.step_until(lambda: not job.rig.thread.tasks)
    assert job.get("/state/P/counts/0/get?key=a")[0] == 503
    del job.places[P0]
    assert job.get("/state/P/counts/0/get?key=a")[0] == 421


def test_a_worker_that_is_gone_or_silent_is_an_error_of_the_moment(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.run(P0)
    job.is_up = False
    assert job.get("/state/P/counts/0/get?key=a")[0] == 503
    assert job.get("/state")[0] == 503
    monkeypatch.setattr(state_server, "ANSWER_TIMEOUT_S", 0.01)
    job.is_up = True
    job.rig.channel.on_ask = lambda _: None
    assert job.get("/state/P/counts/0/get?key=a")[0] == 504


def test_so_many_queries_at_a_time_and_no_more(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(job.run(P0), a=1)
    have_begun, may_end = threading.Semaphore(0), threading.Event()
    look_up = lookup.look_up

    def slow(*args: Any) -> Any:
        have_begun.release()
        assert may_end.wait(TIMEOUT_S)
        return look_up(*args)

    monkeypatch.setattr(state_answers, "look_up", slow)
    values: list[Any] = []
    threads = [
        threading.Thread(target=lambda: values.append(job.value())) for _ in range(MOST_AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert have_begun.acquire(timeout=TIMEOUT_S)
    assert job.get("/state/P/counts/0/get?key=a")[0] == 503  # refused by the server
    refused: list[Answer] = []
    job.take = refused.append
    job.rig.channel.on_ask(Ask(99, "get", P0, "counts", {"key": "a"}))
    assert [(answer.number, answer.status) for answer in refused] == [(99, 503)]
    job.take = job.server.take
    may_end.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert job.value() == [1]


PATHS = {
    "/": 404,
    "/state/P": 404,
    "/state/P/counts/-1/get?key=a": 404,
    "/state/P/counts/00/get?key=a": 404,
    "/state/P/counts/0/put?key=a": 404,
    "/state/P/none/0/get?key=a": 404,
    "/state/P/..%2Fcounts/0/get?key=a": 404,
    "/state/P/counts/0/get": 400,
    "/state/P/counts/0/get?key": 400,
    "/state/P/counts/0/get?key_hex=x": 400,
    "/state/P/counts/0/get?key=%ff": 400,
    "/state/P/counts/0/get?key=a&limit=0": 400,
    "/state/P/counts/0/get?key=a&limit=-1": 400,
    "/state/P/counts/0/get?key=a&limit=99999999999999999999999": 400,
    "/state/P/counts/0/get?key=a&limit=1000000": 200,
    "/state/P/counts/0/get?key=a&colour=red": 400,
    "/state/P/counts/0/get?key=a&as_of_ms=1": 400,
    "/state/P/counts/0/get?key=a&from_ms=1": 400,
    "/state/P/panes/0/get?key=a&from_ms=1": 200,
    "/state/P/panes/0/get?key=a&from_ms=x": 400,
    "/state/P/panes/0/get?key=a&from_ms=2&to_ms=1": 200,
    "/state/P/counts/0/scan?page=x": 400,
    "/state/P/counts/0/scan?page=ff": 200,
    "/state/P/counts/0/scan?" + "x" * 10_000: 414,
}


def test_what_cannot_be_answered_is_said(job: Job) -> None:
    commit(job.run(P0), a=1)
    found = {path: job.get(path) for path in PATHS}
    assert {path: status for path, (status, _) in found.items()} == PATHS
    assert all(("error" in body) == (status != 200) for status, body in found.values())
    assert job.value() == [1]


def test_only_addresses_and_names_of_this_host_are_answered(job: Job) -> None:
    for host in ("127.0.0.1:1", "[::1]:1", "localhost", "LOCALHOST:80", "10.1.2.3"):
        assert job.get("/state", host)[0] == 200
    for host in ("evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example"):
        assert job.get("/state", host)[0] == 403


def test_an_address_that_others_can_reach_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "worker7")
    server = StateServer("0.0.0.0", 0)
    assert server.address.startswith("worker7:")
    with pytest.raises(UnavailableError, match=r"state_port .* is taken"):
        StateServer("0.0.0.0", int(server.address.rpartition(":")[2]))
    server.close()
    with pytest.raises(ConfigError, match=r"state_host 192\.0\.2\.1"):
        StateServer("192.0.2.1", 0)


def test_without_a_port_nothing_listens() -> None:
    assert StateServer.of(CONFIG) is None


def test_an_answer_that_cannot_be_made_or_sent_is_an_error_of_this_query_only(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(job.run(P0), a=1)
    with monkeypatch.context() as broken:
        broken.setattr(state_answers, "look_up", lambda *_: 1 / 0)
        assert job.get("/state/P/counts/0/get?key=a")[0] == 500
    send = job.take

    def too_deep(answer: Answer) -> None:
        job.take = send
        raise RecursionError

    job.take = too_deep
    assert job.get("/state/P/counts/0/get?key=a")[0] == 500
    assert job.value() == [1]


def test_answers_that_nobody_waits_for_are_dropped(job: Job) -> None:
    job.server.take(Answer(1234, 200, {}))
    commit(job.run(P0), a=1)
    assert job.value() == [1]
