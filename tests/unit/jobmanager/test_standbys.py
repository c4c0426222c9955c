"""The placement of standbys, and of tasks where a standby is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.protocol.messages import Processors
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.jobmanager.load_balancer import balance, place_standbys
from tests.unit.jobmanager.leader import Leader, replica, task

clusters = st.dictionaries(st.integers(0, 9), st.integers(1, 4), min_size=1, max_size=6)
owners = st.dictionaries(
    st.builds(TaskId, st.just("P"), st.integers(0, 9), st.integers(0, 2)), st.integers(0, 9)
)


def copies(tasks: list[TaskId], count: int) -> list[TaskId]:
    return [task.copy(n + 1) for n in range(count) for task in tasks]


# Where they are.


@given(clusters, st.integers(0, 10), st.integers(1, 3), owners)
def test_every_copy_that_can_be_has_a_taskmanager_without_the_task_or_another_copy(
    threads: dict[int, int], tasks: int, count: int, homes: dict[TaskId, int]
) -> None:
    active = [task(n) for n in range(tasks)]
    standbys = copies(active, count)
    placed = balance(active, threads, homes)
    found = place_standbys(standbys, threads, homes, placed)
    assert set(found) <= set(standbys)
    assert set(found.values()) <= set(threads)
    for one in active:
        at = [tm for standby, tm in found.items() if standby.active == one]
        assert len({*at, placed[one]}) == len(at) + 1
        assert len(at) == min(count, len(threads) - 1)


@given(clusters.filter(lambda threads: len(threads) > 1), st.integers(0, 10), owners)
def test_placing_again_moves_nothing(
    threads: dict[int, int], tasks: int, homes: dict[TaskId, int]
) -> None:
    active = [task(n) for n in range(tasks)]
    standbys = copies(active, 1)
    placed = balance(active, threads, homes)
    first = place_standbys(standbys, threads, homes, placed)
    assert place_standbys(standbys, threads, placed | first, placed) == first


@pytest.mark.parametrize("threads", [{0: 1, 1: 2, 2: 3}, {0: 2, 1: 2, 2: 2}, {0: 3, 1: 3}])
def test_copies_are_spread_in_proportion_to_threads(threads: dict[int, int]) -> None:
    active = [task(n) for n in range(24)]
    standbys = copies(active, 1)
    found = place_standbys(standbys, threads, {}, balance(active, threads, {}))
    counts, slots = Counter(found.values()), sum(threads.values())
    assert all(counts[tm] <= ceil(24 * count / slots) for tm, count in threads.items())


def test_task_that_cannot_stay_goes_to_its_copy_even_if_others_come_first() -> None:
    """The others have no copy, and would fill the TaskManager that has this one's."""
    threads = {1: 1, 2: 1}
    tasks = [task(n) for n in range(4)]
    placed = balance(tasks, threads, {}, {task(2): [2], task(3): [2]})
    assert (placed[task(2)], placed[task(3)]) == (2, 2)


# What the JobManager commands.


def leader_with_standbys(tasks: int, tm_number: int, standbys: int = 1) -> Leader:
    """Return a leader whose TaskManagers run all tasks and copies."""
    leader = Leader(tasks, tm_number, standbys=standbys)
    leader.settle(*range(tm_number))
    return leader


def owner(leader: Leader, partition: int, standby: int = 0) -> int | None:
    return leader.state.owners.get(task(partition).copy(standby))


def test_each_task_has_a_copy_elsewhere() -> None:
    leader = leader_with_standbys(tasks=4, tm_number=2)
    assert [owner(leader, n) for n in range(4)] == [0, 1, 0, 1]
    assert [owner(leader, n, standby=1) for n in range(4)] == [1, 0, 1, 0]


def test_tasks_of_one_that_dies_go_to_their_copies_in_one_command() -> None:
    leader = leader_with_standbys(tasks=6, tm_number=3)
    before = {n: owner(leader, n, standby=1) for n in range(6) if owner(leader, n) == 0}
    said = []
    for _ in range(4):
        said += leader.tick(1000)
        for tm_id in (1, 2):
            said += leader.report(tm_id)
    moved = {
        entry.task.partition: (message.tm_id, entry.task.copy(1) in message.revoke)
        for message in said
        if isinstance(message, Processors)
        for entry in message.assign
        if not entry.task.standby
    }
    assert moved == {partition: (tm_id, True) for partition, tm_id in before.items()}


def test_copies_end_when_one_taskmanager_is_left_and_come_back_with_the_second() -> None:
    leader = leader_with_standbys(tasks=4, tm_number=2)
    for _ in range(8):
        leader.carry_out(leader.tick(1000))
        leader.carry_out(leader.report(1))
    assert set(leader.state.owners) == {task(n) for n in range(4)}
    assert set(leader.runs[1]) == set(leader.state.owners)
    leader.runs[0] = {}
    leader.settle(0, 1)
    assert len(leader.state.owners) == 8


def test_restarted_jobmanager_leaves_copies_where_they_are() -> None:
    old = leader_with_standbys(tasks=6, tm_number=3)
    new = Leader(6, 3, epoch=old.epoch + 100, standbys=1)
    new.runs = old.runs
    said = []
    for _ in range(4):
        said += new.tick(1000)
        for tm_id in range(3):
            said += new.report(tm_id)
        new.carry_out(said)
    assert new.state.owners == old.state.owners
    assert not any(m.assign or m.revoke for m in said if isinstance(m, Processors))


def test_copies_that_are_no_longer_wanted_are_revoked() -> None:
    old = leader_with_standbys(tasks=4, tm_number=2)
    new = Leader(4, 2, epoch=old.epoch + 100)
    new.runs = old.runs
    new.settle(0, 1)
    running = {task_id for runs in new.runs.values() for task_id in runs}
    assert running == {task(n) for n in range(4)}


def test_copy_is_another_replica_than_its_task() -> None:
    one = replica(0)
    assert replace(one, task=one.task.copy(1)).fingerprint != one.fingerprint
