"""What a PipelineThread has done to its tasks, most of it by other threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kafka_pipeline.common.errors import EngineError, as_exception
from kafka_pipeline.common.kafka.clients import MissingRightError
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.background import Background, Operation, Pool
from kafka_pipeline.taskmanager.running_task import RunningTask, TaskContext, Turn
from kafka_pipeline.taskmanager.shared_consumers import SharedConsumers
from kafka_pipeline.taskmanager.task_rights import named
from kafka_pipeline.taskmanager.task_start import StartCancelledError, refresh_failed
from kafka_pipeline.taskmanager.thread_events import (
    Closed,
    CommitEnded,
    Event,
    Fed,
    Started,
    StartFailed,
    TurnEnded,
)


class TaskOperations:
    """Starts, turns, commits and closes tasks, and updates the global stores.

    None of these blocks, except turns and closes of tasks that are inline. Each ends with an event
    for the core, which is handled on the loop's thread.
    """

    def __init__(
        self,
        context: TaskContext,
        background: Background,
        consumers: SharedConsumers,
        handle: Callable[[Event], None],
        dependency_failed: Callable[[TaskId, Exception], None],
    ) -> None:
        self._context = context
        self._background = background
        self._consumers = consumers
        self._handle = handle
        self._dependency_failed = dependency_failed
        self._calling: set[TaskId] = set()
        self._update: Operation | None = None
        """The update of the global stores that is in progress."""

    @property
    def has_calls(self) -> bool:
        """Whether tasks have calls of an `AsyncProcessor` in flight."""
        return bool(self._calling)

    def start(self, task: AssignedTask) -> None:
        """Begin to start a task; ends with `Started` or `StartFailed`."""
        task_id = task.replica.task

        def then(result: Any) -> None:
            if isinstance(result, RunningTask):
                task.running = result
                self._consumers.add(task_id, result)
                self._handle(Started(task_id, result.wake_in_ms(), result.has_own_thread))
            elif isinstance(result, StartCancelledError):
                self._handle(StartFailed(task_id, None))
            else:
                self._handle(StartFailed(task_id, task.failure_of(result)))

        def late(result: Any) -> None:
            if isinstance(result, RunningTask):
                result.close()

        def on_call_returned() -> None:
            if task.running is not None:
                self._handle(Fed(task_id, True, task.running.is_at_its_end))

        start = task.new_start(lambda: self._background.wake(on_call_returned))
        pool = Pool.STANDBY_START if task_id.standby else Pool.START
        task.operation = self._background.submit(pool, start.run, self._told(task, then), late)

    def run_turn(self, task: AssignedTask, budget_ms: int) -> None:
        """Process records for about `budget_ms`; ends with `TurnEnded`."""
        running, took_s = _running(task), 0.0

        def turn() -> Turn:
            nonlocal took_s
            began_s = time.monotonic()
            try:
                return running.turn(began_s + budget_ms / 1000)
            finally:
                took_s = time.monotonic() - began_s
                task.memory.turns.add(took_s)

        def then(result: Any) -> None:
            is_turn = isinstance(result, Turn)
            turn = result if is_turn else Turn(has_more=False, wants_commit=False)
            if running.has_calls:
                self._calling.add(task.replica.task)
            else:
                self._calling.discard(task.replica.task)
            self._handle(
                TurnEnded(
                    task.replica.task,
                    has_more=turn.has_more,
                    wants_commit=turn.wants_commit,
                    has_uncommitted=running.has_uncommitted,
                    is_at_its_end=running.is_at_its_end,
                    wake_in_ms=running.wake_in_ms(),
                    failure=None if is_turn else task.failure_of(result),
                    took_ms=1000 * took_s,
                )
            )

        if task.is_inline:
            self._told(task, then)(attempt(turn))
        else:
            self.update_global_stores()
            task.operation = self._background.submit(
                Pool.USER, turn, self._told(task, then), running.end_abandoned, _owner(task)
            )

    def commit(self, task: AssignedTask) -> None:
        """Commit what the task has done; ends with `CommitEnded`."""
        self._carry_out(task, _running(task).commit)

    def refresh(self, task: AssignedTask) -> None:
        """Commit the offsets of a task again, also of one that is FAILED, so that they last."""
        if task.running is not None:
            self._carry_out(task, task.running.refresh)
            return

        def refresh() -> None:
            try:
                refresh_failed(task.replica, self._context, task.memory)
            except EngineError as error:
                task.log.warning("the committed offsets were not refreshed", reason=str(error))

        self._background.submit(Pool.COMMIT, refresh, lambda _: None)

    def close(self, task: AssignedTask) -> None:
        """Close a task without a commit; ends with `Closed`."""
        running = _running(task)
        self._consumers.remove(task.replica.task, running)
        self._calling.discard(task.replica.task)

        def then(_: Any) -> None:
            task.running = None
            self._handle(Closed(task.replica.task))

        if task.is_inline:
            then(attempt(running.close))
        else:
            task.operation = self._background.submit(
                Pool.USER, running.close, then, owner=_owner(task)
            )

    def abandon(self, task: AssignedTask) -> None:
        """Go on without the call of user code that hangs; what it does later has no effect."""
        assert task.operation is not None, "user code runs in other threads only"
        goes_on = self._background.abandon(task.operation)
        if task.operation.pool is Pool.USER and task.operation.owner is None:
            self._update = None
        self._calling.discard(task.replica.task)
        task.event_loop.close()
        task.start = None  # an abandoned start must not be cancelled: its call goes on
        if task.running is not None:
            self._consumers.remove(task.replica.task, task.running)
            task.running.abandon()
            if not goes_on:
                task.running.end_abandoned()
            task.running = None

    def update_global_stores(self) -> None:
        """Apply new records of global topics, so that tasks see them."""
        stores = self._context.global_stores
        if stores.are_used and self._update is None:
            most = self._context.config.max_batch_records
            self._update = self._background.submit(
                Pool.USER, lambda: stores.update(most), self._on_updated
            )

    def _carry_out(self, task: AssignedTask, commit: Callable[[], None]) -> None:
        def timed() -> None:
            began_s = time.monotonic()
            try:
                commit()
            finally:
                task.memory.commits.add(time.monotonic() - began_s)

        def then(result: Any) -> None:
            failure = task.failure_of(result) if isinstance(result, Exception) else None
            self._handle(CommitEnded(task.replica.task, failure))

        late = _running(task).end_abandoned
        task.operation = self._background.submit(Pool.COMMIT, timed, self._told(task, then), late)

    def _told(self, task: AssignedTask, then: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a `then` that first asks a broker which right is missing, if that is the error."""

        def first(result: Any) -> None:
            if not isinstance(result, MissingRightError):
                then(result)
                return
            names, brokers = self._context.config.topic_names, self._context.clients.brokers
            work = partial(named, result, task.replica, names, brokers)
            self._background.submit(Pool.START, work, then)

        return first

    def _on_updated(self, failed: Any) -> None:
        self._update = None
        for task_id, error in failed.items():
            self._dependency_failed(task_id, error)


def _running(task: AssignedTask) -> RunningTask:
    assert task.running is not None, f"{task.replica.task} has started"
    return task.running


def _owner(task: AssignedTask) -> TaskId | None:
    """Return whose the thread is on which the task has its turns; `None` if tasks share it."""
    return task.replica.task if _running(task).has_own_thread else None


def attempt(action: Callable[[], Any]) -> Any:
    """Return what an action returns, or the error that it raises."""
    try:
        return action()
    except BaseException as raised:
        return as_exception(raised)
