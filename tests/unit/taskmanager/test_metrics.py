"""The metrics of a TaskManager, made from its report and from what its workers measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from kafka_pipeline.common.monitoring.metric import Metric
from kafka_pipeline.common.monitoring.times import Times
from kafka_pipeline.common.protocol.key_warnings import KeyProblem, KeyWarning
from kafka_pipeline.common.protocol.messages import Report
from kafka_pipeline.common.protocol.status import FIGURES, TaskState, TaskStatus, ThreadState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.user_series import UserSeries
from kafka_pipeline.taskmanager import metrics
from kafka_pipeline.taskmanager.channel_messages import Measured, TaskMeasures
from kafka_pipeline.taskmanager.measurements import Measurements
from kafka_pipeline.taskmanager.metrics import TaskManagerView, samples

COUNT = TaskId("Count", 1)
KEYS = KeyWarning("orders", KeyProblem.PARTITIONS, "Joined", ("customers",), "consistent_random")
COPY = TaskId("Count", 1, 1)
LABELS = ("3", "Count_1", "Count", "1")
COPY_LABELS = ("3", "Count_1.standby1", "Count", "1")
ALL = (*metrics.OF_THE_DAEMON, *metrics.OF_TASKS, *metrics.OF_STANDBYS)
TIMES = TaskMeasures(Times(sum_us=5), Times(sum_us=7))

Found = dict[tuple[str, tuple[str, ...]], float | Times]


def look(*tasks: TaskStatus, measured: Measurements | None = None) -> Found:
    """Return the values of TaskManager 3, by the name of the metric and the labels."""
    report = Report(
        3,
        "incarnation",
        threads=3,
        beat=0,
        epoch=7,
        thread_states=(ThreadState.RUNNING, ThreadState.RUNNING, ThreadState.DEAD),
        tasks=tasks,
    )
    view = TaskManagerView(report, is_registered=True, heartbeats_sent=12, rejected=2)
    found = [*samples(view, measured or Measurements())]
    values = {(sample.metric.name, sample.labels): sample.value for sample in found}
    assert len(values) == len(found), "a series is there twice"
    return values


def running(dropped: dict[str, int] | None = None, **figures: int) -> TaskStatus:
    return TaskStatus(COUNT, TaskState.RUNNING, figures=figures, dropped=dropped or {})


def of(metric: Metric, found: Found, labels: Iterable[str] = LABELS) -> float | Times | None:
    return found.get((metric.name, tuple(labels)))


def test_the_task_manager_itself_is_shown_without_tasks() -> None:
    found = look()
    assert of(metrics.HEARTBEATS_SENT, found, ["3"]) == 12
    assert of(metrics.REJECTED, found, ["3"]) == 2
    assert of(metrics.EPOCH, found, ["3"]) == 7
    assert of(metrics.REGISTERED, found, ["3"]) == 1
    assert of(metrics.TASKS, found, ["3"]) == 0
    threads = {state: of(metrics.THREADS, found, ["3", state]) for state in ThreadState}
    assert threads == {"STARTING": 0, "RUNNING": 2, "SILENT": 0, "DEAD": 1}


def test_figures_of_a_task_are_shown() -> None:
    figures = {name: n for n, name in enumerate(FIGURES, 1)}
    found = look(TaskStatus(COUNT, TaskState.RUNNING, figures=figures))
    assert of(metrics.RECORDS_IN, found) == figures["records_in"]
    assert of(metrics.RECORDS_OUT, found) == figures["records_out"]
    assert of(metrics.SKIPPED, found) == figures["skipped"]
    assert of(metrics.DEAD_LETTERS, found) == figures["dead_letters"]
    assert of(metrics.TRANSACTIONS, found) == figures["transactions"]
    assert of(metrics.RESTARTS, found) == figures["restarts"]
    assert of(metrics.ENFORCED, found) == figures["enforced"]
    assert of(metrics.FETCHED, found) == figures["fetched_bytes"]
    assert of(metrics.SENT, found) == figures["sent_bytes"]
    assert of(metrics.STATE_BYTES, found) == figures["state_bytes"]
    assert of(metrics.LAG, found) == figures["lag"]
    assert of(metrics.LAG_AGE, found) == figures["lag_age_ms"] / 1000
    assert of(metrics.OLDEST, found) == figures["oldest_waiting_ms"] / 1000
    assert of(metrics.EVENT_TIME, found) == figures["event_time_ms"] / 1000


def test_event_time_is_behind_the_newest_record_of_the_task_manager() -> None:
    other = TaskId("Count", 2)
    ahead = TaskStatus(other, TaskState.RUNNING, figures={"newest_record_ms": 9500})
    found = look(running(event_time_ms=5000, newest_record_ms=6000), ahead)
    assert of(metrics.EVENT_TIME, found) == 5
    assert of(metrics.EVENT_TIME_LAG, found) == 4.5
    idle = look(running(event_time_ms=5000, newest_record_ms=6000, is_idle=1), ahead)
    assert of(metrics.EVENT_TIME, idle) == 5
    assert of(metrics.EVENT_TIME_LAG, idle) is None


def test_who_holds_event_time_back_is_shown_with_what_it_has_not_read() -> None:
    holder = TaskId("Payments", 2)
    held = replace(running(held_unread=12_400), held_by=holder)
    labels = [*LABELS, "Payments_2"]
    assert of(metrics.HELD_UNREAD, look(held), labels) == 12_400
    assert of(metrics.HELD_UNREAD, look(replace(held, figures={})), labels) == -1


def test_topics_whose_keys_do_not_meet_others_have_a_series() -> None:
    found = look(replace(running(), key_warnings=(KEYS,)))
    assert of(metrics.KEY_WARNINGS, found, [*LABELS, "orders", "partitions"]) == 1
    assert of(metrics.KEY_WARNINGS, look(running()), [*LABELS, "orders", "partitions"]) is None


def test_each_state_has_a_series() -> None:
    found = look(running())
    states = {state: of(metrics.STATE, found, [*LABELS, state]) for state in TaskState}
    assert states.pop(TaskState.RUNNING) == 1
    assert set(states.values()) == {0}


def test_counters_of_an_idle_task_are_0_so_that_they_can_grow() -> None:
    found = look(running())
    assert of(metrics.DEAD_LETTERS, found) == of(metrics.RESTARTS, found) == 0


@pytest.mark.parametrize("state", [s for s in TaskState if s is not TaskState.RUNNING])
def test_counts_of_all_times_do_not_seem_to_jump_when_a_task_has_started(state: TaskState) -> None:
    """A task that came from elsewhere has them only once it has read its offsets."""
    found = look(TaskStatus(COUNT, state))
    assert of(metrics.DEAD_LETTERS, found) is of(metrics.SKIPPED, found) is None
    assert of(metrics.RECORDS_IN, found) == 0


def test_what_is_unknown_has_no_series() -> None:
    found = look(running())
    times = (metrics.EVENT_TIME, metrics.EVENT_TIME_LAG)
    for metric in (metrics.LAG, metrics.LAG_AGE, metrics.OLDEST, metrics.STATE_BYTES, *times):
        assert of(metric, found) is None
    # A lag whose oldest record nobody has seen yet.
    assert of(metrics.OLDEST, look(running(lag=5))) is None


def test_a_task_without_lag_has_no_record_that_waits() -> None:
    assert of(metrics.OLDEST, look(running(lag=0))) == 0


@pytest.mark.parametrize(
    ("state", "left"), [(TaskState.RESTORING, 30), (TaskState.RUNNING, 0), (TaskState.FAILED, 0)]
)
def test_what_is_left_of_a_restore_counts_down_and_ends_with_it(
    state: TaskState, left: int
) -> None:
    status = TaskStatus(COUNT, state, figures={"restored": 70, "to_restore": 100})
    assert of(metrics.RESTORE_LEFT, look(status)) == left


def test_drops_are_counted_by_reason() -> None:
    found = look(running({"expired": 3, "partitioner": 4}))
    assert of(metrics.DROPPED, found, [*LABELS, "expired"]) == 3
    assert of(metrics.DROPPED, found, [*LABELS, "partitioner"]) == 4


def test_rejected_records_are_counted_by_the_class_of_their_error() -> None:
    rejected = {"builtins.KeyError": 3, "RecordRejected": 4}
    found = look(TaskStatus(COUNT, TaskState.RUNNING, rejected=rejected))
    assert of(metrics.REJECTED_BY_ERROR, found, [*LABELS, "builtins.KeyError"]) == 3
    assert of(metrics.REJECTED_BY_ERROR, found, [*LABELS, "RecordRejected"]) == 4


def test_each_reason_has_the_records_of_the_last_minute() -> None:
    """A rule needs them: a count that a backlog has made before the first look does not grow."""
    status = replace(
        running({"expired": 20_933, "null key": 4}), dropped_lately={"expired": 20_933}
    )
    found = look(status)
    assert of(metrics.DROPPED_LATELY, found, [*LABELS, "expired"]) == 20_933
    assert of(metrics.DROPPED_LATELY, found, [*LABELS, "null key"]) == 0


def test_times_and_memory_come_from_the_worker_of_the_task() -> None:
    measured = Measurements()
    measured.add(0, Measured(4096, {COUNT: TIMES}))
    measured.add(1, Measured(0, {COUNT: TaskMeasures(Times(sum_us=1), Times(sum_us=1))}))
    found = look(running(), measured=measured)
    assert of(metrics.TURNS, found) == TIMES.turns
    assert of(metrics.COMMITS, found) == TIMES.commits
    assert of(metrics.WORKER_MEMORY, found, ["3", "0"]) == 4096
    assert of(metrics.WORKER_MEMORY, found, ["3", "1"]) is None  # it does not know its own


def test_counters_of_user_code_have_labels_of_their_own() -> None:
    counted = (
        (UserSeries("refused", (("reason", "no stock"),)), 3.0),
        (UserSeries("refused", (("by", "ann"), ("reason", "late"))), 0.5),
    )
    measured = Measurements()
    measured.add(0, Measured(1, {COUNT: TIMES._replace(counted=counted)}))
    found = look(running(), measured=measured)
    assert found["user_refused_total", (*LABELS, "no stock")] == 3
    assert found["user_refused_total", (*LABELS, "ann", "late")] == 0.5


def test_gauges_of_user_code_and_counters_of_the_same_name_are_two_metrics() -> None:
    measured = Measurements()
    series = UserSeries("open", (("shop", "a"),))
    times = TIMES._replace(counted=((series, 3.0),), gauges=((series, -2.5),))
    measured.add(0, Measured(1, {COUNT: times}))
    found = look(running(), measured=measured)
    assert found["user_open_total", (*LABELS, "a")] == 3
    assert found["gauge_open", (*LABELS, "a")] == -2.5


def test_a_task_that_has_left_has_no_series() -> None:
    measured = Measurements()
    measured.add(0, Measured(1, {COUNT: TIMES}))
    found = look(measured=measured)
    assert not [labels for _, labels in found if "Count_1" in labels]


def test_a_standby_has_its_own_metrics_only() -> None:
    status = TaskStatus(COPY, TaskState.STANDBY, figures={"records_in": 9, "lag": 2})
    found = look(status)
    assert of(metrics.STANDBY_RECORDS, found, COPY_LABELS) == 9
    assert of(metrics.STANDBY_LAG, found, COPY_LABELS) == 2
    assert of(metrics.STANDBY_STATE, found, [*COPY_LABELS, "STANDBY"]) == 1
    assert of(metrics.RECORDS_IN, found, COPY_LABELS) is None
    assert of(metrics.TASKS, found, ["3"]) == 0


def test_the_reference_lists_exactly_what_is_shown() -> None:
    measured = Measurements()
    measured.add(0, Measured(1, {COUNT: TIMES}))
    figures = {**dict.fromkeys(FIGURES, 1), "is_idle": 0}
    copy = TaskStatus(COPY, TaskState.STANDBY, figures=figures)
    task = TaskStatus(COUNT, TaskState.RUNNING, figures=figures, dropped={"expired": 1})
    task = replace(task, rejected={"RecordRejected": 1}, held_by=COUNT, key_warnings=(KEYS,))
    found = look(task, copy, measured=measured)
    assert {name for name, _ in found} == {metric.name for metric in ALL}


def test_times_of_a_task_add_to_those_of_others() -> None:
    measured = Measurements()
    other = TaskId("Count", 2)
    measured.add(0, Measured(1, {COUNT: TIMES}))
    measured.add(0, Measured(2, {other: TIMES}))
    assert measured.of(0, COUNT) == measured.of(0, other) == TIMES
    assert measured.resident_bytes == {0: 2}


def test_what_was_closed_or_has_ended_is_forgotten() -> None:
    measured = Measurements()
    other = TaskId("Count", 2)
    for thread in (0, 1):
        measured.add(thread, Measured(1, {COUNT: TIMES, other: TIMES}))
    measured.forget_task(0, COUNT)
    measured.forget_thread(1)
    assert measured.of(0, COUNT) is None
    assert measured.of(0, other) == TIMES
    assert measured.of(1, other) is None
    assert measured.resident_bytes == {0: 1}
