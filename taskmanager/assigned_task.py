"""A task that the driver gave to a PipelineThread, across all its starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import Context
from math import inf
from typing import Any

import structlog

from kafka_pipeline.common.clock import monotonic_ms, shown_moment
from kafka_pipeline.common.code.error_words import HOW_TO_SHOW
from kafka_pipeline.common.errors import ConfigError, OwnError, UnavailableError
from kafka_pipeline.common.kafka.clients import (
    FencedError,
    NonRetriableError,
    TransactionFailedError,
)
from kafka_pipeline.common.printable import encodable
from kafka_pipeline.common.process.thread_limit import want_of_threads
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.streams.engine.figures import late_of
from kafka_pipeline.streams.engine.outputs import described
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.engine.runtime import UserCall
from kafka_pipeline.streams.engine.user_errors import reason
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.sql.spec import SparkLostError
from kafka_pipeline.streams.stores.rocksdb_directory import (
    StoreCorruptedError,
    StoreLockedError,
    StoreUnavailableError,
)
from kafka_pipeline.taskmanager.background import BackgroundWork
from kafka_pipeline.taskmanager.open_files import AT_ITS_LIMIT, want_of_files
from kafka_pipeline.taskmanager.running_task import RunningTask, TaskContext, TaskMemory
from kafka_pipeline.taskmanager.standby_task import StandbyStart
from kafka_pipeline.taskmanager.standstill import Standstill
from kafka_pipeline.taskmanager.task_entry import Phase
from kafka_pipeline.taskmanager.task_start import ProcessorStart, TaskStart
from kafka_pipeline.taskmanager.thread_events import Failure, FailureKind
from kafka_pipeline.taskmanager.user_errors import UserCodeError

LONG_CALL_S = 1.0
"""Statuses mention a call of user code once it has taken this long."""
LONG_WAIT_S = 10.0
"""Statuses mention what a start is waiting for once it has waited this long."""

_TRANSIENT = (
    TransactionFailedError,
    StoreLockedError,
    StoreCorruptedError,
    StoreUnavailableError,
    SparkLostError,
    UnavailableError,
    OSError,
)


class AssignedTask:
    """A task's resources in the loop, in addition to what the PipelineThread's core knows."""

    def __init__(self, replica: ProcessorReplica, context: TaskContext, epoch: int) -> None:
        self.replica = replica
        self.memory = TaskMemory()
        self.log: Any = structlog.get_logger().bind(
            task=str(replica.task),
            epoch=epoch,
            task_manager=context.tm_id,
            thread=context.thread,
        )
        self.start: TaskStart | None = None
        """The start that is in progress, or the last one."""
        self.running: RunningTask | None = None
        self.variables = Context()
        """The context variables of the task's user code, such as the `decimal` context: its calls
        run in several threads, and in some that other tasks use, too."""
        self.operation: BackgroundWork | None = None
        """The task's current operation on another thread, if any."""
        self.event_loop = context.new_event_loop()
        """Runs the calls of `AsyncProcessor`s; one per task, so that a call that blocks delays no
        other task."""
        self.refresh_at_s = inf
        """When the task's offsets are to be committed again if it is FAILED."""
        config = context.config
        self._standstill = Standstill(config.idle_after_ms, config.commit_interval_ms)
        self._context = context
        self._fingerprint = replica.fingerprint

    @property
    def is_inline(self) -> bool:
        """Whether the task's turns run no user code and take little of the loop's time."""
        return bool(self.replica.task.standby) or kind_of(self.replica.spec).is_inline

    @property
    def max_process_time_ms(self) -> int:
        """The time limit for one call of the task's user code."""
        return self.replica.spec.max_process_time_ms

    @property
    def call(self) -> UserCall | None:
        """The call of user code that is in progress."""
        if self.running is not None:
            return self.running.call
        return None if self.start is None else self.start.call

    @property
    def hangs(self) -> bool:
        """Whether a call of user code still runs although the task does not."""
        is_abandoned = self.operation is not None and self.operation.is_abandoned
        return self.running is None and (is_abandoned or self.event_loop.hangs)

    def new_start(self, wake: Callable[[], None] = lambda: None) -> TaskStart:
        """Return the next start; see `TaskStart`."""
        make = StandbyStart if self.replica.task.standby else ProcessorStart
        self.start = make(self.replica, self._context, self.memory, self.log, self.event_loop, wake)
        return self.start

    def failure_of(self, error: Exception) -> Failure:
        """Return the consequence of an error; all errors of a task pass through here."""
        match error:
            case ProcessingFailedError():
                return Failure(FailureKind.FATAL, str(error), commits=True)
            case NonRetriableError() | ConfigError():
                return Failure(FailureKind.FATAL, self._own_words(error))
            case FencedError():
                # The broker itself fences a transaction that outlives its timeout.
                age_s = 0.0 if self.running is None else self.running.transaction_age_s
                has_expired = age_s * 1000 >= self._context.config.transaction_timeout_ms
                kind = FailureKind.EXPIRED if has_expired else FailureKind.FENCED
                return Failure(kind, f"fenced: {error}")
            case UserCodeError():
                return Failure(FailureKind.NOT_MADE, str(error))
        if isinstance(error, _TRANSIENT):
            want = want_of_files() or want_of_threads()
            kind = FailureKind.NO_FILES if want == AT_ITS_LIMIT else FailureKind.TRANSIENT
            return Failure(kind, "; ".join(filter(None, (self._own_words(error), want))))
        self.log.error("unexpected error", exc_info=error)
        with_values = self._context.config.log_record_values
        return Failure(FailureKind.TRANSIENT, reason(error, with_values=with_values))

    def _own_words(self, error: Exception) -> str:
        """Return the message of an error that user code did not raise, perhaps without values."""
        if not isinstance(error, OwnError) or self._context.config.log_record_values:
            return str(error)
        return error.shown if error.shown == str(error) else f"{error.shown}; {HOW_TO_SHOW}"

    def watch_event_time(self) -> None:
        """Check the task's event time; warn if another task has held it back for long."""
        running, standstill, now_ms = self.running, self._standstill, monotonic_ms()
        if running is None:
            standstill.end()
            return
        task, watch, time_ = self.replica.task, self._context.time_watch, running.event_time
        time_ = time_._replace(newest_ms=max(time_.newest_ms, watch.newest_ms(task)))
        is_caught_up = running.is_caught_up
        standstill.look(time_, watch.holders(task), now_ms, is_caught_up=is_caught_up)
        if (holder := standstill.warns_of(now_ms)) is not None:
            self.log.warning(
                "event time waits for another task, and windows do not close",
                event_time=shown_moment(standstill.event_time_ms),
                waits_for=str(holder.task),
                unread="unknown" if holder.unread is None else holder.unread,
                seconds=standstill.stands_ms(now_ms) // 1000,
            )

    def warn_of_dropped(self) -> None:
        """Log the records that were left out of the results, at most once a minute."""
        if dropped := self.memory.dropped_to_log(monotonic_ms()):
            self.log.warning("records left out of the results", records=described(dropped))

    def status(self, phase: Phase, restarts: int, reason: str) -> TaskStatus:
        """Return what the heartbeat reports about the task."""
        holder = self._standstill.holder
        dropped = self.memory.figures.dropped_by_reason
        dropped_lately = self.memory.dropped_in_minute(monotonic_ms())
        late = {"late": late_of(dropped), "late_per_minute": late_of(dropped_lately)}
        return TaskStatus(
            task=self.replica.task,
            state=self._state(phase, has_failed=bool(reason)),
            thread=self._context.thread,
            reason=encodable(reason),
            fingerprint=self._fingerprint,
            activity=encodable(self._activity()),
            figures=self._figures() | late | {"restarts": restarts},
            dropped=dropped,
            dropped_lately=dropped_lately,
            rejected=dict(self.memory.figures.rejected),
            held_by=None if holder is None else holder.task,
            key_warnings=self.memory.key_warnings,
        )

    def _activity(self) -> str:
        call, wait = self.call, None if self.start is None else self.start.wait
        for what, verb, least_s in ((call, "in", LONG_CALL_S), (wait, "waits for", LONG_WAIT_S)):
            since_s = 0.0 if what is None else time.monotonic() - what.since_s
            if what is not None and since_s >= least_s:
                return f"{verb} {what.place} for {since_s:.0f} s"
        return ""

    def _figures(self) -> dict[str, int]:
        """Return the values of most `FIGURES`, by name."""
        memory, start = self.memory, self.start
        done, now_ms = memory.figures, monotonic_ms()
        figures = {
            "records_in": done.records_in,
            "records_out": done.records_out,
            "skipped": done.skipped,
            "dead_letters": done.dead_letters,
            "enforced": done.enforced,
            "enforced_per_minute": memory.enforced_lately.in_window(now_ms),
            "dead_letters_per_minute": memory.letters_lately.in_window(now_ms),
            "transactions": memory.transactions,
            "fetched_bytes": memory.fetched_bytes,
            "sent_bytes": done.sent_bytes,
        }
        if memory.state_bytes is not None:
            figures["state_bytes"] = memory.state_bytes
        if start is not None:
            figures |= {"restored": start.restored, "to_restore": start.to_restore}
            if (eta_s := start.restore_eta_s) is not None:
                figures["restore_eta_s"] = eta_s
        figures |= self._standstill.figures()
        return figures | self._context.lag_watch.figures(self.replica.task)

    def _state(self, phase: Phase, has_failed: bool) -> TaskState:
        if phase is Phase.FAILED:
            return TaskState.FAILED
        if self.running is not None:
            return self.running.state
        if phase is Phase.STARTING and self.start and self.start.state is TaskState.RESTORING:
            return TaskState.RESTORING
        return TaskState.RESTARTING if has_failed else TaskState.STARTING
