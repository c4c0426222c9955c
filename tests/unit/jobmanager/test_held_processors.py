"""Held processors: their tasks are given back, and nobody gets them until they are released."""

from __future__ import annotations

from kafka_pipeline.common.protocol.messages import Message, Processors, Report
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.jobmanager.events import LeadershipBegan
from kafka_pipeline.jobmanager.state import MOST_MOVES
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
    versions_run,
)
from tests.unit.jobmanager.leader import EPOCH, Leader

P, PQ = tasks(P=1), tasks(P=1, Q=1)
P_NAMES, Q_NAMES = ["P_0", "P_1"], ["Q_0", "Q_1"]
ALL = [*P_NAMES, *Q_NAMES]


# While the pipeline runs.


def test_held_tasks_are_given_back_at_once_and_nobody_gets_them() -> None:
    leader = running(PQ)
    owners = homes(leader)
    said = leader.change(PQ, held={"Q"})
    assert (given(said), sorted(taken(said))) == ([], Q_NAMES)
    assert {name: owners[name] for name in taken(said, 0)} == dict.fromkeys(taken(said, 0), 0)
    leader.carry_out(said)
    assert leader.come_to_rest(0, 1) == []
    assert homes(leader).keys() == {*P_NAMES}
    assert [leader.state.owners[TaskId("Q", n)] for n in (0, 1)] == [None, None]


def test_single_task_is_given_back_with_its_copy_and_comes_back() -> None:
    pipeline = tasks(P=1, Q=1, standbys=1)
    leader = running(pipeline)
    before = homes(leader)
    said = leader.change(pipeline, held_tasks={"Q_1"})
    assert (given(said), sorted(taken(said))) == ([], ["Q_1", "Q_1.standby1"])
    leader.carry_out(said)
    assert leader.come_to_rest(0, 1) == []
    assert leader.state.owners[TaskId("Q", 1)] is None
    assert leader.state.owners[TaskId("Q", 0)] is not None
    leader.carry_out(leader.change(pipeline))
    leader.come_to_rest(0, 1)
    assert homes(leader).keys() == before.keys()


def test_released_tasks_go_back_to_where_they_were() -> None:
    leader = running(tasks(partitions=5, P=1, Q=1, R=1), tm_number=3)
    pipeline, before = tasks(partitions=5, P=1, Q=1, R=1), homes(leader)
    change(leader, pipeline, held={"P", "R"})
    leader.come_to_rest(0, 1, 2)
    assert {name[0] for name in homes(leader)} == {"Q"}
    said = leader.change(pipeline)
    assert {name[0] for name in given(said)} == {"P", "R"}
    leader.carry_out(said)
    assert leader.come_to_rest(0, 1, 2) == []
    assert homes(leader) == before


def test_tasks_that_are_released_before_they_were_given_back_stay_with_their_owner() -> None:
    leader = running(PQ)
    before = homes(leader)
    on_its_way = leader.change(PQ, held={"Q"})
    assert leader.change(PQ) == []
    leader.carry_out(on_its_way)
    leader.come_to_rest(0, 1)
    assert homes(leader) == before


def test_more_processors_can_be_held_one_after_the_other() -> None:
    leader = running(tasks(P=1, Q=1, R=1))
    pipeline = tasks(P=1, Q=1, R=1)
    said = change(leader, pipeline, held={"P"}) + leader.come_to_rest(0, 1)
    said += change(leader, pipeline, held={"P", "Q"}) + leader.come_to_rest(0, 1)
    assert given(said) == []
    assert homes(leader).keys() == {"R_0", "R_1"}


def test_held_task_whose_assignment_is_on_its_way_is_given_back() -> None:
    leader = running(P)
    on_its_way = leader.change(PQ)
    leader.carry_out(on_its_way + leader.change(PQ, held={"Q"}))
    assert given(leader.come_to_rest(0, 1)) == []
    assert homes(leader).keys() == {*P_NAMES}


def test_task_that_is_held_while_it_moves_is_not_given_to_its_target() -> None:
    leader = running(P, present=[0])
    moving = leader.report(1)
    (name,) = taken(moving, 0)
    said = leader.change(P, held={"P"})
    leader.carry_out(moving + said)
    said += leader.come_to_rest(0, 1)
    assert given(said) == []
    assert sorted([name, *taken(said)]) == P_NAMES
    assert homes(leader) == {}


