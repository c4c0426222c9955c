"""The PipelineThread: a long-running Spark task that moves its tasks' records and transactions."""

from __future__ import annotations

import faulthandler
import os
import time
from collections import deque
from collections.abc import Sequence

import structlog

from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.monitoring.memory import resident_bytes
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.protocol.status import TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager import channel_messages
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.background import Background, Pool
from kafka_pipeline.taskmanager.channel import WorkerChannel
from kafka_pipeline.taskmanager.clients import Reader
from kafka_pipeline.taskmanager.running_task import RunningTask, TaskContext, TaskMemory
from kafka_pipeline.taskmanager.shared_consumers import (
    CannotRead,
    End,
    FetchedRecords,
    Lost,
    SharedConsumers,
)
from kafka_pipeline.taskmanager.state_answers import StateAnswers
from kafka_pipeline.taskmanager.task import FIRST_REFRESH_S, REFRESH_INTERVAL_S
from kafka_pipeline.taskmanager.task_entry import Phase
from kafka_pipeline.taskmanager.task_operations import TaskOperations, attempt
from kafka_pipeline.taskmanager.thread_events import (
    AbandonCall,
    Assigned,
    CancelStart,
    CloseTask,
    Command,
    CommitTask,
    DependencyFailed,
    EndProcess,
    EndThread,
    Event,
    Fed,
    ForgetTask,
    RefreshDue,
    RefreshTask,
    ReportFailed,
    RestartTask,
    Revoked,
    RunTurn,
    StartTask,
    TaskCall,
    ThreadStopRequested,
    ThreadTick,
)
from kafka_pipeline.taskmanager.thread_state import PipelineThreadState

IDLE_WAIT_S = 0.05
"""How long to wait for records. A command of the driver may be handled this much later."""
BUSY_WAIT_S = 0.002
"""How long to wait for other threads before checking for records again."""
MOST_TURN_MS = 100
CHECK_INTERVAL_S = 0.2
GLOBAL_STORES_INTERVAL_S = 0.05


