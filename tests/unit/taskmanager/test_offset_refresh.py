"""Offsets are committed again before the brokers forget them (`offsets.retention.minutes`)."""

from __future__ import annotations

from math import inf

import pytest

from kafka_pipeline.common.kafka.clients import NonRetriableError
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.taskmanager import task as task_module
from kafka_pipeline.taskmanager import task_operations
from kafka_pipeline.taskmanager.task import FIRST_REFRESH_S, REFRESH_INTERVAL_S, Task
from tests.unit.taskmanager.fakes import Clock, Rig, batch
from tests.unit.taskmanager.noting import NotingReader, assigned_to, start


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(task_module, "time", clock)
    return clock


def process(task: Task) -> None:
    task.add(batch(0))
    task.turn(inf)
    task.commit()


def test_former_offsets_are_committed_soon_after_a_start_and_then_twice_a_day(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """A job that is restarted each day never runs for so long as the interval."""
    task = start(assigned_to([], 0, monkeypatch))
    assert not task.needs_refresh
    for pause_s in (FIRST_REFRESH_S, REFRESH_INTERVAL_S, REFRESH_INTERVAL_S):
        clock.now_s += pause_s
        assert not task.needs_refresh
        clock.now_s += 1
        assert task.needs_refresh
        task.refresh()


def test_offsets_that_records_have_moved_are_not_committed_again_soon(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    task = start(assigned_to([], 0, monkeypatch))
    process(task)
    clock.now_s += REFRESH_INTERVAL_S
    assert not task.needs_refresh


def test_task_that_has_committed_nothing_yet_has_nothing_to_renew(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(NotingReader, "committed", lambda *_: {})
    task = start(assigned_to([], 0, monkeypatch))
    clock.now_s += REFRESH_INTERVAL_S
    assert not task.needs_refresh


def test_offsets_of_a_failed_task_are_committed_soon_and_then_twice_a_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig, renewed = Rig(monkeypatch), list[float]()
    monkeypatch.setattr(
        task_operations, "refresh_failed", lambda *_: renewed.append(rig.clock.now_s)
    )

    def fail() -> None:
        raise NonRetriableError("a right is missing")

    task = rig.assign(0)
    task.on_start = fail
    rig.step()
    rig.step_until(lambda: rig.status(task).state is TaskState.FAILED)
    expected = list[float]()
    for pause_s in (FIRST_REFRESH_S, REFRESH_INTERVAL_S):
        rig.clock.now_s += pause_s
        rig.step()
        assert renewed == expected
        rig.clock.now_s += 1
        expected.append(rig.clock.now_s)
        rig.step_until(lambda: len(renewed) >= len(expected))
