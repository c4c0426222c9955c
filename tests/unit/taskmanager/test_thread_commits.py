"""A PipelineThread's core without a thread: when tasks commit."""

from __future__ import annotations

from kafka_pipeline.taskmanager.commit_queue import (
    LEAST_COMMIT_DURATIONS,
    LONG_COMMIT_MS,
    TASKS_PER_COMMIT,
)
from kafka_pipeline.taskmanager.task_entry import Phase
from kafka_pipeline.taskmanager.thread_events import (
    Assigned,
    CloseTask,
    CommitEnded,
    CommitTask,
    RefreshDue,
    RefreshTask,
    Revoked,
    RunTurn,
    Started,
)
from kafka_pipeline.taskmanager.thread_state import LEAST_COMMIT_INTERVAL_MS
from tests.unit.taskmanager.thread_host import (
    BUDGET_MS,
    COMMIT_MS,
    Host,
    ended,
    fed,
    running,
    task,
)


def test_a_task_is_woken_though_time_passed_while_it_committed() -> None:
    host = running()
    host.take(fed(), ended(is_at_its_end=True, wake_in_ms=30))
    assert host.phase() is Phase.COMMITTING
    host.wait(10)
    host.take(CommitEnded(task(0)))
    assert host.core.next_due_ms == host.now_ms + 20
    assert host.wait(20) == [RunTurn(task(0))]


def test_tasks_that_are_due_together_commit_in_the_order_in_which_they_came() -> None:
    """So the same events lead to the same commands in every process."""
    numbers = range(20)
    host = running(numbers, is_inline=True)
    for number in numbers:
        host.take(fed(number), ended(number))
    at_once = len(numbers) // TASKS_PER_COMMIT
    assert host.wait(COMMIT_MS) == [CommitTask(task(number)) for number in numbers[:at_once]]
    for number in numbers[at_once:]:
        assert host.take(CommitEnded(task(number - at_once))) == [CommitTask(task(number))]


def test_the_interval_goes_on_though_time_passed_during_another_turn() -> None:
    host = running()
    host.take(fed(), ended(), fed())
    host.wait(10)
    assert host.take(ended()) == []
    assert host.core.next_due_ms == host.now_ms - 10 + COMMIT_MS
    assert host.wait(COMMIT_MS - 10) == [CommitTask(task(0))]


def test_a_backlog_is_committed_when_the_interval_is_over() -> None:
    host = running()
    host.take(fed())
    assert host.take(ended()) == []
    assert host.wait(COMMIT_MS - 1) == []
    assert host.wait(1) == [CommitTask(task(0))]


def test_the_interval_begins_with_the_turn_and_ends_behind_another_one() -> None:
    host = running()
    host.take(fed())
    assert host.wait(BUDGET_MS) == []
    assert host.take(ended(has_more=True)) == [RunTurn(task(0))]
    assert host.wait(COMMIT_MS - BUDGET_MS) == []
    assert host.take(ended(has_more=True)) == [CommitTask(task(0))]


def test_a_processor_that_asks_for_a_commit_gets_it_before_its_next_record() -> None:
    host = running()
    host.take(fed())
    assert host.take(ended(has_more=True, wants_commit=True)) == [CommitTask(task(0))]
    assert host.take(CommitEnded(task(0))) == [RunTurn(task(0))]


def test_the_end_of_the_input_commits_what_was_processed_before() -> None:
    host = running()
    host.take(fed(), ended())
    assert host.take(fed(has_records=False, is_at_its_end=True)) == [CommitTask(task(0))]


def test_the_end_of_the_input_is_no_reason_for_a_commit_right_after_another() -> None:
    host = running()
    host.take(fed(), ended(is_at_its_end=True), CommitEnded(task(0)), fed())
    assert host.take(ended(is_at_its_end=True)) == []
    assert host.wait(LEAST_COMMIT_INTERVAL_MS - 1) == []
    assert host.core.next_due_ms == host.now_ms + 1
    assert host.wait(1) == [CommitTask(task(0))]


def commits(host: Host, *took_ms: int) -> None:
    """Have a task commit at the end of its input, several times, each as soon as it may."""
    for took in took_ms:
        host.take(fed(), ended(is_at_its_end=True))
        while host.phase() is not Phase.COMMITTING:
            host.wait(1)
        host.wait(took)
        host.take(CommitEnded(task(0)))


def test_while_commits_take_long_the_end_of_the_input_is_less_often_a_reason() -> None:
    host = running()
    commits(host, 20, 25)
    host.take(fed(), ended(is_at_its_end=True))
    rest_ms = LEAST_COMMIT_DURATIONS * 20 - 25
    assert host.core.next_due_ms == host.now_ms + rest_ms
    assert host.wait(rest_ms) == [CommitTask(task(0))]


