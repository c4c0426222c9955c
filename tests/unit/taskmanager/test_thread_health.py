"""PipelineThreads that die, hang and come back, as the TaskManager's core sees them."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.protocol.status import TaskState, TaskStatus, ThreadState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.events import (
    AssignTask,
    DumpThread,
    KillThread,
    LaunchThread,
    ReportWaiting,
    StopRequested,
    TaskClosed,
    ThreadConnected,
    ThreadEnding,
    ThreadLost,
    ThreadReported,
)
from tests.unit.taskmanager.host import (
    EPOCH,
    Host,
    listed,
    others,
    replica,
    reports,
    running_host,
    task,
)


def test_lost_thread_is_started_again_at_once_and_the_report_says_so() -> None:
    host = running_host(threads=2, assign=[0, 1])
    said = host.turn(ThreadLost(1))
    assert others(said) == [LaunchThread(1)]
    (report,) = reports(said)
    assert report.thread_states == (ThreadState.RUNNING, ThreadState.STARTING)
    assert listed(report) == {0: TaskState.RUNNING, 1: TaskState.RESTARTING}
    assert "PipelineThread" in next(s.reason for s in report.tasks if s.task == task(1))


def test_thread_that_is_lost_again_is_reported_as_dead_until_it_is_started() -> None:
    host = running_host(assign=[0])
    host.turn(ThreadLost(0))
    said = host.turn(ThreadLost(0))
    assert others(said) == []
    assert reports(said)[-1].thread_states == (ThreadState.DEAD,)


def test_tasks_of_a_lost_thread_start_on_it_when_it_is_back() -> None:
    host = running_host(threads=2, assign=[0, 1])
    host.take(ThreadLost(1))
    host.tick()
    said = host.take(ThreadConnected(1))
    assert others(said) == [AssignTask(1, replica(1), EPOCH)]


def test_task_assigned_to_a_thread_that_is_down_starts_when_it_is_up() -> None:
    host = running_host(threads=1)
    host.take(ThreadLost(0))
    assert others(host.command([0])) == [LaunchThread(0)]
    assert others(host.take(ThreadConnected(0))) == [AssignTask(0, replica(0), EPOCH)]


def test_task_revoked_from_a_thread_that_is_down_is_gone_at_once() -> None:
    host = running_host(assign=[0])
    host.take(ThreadLost(0))
    said = host.command(revoke=[0])
    assert others(said) == [LaunchThread(0)]
    assert listed(reports(said)[-1]) == {}


def test_task_that_was_closing_when_its_thread_died_is_closed() -> None:
    host = running_host(assign=[0])
    host.command(revoke=[0])
    report = reports(host.turn(ThreadLost(0)))[-1]
    assert listed(report) == {}


def test_late_word_of_a_former_thread_does_not_close_the_task_on_its_new_one() -> None:
    host = running_host(threads=2, assign=[0, 1])
    host.take(ThreadLost(0))
    host.command(revoke=[0])
    host.command([2])
    host.command([0])
    assert host.state.tasks == {task(1): 1, task(2): 0, task(0): 1}
    assert host.take(TaskClosed(0, task(0))) == []
    assert task(0) in host.state.tasks


def test_thread_that_never_comes_up_is_started_ever_more_slowly() -> None:
    host = running_host()
    pauses = []
    for _ in range(10):
        host.take(ThreadLost(0))
        pauses.append(next(beat for beat in range(1, 100) if LaunchThread(0) in host.tick(1000)))
    assert pauses == sorted(pauses)
    assert pauses[0] == 1
    assert 30 <= pauses[-1] <= 33


def test_thread_that_says_nothing_is_told_to_be_silent() -> None:
    host = running_host(assign=[0])
    for _ in range(7):
        report = host.report()
    assert report.thread_states == (ThreadState.SILENT,)
    host.take(ThreadReported(0, ()))
    assert host.report().thread_states == (ThreadState.RUNNING,)


def test_last_words_of_a_lost_thread_do_not_make_it_look_alive() -> None:
    host = running_host(assign=[0])
    host.take(ThreadLost(0))
    host.take(ThreadReported(0, (TaskStatus(task(0), TaskState.RUNNING),)))
    report = host.report()
    assert report.thread_states != (ThreadState.RUNNING,)
    assert listed(report) == {0: TaskState.RESTARTING}


def test_lag_says_how_old_it_is_when_the_thread_says_nothing() -> None:
    host = running_host(assign=[0, 1])
    known = TaskStatus(task(0), TaskState.RUNNING, figures={"lag": 5, "records_in": 3})
    host.take(ThreadReported(0, (known, TaskStatus(task(1), TaskState.RUNNING))))
    reports_of_silence = [host.report() for _ in range(7)]
    ages = [report.tasks[0].gauge("lag_age_ms") for report in reports_of_silence]
    assert ages == [None] * 5 + [6000, 7000]
    assert [report.tasks[1].figures for report in reports_of_silence] == [{}] * 7
    host.take(ThreadReported(0, (known,)))
    assert host.report().tasks[0] == known


def test_lag_of_tasks_whose_thread_is_lost_is_unknown() -> None:
    host = running_host(assign=[0])
    figures = {"records_in": 9, "lag": 0, "lag_age_ms": 4000, "oldest_waiting_ms": 7}
    host.take(ThreadReported(0, (TaskStatus(task(0), TaskState.RUNNING, figures=figures),)))
    host.take(ThreadLost(0))
    (told,) = host.report().tasks
    assert told.state is TaskState.RESTARTING
    assert told.figures == {"restarts": 1, "records_in": 9}


def restarts(host: Host) -> dict[TaskId, int]:
    return {status.task: status.count("restarts") for status in host.report().tasks}


# Threads that hang.

HANG_S = 2 * 15 + 10
"""Two transaction timeouts and the margin."""


def report_of(host: Host) -> ThreadReported:
    return ThreadReported(0, tuple(TaskStatus(t, TaskState.RUNNING) for t in host.state.tasks))


def test_thread_that_is_silent_for_longer_than_anything_may_take_is_ended() -> None:
    host = running_host(assign=[0])
    said = [command for _ in range(HANG_S) for command in others(host.tick(1000))]
    assert said == []
    assert others(host.tick(1000)) == [DumpThread(0)]


def test_thread_that_does_not_obey_is_killed_a_heartbeat_later_and_once() -> None:
    host = running_host(assign=[0])
    said = [host.tick(250) for _ in range(4 * HANG_S + 1)]
    assert others(said[-1]) == [DumpThread(0)]
    said = [host.tick(250) for _ in range(4)]
    assert [others(commands) for commands in said] == [[], [], [], [KillThread(0)]]
    assert not any(others(host.tick(1000)) for _ in range(2 * HANG_S))


def test_thread_that_comes_back_after_its_stacks_were_written_is_left_alone() -> None:
    host = running_host(assign=[0])
    said = [others(host.tick(1000)) for _ in range(HANG_S + 1)]
    assert said[-1] == [DumpThread(0)]
    host.take(ThreadReported(0, ()))
    assert not any(others(host.tick(1000)) for _ in range(HANG_S))
    assert others(host.tick(1000)) == [DumpThread(0)]


def test_pause_of_the_taskmanager_is_not_held_against_a_thread_whose_end_is_near() -> None:
    host = running_host(assign=[0])
    said = [others(host.tick(1000)) for _ in range(HANG_S + 1)]
    assert said[-1] == [DumpThread(0)]
    assert others(host.tick(30_000)) == [KillThread(0)]


def test_limit_grows_with_the_transaction_timeout() -> None:
    host = running_host(transaction_timeout_ms=60_000)
    said = [others(host.tick(1000)) for _ in range(131)]
    assert said == [[]] * 130 + [[DumpThread(0)]]


def test_thread_that_reports_now_and_then_is_left_alone() -> None:
    host = running_host(assign=[0])
    for _ in range(4):
        assert not any(others(host.tick(1000)) for _ in range(HANG_S))
        host.take(report_of(host))


def test_only_the_thread_that_hangs_is_ended() -> None:
    host = running_host(threads=2, assign=[0, 1])
    said = []
    for _ in range(HANG_S + 2):
        said += others(host.tick(1000))
        host.take(ThreadReported(1, ()))
    assert said == [DumpThread(0), KillThread(0)]


def test_ended_thread_starts_again_with_its_tasks_and_the_reason_is_told() -> None:
    host = running_host(assign=[0])
    while DumpThread(0) not in host.tick(1000):
        pass
    said = host.turn(ThreadLost(0))
    assert others(said) == [LaunchThread(0)]
    (status,) = reports(said)[-1].tasks
    assert "hung and was ended" in status.reason
    assert status.count("restarts") == 1
    assert others(host.take(ThreadConnected(0))) == [AssignTask(0, replica(0), EPOCH)]


def test_thread_that_died_by_itself_does_not_count_as_hung_after_one_that_did() -> None:
    host = running_host(assign=[0])
    while DumpThread(0) not in host.tick(1000):
        pass
    host.take(ThreadLost(0))
    host.tick()
    host.take(ThreadConnected(0))
    (report,) = reports(host.turn(ThreadLost(0)))
    assert "died" in report.tasks[0].reason


def test_a_thread_that_ends_itself_says_why() -> None:
    host = running_host(assign=[0])
    host.take(ThreadEnding(0, "a call of P#7 does not return"), ThreadLost(0))
    reason = "was ended, since a call of P#7 does not return, and is started again"
    assert reason in host.state.everything().tasks[0].reason
    host.tick()
    host.take(ThreadConnected(0), ThreadLost(0))
    assert "died" in host.state.everything().tasks[0].reason


def test_started_again_thread_is_not_killed_in_the_place_of_its_predecessor() -> None:
    host = running_host(assign=[0])
    while DumpThread(0) not in host.tick(250):
        pass
    host.take(ThreadLost(0))
    assert others(host.tick(250)) == [LaunchThread(0)]
    host.take(ThreadConnected(0))
    assert not any(others(host.tick(250)) for _ in range(4 * HANG_S))


def test_restarts_add_up_over_the_workers_of_a_task() -> None:
    host = running_host(assign=[0])
    for worker in range(1, 4):
        host.take(
            ThreadReported(0, (TaskStatus(task(0), TaskState.RUNNING, figures={"restarts": 2}),))
        )
        host.take(ThreadLost(0))
        assert host.report().tasks[0].count("restarts") == 3 * worker
        host.tick(32_000)
        host.take(ThreadConnected(0))
        assert host.report().tasks[0].count("restarts") == 3 * worker


def test_task_that_comes_back_after_a_lost_lease_has_restarted_once_more() -> None:
    host = running_host(assign=[0, 1])
    host.take(ThreadReported(0, (TaskStatus(task(0), TaskState.RUNNING, figures={"restarts": 2}),)))
    for lost in range(1, 4):
        host.turn(TaskClosed(0, task(0)))
        host.command([0])
        assert restarts(host) == {task(0): 2 + lost, task(1): 0}
        host.take(ThreadReported(0, (TaskStatus(task(0), TaskState.RUNNING),)))
        assert restarts(host) == {task(0): 2 + lost, task(1): 0}


def test_task_that_was_lost_counts_on_with_its_next_worker() -> None:
    host = running_host(assign=[0])
    host.turn(TaskClosed(0, task(0)))
    host.command([0])
    host.take(ThreadReported(0, (TaskStatus(task(0), TaskState.RUNNING, figures={"restarts": 1}),)))
    assert restarts(host) == {task(0): 2}
    host.turn(ThreadLost(0), ThreadConnected(0))
    assert restarts(host) == {task(0): 3}


def test_task_that_was_revoked_and_comes_back_begins_at_zero() -> None:
    host = running_host(assign=[0])
    host.take(ThreadReported(0, (TaskStatus(task(0), TaskState.RUNNING, figures={"restarts": 2}),)))
    host.command(revoke=[0])
    host.turn(TaskClosed(0, task(0)))
    host.command([0])
    assert restarts(host) == {task(0): 0}


def test_thread_that_does_not_come_up_restarts_nothing() -> None:
    host = running_host(assign=[0])
    host.take(ThreadLost(0))
    host.tick()
    host.take(ThreadLost(0))
    assert host.report().tasks[0].count("restarts") == 1


@pytest.mark.parametrize("pause_s", [4, 3600])
def test_time_in_which_the_taskmanager_itself_did_not_run_is_not_held_against_a_thread(
    pause_s: int,
) -> None:
    """Its threads may have been stopped with it, and their reports wait to be read."""
    host = running_host(assign=[0])
    for _ in range(HANG_S // 2):
        host.tick(1000)
    assert others(host.tick(1000 * pause_s)) == []
    said = [others(host.tick(1000)) for _ in range(HANG_S // 2)]
    assert said == [[]] * (HANG_S // 2 - 1) + [[DumpThread(0)]]


def test_running_thread_is_not_silent_after_a_pause_of_the_taskmanager() -> None:
    host = running_host(assign=[0])
    (report,) = reports(host.tick(60_000))
    assert report.thread_states == (ThreadState.RUNNING,)


def test_nobody_is_killed_while_the_taskmanager_stops() -> None:
    host = running_host(assign=[0])
    for _ in range(HANG_S - 1):
        host.tick(1000)
    host.take(StopRequested())
    assert not any(isinstance(c, KillThread) for _ in range(9) for c in host.tick(1000))


# Threads that do not come up.

TIMEOUT_S = 20


def waiting(threads: int = 1) -> Host:
    """Return a host whose last thread is launched again and has not come up for long."""
    host = running_host(threads, assign=range(threads))
    last = threads - 1
    host.take(ThreadLost(last))
    host.tick()
    said = [command for _ in range(TIMEOUT_S) for command in others(host.tick(1000))]
    assert said == [ReportWaiting(last)]
    return host


def test_thread_that_does_not_come_up_is_reported_once_with_its_tasks() -> None:
    host = waiting(threads=2)
    report = host.report()
    assert report.thread_states[-1] is ThreadState.STARTING
    reasons = {status.task: status.reason for status in report.tasks}
    assert reasons[task(0)] == ""
    assert "no free slot" in reasons[task(1)]
    for _ in range(3 * TIMEOUT_S):
        host.take(ThreadReported(0, ()))
        assert others(host.tick(1000)) == []


def test_thread_that_does_not_come_up_at_the_start_is_reported_too() -> None:
    host = Host(2)
    host.tick()
    host.take(ThreadConnected(0))
    said = [command for _ in range(TIMEOUT_S) for command in others(host.tick(1000))]
    assert said == [ReportWaiting(1)]


def test_task_that_is_assigned_to_a_waiting_thread_says_so_from_the_start() -> None:
    host = waiting()
    host.command([1])
    assert all("no free slot" in status.reason for status in host.report().tasks)


def test_waiting_thread_that_comes_up_at_last_runs_its_tasks() -> None:
    host = waiting()
    assert others(host.take(ThreadConnected(0))) == [AssignTask(0, replica(0), EPOCH)]
    host.take(ThreadReported(0, (TaskStatus(task(0), TaskState.RUNNING),)))
    assert [status.reason for status in host.report().tasks] == [""]


def test_time_in_which_the_task_manager_did_not_run_is_no_waiting() -> None:
    host = Host(1)
    host.tick()
    assert others(host.tick(10 * TIMEOUT_S * 1000)) == []
    said = [command for _ in range(TIMEOUT_S) for command in others(host.tick(1000))]
    assert said == [ReportWaiting(0)]
