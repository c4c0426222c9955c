"""A PipelineThread's loop with fake tasks: what waits for what, and what it reports."""

from __future__ import annotations

import decimal
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafka_pipeline.common.kafka.clients import (
    FencedError,
    NonRetriableError,
    TransactionFailedError,
)
from kafka_pipeline.common.pipelines.specs import ClassSpec, ForwardSpec, ProcessorSpec
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.engine.runtime import UserCall
from kafka_pipeline.streams.stores.rocksdb_directory import StoreCorruptedError
from kafka_pipeline.taskmanager import channel_messages
from kafka_pipeline.taskmanager.background import PARALLEL_CALLS
from kafka_pipeline.taskmanager.pipeline_thread import CHECK_INTERVAL_S
from kafka_pipeline.taskmanager.thread_events import Event
from kafka_pipeline.taskmanager.thread_state import LEAST_COMMIT_INTERVAL_MS
from tests.unit.taskmanager.fakes import HAS_MORE, TIMEOUT_S, FakeTask, Rig, batch

USER = ClassSpec(code="shop:A")
LIMIT_S = 20
LIMITED = ClassSpec(code="shop:A", max_process_time_ms=LIMIT_S * 1000)
"""Each round of the loop counts a second of a call at most, and takes 50 ms of real time."""
BOTH = pytest.mark.parametrize("spec", [ForwardSpec(), USER], ids=["inline", "user"])


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    made = Rig(monkeypatch)
    yield made
    made.thread.close()


def feed(rig: Rig, *tasks: FakeTask) -> None:
    """Let a record of each task come."""
    for task in tasks:
        ((_, number),) = task.partitions
        rig.reader.batches.append(batch(number))


def raise_(error: Exception) -> Any:
    def fail() -> None:
        raise error

    return fail


@BOTH
def test_records_are_processed_and_committed(rig: Rig, spec: ProcessorSpec) -> None:
    (task,) = rig.run(0, spec=spec)
    feed(rig, task)
    rig.step_until(lambda: task.committed == 1)
    assert task.turns == 1


def test_what_may_come_soon_is_committed_together_when_the_interval_is_over(rig: Rig) -> None:
    """A backlog is not committed because the brokers bring nothing for a moment."""
    (task,) = rig.run(0)
    rig.reader.has_ends = False
    feed(rig, task)
    rig.step()
    for _ in range(5):
        rig.step()
    assert (task.uncommitted, task.committed) == (1, 0)
    rig.clock.now_s += 0.1
    rig.step_until(lambda: task.committed == 1)


@BOTH
def test_revoked_tasks_commit_side_by_side_before_they_close(rig: Rig, spec: ProcessorSpec) -> None:
    tasks = rig.run(0, 1, 2, spec=spec)
    together = threading.Barrier(3)
    rig.reader.has_ends = False
    feed(rig, *tasks)
    rig.step_until(lambda: all(task.turns for task in tasks))
    for task in tasks:
        task.on_commit = lambda: together.wait(TIMEOUT_S)
    rig.revoke(*tasks)
    rig.step_until(lambda: rig.channel.count(channel_messages.Closed) == 3)
    assert not together.broken
    assert [(task.committed, task.is_released) for task in tasks] == [(1, True)] * 3
    assert rig.reader.is_idle
    assert rig.thread.tasks == []


def test_commits_do_not_wait_for_tasks_that_start(rig: Rig) -> None:
    """A restore may take minutes, and a transaction has seconds."""
    running = rig.run(0, 1)
    committed = threading.Event()
    for partition in range(2, 2 + 2 * PARALLEL_CALLS):
        rig.assign(partition).on_start = lambda: committed.wait(TIMEOUT_S)
    rig.step()
    feed(rig, *running)
    rig.step_until(lambda: all(task.committed for task in running))
    starts_go_on = not committed.is_set() and len(rig.reader.assigned) == 2
    committed.set()
    assert starts_go_on