def test_a_single_long_commit_changes_nothing() -> None:
    host = running()
    commits(host, 5, 50)
    host.take(fed())
    assert host.take(ended(is_at_its_end=True)) == [CommitTask(task(0))]


def test_after_long_commits_the_interval_holds() -> None:
    host = running()
    commits(host, 10 * COMMIT_MS, 10 * COMMIT_MS)
    host.take(fed(), ended(is_at_its_end=True))
    assert host.wait(COMMIT_MS - 1) == []
    assert host.wait(1) == [CommitTask(task(0))]


def test_records_that_come_meanwhile_join_the_transaction() -> None:
    host = running()
    host.take(fed(), ended(is_at_its_end=True), CommitEnded(task(0)), fed())
    host.take(ended(is_at_its_end=True))
    assert host.take(fed()) == [RunTurn(task(0))]
    host.wait(LEAST_COMMIT_INTERVAL_MS)
    assert host.take(ended(is_at_its_end=True)) == [CommitTask(task(0))]


def test_a_batch_with_all_that_had_arrived_is_committed_although_more_has_come() -> None:
    """A batch of a query takes longer than the next records need to arrive."""
    host = running()
    host.take(fed())
    host.take(fed())
    assert host.take(ended(took_all=True)) == [CommitTask(task(0))]
    assert host.take(CommitEnded(task(0))) == [RunTurn(task(0))]
    host.take(fed())
    # Too soon after the last commit.
    assert host.take(ended(took_all=True)) == [RunTurn(task(0))]
    host.wait(LEAST_COMMIT_INTERVAL_MS)
    host.take(fed())
    assert host.take(ended(took_all=True)) == [CommitTask(task(0))]


def test_a_batch_that_would_end_after_the_commit_of_the_one_before_it_waits_for_that() -> None:
    host = running()
    host.take(fed(), ended(took_all=True), CommitEnded(task(0)), fed())
    host.wait(15)
    host.take(fed())
    assert host.take(ended(took_all=True, took_ms=16)) == []
    assert host.take(fed()) == []
    assert host.core.next_due_ms == host.now_ms + LEAST_COMMIT_INTERVAL_MS - 15
    assert host.wait(LEAST_COMMIT_INTERVAL_MS - 15) == [CommitTask(task(0))]
    assert host.take(CommitEnded(task(0))) == [RunTurn(task(0))]
    host.wait(15)
    host.take(fed())
    assert host.take(ended(took_all=True, took_ms=15)) == [RunTurn(task(0))]


def test_a_batch_with_a_part_of_what_had_arrived_waits_for_the_interval() -> None:
    host = running()
    host.take(fed())
    host.take(fed())
    assert host.take(ended()) == [RunTurn(task(0))]


def test_what_is_asked_for_is_committed_right_after_another_commit() -> None:
    host = running()
    host.take(fed(), ended(is_at_its_end=True), CommitEnded(task(0)), fed())
    assert host.take(ended(wants_commit=True)) == [CommitTask(task(0))]


def test_what_cannot_be_committed_now_is_not() -> None:
    host = running()
    host.take(fed(), ended(), fed(), ended(has_uncommitted=False))
    assert host.wait(10 * COMMIT_MS) == []
    assert host.take(Revoked((task(0),))) == [CloseTask(task(0))]


def test_a_task_that_has_done_nothing_commits_nothing() -> None:
    host = running()
    host.take(fed(), ended(has_uncommitted=False, is_at_its_end=True))
    assert host.wait(10 * COMMIT_MS) == []
    assert host.core.next_due_ms is None


def test_offsets_are_committed_again_between_transactions() -> None:
    host = running()
    assert host.take(RefreshDue(task(0))) == [RefreshTask(task(0))]
    assert host.take(CommitEnded(task(0))) == []
    host.wait(LEAST_COMMIT_INTERVAL_MS)
    host.take(fed())
    assert host.take(RefreshDue(task(0)), ended(is_at_its_end=True)) == [CommitTask(task(0))]


def test_a_task_with_an_interval_of_its_own_commits_by_it_alone() -> None:
    host = Host()
    host.take(Assigned(task(0), False, commit_interval_ms=5_000), Started(task(0)))
    host.take(fed(is_at_its_end=True))
    assert host.take(ended(is_at_its_end=True, took_all=True)) == []
    assert host.wait(4_999) == []
    assert host.wait(1) == [CommitTask(task(0))]
    host.take(CommitEnded(task(0)), fed())
    assert host.take(ended(wants_commit=True)) == [CommitTask(task(0))]


def test_a_task_with_an_interval_of_its_own_commits_before_it_is_released() -> None:
    host = Host()
    host.take(Assigned(task(0), False, commit_interval_ms=5_000), Started(task(0)))
    host.take(fed(), ended())
    assert host.take(Revoked((task(0),))) == [CommitTask(task(0))]


# Commits at the same time


