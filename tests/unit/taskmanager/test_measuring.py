"""What a PipelineThread measures of its tasks, for metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.kafka.clients import TransactionFailedError
from kafka_pipeline.common.monitoring.memory import resident_bytes
from kafka_pipeline.common.user_series import UserSeries
from kafka_pipeline.streams.engine.event_loop import EventLoop
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.channel_messages import Measured, Status
from kafka_pipeline.taskmanager.task_entry import Phase
from tests.unit.taskmanager.fakes import CONFIG, FakeTask, Rig, batch, replica


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    made = Rig(monkeypatch, replace(CONFIG, metrics_port=0))
    yield made
    made.thread.close()


def measured(rig: Rig) -> Measured:
    """Return what the thread reports next."""
    rig.channel.sent.clear()
    rig.clock.now_s += 1
    rig.step()
    (found,) = [message for message in rig.channel.sent if isinstance(message, Measured)]
    return found


def work(rig: Rig, task: FakeTask) -> None:
    """Let a record come, and its commit begin."""
    before = task.turns
    rig.reader.batches.append(batch(0))
    rig.step_until(lambda: task.turns > before and not task.uncommitted)


def test_turns_and_commits_are_measured(rig: Rig) -> None:
    (task,) = rig.run(0)
    work(rig, task)
    rig.step_until(lambda: not rig.thread._background.is_busy)
    times = measured(rig).tasks[task.task_id]
    assert sum(times.turns.counts) == task.turns == 1
    assert sum(times.commits.counts) == 1


def test_commits_that_fail_are_measured_too(rig: Rig) -> None:
    (task,) = rig.run(0)

    def fail() -> None:
        raise TransactionFailedError("Kafka is away")

    task.on_commit = fail
    rig.reader.batches.append(batch(0))
    rig.step_until(lambda: rig.status(task).count("restarts") > 0)
    sent = [message.tasks for message in rig.channel.sent if isinstance(message, Measured)]
    *_, times = [tasks[task.task_id] for tasks in sent if task.task_id in tasks]
    assert sum(times.commits.counts) == 1


def test_only_times_that_have_changed_are_reported(rig: Rig) -> None:
    first, second = rig.run(0, 1)
    assert measured(rig).tasks.keys() <= {first.task_id, second.task_id}
    assert measured(rig).tasks == {}
    work(rig, first)
    rig.step_until(lambda: not rig.thread._background.is_busy)
    assert measured(rig).tasks.keys() == {first.task_id}


def test_memory_of_the_worker_is_reported(rig: Rig) -> None:
    assert (measured(rig).resident_bytes > 0) == (resident_bytes() > 0)


def test_without_a_port_for_metrics_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    (task,) = rig.run(0)
    work(rig, task)
    rig.clock.now_s += 1
    rig.step()
    assert rig.channel.count(Status) > 0
    assert rig.channel.count(Measured) == 0
    rig.thread.close()


def test_sizes_are_figures_of_the_status(rig: Rig) -> None:
    context: Any = SimpleNamespace(
        config=CONFIG, tm_id=0, thread=0, lag_watch=rig.lag_watch, new_event_loop=EventLoop
    )
    task = AssignedTask(replica(0), context, epoch=0)
    assert task.status(Phase.IDLE, 0, "").figures == {}
    task.memory.fetched_bytes, task.memory.state_bytes = 8, 0
    assert task.status(Phase.IDLE, 0, "").figures == {"fetched_bytes": 8, "state_bytes": 0}


def test_gauges_of_user_code_are_reported_once_they_have_changed(rig: Rig) -> None:
    (task,) = rig.run(0)
    measured(rig)
    figures = rig.thread._tasks[task.task_id].memory.figures
    figures.set_gauge(UserSeries("open"), 2)
    assert measured(rig).tasks[task.task_id].gauges == ((UserSeries("open"), 2.0),)
    figures.set_gauge(UserSeries("open"), 2)
    assert measured(rig).tasks == {}


def test_counters_of_user_code_are_reported_once_they_have_changed(rig: Rig) -> None:
    (task,) = rig.run(0)
    measured(rig)
    memory = rig.thread._tasks[task.task_id].memory
    memory.figures.count(UserSeries("refused"), 2)
    assert measured(rig).tasks[task.task_id].counted == ((UserSeries("refused"), 2.0),)
    assert measured(rig).tasks == {}
