"""A PipelineThread's core: tasks that are revoked, given up and stopped."""

from __future__ import annotations

import pytest

from kafka_pipeline.taskmanager.thread_events import (
    Assigned,
    CancelStart,
    CloseEnded,
    CloseTask,
    CommitEnded,
    CommitTask,
    DependencyFailed,
    EndThread,
    ForgetTask,
    Revoked,
    Started,
    StartFailed,
    StartTask,
    ThreadStopRequested,
)
from tests.unit.taskmanager.thread_host import (
    FENCED,
    HEARTBEAT_MS,
    MAX_PROCESS_MS,
    TRANSIENT,
    Host,
    ended,
    fed,
    restart_delay_ms,
    running,
    task,
)

# What ends a task


@pytest.mark.parametrize("is_inline", [False, True])
def test_a_revoked_task_commits_closes_and_is_forgotten(is_inline: bool) -> None:
    host = running(is_inline=is_inline)
    host.take(fed(), ended())
    assert host.take(Revoked((task(0),))) == [CommitTask(task(0))]
    assert host.take(CommitEnded(task(0))) == [CloseTask(task(0))]
    assert host.take(CloseEnded(task(0))) == [ForgetTask(task(0))]
    assert host.core.tasks == []


def test_a_task_that_is_revoked_during_its_turn_has_no_other_one() -> None:
    host = running()
    host.take(fed(), Revoked((task(0),)))
    assert host.take(ended(has_more=True)) == [CommitTask(task(0))]


def test_a_revoked_task_that_cannot_commit_is_closed_all_the_same() -> None:
    host = running()
    host.take(fed(), ended(), Revoked((task(0),)))
    assert host.take(CommitEnded(task(0), FENCED)) == [CloseTask(task(0))]
    assert host.take(CloseEnded(task(0))) == [ForgetTask(task(0))]


def test_a_copy_closes_before_its_task_starts_on_the_same_thread() -> None:
    host = running()
    for number in (0, 1):
        copy = task(number).copy(1)
        host.take(Assigned(copy, False, MAX_PROCESS_MS), Started(copy))
    said = host.take(Assigned(task(1), False, MAX_PROCESS_MS))
    assert said == [CloseTask(task(1).copy(1)), StartTask(task(1))]
    (forgotten,) = host.take(CloseEnded(task(1).copy(1)))
    assert isinstance(forgotten, ForgetTask)
    assert host.core.tasks == [task(0), task(0).copy(1), task(1)]


def test_a_task_that_is_revoked_while_it_starts_is_cancelled() -> None:
    host = Host()
    host.take(Assigned(task(0), False, MAX_PROCESS_MS))
    assert host.take(Revoked((task(0),))) == [CancelStart(task(0))]
    assert host.take(Revoked((task(0),))) == []
    assert host.take(StartFailed(task(0), None)) == [ForgetTask(task(0))]


def test_a_start_that_is_cancelled_too_late_is_closed() -> None:
    host = Host()
    host.take(Assigned(task(0), False, MAX_PROCESS_MS), Revoked((task(0),)))
    assert host.take(Started(task(0))) == [CloseTask(task(0))]


def test_a_task_that_waits_for_its_next_start_is_forgotten_at_once() -> None:
    host = running()
    restart_delay_ms(host, TRANSIENT)
    host.take(DependencyFailed(task(0), TRANSIENT), CloseEnded(task(0)))
    assert host.take(Revoked((task(0),))) == [ForgetTask(task(0))]
    assert host.wait(10_000) == []


def test_without_a_sign_of_the_driver_all_tasks_are_given_up_without_a_commit() -> None:
    """By then others have them."""
    host = running(range(2))
    host.take(fed(0), ended(0))
    host.heard_ms = host.now_ms
    assert CloseTask(task(0)) not in host.wait(3 * HEARTBEAT_MS)
    host = running(range(2))
    host.take(fed(0))
    host.heard_ms = host.now_ms
    assert host.wait(3 * HEARTBEAT_MS + 1) == []
    assert host.take(ended(0)) == [CloseTask(task(1))]
    said = host.take(CloseEnded(task(1)))
    assert said[1:] == [CloseTask(task(0))]
    (forgotten,) = said[:1]
    assert isinstance(forgotten, ForgetTask)
    assert "lease" in forgotten.reason


def test_stop_ends_the_thread_when_all_is_closed() -> None:
    host = running(range(2), is_inline=True)
    host.take(fed(0), ended(0))
    assert host.take(ThreadStopRequested()) == [CommitTask(task(0)), CloseTask(task(1))]
    assert host.take(CloseEnded(task(1))) == [ForgetTask(task(1))]
    assert host.take(CommitEnded(task(0))) == [CloseTask(task(0))]
    assert host.take(CloseEnded(task(0))) == [ForgetTask(task(0)), EndThread()]
    assert host.take(Assigned(task(3), True, MAX_PROCESS_MS)) == []


def test_stop_ends_a_thread_without_tasks_at_once() -> None:
    assert Host().take(ThreadStopRequested()) == [EndThread()]
