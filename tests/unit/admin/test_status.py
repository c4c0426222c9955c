"""`pipeline status`, computed from heartbeats."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from kafka_pipeline.admin import status
from kafka_pipeline.admin.broker.ports import find_free
from kafka_pipeline.admin.commands.status import status as show_status
from kafka_pipeline.admin.remarks import remarks
from kafka_pipeline.admin.samples import samples
from kafka_pipeline.common.cluster.cluster_status import Beat, ClusterStatus, Presence, newest
from kafka_pipeline.common.cluster.figures import by_processor
from kafka_pipeline.common.protocol.key_warnings import KeyProblem, KeyWarning
from kafka_pipeline.common.protocol.messages import JobManagerBeat
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus, ThreadState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.typed_json import as_json
from kafka_pipeline.deployment.desired_state import StopOrder, Wish
from tests.in_process import invoke
from tests.unit.admin.beats import (
    COUNT,
    FORWARD,
    NOW_MS,
    leader,
    look,
    report,
    rows,
    running,
    text,
)

RESTORING = TaskStatus(
    COUNT,
    TaskState.RESTORING,
    figures={"restored": 1, "to_restore": 4, "restore_eta_s": 12},
)


# --- who is there ---


def test_without_a_heartbeat_nobody_is_there() -> None:
    found = look()
    assert found.job_manager.presence is Presence.ABSENT
    assert [info.presence for info in found.task_managers] == [Presence.ABSENT, Presence.ABSENT]
    assert found.tasks == ()
    assert not found.all_run


@pytest.mark.parametrize(
    ("age_ms", "presence"), [(0, Presence.UP), (3000, Presence.UP), (3001, Presence.DOWN)]
)
def test_whoever_is_silent_for_longer_than_three_intervals_is_down(
    age_ms: int, presence: Presence
) -> None:
    found = look(leader({}, age_ms), report(0, age_ms=age_ms), tm_number=1)
    assert found.job_manager.presence is presence
    assert (found.job_manager.epoch, found.job_manager.age_ms) == (7, age_ms)
    assert found.task_managers[0].presence is presence
    assert found.task_managers[0].age_ms == age_ms


def test_a_sender_whose_clock_is_ahead_has_the_age_zero() -> None:
    found = look(leader({}, age_ms=-500), report(0, age_ms=-500))
    assert found.job_manager.age_ms == found.task_managers[0].age_ms == 0


def test_the_last_report_of_a_task_manager_counts() -> None:
    found = look(report(0, age_ms=900), report(0, running(COUNT), age_ms=100, leaving=True))
    assert found.task_managers[0].presence is Presence.LEFT
    assert found.task_managers[0].host == "host0"
    assert found.task_managers[0].threads == (ThreadState.RUNNING, ThreadState.DEAD)


def test_a_second_process_with_the_id_of_one_that_takes_part_is_not_shown() -> None:
    works = report(0, running(COUNT), age_ms=500, incarnation="a", sequence=3)
    refused = report(0, age_ms=100, incarnation="b", sequence=0)
    for beats in ((works, refused), (refused, works)):
        found = look(leader({COUNT: 0}), *beats)
        assert found.tasks[0].status is not None


def test_a_new_process_replaces_one_that_is_down() -> None:
    dead = report(0, running(COUNT), age_ms=4000, incarnation="a", sequence=3)
    new = report(0, age_ms=100, incarnation="b", sequence=0)
    assert look(dead, new).task_managers[0].presence is Presence.UP


def test_different_versions_of_the_engine_are_named_with_who_runs_them() -> None:
    """Earlier versions do not report theirs, and a TaskManager that is down runs none."""
    down = report(2, age_ms=4000, engine="0.3.0")
    found = look(leader({}), report(0, engine="0.2.0"), report(1), down, tm_number=3)
    line = "different versions of the engine (an earlier version: JobManager, TaskManager 1; "
    assert f"{line}0.2.0: TaskManager 0)" in text(found)
    assert "different versions" not in text(look(leader({}), report(0), report(1), down))


def test_heartbeats_of_an_incompatible_version_are_reported() -> None:
    found = replace(look(leader({})), other_protocol="protocol 7, and this one reads 6")
    assert "Heartbeats are rejected: protocol 7, and this one reads 6" in text(found)
    assert found.to_json()["other_protocol"] == "protocol 7, and this one reads 6"


def test_a_task_manager_beyond_the_configured_number_is_shown_too() -> None:
    assert [info.id for info in look(report(5)).task_managers] == [0, 1, 5]


def test_only_the_last_beat_of_each_process_is_kept() -> None:
    first, second, other = report(0, age_ms=900), report(0), report(1)
    assert newest([first, other, second, leader({}, 50), leader({}, 40)]) == [
        second,
        other,
        leader({}, 40),
    ]


# --- tasks ---


def test_a_task_is_shown_with_the_figures_of_its_owner() -> None:
    mine = running(COUNT, records_in=5, records_out=4, lag=3)
    stale = running(COUNT, records_in=1)
    found = look(leader({FORWARD: 1, COUNT: 0}), report(0, mine), report(1, stale))
    assert [(info.task, info.owner, info.status) for info in found.tasks] == [
        (FORWARD, 1, None),
        (COUNT, 0, mine),
    ]
    assert found.tasks[0].reason == "assigned, not started yet"
    assert not found.all_run


def test_all_run_when_every_task_runs_at_its_owner() -> None:
    found = look(
        leader({FORWARD: 1, COUNT: 0}), report(0, running(COUNT)), report(1, running(FORWARD))
    )
    assert found.all_run
    assert found.without_owner == ()


def test_a_task_of_a_task_manager_that_is_down_has_no_figures() -> None:
    found = look(leader({COUNT: 0}), report(0, running(COUNT), age_ms=5000))
    assert (found.tasks[0].owner, found.tasks[0].status) == (0, None)
    assert found.tasks[0].reason == "its TaskManager is not there"


def test_a_task_without_an_owner_is_listed_as_such() -> None:
    found = look(leader({FORWARD: None, COUNT: 0}), report(0, running(COUNT)))
    assert found.without_owner == (FORWARD,)
    assert not found.all_run


def test_without_a_job_manager_the_owner_is_who_runs_the_task() -> None:
    moved = look(leader({FORWARD: 0, COUNT: 0}, age_ms=9000), report(1, running(COUNT)))
    assert [(info.task, info.owner) for info in moved.tasks] == [(FORWARD, None), (COUNT, 1)]
    never_seen = look(report(1, running(COUNT)))
    assert [(info.task, info.owner) for info in never_seen.tasks] == [(COUNT, 1)]


@pytest.mark.parametrize(
    ("state", "restored", "to_restore", "percent"),
    [
        (TaskState.RESTORING, 1, 3, 33),
        (TaskState.RESTORING, 0, 0, None),
        (TaskState.RUNNING, 3, 3, None),
    ],
)
def test_the_restore_percentage_is_that_of_a_task_that_restores(
    state: TaskState, restored: int, to_restore: int, percent: int | None
) -> None:
    task = TaskStatus(COUNT, state, figures={"restored": restored, "to_restore": to_restore})
    assert look(leader({COUNT: 0}), report(0, task)).tasks[0].restore_percent == percent


# --- what is printed ---


def test_the_tables_show_daemons_and_tasks() -> None:
    failed = TaskStatus(
        FORWARD, TaskState.FAILED, "record [red]src[/red][0]@12", 1, figures={"records_in": 1200}
    )
    shown = rows(look(leader({FORWARD: 0, COUNT: 0}), report(0, failed, RESTORING)))
    for row in (
        "JobManager: epoch 7, last heartbeat 0.1 s ago",
        "0 UP host0 100 1 RUNNING, 1 DEAD 0.2 s ago",
        "1 ABSENT",
        "Forward_0 0 1 FAILED 1,200 0 0 0 ?",
        "Forward_0: record [red]src[/red][0]@12",
        "Count_0 0 0 RESTORING 25%, 12 s left 0 0 0 0 ?",
    ):
        assert row in shown


LARGE = {"records_in": 12_345_678, "records_out": 87_654_321, "lag": 23_456_789}
LONG_NAME = TaskId("JoinFlightsWithAirports", 12)


def large_figures(reason: str = "") -> ClusterStatus:
    copy = COUNT.copy(1)
    applied = {"records_in": 34_567_890, "lag": 45_678_901}
    follows = TaskStatus(copy, TaskState.STANDBY, figures=applied)
    counting = running(COUNT, dead_letters=56_789, skipped=67_890, **LARGE)
    return look(
        leader({COUNT: 0, LONG_NAME: 1, copy: 1}),
        report(0, replace(counting, thread=5)),
        report(1, replace(running(LONG_NAME, **LARGE), reason=reason), follows),
    )


@pytest.mark.parametrize("width", [40, 60, 80, 100])
@pytest.mark.parametrize("reason", ["", "record flights[0]@12 is not what it should be"])
def test_no_figure_and_no_state_is_cut(width: int, reason: str) -> None:
    shown = [line.split() for line in text(large_figures(reason), width).splitlines()]
    figures = ["12,345,678", "87,654,321", "56,789", "67,890", "23,456,789"]
    (found,) = [words for words in shown if "56,789" in words]
    assert found[1:9] == ["0", "5", "RUNNING", *figures]
    (found,) = [words for words in shown if "34,567,890" in words]
    assert found[1:6] == ["1", "0", "STANDBY", "34,567,890", "45,678,901"]


def test_a_state_breaks_between_words() -> None:
    found = look(
        leader({COUNT: 0, LONG_NAME: 1}),
        report(0, RESTORING),
        report(1, running(LONG_NAME, **LARGE)),
    )
    words = text(found, 80).split()
    assert {"RESTORING", "25%,", "12", "s", "left", "RUNNING"} < {*words}


def test_large_figures_fit_a_terminal_of_80_columns() -> None:
    assert max(map(len, text(large_figures(), 80).splitlines())) == 80


def test_a_long_name_is_folded_and_complete() -> None:
    shown = text(large_figures(), 80).splitlines()
    start = next(i for i, line in enumerate(shown) if line.startswith("JoinF"))
    end = next(i for i, line in enumerate(shown) if line.startswith("Standbys"))
    words = [line.split() for line in shown[start:end] if line.strip()]
    assert "".join(line[0] for line in words) == str(LONG_NAME)


@pytest.mark.parametrize("width", [40, 80])
def test_a_reason_is_below_the_tables_and_complete(width: int) -> None:
    reason = "record flights[0]@12: the value is not an integer, nor anything like it"
    shown = " ".join(text(large_figures(reason), width).split())
    assert shown.endswith(f"{LONG_NAME}: {reason}")


def test_tasks_with_the_same_reason_share_a_line() -> None:
    ids = [TaskId("P", number) for number in range(1007)]
    broken = [TaskStatus(task, TaskState.RESTARTING, "KeyError: 'x'") for task in ids]
    shown = rows(look(leader(dict.fromkeys(ids, 0)), report(0, *broken)))
    assert shown[-1] == "P_0, P_1, P_2, P_3, P_4 and 1,002 more: KeyError: 'x'"


def cells_of(task: TaskStatus, width: int = 200) -> str:
    """Return the row of a task, as words."""
    lines = text(look(leader({COUNT: 0}), report(0, task)), width).splitlines()
    return next(" ".join(line.split()) for line in lines if line.startswith("Count_0"))


@pytest.mark.parametrize(
    ("age_ms", "shown"),
    [
        (0, "0.0 s"),
        (9_999, "10.0 s"),
        (10_000, "10 s"),
        (119_999, "119 s"),
        (120_000, "2 min"),
        (7_199_999, "119 min"),
        (7_200_000, "2 h"),
        (172_799_999, "47 h"),
        (172_800_000, "2 d"),
        (100_000_000_000, "1,157 d"),
    ],
)
def test_the_age_of_the_oldest_record_that_waits_is_behind_the_lag(age_ms: int, shown: str) -> None:
    """Records of 1970 are old."""
    row = cells_of(running(COUNT, lag=5000, oldest_waiting_ms=age_ms))
    assert row == f"Count_0 0 0 RUNNING 0 0 0 0 5,000 {shown}"


def test_the_column_of_ages_is_there_if_something_waits() -> None:
    assert "oldest" not in text(look(leader({COUNT: 0}), report(0, running(COUNT, lag=0))))


def test_dead_letters_of_the_last_minute_are_behind_their_total() -> None:
    row = cells_of(running(COUNT, dead_letters=1_200, dead_letters_per_minute=3, lag=0))
    assert row == "Count_0 0 0 RUNNING 0 0 1,200 (+3/min) 0 0"


def test_a_lag_that_is_old_says_how_old() -> None:
    assert cells_of(running(COUNT, lag=5000, lag_age_ms=75_300)).endswith("5,000 (75 s ago)")
    standby = TaskStatus(COUNT.copy(1), TaskState.STANDBY, figures={"lag": 7, "lag_age_ms": 4000})
    assert "7 (4.0 s ago)" in text(look(leader({standby.task: 0}), report(0, standby)))


def test_what_a_task_is_busy_with_is_shown() -> None:
    activity = "in `process` of orders[3]@1200 for 12 s"
    busy = replace(running(COUNT), activity=activity)
    assert rows(look(leader({COUNT: 0}), report(0, busy)))[-1] == f"Count_0: {activity}"
    both = rows(look(leader({COUNT: 0}), report(0, replace(busy, reason="why"))))
    assert both[-2:] == ["Count_0: why", f"Count_0: {activity}"]


@pytest.mark.parametrize("held", [{"held": {"Forward"}}, {"held_tasks": {FORWARD}}])
def test_tasks_that_are_held_are_missing_on_purpose(held: Any) -> None:
    beat = JobManagerBeat(7, NOW_MS, {FORWARD: None, COUNT: 0}, **held)
    found = look(Beat(NOW_MS, beat), report(0, running(COUNT)))
    assert found.without_owner == ()
    assert "Forward_0 HELD ?" in rows(found)
    assert not any("No TaskManager" in line for line in rows(found))
    assert found.to_json()["tasks"][0]["state"] == "HELD"


def test_a_task_is_not_held_while_a_task_manager_that_is_up_reports_it() -> None:
    beat = JobManagerBeat(7, NOW_MS, {FORWARD: None}, held=frozenset({"Forward"}))
    ignores = report(1, running(FORWARD))
    found = look(Beat(NOW_MS, beat), ignores)
    (task,) = found.tasks
    assert (task.owner, task.is_held, task.is_overdue) == (1, False, True)
    assert "Forward_0: TaskManager 1 still runs it, although it should be HELD" in text(found)
    assert found.without_owner == ()
    (task,) = look(Beat(NOW_MS, beat), replace(ignores, sent_at_ms=0)).tasks
    assert (task.owner, task.is_held, task.is_overdue) == (None, True, False)


@pytest.mark.parametrize("stopped", [True, False])
def test_a_job_that_is_held_says_which_command_has_stopped_it(
    stopped: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    beat = JobManagerBeat(7, NOW_MS, {FORWARD: None}, held=frozenset({"Forward"}))
    stop = StopOrder(purpose="restore", token="t", by="ada@vm") if stopped else None
    deployment = SimpleNamespace(wish=Wish(version=1, stop=stop))
    module = "kafka_pipeline.admin.commands.status"
    monkeypatch.setattr(f"{module}.read_status", lambda _config: look(Beat(NOW_MS, beat)))
    monkeypatch.setattr(f"{module}.connected", lambda _config: None)
    monkeypatch.setattr(f"{module}.read_deployment", lambda *_: deployment)
    show_status(Path(__file__).parents[3] / "config.yaml")
    said = "ada@vm is restoring the state of this job, or was interrupted"
    assert (said in capsys.readouterr().out) == stopped


def test_without_a_terminal_watch_shows_the_status_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It printed nothing, until Ctrl-C."""
    module = "kafka_pipeline.admin.commands.status"
    monkeypatch.setattr(f"{module}.read_status", lambda _config: look(leader({COUNT: 0})))
    show_status(Path(__file__).parents[3] / "config.yaml", watch=True)
    assert "Count_0" in capsys.readouterr().out


