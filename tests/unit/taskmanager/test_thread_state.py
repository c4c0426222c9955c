"""A PipelineThread's core without a thread: turns, errors, and the ends of tasks."""

from __future__ import annotations

import pytest

from kafka_pipeline.taskmanager.task_entry import Phase
from kafka_pipeline.taskmanager.thread_events import (
    AbandonCall,
    Assigned,
    CloseEnded,
    CloseTask,
    Command,
    CommitEnded,
    CommitTask,
    DependencyFailed,
    EndProcess,
    Failure,
    FailureKind,
    ForgetTask,
    RefreshDue,
    RefreshTask,
    ReportFailed,
    RestartTask,
    Revoked,
    RunTurn,
    Started,
    StartFailed,
    StartTask,
    TaskCall,
    ThreadStopRequested,
)
from tests.unit.taskmanager.thread_host import (
    BUDGET_MS,
    EXPIRED,
    FATAL,
    FENCED,
    MAX_PROCESS_MS,
    REJECTED,
    TIMEOUT_MS,
    TRANSIENT,
    Host,
    ended,
    fed,
    restart_delay_ms,
    running,
    task,
)

# Turns


def test_records_lead_to_a_turn_and_a_commit_when_all_is_worked_off() -> None:
    host = running()
    assert host.take(fed()) == [RunTurn(task(0))]
    assert host.take(ended(is_at_its_end=True)) == [CommitTask(task(0))]
    assert host.take(CommitEnded(task(0))) == []
    assert host.phase() is Phase.IDLE


def test_a_turn_that_leaves_records_is_followed_by_another_one() -> None:
    host = running()
    host.take(fed())
    assert host.take(ended(has_more=True)) == [RunTurn(task(0))]


def test_records_that_come_during_a_commit_wait_for_its_end() -> None:
    host = running()
    host.take(fed(), ended(is_at_its_end=True))
    assert host.take(fed()) == []
    assert host.take(CommitEnded(task(0))) == [RunTurn(task(0))]


def test_what_comes_during_a_turn_leads_to_another_one() -> None:
    """It may be the end of an input for which the records of another one wait."""
    host = running()
    host.take(fed())
    assert host.take(fed()) == []
    assert host.take(ended(has_more=False)) == [RunTurn(task(0))]
    assert host.take(ended(is_at_its_end=True)) == [CommitTask(task(0))]


def test_tasks_with_user_code_take_turns_on_one_thread() -> None:
    host = running(range(3))
    assert host.take(fed(0), fed(1), fed(2)) == [RunTurn(task(0))]
    assert host.take(ended(0, has_more=True)) == [RunTurn(task(1))]
    assert host.take(ended(1, has_more=True)) == [RunTurn(task(2))]
    assert host.take(ended(2)) == [RunTurn(task(0))]


def test_tasks_of_built_in_types_wait_for_nobody() -> None:
    host = running(range(2))
    host.take(Assigned(task(7), True, MAX_PROCESS_MS), Started(task(7)))
    host.take(fed(0), fed(1))
    assert host.take(fed(7)) == [RunTurn(task(7))]


def test_a_task_with_a_thread_to_itself_waits_for_nobody() -> None:
    host = running(range(2))
    host.take(Assigned(task(7), False, MAX_PROCESS_MS), Started(task(7), has_own_thread=True))
    host.take(fed(0), fed(1))
    assert host.take(fed(7)) == [RunTurn(task(7))]
    assert host.take(ended(7, has_more=True)) == [RunTurn(task(7))]
    assert host.take(ended(0)) == [RunTurn(task(1))], "nor does anybody wait for it"
    host.take(Revoked((task(7),)), ended(7))
    assert host.take(CommitEnded(task(7))) == [CloseTask(task(7))]


def test_no_records_are_needed_soon_while_all_tasks_work_or_wait_for_their_turn() -> None:
    host = running(range(2))
    host.take(fed(0))
    assert host.core.awaits_records, "the other task has none"
    host.take(fed(1))
    assert not host.core.awaits_records
    host.take(ended(0, is_at_its_end=True))
    assert not host.core.awaits_records, "one commits, and the other has its turn"
    host.take(CommitEnded(task(0)))
    assert host.core.awaits_records


def turns_of(host: Host, took_ms: dict[int, float], count: int) -> list[int]:
    """Return whose the next turns are, if all tasks always have more, and take so long."""
    order = []
    (command,) = host.take(*(fed(number) for number in took_ms))
    for _ in range(count):
        assert isinstance(command, RunTurn)
        order.append(number := command.task.partition)
        (command,) = host.take(
            ended(number, has_more=True, has_uncommitted=False, took_ms=took_ms[number])
        )
    return order