class PipelineThread:
    """Executes the commands of `PipelineThreadState`, and passes events to it.

    The loop fetches records, gives the tasks of built-in types their turns, talks to the driver and
    reports. It never runs user code, which has its own thread, and never waits for a start or a
    commit.
    """

    def __init__(
        self,
        context: TaskContext,
        channel: WorkerChannel,
        background: Background | None = None,
    ) -> None:
        config = context.config
        self._context = context
        self._channel = channel
        self._report_interval_s = min(0.5, config.heartbeat_interval_ms / 2000)
        self._budget_ms = min(config.commit_interval_ms, MOST_TURN_MS)
        self._state = PipelineThreadState(
            config.heartbeat_interval_ms, config.commit_interval_ms, config.transaction_timeout_ms
        )
        self._tasks: dict[TaskId, AssignedTask] = {}
        self._background = background or Background()
        self._consumers = SharedConsumers(context, self._dispose)
        self._operations = TaskOperations(context, self._background, self._consumers, self._tasks)
        self._has_ended = False
        self._report_at_s = self._check_at_s = self._update_at_s = 0.0
        self._reported: dict[TaskId, TaskStatus] = {}
        self._sent_measures: dict[TaskId, channel_messages.TaskMeasures] = {}
        channel.on_ping = context.gate.set
        if config.state_port is not None:
            channel.on_ask = StateAnswers(self._tasks, self._lag_of, channel.send).take

    @property
    def tasks(self) -> list[TaskId]:
        """The assigned tasks that are not closed yet."""
        return list(self._tasks)

    def _lag_of(self, task_id: TaskId) -> int | None:
        return self._context.lag_watch.figures(task_id).get("lag")

    def status(self, task_id: TaskId) -> TaskStatus:
        """Return the status of a task. Raises KeyError for a task that is not here."""
        state = self._state
        return self._tasks[task_id].status(
            state.phase(task_id), state.restarts(task_id), state.reason(task_id)
        )

    def loop(self) -> None:
        """Run until `stop` comes, then commit and close; give up if the driver is gone."""
        try:
            while not self._has_ended:
                self.step()
            self._channel.send(channel_messages.Stopped())
        except Exception:
            structlog.get_logger().exception("PipelineThread fails")
            raise
        finally:
            self.close()

    def step(self) -> None:
        """Do one round of the loop."""
        if self._channel.is_lost:
            raise ConnectionError("the TaskManager's driver is gone")
        # Events may come from the driver, another thread or the brokers, but the loop can only wait
        # for one of them at a time. If all tasks are busy, records can wait in the consumer.
        is_busy = self._background.is_busy or self._operations.has_calls
        has_room, wait_s = self._consumers.have_room, self._wait_s()
        self._read_commands(0 if is_busy or has_room else wait_s)
        if is_busy:
            fetches_soon = has_room and self._state.awaits_records
            wait_s = min(wait_s, BUSY_WAIT_S) if fetches_soon else wait_s
        self._handle_done(wait_s if is_busy else 0)
        self._fetch(0 if is_busy else wait_s)
        self._tick()
        self._report()

    def close(self) -> None:
        """Release everything, without a commit."""
        for task in self._tasks.values():
            if task.start is not None:
                task.start.cancel()
        self._background.close()
        for task in self._tasks.values():
            task.event_loop.close()
            if task.running is not None:
                task.running.release()
        self._consumers.close()

    def _wait_s(self) -> float:
        due_ms = self._state.next_due_ms
        if due_ms is None:
            return IDLE_WAIT_S
        return min(max(due_ms / 1000 - time.monotonic(), 0), IDLE_WAIT_S)

    # Input from outside

    def _read_commands(self, wait_s: float) -> None:
        revoked = []
        while (message := self._channel.receive(wait_s)) is not None:
            wait_s = 0
            match message:
                case channel_messages.Assign(replica, epoch):
                    self._assign(replica, epoch)
                case channel_messages.Revoke(task):
                    revoked.append(task)
                case channel_messages.Stop():
                    self._handle(ThreadStopRequested())
        if revoked:
            hanging = [each for each in revoked if each in self._tasks and self._tasks[each].hangs]
            self._handle(Revoked(tuple(revoked), frozenset(hanging)))

    def _assign(self, replica: ProcessorReplica, epoch: int) -> None:
        if replica.task in self._tasks or self._state.is_stopping:
            return
        task = AssignedTask(replica, self._context, epoch)
        self._tasks[replica.task] = task
        self._context.lag_watch.watch(replica)
        interval_ms = replica.spec.commit_interval_ms
        self._handle(Assigned(replica.task, task.is_inline, task.max_process_time_ms, interval_ms))

    def _fetch(self, wait_s: float) -> None:
        fed: dict[TaskId, RunningTask] = {}
        for fetched in self._consumers.fetch(wait_s):
            task_id, running = fetched.task, fetched.running
            try:
                match fetched:
                    case FetchedRecords(batch=batch):
                        running.add(batch)
                    case End(partition=partition, offset=offset):
                        running.reached_end(partition, offset)
                    case Lost(error=error):
                        raise running.loss_of_input(error)
                    case CannotRead(error=error):
                        raise error
                fed[task_id] = running
            except BaseException as raised:
                self._dependency_failed(task_id, as_exception(raised))
        for task_id, running in fed.items():
            if task_id in self._tasks and self._tasks[task_id].running is running:
                self._handle(Fed(task_id, running.has_records, running.is_at_its_end))
                # That may have been a turn of 100 ms; handle the results of other threads before
                # the next one.
                self._handle_done(0)

    def _handle_done(self, wait_s: float) -> None:
        """Handle the results of other threads; if there are none yet, wait for some."""
        for event in self._background.events(wait_s):
            self._handle(event)

    def _dispose(self, reader: Reader) -> None:
        self._background.submit(Pool.START, reader.close, lambda _: ())

    def _tick(self) -> None:
        now_s = time.monotonic()
        is_check = now_s >= self._check_at_s
        heard_ms = int(self._channel.last_heard_s * 1000)
        self._handle(
            ThreadTick(int(now_s * 1000), heard_ms, self._calls(now_s) if is_check else None)
        )
        if is_check:
            self._check_at_s = now_s + CHECK_INTERVAL_S
            self._check(now_s)
        if now_s >= self._update_at_s:
            self._update_at_s = now_s + GLOBAL_STORES_INTERVAL_S
            self._operations.update_global_stores()

    def _calls(self, now_s: float) -> tuple[TaskCall, ...]:
        found = []
        for task_id, task in self._tasks.items():
            if (call := task.call) is not None:
                line = ""
                if (now_s - call.since_s) * 1000 > task.max_process_time_ms:
                    line = self._line_of(task)
                found.append(TaskCall(task_id, call.place, int(call.since_s * 1000), line))
        return tuple(found)

    def _line_of(self, task: AssignedTask) -> str:
        task_id = task.replica.task
        if task_id == self._state.on_user_thread:
            return self._background.user_line()
        return self._background.user_line(task_id) or task.event_loop.line

    def _check(self, now_s: float) -> None:
        """Check the tasks that have no operation in progress.

        All tasks are checked at once, not each one when its first records arrive. Otherwise, if
        many had lost their connections, each would start only after the ones before it.
        """
        for task_id, task in list(self._tasks.items()):
            phase = self._state.phase(task_id)
            if phase is Phase.IDLE and task.running is not None:
                if task.running.has_lost_connection:
                    error = attempt(task.running.require_connection)
                    if isinstance(error, Exception):
                        self._dependency_failed(task_id, error)
                    continue
                if task.running.is_time_due:
                    self._handle(Fed(task_id, True, task.running.is_at_its_end))
                elif task.running.needs_refresh:
                    self._handle(RefreshDue(task_id))
            elif phase is Phase.FAILED and now_s > task.refresh_at_s:
                task.refresh_at_s = now_s + REFRESH_INTERVAL_S
                self._handle(RefreshDue(task_id))

    def _dependency_failed(self, task_id: TaskId, error: Exception) -> None:
        if task_id in self._tasks:
            self._handle(DependencyFailed(task_id, self._tasks[task_id].failure_of(error)))

    # Decisions of the core

    def _handle(self, event: Event) -> None:
        """Pass an event to the core, execute its commands, and handle the events that follow."""
        events = deque([event])
        while events:
            for command in self._state.handle(events.popleft()):
                events.extend(self._execute(command))

    def _execute(self, command: Command) -> Sequence[Event]:
        """Execute a command; return the events of operations that have already ended."""
        if isinstance(command, EndThread):
            self._has_ended = True
            return ()
        task = self._tasks[command.task]
        match command:
            case RunTurn():
                return self._operations.run_turn(task, self._budget_ms)
            case CommitTask():
                self._operations.commit(task)
            case RefreshTask():
                self._operations.refresh(task)
            case StartTask():
                self._operations.start(task)
            case CancelStart():
                if task.start is not None:
                    task.start.cancel()
            case CloseTask():
                return self._operations.close(task)
            case AbandonCall():
                self._operations.abandon(task)
            case RestartTask(reason=reason, delay_ms=delay_ms):
                task.log.warning("task starts again", reason=reason, delay_s=delay_ms / 1000)
                self._report_at_s = 0.0
            case ReportFailed(reason=reason):
                task.log.error("task failed", reason=reason)
                task.refresh_at_s = time.monotonic() + FIRST_REFRESH_S
                self._report_at_s = 0.0
            case ForgetTask(reason=reason):
                self._forget(task, reason)
            case EndProcess(reason=reason):
                task.log.error("the worker is ended, and started again", reason=reason)
                self._channel.send(channel_messages.Ending(reason))
                faulthandler.dump_traceback(all_threads=True)
                os._exit(1)
        return ()

    def _forget(self, task: AssignedTask, reason: str) -> None:
        task_id = task.replica.task
        if reason:
            task.log.warning("task given up", reason=reason)
        del self._tasks[task_id]
        task.event_loop.close()
        self._background.release(task_id)
        self._context.lag_watch.forget(task_id)
        self._reported.pop(task_id, None)
        self._channel.send(channel_messages.Closed(task_id))
        task.log.info("task closed")

    # Reports to the driver

    def _report(self) -> None:
        """Send the driver all changes at intervals; an empty report is a sign of life."""
        now_s = time.monotonic()
        if now_s < self._report_at_s:
            return
        self._report_at_s = now_s + self._report_interval_s
        changed = []
        for task_id, task in self._tasks.items():
            task.watch_event_time()
            task.warn_of_dropped()
            status = self.status(task_id)
            if status != self._reported.get(task_id):
                self._reported[task_id] = status
                changed.append(status)
        self._channel.send(channel_messages.Status(tuple(changed)))
        if self._context.config.metrics_port is not None:
            self._channel.send(channel_messages.Measured(resident_bytes(), self._new_measures()))
        self._context.user_errors.report()

    def _new_measures(self) -> dict[TaskId, channel_messages.TaskMeasures]:
        """Return the measures of tasks that have had turns or commits since the last report."""
        measures = {task_id: _measures(task.memory) for task_id, task in self._tasks.items()}
        former, self._sent_measures = self._sent_measures, measures
        return {task_id: of for task_id, of in measures.items() if former.get(task_id) != of}


def _measures(memory: TaskMemory) -> channel_messages.TaskMeasures:
    figures = memory.figures
    series = tuple(figures.counted.items()), tuple(figures.gauges.items())
    return channel_messages.TaskMeasures(memory.turns.times, memory.commits.times, *series)
