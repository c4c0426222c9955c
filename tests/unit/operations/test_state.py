"""Who is asked for state: by the heartbeats, the owner of the key's partition, or a standby."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

import pytest

from kafka_pipeline.common.cluster.cluster_status import (
    ClusterStatus,
    JobManagerInfo,
    Presence,
    TaskInfo,
    TaskManagerInfo,
)
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.process.http_server import HttpAnswer, HttpServer
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.operations import state
from kafka_pipeline.operations.state import StateClient, StoreInfo
from kafka_pipeline.streams.partitioning import default_partition

ABOUT = {
    "store": "counts",
    "key_serde": "string",
    "value_serde": "int64",
    "keys_readable": True,
    "values_readable": True,
}
STORE = StoreInfo("P", 3, ABOUT)
NOWHERE: dict[str, Any] = {}


def info(task: TaskId, owner: int | None, state: TaskState = TaskState.RUNNING) -> TaskInfo:
    return TaskInfo(task, owner, None if owner is None else TaskStatus(task, state), "")


class Cluster:
    """TaskManagers 0 and 1 as a client sees them: heartbeats, and answers over HTTP."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks = [info(TaskId("P", number), number % 2) for number in range(3)]
        self.standbys: list[TaskInfo] = []
        self.addresses = {0: "h0:1", 1: "h1:1"}
        self.silent: set[int] = set()
        self.values: dict[int, dict[str, int]] = {0: {}, 1: {}, 2: {}}
        self.asked: list[tuple[int, int]] = []
        """The TaskManagers that were asked, and for which partitions."""
        self.on_read: Callable[[], None] = lambda: None
        self.reads = 0
        monkeypatch.setattr(state, "_get", self._get)
        monkeypatch.setattr(state, "_ROUTE_TIMEOUT_S", 0.2)

    # As heartbeats

    def read(self, wait_s: float) -> None:
        self.reads += wait_s > 0
        if wait_s > 0:
            self.on_read()

    def status(self) -> ClusterStatus:
        managers = tuple(
            TaskManagerInfo(number, Presence.UP, state_address=address)
            for number, address in self.addresses.items()
        )
        leader = JobManagerInfo(Presence.UP)
        return ClusterStatus(leader, managers, tuple(self.tasks), tuple(self.standbys))

    # As TaskManagers

    def _get(self, address: str, path: str) -> tuple[int, dict[str, Any]]:
        number = next(n for n, known in self.addresses.items() if known == address)
        if number in self.silent:
            raise UnavailableError(f"{address} does not answer")
        if path == "/state":
            here = [t for t in self.tasks + self.standbys if t.owner == number]
            return 200, {"tasks": [{**self._place(t.task), "stores": [ABOUT]} for t in here]}
        route, _, query = path.partition("?")
        _, _, processor, name, partition, kind = route.split("/")
        self.asked.append((number, int(partition)))
        wanted = TaskId(processor, int(partition))
        here = [t for t in self.tasks + self.standbys if t.task.active == wanted]
        found = next((t for t in here if t.owner == number), None)
        if found is None:
            return 421, {"error": "not here"}
        if name != "counts":
            return 404, {"error": "no such store"}
        values = self.values[int(partition)]
        given = {name: value[0] for name, value in parse_qs(query).items()}
        place = self._place(found.task)
        if kind == "get":
            key = bytes.fromhex(given["key_hex"]).decode()
            rows = [{"key": key, "value": values[key]}] if key in values else []
            return 200, {**place, "entries": rows, "more": False}
        keys = [key for key in sorted(values) if key > given.get("page", "")]
        rows = [{"key": key, "value": values[key]} for key in keys[:2]][: int(given["limit"])]
        following = rows[-1]["key"] if len(rows) < len(keys) else None
        return 200, {**place, "entries": rows, "next": following}

    @staticmethod
    def _place(task: TaskId) -> dict[str, Any]:
        lag = 7 if task.standby else 0
        return {
            "processor": task.processor,
            "partition": task.partition,
            "standby": bool(task.standby),
            "lag": lag,
        }


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


@pytest.fixture
def client(cluster: Cluster) -> StateClient:
    return StateClient(cluster)


def test_the_owner_of_the_partition_of_a_key_is_asked(
    cluster: Cluster, client: StateClient
) -> None:
    for key in ("a", "b", "c", "d", "e"):
        number = default_partition(key.encode(), 3)
        cluster.values[number][key] = 5
        cluster.asked = []
        found = client.get(STORE, STORE.key(key), None, NOWHERE)
        assert (found["entries"], found["task_manager"]) == (
            [{"key": key, "value": 5}],
            number % 2,
        )
        assert cluster.asked == [(number % 2, number)]


def test_a_key_that_another_partitioner_has_put_elsewhere_is_found(
    cluster: Cluster, client: StateClient
) -> None:
    elsewhere = (default_partition(b"a", 3) + 1) % 3
    cluster.values[elsewhere]["a"] = 5
    assert client.get(STORE, b"a", None, NOWHERE)["partition"] == elsewhere
    assert client.get(STORE, b"a", default_partition(b"a", 3), NOWHERE)["entries"] == []
    assert client.get(STORE, b"none", None, NOWHERE)["entries"] == []


def test_a_task_that_moves_is_asked_where_the_heartbeats_show_it_next(
    cluster: Cluster, client: StateClient
) -> None:
    cluster.values[0]["a"] = 5
    cluster.silent = {0}

    def move() -> None:
        cluster.tasks[0] = info(TaskId("P", 0), 1)

    cluster.on_read = move
    found = client.get(STORE, b"a", 0, NOWHERE)
    assert (found["entries"][0]["value"], found["task_manager"], cluster.reads) == (5, 1, 1)