def test_a_task_that_starts_again_is_shown_with_its_reason() -> None:
    again = TaskStatus(COUNT, TaskState.RESTARTING, "ValueError: no", figures={"restarts": 7})
    found = look(leader({COUNT: 0}), report(0, again))
    assert not found.all_run
    assert cells_of(again) == "Count_0 0 0 RESTARTING 0 0 0 0 7 ?"
    assert rows(found)[-1] == "Count_0: ValueError: no"
    assert json.loads(status.as_json(found))["tasks"][0]["restarts"] == 7


def test_findings_of_the_job_manager_are_shown() -> None:
    found = look(leader({COUNT: 0}))
    manager = replace(found.job_manager, findings=("clicks has 3 partitions\x1b[2J",))
    shown = text(replace(found, job_manager=manager))
    assert "clicks has 3 partitions" in shown
    assert "\x1b" not in shown


def test_a_table_without_rows_has_its_headers() -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(status.tasks_table(look()))
    assert {"task", "owner", "lag"} < {*capture.get().split()}


def test_a_narrow_terminal_breaks_the_lines_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    found = large_figures()
    monkeypatch.setattr("kafka_pipeline.admin.commands.status.read_status", lambda _config: found)

    show_status(Path(__file__).parents[3] / "config.yaml")

    assert "23,456,789" in Text.from_ansi(terminal.getvalue()).plain.split()