def test_a_turn_of_user_code_that_takes_long_holds_up_no_built_in_type_and_no_report(
    rig: Rig,
) -> None:
    (slow,) = rig.run(0, spec=USER)
    (fast,) = rig.run(1)
    may_return = threading.Event()
    slow.on_turn = lambda: may_return.wait(TIMEOUT_S)
    feed(rig, slow)
    rig.step()
    for count in range(1, 4):
        feed(rig, fast)
        before = rig.channel.count(channel_messages.Status)
        rig.clock.now_s += 10
        rig.step_until(lambda count=count: fast.committed == count)  # type: ignore[misc]
        assert rig.channel.count(channel_messages.Status) > before
    assert slow.turns == 1
    assert not slow.uncommitted
    may_return.set()
    rig.step_until(lambda: slow.committed == 1)


def test_context_variables_of_a_task_stay_from_call_to_call_and_reach_no_other(rig: Rig) -> None:
    """The context of `decimal` is one: another task would round as this one does."""
    seen: dict[str, int] = {}

    def look(name: str) -> Callable[[], None]:
        return lambda: seen.update({name: decimal.getcontext().prec})

    def round_to(digits: int) -> None:
        decimal.getcontext().prec = digits

    default = decimal.getcontext().prec
    rounding, other = rig.assign(0, spec=USER), rig.assign(1, spec=USER)
    rounding.on_start = lambda: round_to(5)
    rounding.on_turn, other.on_turn = look("turn"), look("other")
    rounding.on_close = look("close")
    rig.step_until(lambda: len(rig.reader.assigned) == 2)
    feed(rig, rounding)
    rig.step_until(lambda: "turn" in seen)
    feed(rig, other)
    rig.step_until(lambda: "other" in seen)
    rig.revoke(rounding)
    rig.step_until(lambda: "close" in seen)
    assert seen == {"turn": 5, "other": default, "close": 5}


def test_a_task_that_waits_for_others_and_its_siblings_do_not_wait_for_each_other(rig: Rig) -> None:
    """The first batch of a query takes seconds, and results of calls must not wait for a turn."""
    slow = rig.assign(0, spec=USER)
    waiting = [rig.assign(partition, spec=USER) for partition in (1, 2)]
    for task in waiting:
        task.waits_for_others = True
    rig.step_until(lambda: len(rig.reader.assigned) == 3)
    may_return = threading.Event()
    for task in (slow, waiting[0]):
        task.on_turn = lambda: may_return.wait(TIMEOUT_S)
    feed(rig, slow, waiting[0])
    for count in range(1, 4):
        feed(rig, waiting[1])
        rig.clock.now_s += 1
        rig.step_until(lambda count=count: waiting[1].committed == count)  # type: ignore[misc]
    (fourth,) = rig.run(3, spec=USER)
    slow.on_turn = lambda: None
    may_return.set()
    rig.step_until(lambda: slow.committed == waiting[0].committed == 1)
    may_return.clear()
    feed(rig, waiting[0], fourth)
    rig.step_until(lambda: fourth.committed == 1)
    assert waiting[0].committed == 1
    rig.revoke(waiting[1])
    rig.step_until(lambda: waiting[1].is_released)
    may_return.set()


def test_a_built_in_type_with_a_backlog_stops_neither_the_loop_nor_user_code(rig: Rig) -> None:
    (backlogged,) = rig.run(0)
    (user,) = rig.run(1, spec=USER)
    backlogged.on_turn = lambda: HAS_MORE
    feed(rig, backlogged)
    for count in range(1, 4):
        feed(rig, user)
        rig.clock.now_s += 1
        rig.step_until(lambda count=count: user.committed == count)  # type: ignore[misc]
    assert backlogged.turns > 3


def test_what_other_threads_have_done_is_handled_between_turns_of_built_in_types(rig: Rig) -> None:
    """A round of the loop may have many of them, each of 100 ms."""
    first, second = rig.run(0, 1)
    handled: list[int] = []

    def note() -> Sequence[Event]:
        handled.append(second.turns)
        return ()

    first.on_turn = lambda: rig.thread._background.wake(note)
    feed(rig, first, second)
    rig.step_until(lambda: second.turns == 1)
    assert handled == [0]


def test_tasks_with_user_code_take_turns(rig: Rig) -> None:
    first, second = rig.run(0, 1, spec=USER)
    turns: list[int] = []
    first.on_turn = lambda: turns.append(0)
    second.on_turn = lambda: turns.append(1)
    for count in range(1, 4):
        feed(rig, first, second)
        rig.step_until(lambda count=count: first.committed == second.committed == count)  # type: ignore[misc]
        rig.clock.now_s += LEAST_COMMIT_INTERVAL_MS / 1000
    assert turns == [0, 1] * 3