@pytest.mark.parametrize("state", [TaskState.RESTORING, TaskState.RESTARTING, TaskState.FAILED])
def test_a_standby_answers_for_a_task_that_does_not_run(
    cluster: Cluster, client: StateClient, state: TaskState
) -> None:
    cluster.values[0]["a"] = 5
    cluster.tasks[0] = info(TaskId("P", 0), 0, state)
    with pytest.raises(UnavailableError, match=f"P_0 cannot be asked: it is {state} on"):
        client.get(STORE, b"a", 0, NOWHERE)
    cluster.standbys = [info(TaskId("P", 0, 1), 1, TaskState.STANDBY)]
    found = client.get(STORE, b"a", 0, NOWHERE)
    assert (found["standby"], found["lag"], found["task_manager"]) == (True, 7, 1)


def test_a_standby_answers_for_an_owner_that_is_gone_but_not_for_one_that_answers(
    cluster: Cluster, client: StateClient
) -> None:
    cluster.values[0]["a"] = 5
    cluster.standbys = [info(TaskId("P", 0, 1), 1, TaskState.STANDBY)]
    assert not client.get(STORE, b"a", 0, NOWHERE)["standby"]
    cluster.silent = {0}
    assert client.get(STORE, b"a", 0, NOWHERE)["standby"]


def test_a_task_that_nobody_runs_is_an_error_after_a_while(
    cluster: Cluster, client: StateClient
) -> None:
    cluster.tasks[0] = TaskInfo(TaskId("P", 0), None, None, "no TaskManager runs it")
    with pytest.raises(UnavailableError, match="no TaskManager runs it, and it has no standby"):
        client.get(STORE, b"a", 0, NOWHERE)
    cluster.tasks[0] = info(TaskId("P", 0), 1)
    cluster.silent = {1}
    with pytest.raises(UnavailableError, match="h1:1 does not answer"):
        client.get(STORE, b"a", 0, NOWHERE)
    assert cluster.reads > 1


def test_a_query_that_is_refused_is_not_sent_again(cluster: Cluster, client: StateClient) -> None:
    with pytest.raises(ConfigError, match="no such store"):
        client.get(StoreInfo("P", 3, {**ABOUT, "store": "x"}), b"a", 0, NOWHERE)
    assert len(cluster.asked) == 1
    with pytest.raises(ConfigError, match="no partition 3: it has 3"):
        client.get(STORE, b"a", 3, NOWHERE)


@pytest.mark.parametrize("limit", [1, 3, 4, 100])
def test_a_scan_goes_through_pages_and_partitions_up_to_its_limit(
    cluster: Cluster, client: StateClient, limit: int
) -> None:
    for number in range(3):
        cluster.values[number] = {f"{number}{letter}": 1 for letter in "abc"}
    pages = client.scan(STORE, range(3), {}, limit)
    keys = [row["key"] for page in pages for row in page["entries"]]
    assert keys == [f"{number}{letter}" for number in range(3) for letter in "abc"][:limit]


def test_a_store_is_found_by_its_name_or_because_it_is_the_only_one(
    cluster: Cluster, client: StateClient
) -> None:
    found = client.store("P", None)
    assert (found.name, found.partitions) == ("counts", 3)
    assert client.store("P", "counts") == found
    with pytest.raises(ConfigError, match='no processor "p", did you mean "P"'):
        client.store("p", None)
    with pytest.raises(ConfigError, match='no store "count", did you mean "counts"'):
        client.store("P", "count")
    cluster.silent = {0}
    assert client.store("P", None).name == "counts"  # one that answers is enough
    with pytest.raises(UnavailableError, match="h0:1 does not answer"):
        client.listed()
    cluster.silent = {0, 1}
    with pytest.raises(UnavailableError, match="no task of P can be asked"):
        client.store("P", None)


def test_without_state_port_it_says_what_to_do(cluster: Cluster, client: StateClient) -> None:
    cluster.addresses = {0: "", 1: ""}
    with pytest.raises(ConfigError, match="set state_port"):
        client.listed()


@pytest.mark.parametrize(
    "address", ["", "nowhere", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", f"{'x' * 80}:1"]
)
def test_an_address_that_is_none_is_a_clear_error(address: str) -> None:
    """Without a key, anyone who may write reports may write any."""
    with pytest.raises(UnavailableError, match="does not answer queries of state"):
        state._get(address, "/state")


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"<html>", b'{"status": "failing"}', b"[" * 100_000, b'"' + b"x" * 5_000]
)
def test_what_is_not_the_answer_of_a_task_manager_is_a_clear_error(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that has taken the port answers something else."""
    monkeypatch.setattr(state, "_MOST_BYTES", 200_000)
    server = HttpServer("state", "127.0.0.1", 0, lambda *_: HttpAnswer(HTTPStatus.OK, body))
    with closing(server):
        address = f"127.0.0.1:{server.port}"
        with pytest.raises(UnavailableError, match="does not answer queries of state"):
            state._get(address, "/state")
        monkeypatch.setattr(state, "_MOST_BYTES", 1)
        with pytest.raises(UnavailableError, match="too large"):
            state._get(address, "/state")


def test_keys_of_user_code_must_be_in_hexadecimal() -> None:
    store = StoreInfo("P", 3, {**ABOUT, "key_serde": "mine", "keys_readable": False})
    with pytest.raises(ConfigError, match="in hexadecimal"):
        store.key("a")
    with pytest.raises(ConfigError, match='"a" is not a key of the serde int64'):
        StoreInfo("P", 3, {**ABOUT, "key_serde": "int64"}).key("a")