def test_the_threads_of_a_task_manager_that_is_not_there_are_not_shown() -> None:
    assert "0 DOWN host0 100 5.0 s ago" in rows(look(report(0, age_ms=5000)))


def test_missing_job_manager_and_owners_are_said() -> None:
    assert "no JobManager" in rows(look())
    silent = text(look(leader({COUNT: None}, age_ms=5000)))
    assert "no JobManager: the last one, of epoch 7, fell silent 5.0 s ago." in silent
    assert "No TaskManager runs Count_0" in silent


@pytest.mark.parametrize("age_ms", [100, 5000])
def test_stopped_job_manager_is_said_to_have_been_stopped(age_ms: int) -> None:
    found = look(leader({COUNT: 0}, age_ms + 100), leader({COUNT: 0}, age_ms, leaving=True))
    assert found.job_manager.presence is Presence.LEFT
    assert found.to_json()["job_manager"]["state"] == "LEFT"
    assert f"the last one, of epoch 7, was stopped {age_ms / 1000:.1f} s ago." in text(found)


def test_task_of_a_stopped_job_manager_goes_on_where_it_is_reported() -> None:
    found = look(leader({COUNT: 0}, leaving=True), report(0, running(COUNT)))
    assert found.tasks[0].owner == 0
    assert found.all_run
    assert look(leader({COUNT: 0}, leaving=True)).without_owner == (COUNT,)


