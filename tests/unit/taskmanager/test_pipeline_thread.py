"""A PipelineThread's loop with fake tasks: whom it waits for, and when it gives a task up."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from common.kafka.clients import FencedError, HopelessError, TransactionFailedError
from common.status import TaskState
from streams.stores.rocksdb import StoreCorruptedError
from taskmanager.pipeline_thread import PARALLEL_CALLS
from tests.unit.taskmanager.fakes import TIMEOUT_S, FakeTask, Rig, batch

TRANSACTION_TIMEOUT_S = 15.0


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def be_fenced() -> None:
    raise FencedError("fenced")


def fence(rig: Rig, task: FakeTask, transaction_age_s: float) -> None:
    """Let a task be fenced at its next commit, and turn until it runs again or is closed."""
    task.on_commit = be_fenced
    task.has_open_transaction, task.transaction_age_s = True, transaction_age_s
    rig.step()
    rig.clock.now_s += 2
    closed = rig.channel.count("closed")
    rig.step_until(lambda: bool(rig.reader.assigned) or closed > 0)


def test_task_that_is_fenced_twice_in_a_minute_is_given_up(rig: Rig) -> None:
    (task,) = rig.run(0)
    fence(rig, task, transaction_age_s=0.1)
    assert (task.restarts, rig.channel.count("closed")) == (1, 0)
    fence(rig, task, transaction_age_s=0.1)
    assert rig.channel.count("closed") == 1


def test_task_whose_transactions_time_out_is_never_given_up(rig: Rig) -> None:
    """The broker fenced it, and nobody else wants it."""
    (task,) = rig.run(0)
    for restarts in range(1, 5):
        fence(rig, task, transaction_age_s=TRANSACTION_TIMEOUT_S + 5)
        assert (task.restarts, rig.channel.count("closed")) == (restarts, 0)


def test_one_hang_does_not_count_towards_a_fence_that_follows_it(rig: Rig) -> None:
    (task,) = rig.run(0)
    fence(rig, task, transaction_age_s=TRANSACTION_TIMEOUT_S + 5)
    fence(rig, task, transaction_age_s=0.1)
    assert (task.restarts, rig.channel.count("closed")) == (2, 0)


def test_partition_that_was_paused_is_read_again_after_a_restart(rig: Rig) -> None:
    task, sibling = rig.run(0, 1)
    task.fills_up = True
    rig.step()
    assert rig.reader.paused == set(task.partitions)
    task.fills_up, task.has_open_transaction, task.on_commit = False, True, fail_to_commit
    rig.step()
    assert rig.reader.assigned == set(sibling.partitions)
    assert not rig.reader.paused


def test_tasks_that_lost_their_connection_start_again_all_at_once(rig: Rig) -> None:
    tasks = rig.run(0, 1, 2)

    def mend(task: FakeTask) -> None:
        task.has_lost_connection = False

    for task in tasks[1:]:
        task.has_lost_connection, task.on_start = True, partial(mend, task)
        task.on_lost_connection = fail_to_commit
    rig.step()
    assert [task.restarts for task in tasks] == [0, 1, 1]
    rig.step_until(lambda: len(rig.reader.assigned) == 3)
    assert [task.restarts for task in tasks] == [0, 1, 1]


def test_task_that_starts_is_left_alone(rig: Rig) -> None:
    """Else it could be dropped, and adopted as well when its start has ended."""
    (sibling,) = rig.run(0)
    task = rig.assign(1)
    has_started, may_go_on = threading.Event(), threading.Event()
    turned = []

    def start() -> None:
        task.state, task.needs_turns = TaskState.RUNNING, True
        has_started.set()
        may_go_on.wait(TIMEOUT_S)

    task.on_start, task.on_turn = start, lambda: turned.append(task.partitions)
    rig.step()
    assert has_started.wait(TIMEOUT_S)
    rig.thread._work()
    assert turned == []
    may_go_on.set()
    rig.step_until(lambda: bool(turned))
    assert sibling.restarts == task.restarts == 0


def fail_to_commit() -> None:
    raise TransactionFailedError("no")


def pause_after_failure_s(rig: Rig, task: FakeTask) -> float:
    """Let a task fail at its next commit; return how long it waits before it starts again."""
    task.on_commit, task.has_open_transaction = fail_to_commit, True
    rig.step()
    pause_s = rig.thread._start_at[task.replica.task] - rig.clock.now_s
    rig.clock.now_s += pause_s
    rig.step_until(lambda: bool(rig.reader.assigned))
    return pause_s


def test_task_that_fails_again_and_again_waits_before_it_starts(rig: Rig) -> None:
    (task,) = rig.run(0)
    assert [pause_after_failure_s(rig, task) for _ in range(4)] == pytest.approx([0, 0.5, 1, 2])


def test_task_that_committed_meanwhile_starts_again_at_once(rig: Rig) -> None:
    """Brokers that restart one after the other are not one failure that goes on for ever."""
    (task,) = rig.run(0)
    for _ in range(3):
        assert pause_after_failure_s(rig, task) == 0
        task.on_commit, task.has_open_transaction = lambda: None, True
        rig.step()


def test_thread_that_works_off_slow_batches_reports_after_each(rig: Rig) -> None:
    """A driver that hears nothing takes it for hung."""

    def process() -> None:
        rig.clock.now_s += 30

    for task in rig.run(0, 1, 2):
        task.on_process = process
    before = rig.channel.count("status")
    rig.reader.batches = [batch(0), batch(1), batch(2)]
    rig.thread._work()
    assert rig.channel.count("status") == before + 3


def test_thread_that_commits_for_long_reports_after_each(rig: Rig) -> None:
    def commit() -> None:
        rig.clock.now_s += 30

    (task,) = rig.run(0)
    task.on_commit = commit
    task.has_open_transaction = True
    before = rig.channel.count("status")
    rig.thread._work()
    assert rig.channel.count("status") == before + 1


def test_commits_do_not_wait_for_tasks_that_start(rig: Rig) -> None:
    """A restore may take minutes, and a transaction has seconds."""
    running = rig.run(0, 1)
    committed = threading.Event()
    for partition in range(2, 2 + 2 * PARALLEL_CALLS):
        rig.assign(partition).on_start = lambda: committed.wait(TIMEOUT_S)
    rig.step()
    for task in running:
        task.has_open_transaction = True
    rig.thread._work()
    starts_go_on = not committed.is_set() and len(rig.reader.assigned) == 2
    committed.set()
    assert starts_go_on
    assert not any(task.has_open_transaction for task in running)


def test_revoked_tasks_commit_side_by_side_before_they_close(rig: Rig) -> None:
    tasks = rig.run(0, 1, 2)
    together = threading.Barrier(3)
    for task in tasks:
        task.has_open_transaction = True
        task.on_commit = lambda: together.wait(TIMEOUT_S)
    rig.revoke(0, 1, 2)
    rig.thread._obey()
    assert not together.broken
    assert rig.channel.count("closed") == 3
    assert [task.restarts for task in tasks] == [0, 0, 0]
    assert rig.reader.is_idle


@pytest.mark.parametrize("fences_before", [0, 1])
def test_revoked_task_that_is_fenced_meanwhile_is_closed_once(fences_before: int, rig: Rig) -> None:
    """The second fence gives it up, which closes it too."""
    (task,) = rig.run(0)
    for _ in range(fences_before):
        fence(rig, task, transaction_age_s=0.1)
    task.has_open_transaction = True
    task.on_commit = be_fenced
    rig.revoke(0)
    rig.thread._obey()
    assert rig.channel.count("closed") == 1
    assert rig.reader.is_idle


def test_global_stores_are_brought_up_to_date_behind_the_fetch_and_before_its_records(
    rig: Rig,
) -> None:
    """So a record sees what had come to a global topic before it."""
    (task,) = rig.run(0)
    seen: list[int] = []
    task.on_process = lambda: seen.append(rig.updates)
    before = rig.updates
    rig.reader.batches.append(batch(0))
    rig.step()
    assert seen == [before + 1]


def test_a_global_store_that_cannot_go_on_fails_the_tasks_that_use_it_and_no_others(
    rig: Rig,
) -> None:
    user, other = rig.run(0, 1)
    rig.failed_stores[user] = HopelessError('global store "Names": no name')
    rig.step()
    assert (user.state, user.reason) == (TaskState.FAILED, 'global store "Names": no name')
    assert other.state is TaskState.RUNNING
    assert rig.reader.assigned == set(other.partitions)


def test_a_global_store_that_was_lost_lets_the_tasks_that_use_it_start_again(rig: Rig) -> None:
    (user,) = rig.run(0)
    rig.failed_stores[user] = StoreCorruptedError("damaged")
    rig.step()
    assert (user.restarts, user.reason) == (1, "damaged")
    rig.failed_stores.clear()
    rig.step_until(lambda: user.state is TaskState.RUNNING)
