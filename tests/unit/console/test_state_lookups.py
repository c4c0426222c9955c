"""State over HTTP: who may look it up, what TaskManagers are asked, and how it is shown."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import structlog

from kafka_pipeline.console import access, state_lookups
from kafka_pipeline.console.server import ConsoleServer
from tests.console_job import FakeJob
from tests.console_sample import SampleJob, config
from tests.console_state import COUNTS, FakeState, answered

TOKEN = "a-token-of-the-tests-1"
PLACE = "processor=Cities&store=counts"
ADDRESSES = ("/api/state", f"/api/state/get?{PLACE}&key=a", f"/api/state/scan?{PLACE}")
NOWHERE = "127.0.0.1:9"
"""The port of the service "discard", which nobody offers: connections are refused."""


@contextmanager
def served(folder: Path, *addresses: str, records: bool = True) -> Iterator[ConsoleServer]:
    """Serve a console; its TaskManagers say that they answer queries at these addresses."""
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    sample = SampleJob(state_addresses=addresses or ("",))
    settings = replace(config(), console_token_file=token, console_records=records)
    server = ConsoleServer(settings, lambda: sample.run(1), FakeJob())
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def state() -> FakeState:
    return FakeState()


@pytest.fixture
def console(state: FakeState, tmp_path: Path) -> Iterator[ConsoleServer]:
    with answered(state) as address, served(tmp_path, address) as server:
        yield server


def get(server: ConsoleServer, path: str, token: str | None = TOKEN) -> tuple[int, Any]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with closing(http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=60)) as one:
        one.request("GET", path, headers=headers)
        answer = one.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.parametrize("path", ADDRESSES)
def test_state_needs_the_setting_and_the_token(
    state: FakeState, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "WRONG_TOKEN_WAIT_S", 0.01)
    with answered(state) as address:
        with served(tmp_path, address, records=False) as server:
            status, body = get(server, path)
            assert (status, "console_records" in body["error"]) == (403, True)
        with served(tmp_path, address) as server:
            assert get(server, path, None)[0] == 401
            assert get(server, path, "another-token-of-theirs")[0] == 401
            assert state.asked == []
            assert get(server, path)[0] == 200


@pytest.mark.parametrize("path", ADDRESSES)
def test_without_state_port_it_says_what_to_set(tmp_path: Path, path: str) -> None:
    with served(tmp_path) as server:
        status, body = get(server, path)
    assert (status, "set state_port in config.yaml" in body["error"]) == (400, True)


def test_stores_are_listed_with_who_has_their_partitions(console: ConsoleServer) -> None:
    status, body = get(console, "/api/state")
    assert (status, body["problem"]) == (200, None)
    counts, windows = body["stores"]
    assert (counts["processor"], counts["store"], counts["type"]) == (
        "Cities",
        "counts",
        "key-value",
    )
    assert (windows["store"], windows["key_serde"]) == ("windows", "string")
    # All three TaskManagers have the same address here.
    first = {"partition": 0, "task_manager": 0, "standby": False, "lag": 0}
    assert (counts["partitions"][0], len(counts["partitions"])) == (first, 12)


def test_stores_are_listed_even_if_a_task_manager_does_not_answer(
    state: FakeState, tmp_path: Path
) -> None:
    with answered(state) as address, served(tmp_path, address, NOWHERE, address) as server:
        _, body = get(server, "/api/state")
    assert NOWHERE in body["problem"]
    assert {each["task_manager"] for each in body["stores"][0]["partitions"]} == {0, 2}


def test_a_key_is_looked_up_in_its_partition_and_the_lookup_is_logged(
    console: ConsoleServer, state: FakeState
) -> None:
    partition = state.put("apple", 2**53 + 1)
    with structlog.testing.capture_logs() as logs:
        status, body = get(console, f"/api/state/get?{PLACE}&key=apple")
    # Text, since a browser would round such a number.
    assert (status, body["entries"]) == (200, [{"key": "apple", "value": "9007199254740993"}])
    assert (body["partition"], body["standby"], body["lag"]) == (partition, False, 0)
    (asked,) = state.asked
    assert asked == ("counts", partition, "get", {"key_hex": b"apple".hex(), "limit": "100"})
    (line,) = [log for log in logs if "state is shown" in log["event"]]
    assert (line["address"], line["processor"]) == ("127.0.0.1", "Cities")
    assert "apple" not in str(line)


def test_a_standby_answers_with_its_lag(console: ConsoleServer, state: FakeState) -> None:
    state.put("a", 1)
    state.standby = True
    _, body = get(console, f"/api/state/get?{PLACE}&key_hex=61")
    assert (body["entries"][0]["value"], body["standby"], body["lag"]) == ("1", True, 7)


def test_times_and_a_partition_are_passed_on(console: ConsoleServer, state: FakeState) -> None:
    window = {"start_ms": 1000, "end_ms": 3000}
    state.entries["windows", 2] = [{"key": "a", "value": 5, "window": window}]
    query = "processor=Cities&store=windows&key=a&partition=2"
    times = "from=1970-01-01T00:00:01Z&to=1970-01-01T00:00:02Z"
    _, body = get(console, f"/api/state/get?{query}&{times}&limit=3")
    assert body["entries"] == [{"key": "a", "value": "5", "window": window}]
    given = {"key_hex": "61", "from_ms": "1000", "to_ms": "2000", "limit": "3"}
    assert state.asked == [("windows", 2, "get", given)]
    get(console, f"/api/state/get?{PLACE}&key=a&partition=0&as_of=1970-01-01T00:00:03Z")
    assert state.asked[1][3] == {"key_hex": "61", "as_of_ms": "3000", "limit": "100"}


def test_a_partition_is_read_page_by_page(console: ConsoleServer, state: FakeState) -> None:
    state.entries["counts", 3] = [{"key": f"k{n}", "value": n} for n in range(5)]
    path = f"/api/state/scan?{PLACE}&partition=3&limit=2&prefix=k"
    keys, page = [], ""
    while page is not None:
        _, body = get(console, f"{path}&page={page}" if page else path)
        keys.append([row["key"] for row in body["entries"]])
        page = body["next"]
    assert keys == [["k0", "k1"], ["k2", "k3"], ["k4"]]
    assert {(store, number, kind) for store, number, kind, _ in state.asked} == {
        ("counts", 3, "scan")
    }
    assert state.asked[1][3] == {"prefix": "k", "limit": "2", "page": "02"}


def test_bounds_of_keys_are_text_or_hexadecimal(console: ConsoleServer, state: FakeState) -> None:
    get(console, f"/api/state/scan?{PLACE}&from_key=a&to_key_hex=0x7aff&prefix_hex=61")
    (asked,) = state.asked
    assert asked[1] == 0
    assert asked[3] == {
        "from_key_hex": "61",
        "to_key_hex": "7aff",
        "prefix_hex": "61",
        "limit": "100",
    }


def test_long_values_are_cut_off_and_bytes_are_in_hexadecimal(
    console: ConsoleServer, state: FakeState
) -> None:
    row = {"key_hex": "00ff", "value_text": "x" * 30_000, "timestamp_ms": 5}
    state.entries["counts", 0] = [row]
    _, body = get(console, f"/api/state/scan?{PLACE}")
    (entry,) = body["entries"]
    assert (entry["key"], entry["timestamp_ms"]) == ("0x00ff", 5)
    assert entry["value"] == "x" * 20_000 + "…"


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("get?store=counts&key=a", "name a processor and a store"),
        ("get?processor=Cities&key=a", "name a processor and a store"),
        (f"get?{PLACE}", "give a key, or key_hex"),
        (f"get?{PLACE}&key=a&key_hex=61", "give a key, or key_hex"),
        (f"get?{PLACE}&key_hex=6", "not hexadecimal"),
        (f"get?{PLACE}&key=a&from=noon", "is not a time"),
        (f"get?{PLACE}&key=a&limit=101", "from 1 to 100"),
        (f"get?{PLACE}&key=a&prefix=a", 'no "prefix" here'),
        (f"get?{PLACE}&key=a&partition=4", "no partition 4: it has 4"),
        ("get?processor=Citys&store=counts&key=a", 'did you mean "Cities"'),
        ("get?processor=Cities&store=count&key=a", 'did you mean "counts"'),
        (f"scan?{PLACE}&partition=x", "not the number of a partition"),
        (f"scan?{PLACE}&prefix=a&prefix_hex=61", "not both"),
    ],
)
def test_wrong_queries_are_refused(
    console: ConsoleServer, state: FakeState, query: str, error: str
) -> None:
    status, body = get(console, f"/api/state/{query}")
    assert (status, error in body["error"], state.asked) == (400, True, []), body


def test_keys_of_user_code_are_given_in_hexadecimal(
    console: ConsoleServer, state: FakeState
) -> None:
    state.about = ({**COUNTS, "key_serde": "mine", "keys_readable": False},)
    status, body = get(console, f"/api/state/get?{PLACE}&key=a")
    assert (status, "in hexadecimal" in body["error"]) == (400, True)
    assert get(console, f"/api/state/get?{PLACE}&key_hex=61")[0] == 200


def test_task_managers_that_do_not_answer_are_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_lookups, "_ASK_TIMEOUT_S", 0.3)
    with served(tmp_path, NOWHERE) as server:
        status, body = get(server, ADDRESSES[1])
        assert (status, "no task of Cities can be asked" in body["error"]) == (503, True)
        status, body = get(server, "/api/state")
        assert (status, body["stores"], NOWHERE in body["problem"]) == (200, [], True)