def test_held_tasks_have_no_standbys() -> None:
    leader = running(tasks(P=1, Q=1, standbys=1))
    said = leader.change(tasks(P=1, Q=1, standbys=1), held={"Q"})
    assert {name[0] for name in taken(said)} == {"Q"}
    leader.carry_out(said)
    assert given(leader.come_to_rest(0, 1)) == []
    assert homes(leader).keys() == {"P_0", "P_1", "P_0.standby1", "P_1.standby1"}
    change(leader, tasks(P=1, Q=1, standbys=1))
    leader.come_to_rest(0, 1)
    assert len(homes(leader)) == 8


def test_held_tasks_of_a_taskmanager_that_dies_are_not_given_to_others() -> None:
    leader = running(PQ, tm_number=3)
    leader.change(PQ, held={"Q"})  # They were not given back when it died.
    dead = homes(leader)["Q_0"]
    del leader.runs[dead]
    others = [tm_id for tm_id in range(3) if tm_id != dead]
    said = silent_for_three_beats(leader, *others) + leader.come_to_rest(*others)
    assert not {*given(said)} & {*Q_NAMES}
    assert leader.state.running({"Q"}) == []
    change(leader, PQ)
    leader.come_to_rest(*others)
    assert homes(leader).keys() == {*ALL}


def test_held_tasks_are_not_given_to_a_taskmanager_that_joins() -> None:
    leader = running(tasks(partitions=6, P=1, Q=1), tm_number=3, present=[0, 1])
    change(leader, tasks(partitions=6, P=1, Q=1), held={"Q"})
    said = leader.come_to_rest(0, 1, 2)
    assert {name[0] for name in given(said, 2)} == {"P"}
    assert {name[0] for name in homes(leader)} == {"P"}


def test_taskmanagers_that_all_were_away_give_held_tasks_back() -> None:
    leader = running(PQ)
    leader.change(PQ, held={"Q"})  # Kafka was away: it was not written.
    for _ in range(4):
        leader.tick(1000)
    assert leader.state.live == {}
    said = leader.come_to_rest(0, 1)
    assert {*taken(said)} == {*Q_NAMES}
    assert homes(leader).keys() == {*P_NAMES}


def test_held_task_that_is_not_given_back_in_time_is_asked_for_again() -> None:
    leader = running(P, tm_number=1)
    leader.change(P, held={"P"})
    leader.sequences[0] += 1  # It was asked, and does not get it done.
    said: list[Message] = []
    for _ in range(30):
        said += [*leader.tick(1000), *leader.report(0)]
        assert [str(task_id) for task_id in leader.state.running({"P"})] == P_NAMES
    assert given(said) == []
    assert {*taken(said)} == {*P_NAMES}


def test_many_held_tasks_are_given_back_in_waves() -> None:
    pipeline = tasks(partitions=3 * MOST_MOVES, P=1)
    leader = running(pipeline, tm_number=1)
    said = leader.change(pipeline, held={"P"})
    asked = 0
    while said:
        assert len(taken(said)) <= MOST_MOVES
        assert given(said) == []
        asked += len(taken(said))
        leader.carry_out(said)
        said = leader.report(0)
    assert asked == 3 * MOST_MOVES
    assert leader.state.running({"P"}) == []


def test_held_tasks_whose_assignment_was_lost_are_not_assigned_when_it_is_repeated() -> None:
    """Some wait to be asked back: only so many are at a time."""
    pipeline = tasks(partitions=MOST_MOVES + 8, P=1)
    leader = running([], tm_number=1)
    leader.change(pipeline)
    said = leader.change(pipeline, held={"P"})
    for _ in range(10):
        said += [*leader.tick(1000), *leader.report(0)]
    assert given(said) == []


def test_held_tasks_are_not_assigned_when_the_jobmanager_leads_again() -> None:
    pipeline = tasks(partitions=MOST_MOVES + 8, P=1)
    leader = running([], tm_number=1)
    leader.change(pipeline)
    leader.change(pipeline, held={"P"})
    leader.epoch += 1
    assert given(leader.state.handle(LeadershipBegan(leader.epoch))) == []