def test_a_call_that_takes_too_long_fails_its_task_and_no_other(rig: Rig) -> None:
    """The thread that it is on is left to it."""
    hanging, sibling = rig.run(0, 1, spec=LIMITED)
    may_return = threading.Event()

    def hang() -> None:
        hanging.calls.append(UserCall("`process` of in[0]@7", time.monotonic() + 1000))
        may_return.wait(TIMEOUT_S)

    # The rig's clock is far from the real one.
    hanging.on_turn = hang
    feed(rig, hanging, sibling)
    rig.step_until(lambda: bool(hanging.calls))
    hanging.calls[0] = UserCall("`process` of in[0]@7", rig.clock.now_s)
    for _ in range(LIMIT_S):
        rig.clock.now_s += 1
        rig.step()
    assert rig.status(hanging).state is TaskState.RUNNING
    rig.clock.now_s += 1
    rig.step()
    status = rig.status(hanging)
    assert status.state is TaskState.FAILED
    limit = "`process` of in[0]@7 takes longer than max_process_time_ms (20000): 21 s so far, at "
    assert status.reason.startswith(limit)
    assert status.reason.endswith(" in hang"), "the line that waits"
    assert hanging.is_released
    rig.step_until(lambda: sibling.committed == 1)
    assert not hanging.is_ended, "the call may use the stores"
    may_return.set()
    rig.step_until(lambda: hanging.is_ended)
    rig.clock.now_s += LEAST_COMMIT_INTERVAL_MS / 1000
    feed(rig, sibling)
    rig.step_until(lambda: sibling.committed == 2)
    assert rig.reader.assigned == set(sibling.partitions)
    assert hanging.committed == 0


@pytest.mark.parametrize("returns", [False, True])
def test_the_process_ends_as_a_task_is_revoked_whose_call_does_not_return(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, returns: bool
) -> None:
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    (hanging,) = rig.run(0, spec=LIMITED)
    may_return = threading.Event()
    hanging.on_turn = lambda: may_return.wait(TIMEOUT_S)
    feed(rig, hanging)
    rig.step_until(lambda: hanging.turns == 1)
    hanging.calls.append(UserCall("`process` of in[0]@7", rig.clock.now_s))
    while rig.status(hanging).state is not TaskState.FAILED:
        rig.clock.now_s += 1
        rig.step()
    if returns:
        may_return.set()
        rig.step_until(lambda: hanging.is_ended)
    rig.revoke(hanging)
    rig.step()
    said = channel_messages.Ending(f"a call of {hanging.task_id} does not return")
    assert exits == ([] if returns else [1])
    assert (said in rig.channel.sent) is not returns
    may_return.set()


def test_a_task_whose_call_on_the_event_loop_takes_too_long_has_its_stores_closed(rig: Rig) -> None:
    (task,) = rig.run(0, spec=LIMITED)
    task.calls.append(UserCall("`process` of in[0]@7", rig.clock.now_s))
    for _ in range(LIMIT_S + 1):
        rig.clock.now_s += 1
        rig.step()
    assert rig.status(task).state is TaskState.FAILED
    assert (task.is_released, task.is_ended) == (True, True)


def test_an_init_that_takes_too_long_fails_its_task(rig: Rig) -> None:
    task = rig.assign(0, LIMITED)
    may_return = threading.Event()

    def init() -> None:
        start = rig.thread._tasks[task.task_id].start
        assert start is not None
        start.call = UserCall("`init`", rig.clock.now_s)
        may_return.wait(TIMEOUT_S)

    task.on_start = init
    rig.step()
    rig.step_until(lambda: rig.thread._tasks[task.task_id].call is not None)
    while rig.status(task).state is not TaskState.FAILED:
        rig.clock.now_s += 1
        rig.step()
    assert "`init` takes longer" in rig.status(task).reason
    with capture_logs() as logs:
        rig.clock.now_s += 1
        rig.step()
    assert logs == [], "it fails once"
    may_return.set()
    for _ in range(3):
        rig.step()
    assert rig.status(task).state is TaskState.FAILED
    assert rig.reader.is_idle


