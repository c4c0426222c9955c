"""Tasks move in waves: a TaskManager gives back a limited number at a time."""

from __future__ import annotations

from kafka_pipeline.common.protocol.messages import Message
from kafka_pipeline.jobmanager.state import MOST_MOVES
from tests.unit.jobmanager.leader import Leader, assigned, revoked, settled, standby, task

TASKS = 10 * MOST_MOVES


def joined() -> tuple[Leader, list[Message]]:
    """Return a leader to which tm1 has just reported while tm0 runs all tasks, and its answer."""
    leader = settled(TASKS, tm_number=3, present=[0])
    return leader, leader.report(1)


def give_back(leader: Leader, count: int) -> list[Message]:
    """Let tm0 close some of the tasks that it is asked for, and report."""
    asked = [t for t in leader.runs[0] if leader.state._tasks[t].phase == "REVOKING"]
    for task_id in asked[:count]:
        del leader.runs[0][task_id]
    return leader.report(0)


def carry_out(leader: Leader, said: list[Message]) -> None:
    """Confirm commands to tm0; tasks stay listed until `give_back`."""
    kept = dict(leader.runs[0])
    leader.carry_out(said)
    leader.runs[0] = kept


def test_join_asks_for_one_wave_at_first() -> None:
    _, said = joined()
    assert len(revoked(said, 0)) == MOST_MOVES
    assert assigned(said, 1) == []


def test_each_task_that_is_given_back_lets_another_one_move() -> None:
    leader, said = joined()
    first = revoked(said, 0)
    carry_out(leader, said)
    said = give_back(leader, 3)
    assert assigned(said, 1) == first[:3]
    assert len(revoked(said, 0)) == 3
    assert not {*revoked(said, 0)} & {*first}


def test_report_from_before_the_command_lets_nothing_move() -> None:
    leader, said = joined()
    asked = revoked(said, 0)
    listed = [n for n in range(TASKS) if n not in asked]
    assert leader.report(0, listed, sequence=leader.sequences[0]) == []


def test_all_that_must_move_has_moved_in_the_end_and_nothing_else() -> None:
    leader, said = joined()
    asked: list[int] = []
    while said:
        asked += revoked(said, 0)
        assert len(revoked(said, 0)) <= MOST_MOVES
        leader.carry_out(said)
        said = [*leader.report(0), *leader.report(1)]
    assert len(asked) == len(set(asked)) == TASKS // 2
    assert sorted(leader.owned_by(1)) == sorted(asked)


def test_task_that_waits_for_its_move_stays_if_its_target_goes_down() -> None:
    leader, said = joined()
    asked = revoked(said, 0)
    carry_out(leader, said)
    for _ in range(3):
        said = [*leader.tick(1000), *leader.report(0)]
    assert revoked(said, 0) == []
    assert give_back(leader, MOST_MOVES)
    assert leader.owned_by(0) == list(range(TASKS))
    assert asked


def test_task_that_is_lost_while_it_waits_for_its_move_moves_at_once() -> None:
    leader, said = joined()
    carry_out(leader, said)
    waiting = next(iter(leader.state._managers[0].misplaced))
    del leader.runs[0][waiting]
    said = leader.report(0)
    assert (assigned(said, 0), assigned(said, 1)) == ([], [waiting.partition])


def test_owner_that_goes_down_in_the_middle_of_a_wave_loses_all_to_the_others() -> None:
    leader, said = joined()
    carry_out(leader, said)
    said = []
    for _ in range(3):
        said += [*leader.tick(1000), *leader.report(1)]
    assert sorted(assigned(said, 1)) == list(range(TASKS))


def test_tasks_that_are_not_given_back_are_taken_wave_by_wave() -> None:
    leader, said = joined()
    carry_out(leader, said)
    for _ in range(20):
        said = [*leader.tick(1000), *leader.report(0), *leader.report(1)]
        assert said == []
    said = leader.tick(1000)
    assert len(assigned(said, 1)) == len(revoked(said, 0)) == MOST_MOVES


def test_taskmanager_that_is_told_all_again_is_not_robbed() -> None:
    """A command got lost. What it runs is named in the next one, and not free for others."""
    leader, _ = joined()
    runs = [t.partition for t in leader.runs[0]]
    said = []
    for _ in range(4):
        said += [*leader.tick(1000), *leader.report(0, runs), *leader.report(1)]
    assert assigned(said, 1) == []
    assert len(revoked(said, 0)) == MOST_MOVES
    assert len(assigned(said, 0)) == TASKS - MOST_MOVES


def test_standbys_without_a_place_are_given_back_in_waves_too() -> None:
    leader = Leader(TASKS, tm_number=2, standbys=1)
    leader.settle(0, 1)
    tasks = len(leader.runs[0])
    assert standby(0, 1).task in {*leader.runs[0], *leader.runs[1]}
    for _ in range(3):
        leader.carry_out([*leader.tick(1000), *leader.report(0)])
    for _ in range(2 * TASKS // MOST_MOVES + 5):
        said = [*leader.tick(1000), *leader.report(0)]
        assert len(revoked(said, 0)) <= MOST_MOVES
        leader.carry_out(said)
    assert tasks == TASKS
    assert leader.runs[0].keys() == {task(n) for n in range(TASKS)}
