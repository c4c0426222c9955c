"""The operations of a PipelineThread on its tasks, most of them on other threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from functools import partial
from typing import Any

from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import MissingRightError
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.background import Background, BackgroundWork, Pool, Then
from kafka_pipeline.taskmanager.running_task import RunningTask, TaskContext, Turn
from kafka_pipeline.taskmanager.shared_consumers import SharedConsumers
from kafka_pipeline.taskmanager.task_rights import named
from kafka_pipeline.taskmanager.task_start import StartCancelledError, refresh_failed
from kafka_pipeline.taskmanager.thread_events import (
    CloseEnded,
    CommitEnded,
    DependencyFailed,
    Event,
    Fed,
    Started,
    StartFailed,
    TurnEnded,
)


class TaskOperations:
    """Starts, turns, commits and closes tasks, and updates the global stores.

    None of these blocks, except turns and closes of inline tasks, whose events are returned. Other
    operations run on other threads, and `Background.events` yields their events.
    """

    def __init__(
        self,
        context: TaskContext,
        background: Background,
        consumers: SharedConsumers,
        tasks: Mapping[TaskId, AssignedTask],
    ) -> None:
        """`tasks` are those of the thread; the caller adds and removes tasks."""
        self._context = context
        self._background = background
        self._consumers = consumers
        self._tasks = tasks
        self._calling: set[TaskId] = set()
        self._update: BackgroundWork | None = None
        """The update of the global stores that is in progress."""

    @property
    def has_calls(self) -> bool:
        """Whether tasks have calls of an `AsyncProcessor` in flight."""
        return bool(self._calling)

    def start(self, task: AssignedTask) -> None:
        """Begin to start a task; ends with `Started` or `StartFailed`."""
        task_id = task.replica.task

        def then(result: Any) -> Sequence[Event]:
            if isinstance(result, RunningTask):
                task.running = result
                self._consumers.add(task_id, result)
                return [Started(task_id, result.wake_in_ms(), result.has_own_thread)]
            if isinstance(result, StartCancelledError):
                return [StartFailed(task_id, None)]
            return [StartFailed(task_id, task.failure_of(result))]

        def late(result: Any) -> None:
            if isinstance(result, RunningTask):
                result.close()

        def on_call_returned() -> Sequence[Event]:
            if task.running is None:
                return ()
            return [Fed(task_id, True, task.running.is_at_its_end)]

        start = task.new_start(lambda: self._background.wake(on_call_returned))
        task.variables = Context()  # an abandoned call may go on in the former one
        run = partial(task.variables.run, start.run)
        pool = Pool.STANDBY_START if task_id.standby else Pool.START
        ended = self._with_right(task, then)
        task.operation = self._background.submit(pool, run, ended, late)

    def run_turn(self, task: AssignedTask, budget_ms: int) -> Sequence[Event]:
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

        def then(result: Any) -> Sequence[Event]:
            is_turn = isinstance(result, Turn)
            turn = result if is_turn else Turn(has_more=False, wants_commit=False)
            if running.has_calls:
                self._calling.add(task.replica.task)
            else:
                self._calling.discard(task.replica.task)
            return [
                TurnEnded(
                    task.replica.task,
                    has_more=turn.has_more,
                    wants_commit=turn.wants_commit,
                    has_uncommitted=running.has_uncommitted,
                    is_at_its_end=running.is_at_its_end,
                    took_all=turn.took_all,
                    wake_in_ms=running.wake_in_ms(),
                    failure=None if is_turn else task.failure_of(result),
                    took_ms=1000 * took_s,
                )
            ]

        ended = self._with_right(task, then)
        if task.is_inline:
            return ended(attempt(turn))
        self.update_global_stores()
        task.operation = self._background.submit(
            Pool.USER,
            partial(task.variables.run, turn),
            ended,
            running.end_abandoned,
            _owner(task),
        )
        return ()

    def commit(self, task: AssignedTask) -> None:
        """Commit what the task has done; ends with `CommitEnded`."""
        self._carry_out(task, _running(task).commit)

    def refresh(self, task: AssignedTask) -> None:
        """Commit a task's offsets again, also those of a FAILED task, so that brokers keep them."""
        if task.running is not None:
            self._carry_out(task, task.running.refresh)
            return

        def refresh() -> None:
            try:
                refresh_failed(task.replica, self._context, task.memory)
            except EngineError as error:
                task.log.warning("the committed offsets were not refreshed", reason=str(error))

        self._background.submit(Pool.COMMIT, refresh, lambda _: ())

    def close(self, task: AssignedTask) -> Sequence[Event]:
        """Close a task without a commit; ends with `CloseEnded`."""
        running = _running(task)
        self._consumers.remove(task.replica.task, running)
        self._calling.discard(task.replica.task)

        def then(_: Any) -> Sequence[Event]:
            task.running = None
            return [CloseEnded(task.replica.task)]

        if task.is_inline:
            return then(attempt(running.close))
        work = partial(task.variables.run, running.close)
        task.operation = self._background.submit(Pool.USER, work, then, owner=_owner(task))
        return ()

    def abandon(self, task: AssignedTask) -> None:
        """Give up the call of user code that hangs; whatever it does later has no effect."""
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
        """Apply new records of global topics; a failure yields `DependencyFailed` for the users."""
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

        def then(result: Any) -> Sequence[Event]:
            failure = task.failure_of(result) if isinstance(result, Exception) else None
            return [CommitEnded(task.replica.task, failure)]

        late = _running(task).end_abandoned
        ended = self._with_right(task, then)
        task.operation = self._background.submit(Pool.COMMIT, timed, ended, late)

    def _with_right(self, task: AssignedTask, then: Then) -> Then:
        """Return a `then` that first asks a broker which right is missing, if one is."""

        def first(result: Any) -> Sequence[Event]:
            if not isinstance(result, MissingRightError):
                return then(result)
            names, brokers = self._context.config.topic_names, self._context.clients.brokers
            work = partial(named, result, task.replica, names, brokers)
            self._background.submit(Pool.START, work, then)
            return ()

        return first

    def _on_updated(self, failed: Any) -> Sequence[Event]:
        self._update = None
        return [
            DependencyFailed(task_id, self._tasks[task_id].failure_of(error))
            for task_id, error in failed.items()
            if task_id in self._tasks
        ]


def _running(task: AssignedTask) -> RunningTask:
    assert task.running is not None, f"{task.replica.task} has started"
    return task.running


def _owner(task: AssignedTask) -> TaskId | None:
    """Return the task if it has its turns on a thread of its own, `None` if it shares one."""
    return task.replica.task if _running(task).has_own_thread else None


def attempt(action: Callable[[], Any]) -> Any:
    """Return what an action returns, or the error that it raises."""
    try:
        return action()
    except BaseException as raised:
        return as_exception(raised)
