"""Tasks that a TaskManager runs but should not: revoked until closed. Former TaskManagers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_pipeline.common.protocol.messages import Message, Processors, Report
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.jobmanager.events import LeadershipBegan
from kafka_pipeline.jobmanager.state import MOST_FORMER
from tests.unit.jobmanager.leader import (
    EPOCH,
    Leader,
    assigned,
    revoked,
    settled,
    standby,
    status,
    task,
)

OLD = TaskStatus(task(1), TaskState.RUNNING, fingerprint="of the old pipeline.yaml")
FAILED = status(1, TaskState.FAILED)
NOT_ADOPTED = pytest.mark.parametrize("has", [OLD, FAILED], ids=["of_another_version", "failed"])


def reporter(leader: Leader, *has: TaskStatus) -> Callable[[int], list[Message]]:
    """Return a function that reports these tasks and the command carried out last."""
    beats = iter(range(1, 1000))

    def report(sequence: int) -> list[Message]:
        epoch = leader.epoch if sequence else EPOCH - 1
        said = leader.send(Report(0, "tm0", 1, next(beats), epoch, sequence, tasks=has))
        leader.carry_out(said)
        return said

    return report


@NOT_ADOPTED
def test_task_that_was_not_adopted_is_closed_though_the_revocation_was_lost(
    has: TaskStatus,
) -> None:
    leader = Leader(tasks=2, tm_number=1)
    report = reporter(leader, status(0), has)
    assert revoked(report(0), 0) == [1]  # Kafka did not take it,
    assert assigned(leader.tick(), 0) == [1]  # nor this.
    leader.epoch += 1
    said = leader.state.handle(LeadershipBegan(leader.epoch))
    assert (revoked(said, 0), assigned(said, 0)) == ([1], [0])
    leader.carry_out(said)
    assert assigned(leader.report(0, [0], beat=10), 0) == [1]


@NOT_ADOPTED
def test_task_that_was_not_adopted_is_revoked_again_if_it_is_still_there(has: TaskStatus) -> None:
    leader = Leader(tasks=2, tm_number=1)
    report = reporter(leader, status(0), has)
    report(0)
    leader.carry_out(leader.tick())
    said: list[Message] = []
    for _ in range(3):
        said += [*leader.tick(1000), *report(leader.sequences[0])]
    assert (revoked(said, 0), assigned(said, 0)) == ([1], [])


def test_task_that_fails_again_after_it_was_restarted_is_left_alone() -> None:
    leader = Leader(tasks=2, tm_number=1)
    reporter(leader, status(0), FAILED)(0)
    leader.carry_out(leader.tick())
    for state in (TaskState.STARTING, *[TaskState.FAILED] * 10):
        leader.runs[0] = {task(0): TaskState.RUNNING, task(1): state}
        assert [*leader.tick(1000), *leader.report(0, beat=leader.beats + 10)] == []


def test_task_of_another_version_is_closed_though_it_came_after_the_first_report() -> None:
    leader = Leader(tasks=2, tm_number=1)
    leader.report(0, [0])
    leader.carry_out(leader.tick())  # It ignores this: the former JobManager had it start the task.
    said = leader.send(Report(0, "tm0", 1, 10, EPOCH, leader.sequences[0], tasks=(status(0), OLD)))
    assert (revoked(said, 0), assigned(said, 0)) == ([1], [])


def test_standby_of_another_version_is_closed_when_its_taskmanager_comes_late() -> None:
    leader = Leader(tasks=1, tm_number=2, standbys=1)
    leader.settle(0)
    old = TaskStatus(standby(0, 1).task, TaskState.STANDBY, fingerprint="old")
    said = leader.send(Report(1, "tm1", 1, 1, EPOCH - 1, 5, tasks=(old,)))
    assert (revoked(said, 1), assigned(said, 1)) == ([0], [])
    leader.carry_out(said)
    assert assigned(leader.report(1, [], beat=10), 1) == [0]


@pytest.mark.parametrize(("others", "is_known"), [(MOST_FORMER - 1, True), (MOST_FORMER, False)])
def test_last_thousand_that_left_are_known(others: int, is_known: bool) -> None:
    leader = settled(tasks=1, tm_number=2, present=[0])
    for n in range(1 + others):
        leader.report(1, [], incarnation=f"tm1-{n}", sequence=0, beat=5)
        leader.report(1, [], incarnation=f"tm1-{n}", sequence=0, beat=6, leaving=True)
    leader.report(1, [], incarnation="tm1-0", sequence=0, beat=4)
    assert (1 in leader.state.live) is not is_known


def test_taskmanager_that_comes_back_as_it_was_is_not_told_both() -> None:
    leader = Leader(tasks=1, tm_number=2, standbys=1)
    leader.settle(0)
    old = TaskStatus(standby(0, 1).task, TaskState.STANDBY, fingerprint="old")
    leader.send(Report(1, "tm1", 1, 1, EPOCH - 1, 5, tasks=(old,)))
    for _ in range(3):
        leader.tick(1000)
        leader.carry_out(leader.report(0))
    said = leader.send(Report(1, "tm1", 1, 2, EPOCH - 1, 5, tasks=(old,)))
    assert (revoked(said, 1), assigned(said, 1)) == ([], [0]), "it was revoked as it went down"
    (command,) = [message for message in said if isinstance(message, Processors)]
    said = leader.send(Report(1, "tm1", 1, 3, EPOCH, command.sequence, tasks=(old,)))
    assert (revoked(said, 1), assigned(said, 1)) == ([0], []), "but that was lost"