def test_successor_of_a_stopped_job_manager_is_shown_even_if_it_began_before_the_end() -> None:
    stopped, leads = leader({}, 50, epoch=7, leaving=True), leader({}, 100, epoch=8)
    for beats in ((stopped, leads), (leads, stopped)):
        assert look(*beats).job_manager.presence is Presence.UP


def test_the_json_has_every_key_whatever_the_state() -> None:
    counting = replace(
        running(COUNT, lag=2, oldest_waiting_ms=1500),
        activity="in `process` of orders[3]@1200 for 12 s",
        dropped={"expired": 3, "partitioner": 2},
        rejected={"builtins.KeyError": 4},
    )
    full = look(leader({FORWARD: None, COUNT: 0}), report(0, counting))
    data = json.loads(status.as_json(full))
    up = {"state": "UP", "epoch": 7, "age_ms": 100}
    assert data["job_manager"] == {**up, "findings": [], "unread": {}, "engine": ""}
    assert data["task_managers"][0] == {
        "id": 0,
        "state": "UP",
        "host": "host0",
        "pid": 100,
        "threads": ["RUNNING", "DEAD"],
        "age_ms": 200,
        "code": {},
        "state_address": "",
        "engine": "",
    }
    assert data["tasks"][1] == {
        "id": "Count_0",
        "owner": 0,
        "thread": 0,
        "state": "RUNNING",
        "reason": "",
        "activity": "in `process` of orders[3]@1200 for 12 s",
        "records_in": 0,
        "records_out": 0,
        "dead_letters": 0,
        "dead_letters_per_minute": 0,
        "skipped": 0,
        "transactions": 0,
        "restarts": 0,
        "lag": 2,
        "lag_age_ms": None,
        "oldest_waiting_ms": 1500,
        "dropped": 5,
        "dropped_by_reason": {"expired": 3, "partitioner": 2},
        "rejected_by_error": {"builtins.KeyError": 4},
        "enforced": 0,
        "enforced_per_minute": 0,
        "restored": 0,
        "to_restore": 0,
        "restore_percent": None,
        "restore_eta_s": None,
        "fetched_bytes": 0,
        "sent_bytes": 0,
        "state_bytes": None,
        "event_time_ms": None,
        "event_time_lag_ms": None,
        "newest_record_ms": None,
        "is_idle": 0,
        "held_by": None,
        "key_warnings": [],
        "held_unread": None,
        "late": 0,
        "late_per_minute": 0,
        "dropped_per_minute_by_reason": {},
    }
    assert data["tasks"][0].keys() == data["tasks"][1].keys()
    assert data["task_managers"][1].keys() == data["task_managers"][0].keys()
    assert data["tasks_without_owner"] == ["Forward_0"]


