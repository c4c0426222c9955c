"""What the views say of a job whose heartbeats are known."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from kafka_pipeline.common.protocol.key_warnings import KeyProblem, KeyWarning
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.typed_json import as_json
from kafka_pipeline.console.views.snapshot import Snapshot
from kafka_pipeline.console.views.views import VIEWS, encode, forecast
from tests.console_sample import SampleJob, config, many_processors

FAILED, RESTORING = TaskId("Audit", 3), TaskId("Cities", 1)


@pytest.fixture(scope="module")
def job() -> SampleJob:
    """A job that has run for a minute, with a task that FAILED and one that restores its state."""
    made = SampleJob()
    made.states = {
        FAILED: TaskStatus(FAILED, TaskState.FAILED, reason="no number"),
        RESTORING: TaskStatus(
            RESTORING,
            TaskState.RESTORING,
            thread=1,
            figures={"restored": 250, "to_restore": 1000, "restore_eta_s": 9},
        ),
    }
    made.run(60)
    return made


@pytest.fixture
def now(job: SampleJob) -> Snapshot:
    return job.board.next_snapshot(job.now_ms)


def view(snapshot: Snapshot, name: str) -> Any:
    found = encode(snapshot, name)
    assert found is not None
    return json.loads(found)


def test_each_view_has_the_summary_of_the_same_moment(now: Snapshot) -> None:
    summaries = [view(now, name)["summary"] for name in (*VIEWS, "processors/Price")]
    assert all(summary == summaries[0] for summary in summaries)
    assert summaries[0] == {
        "number": now.number,
        "at_ms": now.at_ms,
        "job_name": "shop",
        "job_manager": {"state": "UP", "epoch": 7, "age_ms": 0, "findings": []},
        "task_managers": {"up": 3, "expected": 3},
        "tasks": {"count": 16, "states": {"RUNNING": 14, "RESTORING": 1, "FAILED": 1}},
        "lag": None,
        "oldest_waiting_ms": 73_000,
        "deployment": {
            "version": 3,
            "made_at_ms": 1_795_000_000_000,
            "made_by": "ada@alpha",
            "next": None,
            "paused": [],
            "drains": False,
            "stop": None,
        },
    }


@pytest.mark.parametrize("name", ["", "nothing", "processors/Nobody", "processors/"])
def test_there_is_no_other_view(now: Snapshot, name: str) -> None:
    assert encode(now, name) is None


def test_graph_has_processors_topics_and_what_flows_between_them(now: Snapshot) -> None:
    found = view(now, "graph")
    assert {node["id"]: node["kind"] for node in found["nodes"]} == {
        "processor:Clean": "processor",
        "processor:Price": "processor",
        "processor:Cities": "processor",
        "processor:Audit": "processor",
        "topic:orders": "topic",
        "topic:orders_by_city": "topic",
        "topic:Price_dead_letter_shop": "dead_letters",
    }
    arcs = {(arc["from"], arc["to"]): arc for arc in found["arcs"]}
    assert arcs.keys() == {
        ("topic:orders", "processor:Clean"),
        ("processor:Clean", "processor:Price"),
        ("processor:Clean", "processor:Audit"),
        ("processor:Price", "processor:Cities"),
        ("processor:Cities", "topic:orders_by_city"),
        ("processor:Audit", "topic:orders_by_city"),
        ("processor:Price", "topic:Price_dead_letter_shop"),
    }
    into_price = arcs["processor:Clean", "processor:Price"]
    assert (into_price["rate"], into_price["lag"]) == (960.0, 7600)
    assert (into_price["topic"], into_price["kind"]) == ("Clean_Price_shop", "records")
    out = arcs["processor:Audit", "topic:orders_by_city"]
    assert (out["rate"], out["lag"]) == (750.0, None)
    dead = arcs["processor:Price", "topic:Price_dead_letter_shop"]
    assert (dead["rate"], dead["dead_letters"]) == (None, 4 * 8)


def test_a_processor_shows_the_worst_state_of_its_tasks(now: Snapshot) -> None:
    states = {node["name"]: node.get("state") for node in view(now, "graph")["nodes"]}
    assert (states["Audit"], states["Cities"], states["Price"]) == (
        "FAILED",
        "RESTORING",
        "RUNNING",
    )


def test_event_time_of_a_processor_is_that_of_its_last_task_and_waits_say_who_holds_it() -> None:
    job, held = SampleJob(), [TaskId("Cities", number) for number in range(4)]
    times = {"event_time_ms": 5000, "newest_record_ms": 5000, "held_unread": 12}
    for task in held:
        status = TaskStatus(task, TaskState.RUNNING, figures=times)
        job.states[task] = replace(status, held_by=TaskId("Price", 2))
    first = {"event_time_ms": 65_000, "newest_record_ms": 65_000, "late": 4, "late_per_minute": 1}
    dropped, lately = {"expired": 4, "null key": 1}, {"expired": 1}
    for number, figures in enumerate([first, {**first, "event_time_ms": 64_000}]):
        task = TaskId("Price", number)
        status = TaskStatus(task, TaskState.RUNNING, figures=figures)
        job.states[task] = replace(status, dropped=dropped, dropped_lately=lately)
    failed = TaskId("Price", 2)
    job.states[failed] = TaskStatus(failed, TaskState.FAILED)
    now = job.run(2)
    found = view(now, "graph")
    nodes = {node["name"]: node for node in found["nodes"]}
    assert (nodes["Price"]["event_time_ms"], nodes["Price"]["event_time_lag_ms"]) == (64_000, 1000)
    assert (nodes["Price"]["late"], nodes["Price"]["late_per_minute"]) == (8, 2)
    assert (nodes["Price"]["dropped"], nodes["Audit"]["left_out"]) == (10, [])
    assert nodes["Price"]["left_out"] == [
        {"reason": "expired", "records": 8, "per_minute": 2},
        {"reason": "null key", "records": 2, "per_minute": 0},
    ]
    assert nodes["Cities"]["event_time_lag_ms"] == 60_000
    assert nodes["Audit"]["event_time_ms"] is nodes["Audit"]["event_time_lag_ms"] is None
    wait = {
        "processor": "Cities",
        "tasks": [str(task) for task in held],
        "is_whole": True,
        "event_time_ms": 5000,
        "holder": "Price_2",
        "holder_processor": "Price",
        "holder_state": "FAILED",
        "unread": 12,
    }
    assert found["waits"] == view(now, "processors/Cities")["waits"] == [wait]
    assert view(now, "processors/Price")["waits"] == []
    tasks = view(now, "processors/Cities")["tasks"]
    assert {task["event_time_lag_ms"] for task in tasks} == {60_000}


def test_keys_that_do_not_meet_others_are_listed_once_for_a_processor() -> None:
    job = SampleJob()
    of_bytes = KeyWarning("orders", KeyProblem.BYTES, "Joined", ("customers",), "json")
    moved = structs.replace(of_bytes, problem=KeyProblem.PARTITIONS, found="")
    for number, warnings in enumerate([(of_bytes,), (of_bytes, moved)]):
        task = TaskId("Price", number)
        job.states[task] = TaskStatus(task, TaskState.RUNNING, key_warnings=warnings)
    now = job.run(1)
    expected = [{**as_json(each), "text": each.text} for each in (of_bytes, moved)]
    nodes = {node["name"]: node for node in view(now, "graph")["nodes"]}
    assert (nodes["Price"]["key_warnings"], nodes["Audit"]["key_warnings"]) == (expected, [])
    assert view(now, "processors/Price")["figures"]["key_warnings"] == expected


def test_graph_of_a_job_without_a_pipeline_is_empty() -> None:
    job = SampleJob()
    job.tap.deployed = None
    found = view(job.run(1), "graph")
    assert (found["nodes"], found["arcs"], found["waits"]) == ([], [], [])


def test_a_processor_has_its_topics_and_tasks(now: Snapshot) -> None:
    found = view(now, "processors/Price")
    assert found["reads"] == ["Clean_Price_shop"]
    assert found["writes"] == ["Price_Cities_shop"]
    assert found["dead_letter_topic"] == "Price_dead_letter_shop"
    assert [task["id"] for task in found["tasks"]] == [f"Price_{n}" for n in range(4)]
    slow = found["tasks"][1]
    assert (slow["owner"], slow["thread"], slow["state"]) == (2, 1, "RUNNING")
    assert (slow["lag"], slow["rate_in"], slow["oldest_waiting_ms"]) == (7600, 190.0, 38_000)
    assert found["figures"]["rate_in"] == sum(task["rate_in"] for task in found["tasks"])


def test_tasks_are_on_their_task_managers_and_threads(now: Snapshot) -> None:
    found = view(now, "tasks")
    places = {
        task["id"]: (manager["id"], thread["number"])
        for manager in found["task_managers"]
        for thread in manager["threads"]
        for task in thread["tasks"]
    }
    assert len(places) == 16
    assert places["Price_1"] == (2, 1)
    assert [(task["id"], task["reason"]) for task in found["failures"]] == [
        ("Audit_3", "no number")
    ]
    assert found["without_owner"] == []


def test_tasks_of_a_silent_task_manager_are_not_reported() -> None:
    job = SampleJob()
    job.run(5)
    job.fall_silent(0)
    found = view(job.run(4), "tasks")["task_managers"][0]
    assert (found["state"], found["threads"]) == ("DOWN", [])
    assert {task["state"] for task in found["not_reported"]} == {"NOT_REPORTED"}
    moved = view(job.run(3), "tasks")["task_managers"]
    assert moved[0]["not_reported"] == []
    assert sum(len(thread["tasks"]) for thread in moved[1]["threads"]) == 11


def test_lag_is_that_of_a_task_with_the_partitions_that_it_reads(now: Snapshot) -> None:
    found = {task["id"]: task for task in view(now, "lag")["tasks"]}
    assert found["Clean_3"]["partitions"] == ["orders[3]"]
    assert found["Clean_3"]["trend"] == "done"
    slow, fast = found["Price_1"], found["Cities_2"]
    assert (slow["lag"], slow["change_per_s"], slow["trend"]) == (7600, 60.0, "growing")
    assert (fast["lag"], fast["change_per_s"], fast["trend"]) == (14_600, -90.0, "shrinking")
    assert fast["eta_s"] == round(14_600 / 90)
    assert found["Audit_3"]["trend"] == "unknown"


@pytest.mark.parametrize(
    ("lag", "change", "trend", "eta_s"),
    [
        (0, 5.0, "done", None),
        (None, 5.0, "unknown", None),
        (100, None, "unknown", None),
        (100, 0.0, "steady", None),
        (1_000_000, 100.0, "steady", None),
        (1_000_000, -100.0, "steady", None),
        (1_000_000, 200.0, "growing", None),
        (1_000_000, -200.0, "shrinking", 5000),
        (3, -1.0, "shrinking", 3),
    ],
)
def test_forecast(lag: int | None, change: float | None, trend: str, eta_s: int | None) -> None:
    found = forecast(lag, change)
    assert (found["trend"], found["eta_s"], found["change_per_s"]) == (trend, eta_s, change)


def test_transactions_have_their_rate_and_the_time_of_the_last_one(now: Snapshot) -> None:
    tasks = {task["id"]: task for task in view(now, "transactions")["tasks"]}
    price = tasks["Price_0"]
    assert (price["transactions"], price["per_s"], price["restarts"]) == (480, 8, 0)
    assert (price["records_per_transaction"], price["last_commit_age_ms"]) == (30, 0)
    failed = tasks[str(FAILED)]
    assert (failed["transactions"], failed["records_per_transaction"]) == (0, None)
    assert (failed["last_commit_age_ms"], failed["reason"]) == (None, "no number")


def test_the_last_commit_of_a_task_without_records_gets_older() -> None:
    job = SampleJob()
    job.run(5)
    resting = TaskId("Audit", 0)
    job.states = {resting: job.status(resting)}
    tasks = {task["id"]: task for task in view(job.run(7), "transactions")["tasks"]}
    assert tasks[str(resting)]["last_commit_age_ms"] == 7000
    assert tasks["Audit_1"]["last_commit_age_ms"] == 0


def test_topics_are_of_a_kind(now: Snapshot) -> None:
    found = {each["name"]: each["kind"] for each in view(now, "topics")["topics"]}
    assert found["orders"] == "source"
    assert found["orders_by_city"] == "sink"
    assert found["Price_dead_letter_shop"] == "dead letters"
    assert sorted(found.values()).count("arc") == 3
    assert sorted(found.values()).count("state") == 1


def test_moves_have_restores_starts_and_the_latest_moves(now: Snapshot) -> None:
    found = view(now, "moves")
    (restore,) = found["restoring"]
    assert (restore["id"], restore["percent"], restore["eta_s"]) == ("Cities_1", 25, 9)
    assert found["starting"] == []
    assert found["standbys"] == []
    assert len(found["moves"]) == 3


def test_a_standby_is_shown_with_the_task_that_it_copies() -> None:
    copy = TaskId("Cities", 0, 1)
    job = SampleJob()
    job.tasks.append(copy)
    job.states[copy] = TaskStatus(copy, TaskState.STANDBY, figures={"records_in": 30, "lag": 4})
    (found,) = view(job.run(2), "moves")["standbys"]
    assert (found["id"], found["of"], found["state"]) == (
        "Cities_0.standby1",
        "Cities_0",
        "STANDBY",
    )
    assert (found["state_records"], found["lag"]) == (30, 4)


def test_rates_over_time_have_a_point_every_five_seconds() -> None:
    found = view(SampleJob().run(21), "rates")
    times = found["times_ms"]
    assert [later - earlier for earlier, later in pairwise(times)] == [5000] * 4
    assert found["processors"]["Price"]["rate_in"] == [None, 960.0, 960.0, 960.0, 960.0]
    assert found["processors"]["Price"]["lag"] == [4060, 4360, 4660, 4960, 5260]


def test_a_large_job_has_small_views() -> None:
    job = SampleJob(config(parallelism=25), many_processors(20))
    now = job.run(10)
    assert len(now.status.tasks) == 500
    assert max(len(encode(now, name) or b"") for name in VIEWS) < 200_000


@pytest.mark.parametrize("name", [*VIEWS, "processors/ID"])
def test_each_view_is_in_the_reference(name: str) -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "console.md"
    assert f"| `/api/{name}` |" in page.read_text(encoding="utf-8")
