"""How far ahead of the clock the records of a task may be, and what it says of a time that is."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from structlog.testing import capture_logs

from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.taskmanager import task_start
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.task import Task
from tests.unit.taskmanager.fakes import CONFIG, batch
from tests.unit.taskmanager.noting import COMMITTED_MS, assigned_to, start

AHEAD_MS = 1000
LIMITED = replace(CONFIG, max_timestamp_ahead_ms=AHEAD_MS)


def task_at(now_ms: int, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setattr(task_start, "wall_clock_ms", lambda: now_ms)
    assigned = assigned_to([], 0, monkeypatch, config=LIMITED)
    skipping = replace(assigned.replica, on_error=OnError.SKIP)
    return start(AssignedTask(skipping, assigned._context, 0))


def test_the_limit_is_that_of_the_configuration_and_the_clock_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = task_at(COMMITTED_MS, monkeypatch)
    for offset, ahead_ms in enumerate((AHEAD_MS, AHEAD_MS + 1)):
        task.add(replace(batch(0, offset), timestamps=[COMMITTED_MS + ahead_ms]))
    task.turn(inf)
    assert task._figures.skipped == 1
    assert task._figures.rejected == {"InvalidTimestamp": 1}
    assert task.event_time.newest_ms == COMMITTED_MS + AHEAD_MS


@pytest.mark.parametrize("behind_ms", [AHEAD_MS, AHEAD_MS + 1])
def test_a_committed_time_that_no_record_may_have_is_in_the_log(
    behind_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with capture_logs() as logs:
        task_at(COMMITTED_MS - behind_ms, monkeypatch)
    found = [log for log in logs if log["event"].startswith("event time is ahead of the clock")]
    assert [(log["partition"], log["time"]) for log in found] == (
        [("in-0", "2024-11-22 12:53:20 UTC")] if behind_ms > AHEAD_MS else []
    )
