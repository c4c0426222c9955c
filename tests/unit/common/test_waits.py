"""Who waits for whom in event time, and how far several tasks are together."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.cluster.cluster_status import (
    ClusterStatus,
    JobManagerInfo,
    Presence,
    TaskInfo,
)
from kafka_pipeline.common.cluster.waits import Wait, lag_together, time_together, waits
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus, newest_record_ms
from kafka_pipeline.common.tasks import TaskId

HOLDER = TaskId("Payments", 2)


def task(number: int, held_by: TaskId | None = None, **figures: int) -> TaskInfo:
    task_id = TaskId("Counts", number)
    status = TaskStatus(task_id, TaskState.RUNNING, figures=figures, held_by=held_by)
    return TaskInfo(task_id, 0, status, "")


def status(number: int = 0, **figures: int) -> TaskStatus:
    return TaskStatus(TaskId("Counts", number), TaskState.RUNNING, figures=figures)


def found(*infos: TaskInfo) -> list[Wait]:
    return waits(ClusterStatus(JobManagerInfo(Presence.UP), (), infos))


def info(owner: int | None, state: TaskState | None, reason: str = "", **more: bool) -> TaskInfo:
    status = None if state is None else TaskStatus(HOLDER, state)
    return TaskInfo(HOLDER, owner, status, reason, **more)


@pytest.mark.parametrize(
    ("holder", "state"),
    [
        ([info(1, TaskState.FAILED, "KeyError")], "FAILED"),
        ([info(1, TaskState.RUNNING)], "RUNNING"),
        ([info(None, None, is_held=True)], "paused"),
        ([info(None, None, "no TaskManager runs it")], "no TaskManager runs it"),
        ([info(1, None, "its TaskManager is not there")], "its TaskManager is not there"),
        ([], "not known"),
    ],
)
def test_a_wait_says_how_the_holder_does(holder: list[TaskInfo], state: str) -> None:
    (wait,) = found(task(0, HOLDER, event_time_ms=5000, held_unread=12), *holder)
    assert wait == Wait((TaskId("Counts", 0),), True, 5000, HOLDER, state, 12)


def test_tasks_of_a_processor_wait_together_at_the_time_of_the_last_one() -> None:
    both = [task(n, HOLDER, event_time_ms=5000 + n, held_unread=10 + n) for n in range(2)]
    (wait,) = found(*both)
    assert (wait.is_whole, wait.time_ms, wait.unread) == (True, 5000, 11)
    (wait,) = found(*both, task(2))
    assert (wait.is_whole, len(wait.tasks)) == (False, 2)


def test_what_nobody_knows_of_a_wait_is_left_out() -> None:
    (wait,) = found(task(0, HOLDER))
    assert (wait.time_ms, wait.unread) == (None, None)


def test_tasks_that_wait_for_several_others_are_told_apart() -> None:
    other = TaskId("Payments", 3)
    assert [wait.holder for wait in found(task(0, HOLDER), task(1, other))] == [HOLDER, other]


def test_several_tasks_are_as_far_as_the_last_one_for_which_something_is_to_come() -> None:
    idle = status(1, event_time_ms=100, is_idle=1)
    assert time_together([status(event_time_ms=300), status(event_time_ms=200), idle]) == 200
    assert time_together([idle, status(2, event_time_ms=90, is_idle=1)]) == 100
    assert time_together([status(3), idle]) == 100
    assert time_together([status()]) is None


def test_who_has_nothing_to_come_is_not_behind() -> None:
    idle = status(1, event_time_ms=100, newest_record_ms=100, is_idle=1)
    live = status(2, event_time_ms=200, newest_record_ms=350)
    newest_ms = newest_record_ms([idle, live, status(3)])
    assert newest_ms == 350
    assert [each.event_time_lag_ms(newest_ms) for each in (idle, live, status(3))] == [
        None,
        150,
        None,
    ]
    assert lag_together([idle, live], newest_ms) == 150
    assert lag_together([idle], newest_ms) is None
    assert live.event_time_lag_ms(None) is None
    assert live.event_time_lag_ms(100) == 0
