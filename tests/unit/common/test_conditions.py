"""What is missing until a job runs, is drained, is held or is stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.cluster.conditions import Condition, failures, missing
from kafka_pipeline.common.protocol.messages import JobManagerBeat
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from tests.unit.admin.beats import COUNT, FORWARD, NOW_MS, leader, look, report, running

COUNT_1 = TaskId("Count", 1)


def lacks(status: ClusterStatus, condition: str, tm_number: int = 1) -> list[str]:
    return missing(status, Condition(condition), tm_number)


def one(*tasks: TaskStatus) -> ClusterStatus:
    """Return a job of one TaskManager that has these tasks."""
    return look(leader({each.task: 0 for each in tasks}), report(0, *tasks), tm_number=1)


def held(status: ClusterStatus, *tasks: TaskId) -> ClusterStatus:
    changed = [
        replace(info, owner=None, status=None, is_held=True) if info.task in tasks else info
        for info in status.tasks
    ]
    return replace(status, tasks=tuple(changed))


DONE = one(running(FORWARD, lag=0), running(COUNT, lag=0))


def test_a_job_whose_tasks_all_run_lacks_nothing() -> None:
    assert lacks(DONE, "running") == lacks(DONE, "drained") == []


def test_tasks_that_do_not_run_are_named_with_their_states() -> None:
    restoring = TaskStatus(COUNT, TaskState.RESTORING, figures={"restored": 1, "to_restore": 4})
    beats = leader({COUNT: 0, COUNT_1: None, FORWARD: 0}), report(0, restoring, running(FORWARD))
    wanted = "Count: 0 of 2 tasks run: Count_0 RESTORING 25 %, Count_1 (no TaskManager runs it)"
    assert lacks(look(*beats, tm_number=1), "running") == [wanted]


@pytest.mark.parametrize("condition", ["running", "drained"])
def test_all_task_managers_of_the_job_must_be_up(condition: str) -> None:
    found = look(leader({COUNT: 0}), report(0, running(COUNT, lag=0)), report(1, leaving=True))
    assert lacks(found, condition, tm_number=1) == []
    wanted = ["TaskManager 1 is LEFT"]
    assert lacks(found, condition, tm_number=2) == wanted


def test_without_a_job_manager_nothing_is_sure_to_run_or_to_be_held() -> None:
    found = look(leader({COUNT: 0}, leaving=True), report(0, running(COUNT)), tm_number=1)
    assert lacks(found, "running") == ["the JobManager is LEFT"]
    assert lacks(found, "held") == ["the JobManager is LEFT", "1 task to stop: Count_0 RUNNING"]


def test_paused_tasks_do_not_keep_a_job_from_running_unless_all_are() -> None:
    assert lacks(held(DONE, COUNT), "running") == []
    assert lacks(held(DONE, COUNT, FORWARD), "running") == ["all tasks are HELD"]


def test_what_is_unread_is_named_by_task() -> None:
    found = one(
        running(COUNT, lag=1200), running(COUNT_1), running(FORWARD, lag=3, lag_age_ms=4000)
    )
    assert lacks(found, "drained") == [
        "Count has ? unread: Count_0 1,200, Count_1 ?",
        "Forward has 3 unread: Forward_0 3 (4 s ago)",
    ]


def test_a_lag_of_zero_that_is_old_does_not_count() -> None:
    assert lacks(one(running(COUNT, lag=0, lag_age_ms=9000)), "drained") == [
        "Count has 0 unread: Count_0 0 (9 s ago)"
    ]


def test_partitions_that_no_task_reads_keep_a_job_from_being_drained() -> None:
    beat = JobManagerBeat(7, NOW_MS, {COUNT: 0}, unread={"Count": 7})
    found = look(replace(leader({}), content=beat), report(0, running(COUNT, lag=0)), tm_number=1)
    assert lacks(found, "drained") == ["Count has 7 unread: 7 in partitions that no task reads"]


def test_what_waits_for_paused_tasks_is_not_known() -> None:
    assert lacks(held(DONE, COUNT), "drained") == ["what waits for Count_0 is not known: HELD"]


def test_tasks_that_are_still_reported_are_not_held() -> None:
    assert lacks(held(DONE, COUNT), "held") == ["1 task to stop: Forward_0 RUNNING"]
    assert lacks(held(DONE, COUNT, FORWARD), "held") == []


def test_daemons_that_are_up_keep_a_job_from_being_stopped() -> None:
    assert lacks(DONE, "stopped") == ["the JobManager is UP", "TaskManager 0 is UP"]
    assert lacks(look(), "stopped") == []
    assert lacks(look(leader({}, leaving=True), report(0, age_ms=9000)), "stopped") == []


def test_a_job_without_tasks_neither_runs_nor_is_held() -> None:
    for condition in ("running", "drained", "held"):
        assert lacks(look(leader({}), report(0), tm_number=1), condition) == [
            "the job has no tasks"
        ]


def test_a_failed_task_is_named_with_its_reason() -> None:
    failed = TaskStatus(COUNT, TaskState.FAILED, "the offsets are gone")
    assert failures(one(failed, running(FORWARD))) == ["Count_0 is FAILED: the offsets are gone"]
