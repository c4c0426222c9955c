"""The pipeline changes while it runs: tasks are added, edited and removed."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.protocol.status import TaskState
from tests.unit.jobmanager.changing import (
    change,
    fail,
    fingerprints,
    given,
    homes,
    reported,
    running,
    silent_for_three_beats,
    taken,
    tasks,
    unit,
    versions_run,
)
from tests.unit.jobmanager.leader import Leader

P, PQ = tasks(P=1), tasks(P=1, Q=1)
P_NAMES, Q_NAMES = ["P_0", "P_1"], ["Q_0", "Q_1"]
ALL = [*P_NAMES, *Q_NAMES]


# Added.


def test_added_tasks_are_assigned_at_once_and_the_others_get_no_command() -> None:
    leader = running(P)
    before = homes(leader)
    said = leader.change(PQ)
    assert (sorted(given(said)), taken(said)) == (Q_NAMES, [])
    leader.carry_out(said)
    assert leader.come_to_rest(0, 1) == []
    assert homes(leader).items() >= before.items()
    assert homes(leader).keys() == {*ALL}


def test_first_pipeline_may_come_after_the_taskmanagers() -> None:
    leader = running([])
    said = leader.change(P)
    assert (given(said, 0), given(said, 1)) == (["P_0"], ["P_1"])


def test_change_that_changes_nothing_commands_nothing() -> None:
    leader = running(PQ)
    assert leader.change(PQ[::-1]) == []
    assert leader.come_to_rest(0, 1) == []


def test_added_partitions_leave_the_first_ones_alone() -> None:
    leader = running(P)
    said = leader.change(tasks(partitions=4, P=1))
    assert (sorted(given(said)), taken(said)) == (["P_2", "P_3"], [])


# Removed.


def test_removed_tasks_are_revoked_and_the_others_get_no_command() -> None:
    leader = running(PQ)
    said = leader.change(P)
    assert {str(task_id) for task_id in leader.state.owners} == {*P_NAMES}
    leader.carry_out(said)
    said += leader.come_to_rest(0, 1)
    assert (given(said), sorted(taken(said))) == ([], Q_NAMES)
    assert homes(leader).keys() == {*P_NAMES}


def test_task_that_was_removed_while_its_assignment_was_on_its_way_is_revoked() -> None:
    leader = running(P)
    on_its_way = leader.change(PQ)
    said = leader.change(P)
    for _ in range(2):  # The assignment is still on its way.
        said += [*leader.report(0), *leader.report(1)]
    leader.carry_out(on_its_way)
    assert homes(leader).keys() == {*ALL}
    said += leader.come_to_rest(0, 1)
    assert (given(said), sorted(taken(said))) == ([], Q_NAMES)
    assert homes(leader).keys() == {*P_NAMES}


def test_task_that_was_removed_after_its_assignment_was_lost_is_not_assigned_again() -> None:
    leader = running(P)
    leader.change(PQ)
    said = leader.change(P) + leader.come_to_rest(0, 1)
    assert not {*given(said)} & {*Q_NAMES}
    assert homes(leader).keys() == {*P_NAMES}


def test_task_that_was_removed_while_it_moved_is_not_given_to_its_target() -> None:
    leader = running(PQ, present=[0])
    moving = leader.report(1)
    asked = taken(moving, 0)
    assert len(asked) == 2
    removed = {name[0] for name in asked}
    left = {name: 1 for name in "PQ" if name not in removed}
    said = leader.change(tasks(**left)) + leader.report(0) + leader.report(1)
    leader.carry_out(moving)
    said += leader.come_to_rest(0, 1)
    assert not {name[0] for name in given(said)} & removed
    assert homes(leader).keys() == {f"{name}_{n}" for name in left for n in (0, 1)}


def test_removed_tasks_that_a_late_taskmanager_still_runs_are_revoked() -> None:
    leader = running(PQ, present=[0, 1])
    leader.change(P)
    silent_for_three_beats(leader, 0)
    assert leader.state.live.keys() == {0}
    said = leader.come_to_rest(0, 1)
    assert not {*given(said)} & {*Q_NAMES}
    assert homes(leader).keys() == {*P_NAMES}


def test_removed_standbys_are_revoked_too() -> None:
    leader = running(tasks(P=1, Q=1, standbys=1))
    change(leader, tasks(P=1, standbys=1))
    said = leader.come_to_rest(0, 1)
    assert sorted(taken(said)) == [*(name + end for name in Q_NAMES for end in ("", ".standby1"))]
    assert homes(leader).keys() == {"P_0", "P_1", "P_0.standby1", "P_1.standby1"}


def test_standbys_that_are_no_longer_wanted_are_revoked_and_their_tasks_run_on() -> None:
    leader = running(tasks(P=1, standbys=1))
    change(leader, P)
    said = leader.come_to_rest(0, 1)
    assert (given(said), sorted(taken(said))) == ([], ["P_0.standby1", "P_1.standby1"])


def test_task_that_comes_back_before_it_was_closed_is_not_given_to_another() -> None:
    """A removal is taken back: P_0 and P_1 still run, and their reports have said so."""
    leader = running(PQ)
    owners = homes(leader)
    leader.change(tasks(Q=1))
    said = leader.change([*tasks(Q=1), unit("P", 1), unit("P", 0)])
    for tm_id in (0, 1):
        others = {name for name, owner in owners.items() if owner != tm_id}
        assert not {*given(said, tm_id)} & others


# Edited.


def test_edited_tasks_are_closed_and_started_again_where_they_are() -> None:
    leader = running(PQ)
    owners, edited = homes(leader), tasks(P=1, Q=2)
    said = leader.change(edited)
    said += leader.report(0) + leader.report(1)
    assert (given(said), sorted(taken(said))) == ([], Q_NAMES)
    leader.carry_out(said)
    later = leader.come_to_rest(0, 1)
    assert (sorted(given(later)), taken(later)) == (Q_NAMES, [])
    assert homes(leader) == owners
    assert versions_run(leader) == fingerprints(edited)


def test_task_that_was_edited_while_its_assignment_was_on_its_way_ends_in_the_new_version() -> None:
    leader = running(P)
    on_its_way = leader.change(PQ)
    said = leader.change(tasks(P=1, Q=2))
    leader.carry_out(on_its_way)
    said += leader.come_to_rest(0, 1)
    assert (sorted(given(said)), sorted(taken(said))) == (Q_NAMES, Q_NAMES)
    assert versions_run(leader) == fingerprints(tasks(P=1, Q=2))


def test_edit_that_is_taken_back_at_once_touches_nothing() -> None:
    leader = running(PQ)
    said = leader.change(tasks(P=1, Q=2)) + leader.change(PQ) + leader.come_to_rest(0, 1)
    assert said == []


def test_edit_that_is_taken_back_late_ends_with_the_first_version() -> None:
    leader = running(PQ)
    said = leader.change(tasks(P=1, Q=2)) + leader.report(0) + leader.report(1)
    leader.change(PQ)
    leader.carry_out(said)
    leader.come_to_rest(0, 1)
    assert versions_run(leader) == fingerprints(PQ)


def test_task_that_was_edited_while_it_moved_starts_in_the_new_version() -> None:
    leader = running(PQ, present=[0])
    moving = leader.report(1)
    edited = tasks(P=2, Q=2)
    leader.change(edited)
    leader.carry_out(moving)
    leader.come_to_rest(0, 1)
    assert sorted(homes(leader).values()) == [0, 0, 1, 1]
    assert versions_run(leader) == fingerprints(edited)


def test_edited_standby_starts_again() -> None:
    leader = running(tasks(P=1, Q=1, standbys=1))
    edited = tasks(P=1, Q=2, standbys=1)
    owners = homes(leader)
    said = leader.change(edited) + leader.come_to_rest(0, 1)
    assert {name[0] for name in (*given(said), *taken(said))} == {"Q"}
    assert homes(leader) == owners
    assert versions_run(leader) == fingerprints(edited)


def test_failed_task_of_an_edited_processor_starts_again() -> None:
    leader = running(PQ)
    fail(leader, "Q_0")
    fail(leader, "P_0")
    assert leader.come_to_rest(0, 1) == []
    said = leader.change(tasks(P=1, Q=2)) + leader.come_to_rest(0, 1)
    assert (sorted(given(said)), sorted(taken(said))) == (Q_NAMES, Q_NAMES)
    states = {str(task_id): s for runs in leader.runs.values() for task_id, s in runs.items()}
    assert states == dict.fromkeys(ALL, TaskState.RUNNING) | {"P_0": TaskState.FAILED}


def test_task_that_fails_in_its_new_version_is_left_alone() -> None:
    leader = running(PQ)
    leader.change(tasks(P=1, Q=2))
    leader.come_to_rest(0, 1)
    fail(leader, "Q_0")
    assert leader.come_to_rest(0, 1) == []


# Before the JobManager has settled.


def test_change_before_the_jobmanager_has_settled_assigns_nothing_yet() -> None:
    leader = Leader(0, tm_number=2)
    leader.change(P)
    reported(leader, 0, ("P", 0, 1))
    assert given(leader.change(PQ)) == []
    assert not leader.state.is_settled
    reported(leader, 1, ("P", 1, 1))
    said = leader.come_to_rest(0, 1)
    assert leader.state.is_settled
    assert (sorted(given(said)), taken(said)) == (Q_NAMES, [])


def test_tasks_that_were_removed_or_edited_before_it_has_settled_are_closed() -> None:
    leader = Leader(0, tm_number=2)
    leader.change(tasks(P=1, Q=1, R=1))
    said = reported(leader, 0, ("P", 0, 1), ("Q", 0, 1), ("R", 0, 1))
    said += leader.change(tasks(P=1, Q=2))
    said += reported(leader, 1, ("P", 1, 1), ("Q", 1, 1), ("R", 1, 1))
    leader.carry_out(said)
    said += leader.come_to_rest(0, 1)
    assert {*taken(said)} == {"Q_0", "Q_1", "R_0", "R_1"}
    assert sorted(given(said)) == Q_NAMES
    assert versions_run(leader) == fingerprints(tasks(P=1, Q=2))


@pytest.mark.parametrize("held", [set(), {"P"}])
def test_state_says_whether_it_has_settled(held: set[str]) -> None:
    leader = Leader(0, tm_number=1)
    leader.change(P, held)
    assert not leader.state.is_settled
    leader.come_to_rest(0)
    assert leader.state.is_settled
    for _ in range(4):
        leader.tick(1000)
    assert not leader.state.is_settled