def due(host: Host, *numbers: int) -> None:
    """Have tasks process all their input, so that their commits are due."""
    for number in numbers:
        host.take(fed(number), ended(number, is_at_its_end=True))


def test_one_task_of_four_commits_at_a_time() -> None:
    host = running(range(TASKS_PER_COMMIT))
    due(host, 0, 1, 2)
    assert [host.phase(number) for number in (0, 1, 2)] == [
        Phase.COMMITTING,
        Phase.IDLE,
        Phase.IDLE,
    ]
    assert host.take(CommitEnded(task(0))) == [CommitTask(task(1))]
    assert host.take(CommitEnded(task(1))) == [CommitTask(task(2))]


def test_a_task_takes_records_while_its_commit_waits() -> None:
    host = running((0, 1))
    due(host, 0, 1)
    assert host.take(fed(1)) == [RunTurn(task(1))]
    assert host.take(CommitEnded(task(0))) == []
    assert host.take(ended(1, has_more=True)) == [CommitTask(task(1))]


def test_a_task_that_asked_for_its_commit_takes_no_records_while_that_waits() -> None:
    """With the next records, calls would be open, and nothing could be committed."""
    host = running((0, 1))
    due(host, 0)
    assert host.take(fed(1), ended(1, has_more=True, wants_commit=True)) == [RunTurn(task(1))]
    assert host.take(fed(1)) == []
    assert host.take(CommitEnded(task(0))) == [CommitTask(task(1))]
    assert host.take(CommitEnded(task(1))) == [RunTurn(task(1))]


def test_a_commit_that_takes_long_holds_up_no_other() -> None:
    host = running((0, 1))
    due(host, 0, 1)
    assert host.core.next_due_ms == host.now_ms + LONG_COMMIT_MS
    assert host.wait(LONG_COMMIT_MS - 1) == []
    assert host.wait(1) == [CommitTask(task(1))]


def test_a_task_that_has_waited_for_long_takes_no_more_records_before_its_commit() -> None:
    host = running((0, 1, 2))
    due(host, 0, 1, 2)
    host.wait(LONG_COMMIT_MS - 1)
    assert host.take(fed(1)) == [RunTurn(task(1))]
    # The first commit counts no more, and the second task is at work.
    assert host.wait(1) == [CommitTask(task(2))]
    assert host.take(ended(1, has_more=True, is_at_its_end=True)) == []
    assert not host.core.awaits_records
    assert host.take(fed(1)) == []
    assert host.core.next_due_ms == host.now_ms + LONG_COMMIT_MS
    assert host.take(CommitEnded(task(2))) == [CommitTask(task(1))]
    assert host.take(CommitEnded(task(1))) == [RunTurn(task(1))]


def test_a_task_of_a_built_in_type_takes_what_has_come_right_before_its_commit() -> None:
    host = running((0, 1, 2), is_inline=True)
    due(host, 0, 1, 2)
    assert host.take(fed(1)) == []
    assert not host.core.awaits_records
    assert host.core.next_due_ms == host.now_ms + LONG_COMMIT_MS
    assert host.take(CommitEnded(task(0))) == [RunTurn(task(1))]
    assert host.take(fed(2)) == []
    assert host.take(ended(1)) == [CommitTask(task(1))]
    assert host.take(CommitEnded(task(1))) == [RunTurn(task(2))]
    # It has nothing to commit, and makes room.
    host.wait(LEAST_COMMIT_INTERVAL_MS)
    due(host, 0)
    assert host.take(ended(2, has_uncommitted=False)) == [CommitTask(task(0))]


def test_a_task_without_anything_to_commit_waits_no_longer() -> None:
    host = running((0, 1))
    due(host, 0, 1)
    host.take(fed(1), ended(1, has_uncommitted=False))
    host.wait(LONG_COMMIT_MS - 1)
    assert host.take(CommitEnded(task(0))) == []
    host.wait(LONG_COMMIT_MS)
    assert host.take(fed(1)) == [RunTurn(task(1))]


def test_a_task_that_is_taken_away_commits_at_once() -> None:
    host = running((0, 1))
    due(host, 0, 1)
    assert host.take(Revoked((task(1),))) == [CommitTask(task(1))]
    assert host.take(CommitEnded(task(1))) == [CloseTask(task(1))]


def test_commits_at_an_interval_of_their_own_wait_for_none_and_hold_up_none() -> None:
    host = running((0, 1))
    host.take(Assigned(task(2), False, commit_interval_ms=5_000), Started(task(2)))
    host.take(fed(2), ended(2))
    assert host.wait(5_000) == [CommitTask(task(2))]
    due(host, 0)
    assert host.phase(0) is Phase.COMMITTING
    host.take(CommitEnded(task(2)), fed(2), ended(2))
    host.wait(4_500)
    host.take(CommitEnded(task(0)))
    due(host, 0)
    assert host.wait(500) == [CommitTask(task(2))]
