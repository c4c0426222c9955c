"""What happens to a job becomes a list of events."""

from __future__ import annotations

from dataclasses import replace

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.console.history import MOST_EVENTS, History
from kafka_pipeline.console.views.snapshot import EventKind, Snapshot
from kafka_pipeline.deployment.desired_state import Deployed
from tests.console_sample import SampleJob, config


def told(snapshot: Snapshot, *kinds: EventKind) -> list[str]:
    """Return the texts of the events of some kinds."""
    return [event.text for event in snapshot.events if event.kind in kinds]


def test_the_start_of_a_job() -> None:
    found = SampleJob(config(task_managers=2)).run(3)
    assert told(found, *EventKind) == [
        "version 3 of the pipeline runs, made by ada@alpha",
        "the JobManager leads, with epoch 7",
        "TaskManager 0 joined: process 4000 on alpha",
        "TaskManager 1 joined: process 4001 on beta",
        "8 tasks began on TaskManager 0",
        "8 tasks began on TaskManager 1",
    ]
    assert not any(event.needs_care for event in found.events)


def test_a_silent_task_manager_and_the_moves_of_its_tasks() -> None:
    job = SampleJob(config(task_managers=2))
    job.run(10)
    before = job.board.next_snapshot(job.now_ms).events
    job.fall_silent(1)
    found = job.run(10).events[len(before) :]
    silent, move = found
    assert (silent.text, silent.needs_care) == ("TaskManager 1 fell silent", True)
    assert move.text == "8 tasks moved from TaskManager 1 to TaskManager 0"
    assert (move.task_count, len(move.tasks)) == (8, 8)


def test_a_failure_is_told_once_with_its_reason() -> None:
    job = SampleJob()
    job.run(2)
    for partition in (0, 1):
        task = TaskId("Price", partition)
        job.states[task] = TaskStatus(task, TaskState.FAILED, reason="no number")
    found = [event for event in job.run(5).events if event.kind is EventKind.FAILURE]
    assert [(event.text, event.reason, event.task_count) for event in found] == [
        ("2 tasks failed", "no number", 2)
    ]


def test_a_task_that_fails_again_is_told_again() -> None:
    job = SampleJob()
    task = TaskId("Price", 0)
    for state in (TaskState.RESTARTING, TaskState.RUNNING, TaskState.RESTARTING):
        job.states[task] = TaskStatus(task, state, reason="lost")
        found = job.run(2)
    assert told(found, EventKind.FAILURE) == ["1 task had an error, and will start again"] * 2


def changed(job: SampleJob, now: Deployed) -> list[str]:
    job.tap.deployed = now
    return told(job.run(1), EventKind.DEPLOYMENT)


def test_what_operators_ask_for() -> None:
    job = SampleJob()
    job.run(1)
    deployed = job.tap.deployed
    assert deployed is not None
    paused = replace(deployed, wish=deployed.wish.with_paused(["Price"]))
    assert changed(job, paused)[1:] == ["paused: Price"]
    assert changed(job, deployed)[2:] == ["resumed: Price"]
    drains = replace(deployed, wish=deployed.wish.with_drain(drains=True))
    assert changed(job, drains)[3:] == ["the pipeline is drained"]
    assert changed(job, deployed)[4:] == ["the pipeline is not drained any more"]
    again = replace(deployed, wish=deployed.wish.with_restarts(["Clean", "Audit"]))
    assert changed(job, again)[5:] == ["restarted on request: Audit, Clean"]
    coming = replace(again, wish=again.wish.of(3, 4))
    assert changed(job, coming)[6:] == ["a change to version 4 began"]
    version = replace(again.version, number=4, made_by="bob@beta")
    done = Deployed(version, coming.wish.of(4))
    assert changed(job, done)[7:] == ["version 4 of the pipeline runs, made by bob@beta"]


def test_only_the_latest_events_are_kept() -> None:
    history = History()
    job = SampleJob()
    running = job.run(1).status
    (info,) = (each for each in running.task_managers if each.id == 0)
    for pid in range(2 * MOST_EVENTS):
        status = ClusterStatus(running.job_manager, (replace(info, pid=pid),), ())
        history.look(pid, status, None)
    assert len(history.events) == MOST_EVENTS
    assert history.events[-1].at_ms == 2 * MOST_EVENTS - 1