def test_a_fast_task_waits_for_one_turn_of_slow_siblings_and_not_for_all_of_them() -> None:
    host = running(range(6))
    order = turns_of(host, {**dict.fromkeys(range(5), 1000.0), 5: 1.0}, 1000)
    assert order[:6] == [0, 1, 2, 3, 4, 5]
    slow = [at for at, number in enumerate(order) if number != 5]
    assert len(slow) == 5, "until it has had as much of the thread's time as they had"


def test_tasks_have_equal_parts_of_the_thread_however_long_their_turns_are() -> None:
    host = running(range(3))
    took_ms = {0: 1000.0, 1: 100.0, 2: 10.0}
    order = turns_of(host, took_ms, 10_000)
    used_ms = [took_ms[number] * order.count(number) for number in took_ms]
    assert max(used_ms) - min(used_ms) <= 1000


def test_a_task_that_had_nothing_to_do_may_not_make_up_for_it() -> None:
    host = running(range(2))
    host.take(fed(0))
    for _ in range(100):
        host.take(ended(0, has_more=True, has_uncommitted=False, took_ms=BUDGET_MS))
    host.take(fed(1))
    order = []
    for _ in range(10):
        (number,) = [n for n in range(2) if host.phase(n) is Phase.TURNING]
        order.append(number)
        host.take(ended(number, has_more=True, has_uncommitted=False, took_ms=BUDGET_MS))
    assert order.count(1) <= 6


def test_turns_of_the_loop_that_go_on_take_turns_and_let_it_do_other_things() -> None:
    host = running(range(3), is_inline=True)
    more = {"has_more": True, "has_uncommitted": False}
    for number in range(3):
        assert host.take(fed(number)) == [RunTurn(task(number))]
        assert host.take(ended(number, **more)) == []
    order = []
    for _ in range(6):
        assert host.core.next_due_ms == host.now_ms, "the loop does not wait"
        (command,) = host.wait(1)
        assert isinstance(command, RunTurn)
        order.append(command.task.partition)
        assert host.take(ended(order[-1], **more)) == []
    assert order == [0, 1, 2] * 2


def test_a_task_is_woken_when_it_wanted_to_be() -> None:
    host = running()
    host.take(fed(), ended(has_uncommitted=False, wake_in_ms=30))
    assert host.core.next_due_ms == host.now_ms + 30
    assert host.wait(29) == []
    assert host.wait(1) == [RunTurn(task(0))]


# Errors


@pytest.mark.parametrize("is_inline", [False, True])
def test_a_task_is_closed_before_it_starts_again(is_inline: bool) -> None:
    host = running(is_inline=is_inline)
    host.take(fed())
    failed = ended(is_at_its_end=True)
    assert host.take(failed) == [CommitTask(task(0))]
    assert host.take(CommitEnded(task(0), TRANSIENT)) == [CloseTask(task(0))]
    assert host.take(CloseEnded(task(0))) == [RestartTask(task(0), TRANSIENT.reason, 0)]
    assert (host.core.restarts(task(0)), host.core.reason(task(0))) == (1, TRANSIENT.reason)
    assert host.wait(0) == [StartTask(task(0))]
    assert host.core.reason(task(0)) == TRANSIENT.reason, "until it runs"
    host.take(Started(task(0)))
    assert host.core.reason(task(0)) == ""


def test_what_came_before_a_record_that_is_rejected_is_committed() -> None:
    host = running()
    host.take(fed())
    assert host.take(ended(failure=REJECTED)) == [CommitTask(task(0))]
    assert host.take(CommitEnded(task(0))) == [CloseTask(task(0))]
    assert host.take(CloseEnded(task(0))) == [ReportFailed(task(0), REJECTED.reason)]
    assert host.phase() is Phase.FAILED
    assert host.take(fed()) == []


def test_a_rejected_record_comes_again_if_what_came_before_it_is_not_committed() -> None:
    host = running()
    host.take(fed(), ended(failure=REJECTED))
    assert host.take(CommitEnded(task(0), TRANSIENT)) == [CloseTask(task(0))]
    assert host.take(CloseEnded(task(0))) == [RestartTask(task(0), TRANSIENT.reason, 0)]


def test_nothing_is_committed_after_an_error_of_another_kind() -> None:
    host = running()
    host.take(fed())
    assert host.take(ended(failure=TRANSIENT)) == [CloseTask(task(0))]