def test_held_processor_can_be_edited_and_is_released_in_its_new_version() -> None:
    leader = running(PQ)
    edited = tasks(P=1, Q=2)
    change(leader, PQ, held={"Q"})
    said = leader.change(edited, held={"Q"}) + leader.come_to_rest(0, 1)
    assert given(said) == []
    change(leader, edited)
    leader.come_to_rest(0, 1)
    assert versions_run(leader) == fingerprints(edited)


def test_held_processor_can_be_removed_and_another_one_begins() -> None:
    """The end of a change: Q is replaced by R."""
    leader = running(PQ)
    change(leader, PQ, held={"Q"})
    said = change(leader, tasks(P=1, R=1)) + leader.come_to_rest(0, 1)
    assert (sorted(given(said)), taken(said)) == (["R_0", "R_1"], [])
    assert homes(leader).keys() == {*P_NAMES, "R_0", "R_1"}


# When the JobManager starts.


def test_tasks_that_are_held_when_the_jobmanager_starts_are_given_back() -> None:
    leader = Leader(0, tm_number=2)
    leader.change(PQ, held={"Q"})
    said = reported(leader, 0, ("P", 0, 1), ("Q", 0, 1))
    said += reported(leader, 1, ("P", 1, 1))
    leader.carry_out(said)
    said += leader.come_to_rest(0, 1)
    assert (given(said), taken(said)) == ([], ["Q_0"])
    assert homes(leader).keys() == {*P_NAMES}


def test_held_task_that_is_closed_before_the_jobmanager_has_settled_is_not_assigned_again() -> None:
    """The former JobManager has asked for it, and it took a while."""
    leader = Leader(0, tm_number=2)
    leader.change(P, held={"P"})
    said = reported(leader, 0, ("P", 0, 1))
    said += reported(leader, 0)
    said += leader.tick(1000)
    assert given(said) == []


# Who still runs what is held.


def names(found: list[TaskId]) -> list[str]:
    return [str(task_id) for task_id in found]


def test_running_are_the_tasks_of_some_processors_until_they_are_given_back() -> None:
    leader = running(tasks(P=1, Q=1, R=1))
    assert names(leader.state.running({"Q", "P"})) == ALL
    assert leader.state.running({"unknown"}) == []
    assert leader.state.running(()) == []
    said = leader.change(tasks(P=1, Q=1, R=1), held={"P", "Q"})
    assert names(leader.state.running({"P", "Q"})) == ALL
    leader.carry_out([m for m in said if isinstance(m, Processors) and m.tm_id == 0])
    leader.report(0)
    leader.report(1)
    assert names(leader.state.running({"P", "Q"})) == taken(said, 1)
    leader.carry_out(said)
    leader.report(1)
    assert leader.state.running({"P", "Q"}) == []
    assert names(leader.state.running({"R"})) == ["R_0", "R_1"]


def test_task_counts_as_running_as_soon_as_it_is_assigned() -> None:
    leader = running(P)
    leader.change(PQ)
    assert names(leader.state.running({"Q"})) == Q_NAMES
    leader.change(PQ, held={"Q"})
    leader.report(0)
    leader.report(1)
    assert names(leader.state.running({"Q"})) == Q_NAMES


def test_task_counts_as_running_though_another_than_its_owner_has_it() -> None:
    leader = running(P)
    change(leader, P, held={"P"})
    leader.come_to_rest(0, 1)
    zombie = TaskStatus(TaskId("P", 1), TaskState.FAILED, fingerprint=P[1].fingerprint)
    leader.beats += 1
    leader.send(Report(0, "tm0", 1, leader.beats, EPOCH, leader.sequences[0], tasks=(zombie,)))
    assert names(leader.state.running({"P"})) == ["P_1"]


def test_standbys_do_not_count_as_running() -> None:
    leader = running(tasks(P=1, standbys=1))
    assert names(leader.state.running({"P"})) == P_NAMES


def test_failed_tasks_are_those_that_do_not_start_again() -> None:
    leader = running(PQ)
    assert leader.state.failed("P") == []
    fail(leader, "P_1")
    leader.come_to_rest(0, 1)
    assert [str(status.task) for status in leader.state.failed("P")] == ["P_1"]
    assert leader.state.failed("Q") == []
    leader.change(tasks(P=2, Q=1))
    assert leader.state.failed("P") == []
