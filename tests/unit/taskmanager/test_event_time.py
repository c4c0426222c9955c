"""The event time of a task in its status, and the warning while another task holds it back."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafka_pipeline.common.pipelines.event_time import EventTimeSpec, Writer
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.event_time.writer_progress import Holder
from kafka_pipeline.taskmanager import assigned_task
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.standstill import WARN_AFTER_MS
from kafka_pipeline.taskmanager.task import Task
from kafka_pipeline.taskmanager.task_entry import Phase
from tests.unit.taskmanager.fakes import CONFIG, batch
from tests.unit.taskmanager.noting import COMMITTED_MS, assigned_to, start

LATER_MS = COMMITTED_MS + 60_000
PAYMENTS = TaskId("Payments", 2)
BEHIND_A_TOPIC = EventTimeSpec(
    writers={"in": (Writer(processor="Payments", inputs={"payments": 3}),)},
)


class Rig:
    """A task of which others ask how far it is, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1_000_000
        self.holders: tuple[Holder, ...] = ()
        monkeypatch.setattr(assigned_task, "monotonic_ms", lambda: self.now_ms)
        self._monkeypatch = monkeypatch

    def assigned(self, spec: EventTimeSpec | None = None) -> AssignedTask:
        made = assigned_to([], 0, self._monkeypatch)
        watch = made._context.time_watch
        self._monkeypatch.setattr(watch, "holders", lambda _: self.holders)
        return AssignedTask(replace(made.replica, event_time=spec), made._context, 0)

    def status(self, task: AssignedTask, after_ms: int = 0) -> TaskStatus:
        self.now_ms += after_ms
        task.watch_event_time()
        return task.status(Phase.IDLE, 0, "")


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def process(task: Task, timestamp: int, offset: int = 0) -> None:
    task.add(replace(batch(0, offset=offset), timestamps=[timestamp]))
    task.turn(inf)
    task.reached_end(("in", 0), offset + 1)


@pytest.mark.parametrize("spec", [None, EventTimeSpec()])
def test_a_task_that_reads_one_source_is_as_far_as_its_newest_record(
    rig: Rig, spec: EventTimeSpec | None
) -> None:
    assigned = rig.assigned(spec)
    assert "event_time_ms" not in rig.status(assigned).figures
    task = start(assigned)
    assert rig.status(assigned).gauge("event_time_ms") == COMMITTED_MS
    process(task, LATER_MS)
    process(task, COMMITTED_MS + 1, offset=1)
    found = rig.status(assigned)
    times = found.gauge("event_time_ms"), found.gauge("newest_record_ms")
    assert times == (LATER_MS, LATER_MS)


def test_a_task_is_idle_once_it_has_had_nothing_to_read_for_a_while(rig: Rig) -> None:
    assigned = rig.assigned()
    process(start(assigned), LATER_MS)
    assert not rig.status(assigned).count("is_idle")
    idle = rig.status(assigned, after_ms=CONFIG.idle_after_ms)
    assert idle.count("is_idle")
    assert rig.status(assigned, after_ms=60_000) == idle


def test_a_task_behind_a_topic_is_as_far_as_the_writers_and_says_who_holds_it_back(
    rig: Rig,
) -> None:
    assigned = rig.assigned(BEHIND_A_TOPIC)
    task = start(assigned)
    process(task, LATER_MS)
    found = rig.status(assigned)
    assert (found.gauge("event_time_ms"), found.gauge("newest_record_ms")) == (None, LATER_MS)
    rig.holders = (Holder(PAYMENTS, -1, 12_400),)
    assert rig.status(assigned).held_by is None
    found = rig.status(assigned, after_ms=6000)
    assert (found.held_by, found.gauge("held_unread")) == (PAYMENTS, 12_400)


def test_a_task_that_failed_keeps_its_event_time(rig: Rig) -> None:
    assigned = rig.assigned(BEHIND_A_TOPIC)
    start(assigned)
    rig.holders = (Holder(PAYMENTS, -1, 12_400),)
    rig.status(assigned)
    assert rig.status(assigned, after_ms=6000).held_by == PAYMENTS
    assigned.running = None
    assigned.watch_event_time()
    found = assigned.status(Phase.FAILED, 0, "why")
    assert (found.state, found.held_by) == (TaskState.FAILED, None)
    assert found.gauge("newest_record_ms") == COMMITTED_MS


@pytest.mark.parametrize(("unread", "said"), [(12_400, 12_400), (None, "unknown")])
def test_the_log_has_who_holds_a_task_back_for_more_than_a_minute(
    rig: Rig, unread: int | None, said: object
) -> None:
    assigned = rig.assigned(BEHIND_A_TOPIC)
    start(assigned)
    rig.holders = (Holder(PAYMENTS, -1, unread),)
    with capture_logs() as logs:
        rig.status(assigned)
        rig.status(assigned, after_ms=WARN_AFTER_MS)
        rig.status(assigned, after_ms=1500)
        rig.status(assigned, after_ms=1500)
    told: list[Any] = [log for log in logs if "event time" in log["event"]]
    assert [(log["log_level"], log["waits_for"], log["unread"]) for log in told] == [
        ("warning", "Payments_2", said)
    ]
    assert (told[0]["event_time"], told[0]["seconds"]) == ("unknown", 61)


def test_the_newest_record_of_the_writers_counts_too(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assigned = rig.assigned(BEHIND_A_TOPIC)
    start(assigned)
    monkeypatch.setattr(assigned._context.time_watch, "newest_ms", lambda _: LATER_MS)
    assert rig.status(assigned).gauge("newest_record_ms") == LATER_MS


def told_end(task: Task) -> int:
    """Return the offset before which the task has committed that everything was read."""
    progress = task._positions["in", 0].progress
    assert progress is not None
    return progress.end


def test_records_that_wait_for_a_turn_are_not_told_as_read(rig: Rig) -> None:
    """While another task has the thread for user code, those who ask must not take it for idle."""
    assigned = rig.assigned(EventTimeSpec())
    replica = replace(assigned.replica, arcs={"arc": 1})
    task = start(AssignedTask(replica, assigned._context, 0))
    process(task, LATER_MS)
    task.refresh()
    assert told_end(task) == 1
    task.add(replace(batch(0, offset=1), timestamps=[LATER_MS]))
    task.reached_end(("in", 0), 2)
    task.refresh()
    assert told_end(task) == 1
    task.turn(inf)
    task.refresh()
    assert told_end(task) == 2
