"""What a stop of a job waits for, and what it does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    StopOrder,
    Wish,
    records,
)
from kafka_pipeline.operations.savepoints import job_stop
from kafka_pipeline.operations.savepoints.job_stop import JobStop
from tests.unit.admin.beats import COUNT, INTERVAL_MS, leader, look, report, running
from tests.unit.streams.pipeline.loading import CONFIG, load

STOP = StopOrder(purpose="restore", token="t", by="ada")
NO_JOB_MANAGER = "TaskManagers are up, and no JobManager"


def wait(
    monkeypatch: pytest.MonkeyPatch, status: ClusterStatus, *, misses_tasks: bool = False
) -> None:
    """Wait for a stop of a job that stays as it is, and give up at once."""
    watcher = SimpleNamespace(
        status=lambda: status,
        misses_tasks=misses_tasks,
        read=lambda _s: None,
        read_until_fresh=lambda: None,
        close=lambda: None,
    )
    reader = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(job_stop, "ClusterWatcher", lambda _config: watcher)
    monkeypatch.setattr(job_stop, "DeploymentReader", lambda *_: reader)
    config: Any = SimpleNamespace(heartbeat_interval_ms=INTERVAL_MS)
    admin: Any = None
    JobStop(config, admin, STOP).wait(-1, lambda _line: None)


def test_a_task_manager_of_a_new_job_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no tasks, and nobody is there to give it any."""
    wait(monkeypatch, look(report(0), tm_number=1))


def test_nor_is_one_whose_job_manager_is_long_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = leader({COUNT: 0}, age_ms=4 * INTERVAL_MS, leaving=True)
    wait(monkeypatch, look(gone, report(0), tm_number=1))


def test_tasks_of_a_task_manager_without_a_job_manager_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UnavailableError, match=NO_JOB_MANAGER):
        wait(monkeypatch, look(report(0, running(COUNT)), tm_number=1))


def test_a_task_manager_whose_tasks_are_not_known_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UnavailableError, match=NO_JOB_MANAGER):
        wait(monkeypatch, look(report(0), tm_number=1), misses_tasks=True)


def test_a_job_manager_that_has_left_just_now_may_have_given_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UnavailableError, match=NO_JOB_MANAGER):
        wait(monkeypatch, look(leader({COUNT: 0}, leaving=True), report(0), tm_number=1))


def test_a_job_manager_must_have_taken_all_tasks_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnavailableError, match="1 task to stop"):
        wait(monkeypatch, look(leader({COUNT: 0}), report(0), tm_number=1))
    with pytest.raises(UnavailableError, match="0 tasks to stop"):
        wait(monkeypatch, look(leader({}), report(0), tm_number=1))


def test_nothing_is_waited_for_if_no_daemon_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    wait(monkeypatch, look())


def test_what_is_paused_stays_paused_under_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    before = "- {id: A, type: forward, to: [B, C]}\n- {id: B, type: count, to: [sink]}\n"
    before += "- {id: C, type: count, to: [sink]}"
    after = before.replace("id: B", "id: Sum, was: B").replace("[B", "[Sum")
    deployment = Deployment(CONFIG.topic_names)
    wish = Wish(version=1, paused=("B", "C"), paused_tasks=("A_0", "B_1"))
    for record in records(CONFIG.topic_names, wish, PipelineVersion(1, load(before), "", 1, "me")):
        deployment.take(record)
    written: list[Wish] = []
    editor = SimpleNamespace(
        deployment=deployment,
        write=lambda wish, *_: written.append(wish),
        close=lambda: None,
    )
    monkeypatch.setattr(job_stop, "DeploymentEditor", lambda *_: editor)
    admin: Any = None
    version = PipelineVersion(2, load(after), "", 2, "me")
    JobStop.of_restore(CONFIG, admin, "t", version, None)
    assert [(each.version, each.paused, each.paused_tasks) for each in written] == [
        (2, ("C", "Sum"), ("A_0", "Sum_1"))
    ]