def test_a_task_that_fails_again_and_again_waits_ever_longer() -> None:
    host = running()
    assert [restart_delay_ms(host, TRANSIENT) for _ in range(10)] == [
        *(0, 500, 1000, 2000, 4000, 8000, 16_000),
        *(30_000, 30_000, 30_000),
    ]


def test_a_task_that_committed_meanwhile_starts_again_at_once() -> None:
    """Brokers that restart one after the other are not one failure that goes on forever."""
    host = running()
    for _ in range(3):
        assert restart_delay_ms(host, TRANSIENT) == 0
        host.take(fed(), ended(is_at_its_end=True), CommitEnded(task(0)))


def test_a_task_that_did_not_fail_for_a_minute_starts_again_at_once() -> None:
    host = running()
    assert [restart_delay_ms(host, TRANSIENT) for _ in range(2)] == [0, 500]
    host.wait(60_001)
    assert restart_delay_ms(host, TRANSIENT) == 0


def test_a_start_that_fails_waits_too() -> None:
    """A run that failed has committed nothing, even if the run before it has."""
    host = running()
    host.take(fed(), ended(is_at_its_end=True), CommitEnded(task(0)))
    assert restart_delay_ms(host, TRANSIENT) == 0
    restart_delay_ms(host, TRANSIENT)
    host.take(DependencyFailed(task(0), TRANSIENT), CloseEnded(task(0)))
    host.wait(1000)
    (again,) = host.take(StartFailed(task(0), TRANSIENT))
    assert again == RestartTask(task(0), TRANSIENT.reason, 2000)


def test_a_start_that_cannot_succeed_fails_the_task() -> None:
    host = Host()
    host.take(Assigned(task(0), False, MAX_PROCESS_MS))
    assert host.take(StartFailed(task(0), FATAL)) == [ReportFailed(task(0), FATAL.reason)]


def test_a_task_that_is_fenced_twice_in_a_minute_is_given_up() -> None:
    host = running()
    assert restart_delay_ms(host, FENCED) == 1500
    host.take(fed(), ended(is_at_its_end=True), CommitEnded(task(0), FENCED))
    assert host.take(CloseEnded(task(0))) == [ForgetTask(task(0), FENCED.reason)]
    assert host.core.tasks == []


def test_a_task_whose_transactions_expire_is_never_given_up() -> None:
    """The brokers fenced it, and no other owner has it."""
    host = running()
    assert [restart_delay_ms(host, EXPIRED) for _ in range(4)] == [1500, 1500, 1500, 2000]
    assert restart_delay_ms(host, FENCED) == 4000


def test_what_a_task_needs_may_fail_while_it_does_something() -> None:
    host = running()
    host.take(fed())
    assert host.take(DependencyFailed(task(0), FATAL)) == []
    assert host.take(ended(is_at_its_end=True)) == [CloseTask(task(0))]
    assert host.take(CloseEnded(task(0))) == [ReportFailed(task(0), FATAL.reason)]
    assert host.take(DependencyFailed(task(0), TRANSIENT)) == []


def test_a_task_that_failed_can_have_its_offsets_committed_again() -> None:
    host = running()
    host.take(DependencyFailed(task(0), FATAL), CloseEnded(task(0)))
    assert host.take(RefreshDue(task(0))) == [RefreshTask(task(0))]
    assert host.take(CommitEnded(task(0), TRANSIENT)) == []
    assert host.phase() is Phase.FAILED


# Calls that take long


def test_a_call_that_takes_too_long_fails_its_task_and_frees_the_others() -> None:
    host = running(range(2))
    host.take(fed(0), fed(1))
    call = TaskCall(task(0), "`process` of in[0]@7", host.now_ms)
    assert host.work(MAX_PROCESS_MS, call) == []
    reason = "`process` of in[0]@7 takes longer than max_process_time_ms (5000): 5 s so far"
    assert host.take(host.tick(1, call)) == [
        AbandonCall(task(0)),
        ReportFailed(task(0), reason),
        RunTurn(task(1)),
    ]
    assert host.phase(0) is Phase.FAILED


def test_time_in_which_the_process_did_not_run_is_not_held_against_a_call() -> None:
    host = running()
    host.take(fed())
    call = TaskCall(task(0), "`process` of in[0]@7", host.now_ms)
    assert host.take(host.tick(100 * MAX_PROCESS_MS, call)) == []
    assert host.work(MAX_PROCESS_MS - 1000, call) == []
    assert host.take(host.tick(1, call))[0] == AbandonCall(task(0))


