"""Tasks that a TaskManager has but should not: told to close until it did; and who is forgotten."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from common.messages import Message, Report
from common.status import TaskState, TaskStatus
from jobmanager.events import ReignBegan
from jobmanager.state import MOST_FORMER
from tests.unit.jobmanager.reign import (
    EPOCH,
    Reign,
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


def reporter(reign: Reign, *has: TaskStatus) -> Callable[[int], list[Message]]:
    """Return a function that reports these tasks and the command carried out last."""
    beats = iter(range(1, 1000))

    def report(sequence: int) -> list[Message]:
        epoch = reign.epoch if sequence else EPOCH - 1
        said = reign.send(Report(0, "tm0", 1, next(beats), epoch, sequence, tasks=has))
        reign.obey(said)
        return said

    return report


@NOT_ADOPTED
def test_task_that_was_not_adopted_is_closed_though_the_revocation_was_lost(
    has: TaskStatus,
) -> None:
    reign = Reign(tasks=2, tm_number=1)
    report = reporter(reign, status(0), has)
    assert revoked(report(0), 0) == [1]  # Kafka did not take it,
    assert assigned(reign.tick(), 0) == [1]  # nor this.
    reign.epoch += 1
    said = reign.state.handle(ReignBegan(reign.epoch))
    assert (revoked(said, 0), assigned(said, 0)) == ([1], [0])
    reign.obey(said)
    assert assigned(reign.report(0, [0], beat=10), 0) == [1]


@NOT_ADOPTED
def test_task_that_was_not_adopted_is_revoked_again_if_it_is_still_there(has: TaskStatus) -> None:
    reign = Reign(tasks=2, tm_number=1)
    report = reporter(reign, status(0), has)
    report(0)
    reign.obey(reign.tick())
    said: list[Message] = []
    for _ in range(3):
        said += [*reign.tick(1000), *report(reign.sequences[0])]
    assert (revoked(said, 0), assigned(said, 0)) == ([1], [])


def test_task_that_fails_again_after_it_was_restarted_is_left_alone() -> None:
    reign = Reign(tasks=2, tm_number=1)
    reporter(reign, status(0), FAILED)(0)
    reign.obey(reign.tick())
    for state in (TaskState.STARTING, *[TaskState.FAILED] * 10):
        reign.runs[0] = {task(0): TaskState.RUNNING, task(1): state}
        assert [*reign.tick(1000), *reign.report(0, beat=reign.beats + 10)] == []


def test_task_of_another_version_is_closed_though_it_came_after_the_first_report() -> None:
    reign = Reign(tasks=2, tm_number=1)
    reign.report(0, [0])
    reign.obey(reign.tick())  # It ignores this: the former JobManager had it start the task.
    said = reign.send(Report(0, "tm0", 1, 10, EPOCH, reign.sequences[0], tasks=(status(0), OLD)))
    assert (revoked(said, 0), assigned(said, 0)) == ([1], [])


def test_standby_of_another_version_is_closed_when_its_taskmanager_comes_late() -> None:
    reign = Reign(tasks=1, tm_number=2, standbys=1)
    reign.settle(0)
    old = TaskStatus(standby(0, 1).task, TaskState.STANDBY, fingerprint="old")
    said = reign.send(Report(1, "tm1", 1, 1, EPOCH - 1, 5, tasks=(old,)))
    assert (revoked(said, 1), assigned(said, 1)) == ([0], [])
    reign.obey(said)
    assert assigned(reign.report(1, [], beat=10), 1) == [0]


@pytest.mark.parametrize(("others", "is_known"), [(MOST_FORMER - 1, True), (MOST_FORMER, False)])
def test_last_thousand_that_left_are_known(others: int, is_known: bool) -> None:
    reign = settled(tasks=1, tm_number=2, present=[0])
    for n in range(1 + others):
        reign.report(1, [], incarnation=f"tm1-{n}", sequence=0, beat=5)
        reign.report(1, [], incarnation=f"tm1-{n}", sequence=0, beat=6, leaving=True)
    reign.report(1, [], incarnation="tm1-0", sequence=0, beat=4)
    assert (1 in reign.state.live) is not is_known


def test_taskmanager_that_comes_back_as_it_was_is_not_told_both() -> None:
    reign = Reign(tasks=1, tm_number=2, standbys=1)
    reign.settle(0)
    old = TaskStatus(standby(0, 1).task, TaskState.STANDBY, fingerprint="old")
    reign.send(Report(1, "tm1", 1, 1, EPOCH - 1, 5, tasks=(old,)))
    for _ in range(3):
        reign.tick(1000)
        reign.obey(reign.report(0))
    said = reign.send(Report(1, "tm1", 1, 2, EPOCH - 1, 5, tasks=(old,)))
    assert (revoked(said, 1), assigned(said, 1)) == ([0], [])
