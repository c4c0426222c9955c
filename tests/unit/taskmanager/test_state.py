"""The TaskManager's decisions, event by event."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_pipeline.common.protocol.messages import (
    Heartbeat,
    Processors,
    Refused,
    Report,
    Sos,
    Threads,
)
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus, ThreadState
from kafka_pipeline.taskmanager.events import (
    AssignTask,
    CatchUp,
    CaughtUp,
    CodeChanged,
    Exit,
    LaunchThread,
    ReportConfirmed,
    RevokeTask,
    StopRequested,
    StopThread,
    TaskClosed,
    ThreadConnected,
    ThreadLost,
    ThreadReported,
    ThreadStopped,
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

# The start.


def test_first_tick_launches_every_thread() -> None:
    assert Host(3).tick() == [LaunchThread(0), LaunchThread(1), LaunchThread(2)]


def test_taskmanager_introduces_itself_when_its_threads_are_up() -> None:
    host = Host(2)
    host.tick()
    assert host.take(ThreadConnected(1)) == []
    assert host.tick(1000) == []
    (said,) = host.turn(ThreadConnected(0))
    assert isinstance(said, Threads)
    assert said.report == Report(
        *(3, "me", 2, 1),
        host="h",
        pid=99,
        thread_states=(ThreadState.RUNNING,) * 2,
        interval_ms=1000,
    )


def test_threads_that_do_not_come_up_are_not_waited_for_without_end() -> None:
    host = Host(2)
    host.tick()
    host.take(ThreadConnected(0))
    assert any(reports(host.tick(1000)) for _ in range(60))
    assert host.report().thread_states == (ThreadState.SILENT, ThreadState.STARTING)


def test_sos_is_answered_with_what_runs() -> None:
    host = running_host(assign=[0])
    (said,) = host.turn(Sos(EPOCH + 1))
    assert isinstance(said, Threads)
    assert listed(said.report) == {0: TaskState.RUNNING}
    assert (said.report.epoch, said.report.sequence) == (EPOCH + 1, 0)


def test_old_sos_is_not_answered() -> None:
    host = running_host()
    assert host.turn(Sos(EPOCH)) == []
    assert host.turn(Sos(EPOCH - 1)) == []


def test_heartbeat_comes_once_an_interval() -> None:
    host = running_host()
    beats = [len(reports(host.tick(100))) for _ in range(50)]
    assert sum(beats) == 5


def test_beats_count_up_by_one_through_all_reports() -> None:
    host = running_host(assign=[0])
    said = host.tick(1000) + host.turn(Sos(9)) + host.tick(1000) + host.tick(1000)
    beats = [report.beat for report in reports(said)]
    assert beats == list(range(beats[0], beats[0] + 4))


def test_many_events_of_one_turn_make_one_report_of_all_of_them() -> None:
    host = running_host(assign=range(50))
    host.command(revoke=range(20))
    closed = [TaskClosed(0, task(n)) for n in range(20)]
    assert host.take(*closed) == []
    (report,) = reports(host.tick(0))
    assert set(listed(report)) == set(range(20, 50))
    assert report.sequence == host.sequence
    assert reports(host.tick(50)) == []


def test_command_and_new_epoch_of_one_turn_are_answered_by_one_introduction() -> None:
    host = running_host(assign=[0])
    assigned = Processors(3, "me", EPOCH + 1, 1, assign=(replica(1),))
    said = host.turn(TaskClosed(0, task(0)), Sos(EPOCH + 1), assigned)
    (introduction,) = [command for command in said if isinstance(command, Threads | Heartbeat)]
    assert isinstance(introduction, Threads)
    assert set(listed(introduction.report)) == {1}
    assert (introduction.report.epoch, introduction.report.sequence) == (EPOCH + 1, 1)
    assert reports(host.tick(50)) == []


def test_report_never_confirms_a_command_without_what_it_assigned() -> None:
    host = running_host()
    host.take(Processors(3, "me", EPOCH, 10, assign=(replica(0),)))
    host.take(Processors(3, "me", EPOCH, 11, assign=(replica(1),), revoke=(task(0),)))
    (report,) = reports(host.tick(0))
    assert report.sequence == 11
    assert set(listed(report)) == {0, 1}


# Commands.


def test_assigned_task_goes_to_a_thread_and_the_next_report_says_so() -> None:
    host = running_host()
    said = host.command([0])
    assert others(said) == [AssignTask(0, replica(0), EPOCH)]
    (report,) = reports(said)
    assert listed(report) == {0: TaskState.STARTING}
    assert (report.epoch, report.sequence) == (EPOCH, host.sequence)


def test_tasks_spread_over_the_threads() -> None:
    host = running_host(threads=3, assign=range(7))
    numbers = list(host.state.tasks.values())
    assert sorted(numbers.count(thread) for thread in range(3)) == [2, 2, 3]


@pytest.mark.parametrize("copied", range(5))
def test_task_goes_to_the_thread_that_has_its_copy_open(copied: int) -> None:
    """The thread closes the copy first; otherwise, the task would find the store locked."""
    copies = [replace(replica(n), task=task(n).copy(1)) for n in range(5)]
    host = running_host(threads=3)
    host.take(Processors(3, "me", EPOCH, 10, assign=tuple(copies)))
    thread = host.state.tasks[copies[copied].task]
    said = host.take(
        Processors(3, "me", EPOCH, 11, assign=(replica(copied),), revoke=(copies[copied].task,))
    )
    assert others(said) == [
        RevokeTask(thread, copies[copied].task),
        AssignTask(thread, replica(copied), EPOCH),
    ]


def test_later_tasks_fill_the_gaps_instead_of_piling_up_on_the_first_thread() -> None:
    host = running_host(threads=2, assign=range(4))
    on_second = [t for t, thread in host.state.tasks.items() if thread == 1]
    host.command(revoke=[t.partition for t in on_second])
    host.take(*(TaskClosed(1, task_id) for task_id in on_second))
    said = host.command([10, 11])
    assert [command.thread for command in said if isinstance(command, AssignTask)] == [1, 1]


def test_repeated_command_is_carried_out_once() -> None:
    host = running_host()
    host.command([0], sequence=2)
    assert host.command([0, 1], sequence=2) == []
    assert host.command([1], sequence=1) == []
    assert list(host.state.tasks) == [task(0)]


def test_command_of_an_older_epoch_is_ignored() -> None:
    host = running_host(assign=[0])
    assert host.command(revoke=[0], epoch=EPOCH - 1, sequence=99) == []
    assert list(host.state.tasks) == [task(0)]


def test_command_for_another_incarnation_is_ignored() -> None:
    host = running_host()
    assert host.command([0], incarnation="predecessor") == []
    assert host.state.tasks == {}


def test_command_of_a_newer_epoch_counts_even_before_its_sos() -> None:
    host = running_host(assign=[0])
    said = host.command([1], epoch=EPOCH + 1, sequence=1)
    assert others(said) == [AssignTask(0, replica(1), EPOCH + 1)]
    assert host.turn(Sos(EPOCH + 1)) == []
    assert host.report().sequence == 1


def test_sequences_start_anew_with_each_epoch() -> None:
    host = running_host(assign=[0])
    host.take(Sos(EPOCH + 1))
    said = host.command([1], epoch=EPOCH + 1, sequence=1)
    assert others(said) == [AssignTask(0, replica(1), EPOCH + 1)]


def test_task_that_runs_already_is_not_started_again() -> None:
    host = running_host(assign=[0])
    assert others(host.command([0])) == []


def test_empty_command_is_acknowledged() -> None:
    host = running_host()
    (report,) = reports(host.command())
    assert report.sequence == host.sequence


def test_task_that_this_version_does_not_understand_is_listed_as_failed_until_revoked() -> None:
    host = running_host()
    reason = "cannot read the assignment"
    unreadable = TaskStatus(task(1), TaskState.FAILED, reason, fingerprint="f00d")
    host.take(Processors(3, "me", EPOCH, 2, assign=(replica(0),), unreadable=(unreadable,)))
    assert host.report().tasks[1:] == (unreadable,)
    host.take(Processors(3, "me", EPOCH, 3, revoke=(task(1),)))
    assert listed(host.report()) == {0: TaskState.STARTING}


def test_task_is_no_longer_failed_once_it_is_understood() -> None:
    host = running_host()
    unreadable = TaskStatus(task(0), TaskState.FAILED, "later", fingerprint="f00d")
    host.take(Processors(3, "me", EPOCH, 2, unreadable=(unreadable,)))
    host.take(Processors(3, "me", EPOCH, 3, assign=(replica(0),)))
    assert listed(host.report()) == {0: TaskState.STARTING}


# Moves.


def test_revoked_task_is_listed_until_its_thread_has_closed_it() -> None:
    host = running_host(assign=[0, 1])
    said = host.command(revoke=[0])
    assert others(said) == [RevokeTask(0, task(0))]
    assert set(listed(reports(said)[-1])) == {0, 1}
    assert set(listed(host.report())) == {0, 1}
    (report,) = reports(host.turn(TaskClosed(0, task(0))))
    assert set(listed(report)) == {1}


def test_repeated_revocation_is_passed_on_once() -> None:
    host = running_host(assign=[0])
    host.command(revoke=[0])
    assert others(host.command(revoke=[0])) == []


def test_revocation_of_an_unknown_task_is_acknowledged_and_no_more() -> None:
    host = running_host(assign=[0])
    said = host.command(revoke=[7])
    assert others(said) == []
    assert reports(said)[-1].sequence == host.sequence


def test_task_assigned_again_while_it_closes_starts_after_that() -> None:
    host = running_host(assign=[0])
    host.command(revoke=[0])
    assert others(host.command([0])) == []
    said = host.turn(TaskClosed(0, task(0)))
    assert others(said) == [AssignTask(0, replica(0), EPOCH)]
    assert listed(reports(said)[-1]) == {0: TaskState.STARTING}


def test_task_assigned_and_revoked_again_while_it_closes_stays_closed() -> None:
    host = running_host(assign=[0])
    host.command(revoke=[0])
    host.command([0])
    host.command(revoke=[0])
    assert others(host.turn(TaskClosed(0, task(0)))) == []
    assert host.state.tasks == {}


def test_task_that_its_thread_gave_up_is_no_longer_listed() -> None:
    host = running_host(assign=[0, 1])
    (report,) = reports(host.turn(TaskClosed(0, task(1))))
    assert set(listed(report)) == {0}


def test_failed_task_stays_listed_with_its_reason() -> None:
    host = running_host(assign=[0])
    host.take(ThreadReported(0, (TaskStatus(task(0), TaskState.FAILED, "record 7"),)))
    (status,) = host.report().tasks
    assert (status.state, status.reason) == (TaskState.FAILED, "record 7")


def test_failed_task_is_restarted_by_revocation_and_assignment() -> None:
    host = running_host(assign=[0])
    host.take(ThreadReported(0, (TaskStatus(task(0), TaskState.FAILED, "record 7"),)))
    assert others(host.command(revoke=[0])) == [RevokeTask(0, task(0))]
    assert others(host.command([0])) == []
    said = host.turn(TaskClosed(0, task(0)))
    assert others(said) == [AssignTask(0, replica(0), EPOCH)]


def test_task_that_its_thread_says_nothing_new_of_stays_as_it_was() -> None:
    host = running_host(assign=[0, 1])
    before = TaskStatus(task(0), TaskState.RUNNING, figures={"records_in": 3})
    host.take(ThreadReported(0, (before, TaskStatus(task(1), TaskState.RUNNING))))
    host.report()
    after = TaskStatus(task(1), TaskState.RUNNING, figures={"records_in": 5})
    host.take(ThreadReported(0, (after,)))
    assert host.report().tasks == (before, after)
    host.take(ThreadReported(0, ()))
    assert host.report().tasks == (before, after)


def test_status_of_a_task_that_is_not_there_is_ignored() -> None:
    host = running_host(assign=[0])
    host.take(ThreadReported(0, (TaskStatus(task(9), TaskState.RUNNING),)))
    assert set(listed(host.report())) == {0}


# The end.


def test_graceful_stop_stops_threads_then_leaves_with_a_last_report() -> None:
    host = running_host(threads=2, assign=[0, 1])
    assert host.take(StopRequested()) == [StopThread(0), StopThread(1)]
    assert host.take(ThreadStopped(0)) == []
    *said, last = host.take(ThreadStopped(1))
    assert last == Exit(None)
    (report,) = reports(said)
    assert report.leaving
    assert report.tasks == ()


def test_stopping_taskmanager_goes_on_beating_and_takes_no_tasks() -> None:
    host = running_host(threads=1, assign=[0])
    host.take(StopRequested())
    assert host.command([5]) == []
    report = host.report()
    assert not report.leaving
    assert set(listed(report)) == {0}


def test_nothing_is_said_after_the_exit() -> None:
    host = running_host(threads=1, assign=[0])
    host.take(StopRequested())
    assert Exit(None) in host.take(ThreadStopped(0))
    assert host.tick(1000) == []
    assert host.take(Sos(EPOCH + 1)) == []


def test_thread_that_does_not_stop_is_left_behind_after_ten_intervals() -> None:
    host = running_host(threads=1, assign=[0])
    host.take(StopRequested())
    exits = [Exit(None) in host.tick(1000) for _ in range(10)]
    assert exits == [False] * 9 + [True]


def test_thread_that_dies_while_stopping_does_not_hold_the_others_up() -> None:
    host = running_host(threads=1, assign=[0])
    host.take(StopRequested())
    assert Exit(None) in host.take(ThreadLost(0))


def test_stop_before_any_thread_is_up_leaves_at_once() -> None:
    host = Host(2)
    host.tick()
    assert Exit(None) in host.take(StopRequested())


def test_second_stop_changes_nothing() -> None:
    host = running_host(threads=1, assign=[0])
    host.take(StopRequested())
    assert host.take(StopRequested()) == []


def test_refused_taskmanager_asks_again_for_six_intervals_then_ends() -> None:
    host = running_host()
    refused = Refused(3, "me", EPOCH, "id 3 is taken")
    for _ in range(6):
        assert host.take(refused) == []
        assert reports(host.tick(1000))
    assert host.take(refused) == [Exit("id 3 is taken")]


def test_taskmanager_that_is_admitted_after_refusals_forgets_them() -> None:
    host = running_host()
    refused = Refused(3, "me", EPOCH, "id 3 is taken")
    host.take(refused)
    host.tick(5000)
    host.command([0])
    host.tick(5000)
    assert host.take(refused) == []


@pytest.mark.parametrize(
    "refused",
    [Refused(3, "other", EPOCH, "id 3 is taken"), Refused(3, "me", EPOCH - 1, "id 3 is taken")],
    ids=["of another incarnation", "of an older epoch"],
)
def test_refusal_that_is_not_meant_for_it_is_ignored(refused: Refused) -> None:
    host = running_host()
    for _ in range(20):
        assert host.take(refused) == []
        host.tick(1000)


# Other user code.


def test_threads_start_again_with_changed_code_and_with_their_tasks() -> None:
    host = running_host(threads=2, assign=[0, 1])
    said = host.turn(CodeChanged({"shop": "new"}))
    assert others(said) == [StopThread(0), StopThread(1)]
    (report,) = reports(said)
    assert report.code == {"shop": "new"}
    assert listed(report) == {0: TaskState.RESTARTING, 1: TaskState.RESTARTING}
    # What the former worker still says is not about the new code.
    host.take(ThreadReported(0, (TaskStatus(task(0), TaskState.RUNNING),)), TaskClosed(0, task(0)))
    assert listed(host.report())[0] is TaskState.RESTARTING
    for number in (0, 1):
        host.take(ThreadStopped(number), ThreadLost(number))
    assert others(host.tick(0)) == [LaunchThread(0), LaunchThread(1)]
    assert others(host.take(ThreadConnected(0))) == [AssignTask(0, replica(0), EPOCH)]
    host.take(ThreadReported(0, (TaskStatus(task(0), TaskState.RUNNING),)))
    assert listed(host.report()) == {0: TaskState.RUNNING, 1: TaskState.RESTARTING}


def test_code_may_change_many_times_without_a_pause() -> None:
    host = running_host(assign=[0])
    for number in range(5):
        host.turn(CodeChanged({"shop": str(number)}))
        host.take(ThreadStopped(0), ThreadLost(0))
        assert others(host.tick(0)) == [LaunchThread(0)]
        host.take(ThreadConnected(0))


def test_thread_that_was_starting_with_former_code_ends_as_soon_as_it_is_up() -> None:
    host = running_host(assign=[0])
    host.turn(CodeChanged({"shop": "new"}))
    host.take(ThreadStopped(0), ThreadLost(0))
    host.tick(0)
    assert others(host.turn(CodeChanged({"shop": "newer"}))) == []
    assert others(host.take(ThreadConnected(0))) == [StopThread(0)]
    host.take(ThreadStopped(0), ThreadLost(0))
    assert others(host.tick(0)) == [LaunchThread(0)]


def test_tasks_that_come_and_go_while_the_code_changes_are_those_of_the_next_start() -> None:
    host = running_host(assign=[0, 1])
    host.turn(CodeChanged({"shop": "new"}))
    assert others(host.command(assign=[2], revoke=[1])) == [RevokeTask(0, task(1))]
    host.take(TaskClosed(0, task(1)), ThreadStopped(0), ThreadLost(0))
    host.tick(0)
    assigned = others(host.take(ThreadConnected(0)))
    assert assigned == [AssignTask(0, replica(n), EPOCH) for n in (0, 2)]


def test_stop_comes_before_changed_code() -> None:
    host = running_host(assign=[0])
    host.turn(StopRequested())
    assert others(host.turn(CodeChanged({"shop": "new"}))) == []


# Contact.


def test_taskmanager_whose_reports_are_not_confirmed_reads_all_commands_before_it_is_sure() -> None:
    host = running_host(assign=[0])
    assert host.take(ReportConfirmed()) == []
    host.tick(2000)
    assert host.state.contact.is_sure
    host.tick(1)
    assert not host.state.contact.is_sure
    assert host.take(ReportConfirmed()) == [CatchUp()]
    assert not host.state.contact.is_sure
    assert host.take(ReportConfirmed(), CaughtUp()) == [CatchUp()]
    assert host.state.contact.is_sure
    host.tick(2000)
    assert host.state.contact.is_sure


def test_taskmanager_that_was_stopped_doubts_although_an_old_report_is_confirmed() -> None:
    host = running_host(assign=[0])
    host.take(ReportConfirmed())
    host.now_ms += 10_000
    host.turn(ReportConfirmed())
    assert not host.state.contact.is_sure