def test_each_call_has_the_whole_time() -> None:
    host = running()
    host.take(fed())
    for _ in range(3):
        call = TaskCall(task(0), "`process` of in[0]@7", host.now_ms)
        assert host.work(MAX_PROCESS_MS, call) == []


def test_a_commit_that_never_ends_ends_the_process() -> None:
    """Nothing else would show that librdkafka hangs: the loop goes on."""
    host = running()
    host.take(fed(), ended(is_at_its_end=True))
    assert host.take(host.tick(1000 * TIMEOUT_MS)) == []
    assert host.work(2 * TIMEOUT_MS + 10_000 - 1000) == []
    assert host.work(1) == [EndProcess(task(0), "a commit of P_0 does not end")]


def test_each_commit_has_the_whole_time() -> None:
    """This holds even if each check finds another commit of the same task in progress."""
    host = running()
    for _ in range(3):
        host.take(fed(), ended(is_at_its_end=True))
        assert host.work(2 * TIMEOUT_MS) == []
        host.take(CommitEnded(task(0)))


def test_an_init_that_takes_too_long_fails_its_task() -> None:
    host = Host()
    host.take(Assigned(task(0), False, MAX_PROCESS_MS))
    call = TaskCall(task(0), "`init`", host.now_ms)
    said = host.work(MAX_PROCESS_MS + 1, call)
    assert said[0] == AbandonCall(task(0))
    assert host.phase() is Phase.FAILED


def test_a_task_that_is_wanted_back_is_given_back_though_its_call_never_returns() -> None:
    host = running()
    host.take(fed(), Revoked((task(0),)))
    call = TaskCall(task(0), "`process` of in[0]@7", host.now_ms)
    said = host.work(MAX_PROCESS_MS + 1, call)
    assert said == [AbandonCall(task(0)), ENDS]


ENDS = EndProcess(task(0), "a call of P_0 does not return")


def hanging() -> Host:
    host = running(range(2))
    host.take(fed())
    call = TaskCall(task(0), "`process` of in[0]@7", host.now_ms)
    host.work(MAX_PROCESS_MS + 1, call)
    assert host.phase() is Phase.FAILED
    return host


def test_a_call_that_never_returns_is_ended_with_the_process_when_its_task_is_taken_away() -> None:
    """It keeps a core busy and the stores open, wherever the task starts again."""
    assert hanging().take(Revoked((task(0),), frozenset({task(0)}))) == [ENDS]


def test_a_call_that_returned_after_all_ends_no_process() -> None:
    assert hanging().take(Revoked((task(0),))) == [ForgetTask(task(0))]


def test_user_code_that_runs_as_its_task_is_taken_away_ends_no_process() -> None:
    """It is about to end, as far as anybody knows."""
    host = running()
    host.take(fed())
    assert host.take(Revoked((task(0),), frozenset({task(0)}))) == []


def test_a_call_that_never_returns_does_not_keep_a_sibling_from_its_last_commit() -> None:
    host = hanging()
    host.take(fed(1), ended(1, has_uncommitted=True))
    assert host.take(ThreadStopRequested()) == [ForgetTask(task(0)), CommitTask(task(1))]


def start_ends(host: Host, reason: str) -> Command:
    """Let user code end a start; return what follows, once the next start has come."""
    (command,) = host.take(StartFailed(task(0), Failure(FailureKind.NOT_MADE, reason)))
    if isinstance(command, RestartTask):
        assert host.wait(command.delay_ms) == [StartTask(task(0))]
    return command


def test_a_task_that_user_code_ends_in_the_same_way_at_ten_starts_has_failed() -> None:
    host = Host()
    host.take(Assigned(task(0), False, MAX_PROCESS_MS))
    reason = "KeyError: 'url' (shop.py:9 in init)"
    assert all(isinstance(start_ends(host, reason), RestartTask) for _ in range(9))
    assert start_ends(host, reason) == ReportFailed(task(0), f"{reason}; 10 starts ended like this")


def test_another_reason_and_a_start_that_succeeds_begin_the_count_again() -> None:
    host = Host()
    host.take(Assigned(task(0), False, MAX_PROCESS_MS))
    for reason in ("one", "other") * 10:
        assert isinstance(start_ends(host, reason), RestartTask)
    for _ in range(8):
        assert isinstance(start_ends(host, "other"), RestartTask)
    host.take(Started(task(0)))
    restart_delay_ms(host, TRANSIENT)
    host.take(DependencyFailed(task(0), TRANSIENT), CloseEnded(task(0)))
    host.wait(60_000)
    assert isinstance(start_ends(host, "other"), RestartTask)