def test_keys_that_do_not_meet_others_are_told_once_for_a_processor() -> None:
    warning = KeyWarning("orders", KeyProblem.BYTES, "Joined", ("customers",), "json")
    tasks = [replace(running(TaskId("P", n)), key_warnings=(warning,)) for n in range(3)]
    found = look(leader({task.task: 0 for task in tasks}), report(0, *tasks))
    (line,) = map(str, remarks(found, by_processor(found)))
    assert line == f"P: {warning.text}"
    assert "P: orders has keys with other bytes" in text(found)
    data = json.loads(status.as_json(found))
    assert data["tasks"][0]["key_warnings"] == [as_json(warning)]


def test_copies_of_state_are_told_apart_from_tasks() -> None:
    copy = COUNT.copy(1)
    follows = TaskStatus(copy, TaskState.STANDBY, figures={"records_in": 1234, "lag": 5})
    found = look(leader({COUNT: 0, copy: 1}), report(0, running(COUNT)), report(1, follows))
    assert found.all_run
    assert [(info.task, info.owner) for info in found.tasks] == [(COUNT, 0)]
    assert [(info.task, info.owner) for info in found.standbys] == [(copy, 1)]
    shown = text(found)
    assert "Count_0.standby1" in shown
    assert "STANDBY" in shown
    assert "1,234" in shown
    data = json.loads(status.as_json(found))
    assert [entry["id"] for entry in data["standbys"]] == ["Count_0.standby1"]


def test_tasks_run_though_a_copy_is_not_there_yet() -> None:
    copy = COUNT.copy(1)
    assert look(leader({COUNT: 0, copy: 1}), report(0, running(COUNT)), report(1)).all_run


# --- from the topic ---


def test_without_a_broker_the_command_exits_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    (port,) = find_free(1)
    path.write_text(samples()["config.yaml"].replace("9092", str(port)))
    monkeypatch.setattr("kafka_pipeline.operations.cluster_watcher.COMMAND_TIMEOUT_S", 0.5)
    result = invoke("status", path)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "no Kafka broker answers at 127.0.0.1:" in result.stderr
