"""Actions, dead letters and records over HTTP: who may, what they must say, what is done."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY
from urllib.parse import urlsplit

import pytest
import structlog

from kafka_pipeline.common.errors import ConfigError, PipelineError, UnavailableError
from kafka_pipeline.console import access, actions, shared_reads
from kafka_pipeline.console.access import read_token
from kafka_pipeline.console.server import ConsoleServer
from kafka_pipeline.operations.starts import Latest
from tests.console_job import FakeJob, dead_letter
from tests.console_rehearsal import rehearsed
from tests.console_sample import SampleJob, config

TOKEN = "a-token-of-the-tests-1"
RIGHT = f"Bearer {TOKEN}"
PAUSE = "/api/actions/pause"
DRY_RUN = {"dry_run": True}
CONFIRMED = {"confirmed": True}


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\nanother line\n")
    file.chmod(0o600)
    return file


@contextmanager
def served(
    job: FakeJob, token_file: Path | None, *, records: bool = False
) -> Iterator[ConsoleServer]:
    sample = SampleJob()
    settings = replace(config(), console_token_file=token_file, console_records=records)
    server = ConsoleServer(settings, lambda: sample.run(1), job)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def job() -> FakeJob:
    return FakeJob()


@pytest.fixture
def console(
    job: FakeJob, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ConsoleServer]:
    monkeypatch.setattr(access, "WRONG_TOKEN_WAIT_S", 0.01)
    with served(job, token_file) as server:
        yield server


def ask(
    server: ConsoleServer,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str | None] | None = None,
) -> tuple[int, Any, http.client.HTTPMessage]:
    """Send a request as a page of the console would; a header of None is left out."""
    sent: dict[str, str | None] = {"Authorization": RIGHT}
    if method == "POST":
        sent |= {"Content-Type": "application/json"}
    told = {name: value for name, value in {**sent, **(headers or {})}.items() if value is not None}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with closing(http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=60)) as one:
        one.request(method, path, data if method == "POST" else None, told)
        answer = one.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers


def post(server: ConsoleServer, path: str, body: Any, **headers: str | None) -> tuple[int, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(server, "POST", path, body, named)[:2]


def get(server: ConsoleServer, path: str, **headers: str | None) -> tuple[int, Any]:
    return ask(server, "GET", path, None, headers)[:2]


def test_with_the_token_an_action_is_done_and_logged(console: ConsoleServer, job: FakeJob) -> None:
    with structlog.testing.capture_logs() as logs:
        status, body = post(console, PAUSE, {"processors": ["Price"], **CONFIRMED})
    assert (status, body["done"], body["processors"]) == (200, True, ["Price"])
    assert job.asked == [("pause", ("Price",))]
    begins, done = [log for log in logs if "action" in log]
    assert (begins["action"], begins["address"]) == ("pause", "127.0.0.1")
    assert begins["wanted"] == {"processors": ["Price"]}
    assert (done["address"], done["result"]["version"]) == ("127.0.0.1", 3)


@pytest.mark.parametrize("name", ["pause", "resume", "restart"])
def test_a_dry_run_changes_nothing(console: ConsoleServer, job: FakeJob, name: str) -> None:
    status, body = post(console, f"/api/actions/{name}", DRY_RUN)
    assert (status, body["done"], body["tasks"]) == (200, False, 16)
    assert job.asked == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer another-token-of-theirs"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"Authorization": TOKEN}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": None, "Cookie": f"token={TOKEN}"}, 401),
        ({"Content-Type": None}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Host": "evil.example"}, 421),
    ],
)
def test_other_requests_are_refused_and_do_nothing(
    console: ConsoleServer, job: FakeJob, headers: dict[str, str | None], status: int
) -> None:
    found, body, answered = ask(console, "POST", PAUSE, CONFIRMED, headers)
    assert (found, job.asked) == (status, [])
    assert body["error"]
    assert answered["X-Frame-Options"] == "DENY"
    assert ("WWW-Authenticate" in answered) == (status == 401)


@pytest.mark.parametrize("place", ["?token=", "?authorization=Bearer%20", "?access_token="])
def test_a_token_in_an_address_is_not_taken(
    console: ConsoleServer, job: FakeJob, place: str
) -> None:
    """Addresses are kept in histories, and in the logs of proxies."""
    status, _ = post(console, f"{PAUSE}{place}{TOKEN}", CONFIRMED, Authorization=None)
    assert (status, job.asked) == (401, [])


def test_a_page_of_the_console_may_act(console: ConsoleServer, job: FakeJob) -> None:
    origin = console.address.rstrip("/")
    status, _ = post(console, PAUSE, CONFIRMED, Origin=origin, Sec_Fetch_Site="same-origin")
    assert (status, len(job.asked)) == (200, 1)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_other_methods_are_refused(console: ConsoleServer, method: str) -> None:
    with closing(http.client.HTTPConnection(urlsplit(console.address).netloc, timeout=60)) as one:
        one.request(method, PAUSE, headers={"Authorization": RIGHT})
        answer = one.getresponse()
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, POST")


def test_get_does_no_action(console: ConsoleServer, job: FakeJob) -> None:
    assert get(console, PAUSE)[0] in (404, 405)
    assert job.asked == []


def test_without_a_token_the_console_is_read_only(job: FakeJob) -> None:
    with served(job, None) as server:
        assert get(server, "/api/access") == (200, {"actions": False, "records": False})
        status, body, answered = ask(server, "POST", PAUSE, CONFIRMED)
        assert (status, answered["Allow"], job.asked) == (405, "GET", [])
        assert "console_token_file" in body["error"]
        assert get(server, "/api/dead_letters")[0] == 200


def test_a_wrong_token_is_logged_and_makes_the_sender_wait(
    job: FakeJob, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "WRONG_TOKEN_WAIT_S", 0.2)
    with served(job, token_file) as server, structlog.testing.capture_logs() as logs:
        began_s = time.monotonic()
        assert post(server, "/api/sign_in", {}, Authorization="Bearer theirs")[0] == 401
        assert time.monotonic() - began_s >= 0.2
        assert post(server, "/api/sign_in", {})[0] == 200
    (line,) = [log for log in logs if "wrong token" in log["event"]]
    assert (line["address"], line["log_level"]) == ("127.0.0.1", "warning")
    assert "theirs" not in str(line)


def test_while_wrong_tokens_wait_no_token_is_compared(
    job: FakeJob, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "WRONG_TOKEN_WAIT_S", 3.0)
    with served(job, token_file) as server, ThreadPoolExecutor(12) as threads:
        wrong = [
            threads.submit(post, server, "/api/sign_in", {}, Authorization="Bearer wrong")
            for _ in range(12)
        ]
        statuses = sorted(each.result()[0] for each in wrong)
    assert statuses == [401] * 4 + [429] * 8


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"dry_run": False},
        {"dry_run": True, "confirmed": True},
        {"confirmed": 1},
        {"confirmed": True, "processors": "Price"},
        {"confirmed": True, "processor": ["Price"]},
        {"confirmed": True, "processors": ["Nobody"]},
        [],
        b"{",
        b"\xff",
        b"[" * 60_000,
    ],
)
def test_an_action_that_is_not_confirmed_or_not_clear_is_refused(
    console: ConsoleServer, job: FakeJob, body: Any
) -> None:
    status, answer = post(console, PAUSE, body)
    assert (status, job.asked) == (400, [])
    assert answer["error"]


def test_a_body_that_is_too_large_is_refused(console: ConsoleServer) -> None:
    status, answer = post(console, PAUSE, b" " * 65_537)
    assert (status, answer["error"]) == (400, "the body has more than 65,536 bytes")


def test_there_are_no_other_actions(console: ConsoleServer) -> None:
    assert post(console, "/api/actions/delete", CONFIRMED)[0] == 404


def test_letters_are_dealt_with_only_as_a_dry_run_has_shown(
    console: ConsoleServer, job: FakeJob
) -> None:
    path = "/api/actions/redrive"
    status, shown = post(console, path, {"processors": ["Price"], **DRY_RUN})
    assert (status, shown["count"], shown["by_processor"]) == (200, 10, {"Price": 10})
    status, answer = post(console, path, {"processors": ["Price"], **CONFIRMED})
    assert (status, "before" in answer["error"], job.asked) == (400, True, [])
    job.dead += [dead_letter(10), dead_letter(11)]
    asked = {"processors": ["Price"], "before": shown["before"], **CONFIRMED}
    assert post(console, path, asked)[1]["count"] == 10
    assert [each.handled for each in job.dead] == ["redriven"] * 10 + ["", ""]


@pytest.mark.parametrize(
    "before", [{"Price": {"x": 1}}, {"Price": 3}, {"Price": {"0": "1"}}, [1], {"Price": {"0": 1.5}}]
)
def test_a_wrong_answer_of_a_dry_run_is_refused(
    console: ConsoleServer, job: FakeJob, before: Any
) -> None:
    asked = {"before": before, **CONFIRMED}
    assert post(console, "/api/actions/purge", asked)[0] == 400
    assert job.asked == []


def test_letters_are_chosen_by_id_and_reason(console: ConsoleServer, job: FakeJob) -> None:
    job.dead = [dead_letter(0, "too small"), dead_letter(1), dead_letter(2, "too large")]
    chosen = {"reason": "TOO"}
    _, shown = post(console, "/api/actions/purge", {**chosen, **DRY_RUN})
    post(console, "/api/actions/purge", {**chosen, "before": shown["before"], **CONFIRMED})
    assert [each.handled for each in job.dead] == ["purged", "", "purged"]
    chosen_ids = {"ids": ["Price:1:0"]}
    _, shown = post(console, "/api/actions/redrive", {**chosen_ids, **DRY_RUN})
    post(console, "/api/actions/redrive", {**chosen_ids, "before": shown["before"], **CONFIRMED})
    assert [each.handled for each in job.dead] == ["purged", "redriven", "purged"]
    assert post(console, "/api/actions/redrive", {"ids": ["Price"], **DRY_RUN})[0] == 400


def test_one_action_at_a_time(console: ConsoleServer, job: FakeJob) -> None:
    job.block = threading.Event()
    with ThreadPoolExecutor(4) as threads:
        both = [threads.submit(post, console, PAUSE, CONFIRMED) for _ in range(2)]
        while not any(each.done() for each in both):
            pass
        assert get(console, "/api/graph")[0] == 200
        job.block.set()
        assert sorted(each.result()[0] for each in both) == [200, 409]
    assert post(console, PAUSE, CONFIRMED)[0] == 200


def test_an_action_that_takes_too_long_is_not_waited_for(
    job: FakeJob, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "ACTION_TIMEOUT_S", 0.1)
    job.block = threading.Event()
    with served(job, token_file) as server:
        status, body = post(server, PAUSE, CONFIRMED)
        assert (status, "It goes on" in body["error"]) == (504, True)
        assert post(server, PAUSE, CONFIRMED)[0] == 409
        job.block.set()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("no"), 400),
        (UnavailableError("no Kafka"), 503),
        (PipelineError("somebody else"), 409),
    ],
)
def test_errors_are_answered_with_their_reason_and_logged(
    console: ConsoleServer,
    job: FakeJob,
    error: PipelineError,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(job, "ask", fail)
    with structlog.testing.capture_logs() as logs:
        assert post(console, PAUSE, CONFIRMED) == (status, {"error": str(error)})
    assert [log["reason"] for log in logs if "failed" in log["event"]] == [str(error)]


def test_actions_are_events_of_the_history(console: ConsoleServer) -> None:
    assert post(console, PAUSE, {"processors": ["Nobody"], **CONFIRMED})[0] == 400
    assert post(console, PAUSE, {"processors": ["Price"], **DRY_RUN})[0] == 200
    _, shown = post(console, "/api/actions/purge", {"processors": ["Price"], **DRY_RUN})
    purge = {"processors": ["Price"], "before": shown["before"], **CONFIRMED}
    assert post(console, "/api/actions/purge", purge)[0] == 200
    until_s = time.monotonic() + 60
    found: list[Any] = []
    while len(found) < 2:
        assert time.monotonic() < until_s
        events = get(console, "/api/history")[1]["events"]
        found = [event for event in events if event["kind"] == "action"]
    assert [event["text"] for event in found] == [
        "purge of 10 dead letters: Price, asked for by 127.0.0.1: done",
        "pause: Nobody, asked for by 127.0.0.1: failed",
    ]
    assert found[1]["reason"] == 'the job has no processor "Nobody"'
    assert [event["needs_care"] for event in found] == [False, True]


def test_letters_are_listed_by_error_the_newest_first(console: ConsoleServer, job: FakeJob) -> None:
    job.dead = [
        dead_letter(0, error="TooLate"),
        dead_letter(1, "at 1"),
        replace(dead_letter(2, "second"), handled="redriven"),
        dead_letter(3, "at 3"),
    ]
    status, body = get(console, "/api/dead_letters")
    assert (status, body["matching"], body["waiting"]) == (200, 3, 3)
    assert [each["id"] for each in body["letters"]] == ["Price:3:0", "Price:1:0", "Price:0:0"]
    assert [(row["error"], row["count"], row["reason"]) for row in body["errors"]] == [
        ("RecordRejected", 2, "at 3"),
        ("TooLate", 1, "not an integer"),
    ]
    (processor,) = body["processors"]
    assert (processor["id"], processor["waiting"], processor["handled"]) == ("Price", 3, 1)
    assert "value" not in json.dumps(body)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("handled=true", [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        ("limit=2", [9, 8]),
        ("since=2026-11-18T11:06:47Z", [9, 8, 7]),
        ("until=2026-11-18T11:06:42Z", [1]),
        ("processor=Price&limit=1", [9]),
        ("processor=Clean", []),
        ("reason=REJECTED&limit=1", [9]),
        ("reason=other", []),
    ],
)
def test_letters_are_filtered(
    console: ConsoleServer, job: FakeJob, query: str, ids: list[int]
) -> None:
    job.dead[0] = replace(job.dead[0], handled="purged")
    _, body = get(console, f"/api/dead_letters?{query}")
    assert [each["id"] for each in body["letters"]] == [str(job.dead[n].id) for n in ids]


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=201", "limit=x", "limit=0000000010000", f"limit=1{'0' * 5000}"),
        *("handled=1", "since=noon", "proessor=Price"),
    ],
)
def test_wrong_filters_are_refused(console: ConsoleServer, query: str) -> None:
    status, body = get(console, f"/api/dead_letters?{query}")
    assert (status, bool(body["error"])) == (400, True)


def test_letters_are_read_once_for_all_who_look(
    console: ConsoleServer, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        assert get(console, "/api/dead_letters")[0] == 200
    assert job.reads == 1
    _, shown = post(console, "/api/actions/purge", DRY_RUN)
    post(console, "/api/actions/purge", {"before": shown["before"], **CONFIRMED})
    assert get(console, "/api/dead_letters")[1]["matching"] == 0
    assert job.reads == 2
    monkeypatch.setattr(shared_reads, "MOST_OFTEN_S", 0.0)
    get(console, "/api/dead_letters")
    assert job.reads == 3


def test_a_letter_has_nothing_of_its_record_unless_records_are_shown(
    console: ConsoleServer, job: FakeJob
) -> None:
    job.dead[3] = replace(job.dead[3], handled="purged")
    status, body = get(console, "/api/dead_letters/Price:3:0")
    assert (status, body["key"], body["value"], body["headers"]) == (200, None, None, [])
    assert body["handled"] == "purged"
    assert get(console, "/api/dead_letters/Price:0:99")[0] == 400
    assert get(console, "/api/dead_letters/Price")[0] == 400


def test_the_record_of_a_letter_needs_the_token(
    job: FakeJob, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "WRONG_TOKEN_WAIT_S", 0.01)
    path = "/api/dead_letters/Price:3:0"
    with served(job, token_file, records=True) as server:
        shown, hidden = get(server, path)[1], get(server, path, Authorization=None)[1]
        assert (shown["value"], shown["headers"]) == ("value 3", [["source", "web"]])
        assert (hidden["value"], hidden["headers"]) == (None, [])
        assert get(server, path, Authorization="Bearer wrong")[0] == 401


def test_records_need_the_setting_and_the_token(
    job: FakeJob, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "WRONG_TOKEN_WAIT_S", 0.01)
    path = "/api/records?topic=orders"
    with served(job, token_file) as server:
        status, body = get(server, path)
        assert (status, "console_records" in body["error"]) == (403, True)
    with served(job, token_file, records=True) as server:
        assert get(server, path, Authorization=None)[0] == 401
        assert get(server, path, Authorization="Bearer wrong")[0] == 401
        assert job.queries == []
        job.shown = [{"value": "v"}]
        assert get(server, path) == (200, {"records": [{"value": "v"}]})
        assert get(server, f"{path}&from=-5&partition=2&limit=5&key=int64&value=json")[0] == 200
        query = job.queries[-1]
        assert (query.topic, query.start, query.limit) == ("orders", Latest(5), 5)
        assert (list(query.partitions), query.key, query.value) == ([2], "int64", "json")
        assert get(server, f"{path}&from=last&limit=5")[0] == 200
    assert job.queries[-1].newest


@pytest.mark.parametrize(
    "query", ["", "topic=a&from=soon", "topic=a&partition=-1", "topic=a&limit=101", "topic=a&x=1"]
)
def test_wrong_queries_of_records_are_refused(job: FakeJob, token_file: Path, query: str) -> None:
    with served(job, token_file, records=True) as server:
        assert get(server, f"/api/records?{query}")[0] == 400
    assert job.queries == []


@pytest.mark.parametrize(
    "content", ["", "\n", "short", "x" * 15, "has a space in it 123", "é" * 20]
)
def test_a_token_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(ConfigError, match="console_token_file"):
        read_token(file)


def test_a_token_file_that_is_not_there_is_said_before_the_console_is_served(
    tmp_path: Path,
) -> None:
    with (
        pytest.raises(ConfigError, match="No such file"),
        served(FakeJob(), tmp_path / "none"),
    ):
        pass


@pytest.mark.parametrize(("mode", "warns"), [(0o600, 0), (0o640, 0), (0o644, 1)])
def test_a_token_that_everyone_can_read_is_warned_about(
    token_file: Path, mode: int, warns: int
) -> None:
    token_file.chmod(mode)
    with structlog.testing.capture_logs() as logs:
        assert read_token(token_file) == TOKEN
    assert len(logs) == warns
    assert TOKEN not in str(logs)


def test_a_rehearsal_is_shown_to_all_and_its_records_to_those_with_the_token(
    token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "WRONG_TOKEN_WAIT_S", 0.01)
    job = FakeJob(rehearsed=rehearsed("secret key", '{"secret": 1}'))
    with served(job, token_file, records=True) as server:
        status, body = get(server, "/api/rehearsal", Authorization=None)
        assert (status, body["rehearsal"]["with_records"]) == (200, False)
        assert body["rehearsal"]["report"]["verdict"] == "different"
        assert "secret" not in json.dumps(body)
        status, body = get(server, "/api/rehearsal")
        assert (status, body["rehearsal"]["with_records"]) == (200, True)
        example = body["rehearsal"]["report"]["outputs"]["orders_by_city"]["examples"][0]
        assert (example["key"], example["old"]["value"]) == ("secret key", '{"secret": 1}')
        assert get(server, "/api/rehearsal", Authorization="Bearer wrong")[0] == 401
    with served(job, token_file) as server:
        status, body = get(server, "/api/rehearsal")
        assert (status, body["rehearsal"]["with_records"]) == (200, False)
        assert "secret" not in json.dumps(body)


def test_kafka_is_asked_for_a_rehearsal_once_in_five_seconds_and_only_on_request(
    console: ConsoleServer, job: FakeJob
) -> None:
    get(console, "/api/graph")
    assert job.rehearsal_reads == 0
    for _ in range(3):
        assert get(console, "/api/rehearsal") == (200, {"rehearsal": None, "read_at_ms": ANY})
    assert job.rehearsal_reads == 1
