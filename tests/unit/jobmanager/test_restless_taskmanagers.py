"""TaskManagers that come back, are lost again and again, or follow another epoch."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.protocol.messages import MISSED_BEATS
from kafka_pipeline.jobmanager.state import LOSSES_WITHIN_MS, MOST_LOSSES
from tests.unit.jobmanager.leader import EPOCH, settled


@pytest.mark.parametrize("leaves", [True, False])
def test_taskmanager_that_comes_back_gets_the_tasks_back_that_it_had(*, leaves: bool) -> None:
    leader = settled(tasks=9, tm_number=3)
    before = leader.state.owners
    if leaves:
        leader.report(0, leaving=True)
    for _ in range(MISSED_BEATS + 1):
        leader.settle(1, 2)
    assert set(leader.state.owners.values()) == {1, 2}
    leader.runs.pop(0)
    leader.carry_out(leader.report(0, [], incarnation="again", sequence=0))
    leader.settle(1, 2)
    assert leader.state.owners == before


def test_taskmanagers_that_follow_a_later_epoch_are_noticed() -> None:
    leader = settled(tasks=1, tm_number=1, present=[0])
    assert leader.state.later_epoch is None
    leader.report(0, epoch=EPOCH + 5)
    assert leader.state.later_epoch == EPOCH + 5
    leader.report(0)
    assert leader.state.later_epoch is None


def test_taskmanager_that_is_lost_again_and_again_is_noticed() -> None:
    leader = settled(tasks=2, tm_number=2, present=[0, 1])
    noticed = []
    for number in range(MOST_LOSSES):
        for _ in range(5):
            leader.tick(1000)
            leader.report(0)
        noticed.append(leader.state.often_lost)
        leader.report(1, incarnation=f"again{number}")
    assert noticed == [[], [], [1]]
    for _ in range(LOSSES_WITHIN_MS // 1000):
        leader.tick(1000)
        leader.report(0)
        leader.report(1, incarnation=f"again{number}")
    assert leader.state.often_lost == []


def test_taskmanager_that_is_stopped_again_and_again_is_not_lost() -> None:
    leader = settled(tasks=2, tm_number=2, present=[0, 1])
    for number in range(MOST_LOSSES + 1):
        leader.report(1, incarnation=f"again{number - 1}" if number else "", leaving=True)
        leader.report(1, incarnation=f"again{number}")
    assert leader.state.often_lost == []