def test_what_came_before_a_record_that_fails_is_committed(rig: Rig) -> None:
    (task,) = rig.run(0, spec=USER)

    def turn() -> None:
        task.uncommitted = 2
        raise ProcessingFailedError("record in[0]@2: no good", ValueError("no good"))

    task.on_turn = turn
    feed(rig, task)
    rig.step_until(lambda: rig.status(task).state is TaskState.FAILED)
    assert (task.committed, task.is_released) == (2, True)
    assert rig.status(task).reason == "record in[0]@2: no good"
    assert rig.reader.is_idle


def test_partition_of_which_too_much_waits_is_paused_while_others_are_read(rig: Rig) -> None:
    full, other = rig.run(0, 1)
    full.fills_up = True
    feed(rig, full)
    rig.step()
    rig.step()
    assert rig.reader.paused == set(full.partitions)
    other.fills_up = True
    feed(rig, other)
    rig.step()
    assert rig.reader.batches, "nobody can take any"
    full.fills_up = False
    rig.step()
    assert not rig.reader.paused
    assert not rig.reader.batches


def test_partition_that_was_paused_is_read_again_after_a_restart(rig: Rig) -> None:
    task, _ = rig.run(0, 1)
    task.fills_up = True
    feed(rig, task)
    rig.step()
    rig.step()
    assert rig.reader.paused == set(task.partitions)
    task.fills_up = False
    task.loses_connection = True
    rig.clock.now_s += CHECK_INTERVAL_S
    rig.step()
    assert not rig.reader.paused


def test_tasks_that_lost_their_connection_start_again_all_at_once(rig: Rig) -> None:
    tasks = rig.run(0, 1, 2)
    starts = threading.Barrier(2)

    def start(task: FakeTask) -> None:
        starts.wait(TIMEOUT_S)
        task.loses_connection = False

    for task in tasks[1:]:
        task.loses_connection = True
        task.on_start = lambda task=task: start(task)  # type: ignore[misc]
    rig.clock.now_s += CHECK_INTERVAL_S
    rig.step()
    assert [rig.status(task).count("restarts") for task in tasks] == [0, 1, 1]
    rig.step_until(lambda: len(rig.reader.assigned) == 3)
    assert [rig.status(task).count("restarts") for task in tasks] == [0, 1, 1]


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (TransactionFailedError("no"), TaskState.RUNNING, ""),
        (FencedError("newer"), TaskState.RESTARTING, "fenced: newer"),
        (ZeroDivisionError("a bug"), TaskState.RUNNING, ""),
        (NonRetriableError("a right is missing"), TaskState.FAILED, "a right is missing"),
    ],
)
def test_a_commit_that_fails_ends_the_run_of_the_task(
    rig: Rig, error: Exception, state: TaskState, reason: str
) -> None:
    (task,) = rig.run(0)
    task.on_commit = raise_(error)
    feed(rig, task)
    rig.step_until(lambda: task.releases == 1)
    task.on_commit = lambda: None
    rig.step_until(lambda: rig.status(task).state is state)
    assert rig.status(task).reason == reason


def test_task_that_fails_at_its_start_says_why_until_it_starts_again(rig: Rig) -> None:
    """Like a task whose `init` raises, it fails again and again."""
    task = rig.assign(0)
    task.on_start = raise_(KeyError("x"))
    rig.step()
    reason = r"KeyError \(tests/unit/.* in fail\); log_record_values: true shows its message"
    for restarts in range(1, 4):
        rig.step_until(lambda n=restarts: rig.status(task).count("restarts") == n)  # type: ignore[misc]
        status = rig.status(task)
        assert status.state is TaskState.RESTARTING
        assert re.fullmatch(reason, status.reason)
        rig.clock.now_s += 10
    task.on_start = lambda: None
    rig.step_until(lambda: rig.status(task).state is TaskState.RUNNING)


def test_lag_of_a_task_is_watched_from_its_assignment_until_it_is_closed(rig: Rig) -> None:
    rig.brokers.ends["in", 0] = 10
    task = rig.assign(0)
    rig.step()
    rig.lag_watch.done_up_to(task.task_id, {("in", 0): 4})
    rig.lag_watch.look()
    assert rig.lag_watch.figures(task.task_id) == {"lag": 6}
    rig.step_until(lambda: rig.status(task).state is TaskState.RUNNING)
    rig.revoke(task)
    rig.step_until(lambda: rig.channel.count(channel_messages.Closed) == 1)
    assert rig.lag_watch.figures(task.task_id) == {}


