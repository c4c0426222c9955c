"""The metrics of a TaskManager: its own, and those of the tasks that it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafka_pipeline.common.committed import OTHER_REASONS
from kafka_pipeline.common.monitoring.metric import Metric, Sample, counter, gauge, histogram
from kafka_pipeline.common.protocol.messages import Report
from kafka_pipeline.common.protocol.status import (
    TaskState,
    TaskStatus,
    ThreadState,
    newest_record_ms,
)
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.user_series import LABELS
from kafka_pipeline.streams.engine.figures import MOST_ERRORS, MOST_REASONS, OTHER_ERRORS
from kafka_pipeline.taskmanager.measurements import Measurements

_MANAGER = ("taskmanager",)
_TASK = LABELS


HEARTBEATS_SENT = counter(
    "taskmanager_heartbeats_sent_total", "heartbeats and introductions sent", *_MANAGER
)
REJECTED = counter(
    "taskmanager_rejected_messages_total",
    "control messages that could not be read, and were skipped",
    *_MANAGER,
)
EPOCH = gauge(
    "taskmanager_epoch",
    "the epoch of the JobManager that the TaskManager follows; -1 until there is one",
    *_MANAGER,
)
REGISTERED = gauge(
    "taskmanager_registered",
    "1 if the JobManager of this epoch has answered the TaskManager, 0 if not",
    *_MANAGER,
)
TASKS = gauge("taskmanager_tasks", "the tasks that it runs, without standbys", *_MANAGER)
THREADS = gauge("taskmanager_threads", "its PipelineThreads, by state", *_MANAGER, "state")
WORKER_MEMORY = gauge(
    "taskmanager_worker_resident_memory_bytes",
    "resident memory of a PipelineThread's process, without its JVM",
    *_MANAGER,
    "thread",
)

STATE = gauge(
    "task_state", "1 for the state that the task is in, 0 for the others", *_TASK, "state"
)
RECORDS_IN = counter("task_records_in_total", "records read, committed", *_TASK)
RECORDS_OUT = counter("task_records_out_total", "results sent, committed", *_TASK)
FETCHED = counter(
    "task_fetched_bytes_total",
    "bytes of the values that were fetched, also of records that were fetched again",
    *_TASK,
)
SENT = counter(
    "task_sent_bytes_total",
    "bytes of the values of results and dead letters that were sent, committed",
    *_TASK,
)
TRANSACTIONS = counter("task_transactions_total", "transactions committed", *_TASK)
RESTARTS = counter("task_restarts_total", "how often the task has restarted", *_TASK)
DEAD_LETTERS = counter(
    "task_dead_letters_total",
    "records that `on_error` ever sent to the dead letters; only while the task is RUNNING",
    *_TASK,
)
SKIPPED = counter(
    "task_skipped_records_total",
    "records that `on_error` ever skipped; only while the task is RUNNING",
    *_TASK,
)
REJECTED_BY_ERROR = counter(
    "task_rejected_records_total",
    "records that `on_error` skipped or sent to the dead letters since the task came to the "
    f"TaskManager, by the class of the error; after {MOST_ERRORS} classes, `{OTHER_ERRORS}`",
    *_TASK,
    "error",
)
DROPPED = counter(
    "task_dropped_records_total",
    "records ever left out of the results, dropped or sent to `late_to`, by reason; after "
    f"{MOST_REASONS} reasons, `{OTHER_REASONS}`",
    *_TASK,
    "reason",
)
DROPPED_LATELY = gauge(
    "task_dropped_records_last_minute",
    "the same for the last minute",
    *_TASK,
    "reason",
)
ENFORCED = counter(
    "task_enforced_records_total",
    "records that were processed although another input might still have had older ones",
    *_TASK,
)
LAG = gauge(
    "task_lag_records",
    "offsets between what the task has committed and the end of its input; none while unknown",
    *_TASK,
)
LAG_AGE = gauge(
    "task_lag_age_seconds",
    "how old the lag is, as far as that is more than three heartbeats",
    *_TASK,
)
OLDEST = gauge(
    "task_oldest_record_age_seconds",
    "the age of the oldest unread record, 0 if there is none; no series while unknown",
    *_TASK,
)
EVENT_TIME = gauge(
    "task_event_time_seconds",
    "the event time of the task, in seconds since the epoch; none while unknown",
    *_TASK,
)
EVENT_TIME_LAG = gauge(
    "task_event_time_lag_seconds",
    "how far event time is behind the newest record that tasks of the TaskManager, or those that "
    "write their inputs, have processed; none while unknown, or while nothing is to come",
    *_TASK,
)
HELD_UNREAD = gauge(
    "task_event_time_holder_unread_records",
    "offsets that the task `holder` has not read yet, while the event time of this one waits for "
    "it; -1 while unknown",
    *_TASK,
    "holder",
)
KEY_WARNINGS = gauge(
    "task_key_warnings",
    "1 for a topic whose keys do not meet those of other topics, as they are in other `partitions` "
    "or have other `bytes`",
    *_TASK,
    "topic",
    "problem",
)
RESTORE_LEFT = gauge(
    "task_restore_remaining_records",
    "offsets of state topics that a task in RESTORING still has to read",
    *_TASK,
)
STATE_BYTES = gauge(
    "task_state_bytes",
    "the size of the task's stores on disk: RocksDB's files and write buffers",
    *_TASK,
)
TURNS = histogram(
    "task_turn_seconds", "how long a turn took; a turn processes the waiting records", *_TASK
)
COMMITS = histogram("task_commit_seconds", "how long a commit took, successful or not", *_TASK)

USER_COUNTER = "user_{name}_total"
"""The names of the counters of user code, which are not known in advance."""
_USER_DOC = "what code of the pipeline has counted by `context.count`, committed"
USER_GAUGE = "gauge_{name}"
"""The names of its gauges. OpenMetrics has `user_{name}` for a counter, without `_total`."""
_USER_GAUGE_DOC = "what code of the pipeline has measured by `context.gauge`, committed"

STANDBY_STATE = gauge(
    "standby_state", "1 for the state that the standby is in, 0 for the others", *_TASK, "state"
)
STANDBY_RECORDS = counter("standby_records_total", "records of state that it has applied", *_TASK)
STANDBY_LAG = gauge(
    "standby_lag_records",
    "offsets between what the standby has applied and the end of the state topics",
    *_TASK,
)

OF_THE_DAEMON: tuple[Metric, ...] = (
    *(HEARTBEATS_SENT, REJECTED, EPOCH, REGISTERED, TASKS, THREADS, WORKER_MEMORY),
)
OF_TASKS: tuple[Metric, ...] = (
    *(STATE, RECORDS_IN, RECORDS_OUT, FETCHED, SENT, TRANSACTIONS, RESTARTS, DEAD_LETTERS),
    *(
        SKIPPED,
        REJECTED_BY_ERROR,
        DROPPED,
        DROPPED_LATELY,
        ENFORCED,
        LAG,
        LAG_AGE,
        OLDEST,
        EVENT_TIME,
        EVENT_TIME_LAG,
        HELD_UNREAD,
        KEY_WARNINGS,
        RESTORE_LEFT,
        STATE_BYTES,
        TURNS,
        COMMITS,
    ),
)
OF_STANDBYS: tuple[Metric, ...] = (STANDBY_STATE, STANDBY_RECORDS, STANDBY_LAG)

_COUNTERS = {
    RECORDS_IN: "records_in",
    RECORDS_OUT: "records_out",
    FETCHED: "fetched_bytes",
    SENT: "sent_bytes",
    TRANSACTIONS: "transactions",
    RESTARTS: "restarts",
    ENFORCED: "enforced",
}
"""The figure that each of these metrics shows."""
_COUNTERS_OF_ALL_TIMES = {DEAD_LETTERS: "dead_letters", SKIPPED: "skipped"}
"""The same; a task knows these figures only after its start. Samples before that would be 0, and
the counters would then seem to jump."""


@dataclass(frozen=True, slots=True)
class TaskManagerView:
    """A TaskManager at one moment; `report` is its full report."""

    report: Report
    is_registered: bool
    heartbeats_sent: int
    rejected: int


def samples(view: TaskManagerView, measured: Measurements) -> Iterator[Sample]:
    """Yield all samples. Tasks that have left have none."""
    report, tm_id = view.report, view.report.tm_id
    yield HEARTBEATS_SENT.sample(view.heartbeats_sent, tm_id)
    yield REJECTED.sample(view.rejected, tm_id)
    yield EPOCH.sample(report.epoch, tm_id)
    yield REGISTERED.sample(view.is_registered, tm_id)
    yield TASKS.sample(sum(not status.task.standby for status in report.tasks), tm_id)
    for state in ThreadState:
        yield THREADS.sample(report.thread_states.count(state), tm_id, state)
    for thread, size in measured.resident_bytes.items():
        yield WORKER_MEMORY.sample(size, tm_id, thread)
    newest_ms = newest_record_ms(report.tasks)
    for status in report.tasks:
        labels = _labels(tm_id, status.task)
        if status.task.standby:
            yield from _of_standby(status, labels)
        else:
            yield from _of_task(status, labels)
            yield from _event_time(status, labels, newest_ms)
            yield from _measures(status, labels, measured)


def _labels(tm_id: int, task: TaskId) -> tuple[object, ...]:
    """Return the values of the labels `_TASK`."""
    return tm_id, task, task.processor, task.partition


def _of_task(status: TaskStatus, labels: tuple[object, ...]) -> Iterator[Sample]:
    yield from STATE.one_of(TaskState, status.state, *labels)
    for metric, figure in _COUNTERS.items():
        yield metric.sample(status.count(figure), *labels)
    if status.state is TaskState.RUNNING:
        for metric, figure in _COUNTERS_OF_ALL_TIMES.items():
            yield metric.sample(status.count(figure), *labels)
    for error, count in status.rejected.items():
        yield REJECTED_BY_ERROR.sample(count, *labels, error)
    for reason, count in status.dropped.items():
        yield DROPPED.sample(count, *labels, reason)
        yield DROPPED_LATELY.sample(status.dropped_lately.get(reason, 0), *labels, reason)
    for warning in status.key_warnings:
        yield KEY_WARNINGS.sample(1, *labels, warning.topic, warning.problem)
    lag, oldest_ms = status.gauge("lag"), status.gauge("oldest_waiting_ms")
    if lag is not None:
        yield LAG.sample(lag, *labels)
        yield LAG_AGE.sample(status.count("lag_age_ms") / 1000, *labels)
    if oldest_ms is not None or lag == 0:
        yield OLDEST.sample((oldest_ms or 0) / 1000, *labels)
    is_restoring = status.state is TaskState.RESTORING
    left = status.count("to_restore") - status.count("restored")
    yield RESTORE_LEFT.sample(max(left, 0) if is_restoring else 0, *labels)
    size = status.gauge("state_bytes")
    if size is not None:
        yield STATE_BYTES.sample(size, *labels)


def _event_time(
    status: TaskStatus, labels: tuple[object, ...], newest_ms: int | None
) -> Iterator[Sample]:
    time_ms, lag_ms = status.gauge("event_time_ms"), status.event_time_lag_ms(newest_ms)
    if time_ms is not None:
        yield EVENT_TIME.sample(time_ms / 1000, *labels)
    if lag_ms is not None:
        yield EVENT_TIME_LAG.sample(lag_ms / 1000, *labels)
    if status.held_by is not None:
        unread = status.gauge("held_unread")
        yield HELD_UNREAD.sample(-1 if unread is None else unread, *labels, status.held_by)


def _measures(
    status: TaskStatus, labels: tuple[object, ...], measured: Measurements
) -> Iterator[Sample]:
    measures = measured.of(status.thread, status.task)
    if measures is None:
        return
    yield TURNS.sample(measures.turns, *labels)
    yield COMMITS.sample(measures.commits, *labels)
    for kind, name, doc, found in (
        (counter, USER_COUNTER, _USER_DOC, measures.counted),
        (gauge, USER_GAUGE, _USER_GAUGE_DOC, measures.gauges),
    ):
        for series, value in found:
            names, values = [label for label, _ in series.labels], [of for _, of in series.labels]
            metric = kind(name.format(name=series.name), doc, *_TASK, *names)
            yield metric.sample(value, *labels, *values)


def _of_standby(status: TaskStatus, labels: tuple[object, ...]) -> Iterator[Sample]:
    yield from STANDBY_STATE.one_of(TaskState, status.state, *labels)
    yield STANDBY_RECORDS.sample(status.count("records_in"), *labels)
    lag = status.gauge("lag")
    if lag is not None:
        yield STANDBY_LAG.sample(lag, *labels)