def test_a_call_that_takes_long_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_pipeline.taskmanager.assigned_task.time", rig.clock)
    (task,) = rig.run(0, spec=USER)
    task.calls.append(UserCall("`process` of in[0]@7", rig.clock.now_s - 0.9))
    assert rig.status(task).activity == ""
    rig.clock.now_s += 11.1
    assert rig.status(task).activity == "in `process` of in[0]@7 for 12 s"


def test_global_stores_are_brought_up_to_date_before_a_turn_of_user_code(rig: Rig) -> None:
    """So a record sees what had come to a global topic before it."""
    rig.stores.are_used = True
    (task,) = rig.run(0, spec=USER)
    rig.step_until(lambda: rig.updates > 0 and not rig.thread._background.is_busy)
    seen: list[int] = []
    task.on_turn = lambda: seen.append(rig.updates)
    before = rig.updates
    feed(rig, task)
    rig.step_until(lambda: bool(seen))
    assert seen == [before + 1]


def test_a_global_store_that_cannot_go_on_fails_the_tasks_that_use_it_and_no_others(
    rig: Rig,
) -> None:
    rig.stores.are_used = True
    user, other = rig.run(0, 1, spec=USER)
    rig.failed_stores[user.task_id] = NonRetriableError('global store "Names": no name')
    rig.clock.now_s += 1
    rig.step_until(lambda: rig.status(user).state is TaskState.FAILED)
    assert rig.status(user).reason == 'global store "Names": no name'
    assert rig.status(other).state is TaskState.RUNNING
    assert rig.reader.assigned == set(other.partitions)


def test_a_global_store_that_was_lost_lets_the_tasks_that_use_it_start_again(rig: Rig) -> None:
    rig.stores.are_used = True
    (user,) = rig.run(0, spec=USER)
    rig.failed_stores[user.task_id] = StoreCorruptedError("damaged")
    rig.clock.now_s += 1
    rig.step_until(lambda: rig.status(user).count("restarts") == 1)
    rig.failed_stores.clear()
    rig.step_until(lambda: rig.status(user).state is TaskState.RUNNING)


def test_only_what_has_changed_is_reported_and_that_nothing_has_too(rig: Rig) -> None:
    """The driver takes a silent thread for hung."""
    first, _ = rig.run(0, 1)
    rig.clock.now_s += 1
    rig.step()
    rig.channel.sent.clear()
    rig.clock.now_s += 1
    rig.step()
    assert rig.channel.sent == [channel_messages.Status(())]
    first.loses_connection = True
    rig.channel.sent.clear()
    rig.clock.now_s += 1
    rig.step()
    sent = [m for m in rig.channel.sent if isinstance(m, channel_messages.Status) and m.tasks]
    assert [[status.task for status in m.tasks] for m in sent] == [[first.task_id]]


def test_stop_closes_all_tasks_and_ends_the_loop(rig: Rig) -> None:
    tasks = [*rig.run(0), *rig.run(1, spec=USER)]
    rig.channel.commands.append(channel_messages.Stop())
    rig.thread.loop()
    assert rig.channel.count(channel_messages.Closed) == 2
    assert rig.channel.sent[-1] == channel_messages.Stopped()
    assert all(task.is_released for task in tasks)


def test_a_thread_that_is_to_stop_takes_no_tasks(rig: Rig) -> None:
    (task,) = rig.run(0, spec=USER)
    may_end = threading.Event()
    task.on_close = lambda: may_end.wait(TIMEOUT_S)
    rig.channel.commands.append(channel_messages.Stop())
    rig.assign(1)
    rig.step()
    assert rig.thread.tasks == [task.task_id]
    may_end.set()
    rig.thread.loop()
    assert rig.channel.sent[-1] == channel_messages.Stopped()


def test_loop_ends_when_the_driver_is_gone(rig: Rig) -> None:
    (task,) = rig.run(0)
    rig.channel.is_lost = True
    with pytest.raises(ConnectionError, match="driver is gone"):
        rig.thread.loop()
    assert task.is_released
