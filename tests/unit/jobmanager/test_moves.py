"""Tasks move in waves: no TaskManager is asked for more than so many at a time."""

from __future__ import annotations

from common.messages import Message
from jobmanager.state import MOST_MOVES
from tests.unit.jobmanager.reign import Reign, assigned, revoked, settled, standby, task

TASKS = 10 * MOST_MOVES


def joined() -> tuple[Reign, list[Message]]:
    """Return a reign in which tm1 has just joined tm0, who runs all tasks, and what is said."""
    reign = settled(TASKS, tm_number=3, present=[0])
    return reign, reign.report(1)


def give_back(reign: Reign, count: int) -> list[Message]:
    """Let tm0 close some of the tasks that it is asked for, and report."""
    asked = [t for t in reign.runs[0] if reign.state._tasks[t].phase == "REVOKING"]
    for task_id in asked[:count]:
        del reign.runs[0][task_id]
    return reign.report(0)


def carry_out(reign: Reign, said: list[Message]) -> None:
    """Confirm commands to tm0; tasks stay listed until `give_back`."""
    kept = dict(reign.runs[0])
    reign.obey(said)
    reign.runs[0] = kept


def test_join_asks_for_one_wave_at_first() -> None:
    _, said = joined()
    assert len(revoked(said, 0)) == MOST_MOVES
    assert assigned(said, 1) == []


def test_each_task_that_is_given_back_lets_another_one_move() -> None:
    reign, said = joined()
    first = revoked(said, 0)
    carry_out(reign, said)
    said = give_back(reign, 3)
    assert assigned(said, 1) == first[:3]
    assert len(revoked(said, 0)) == 3
    assert not {*revoked(said, 0)} & {*first}


def test_report_from_before_the_command_lets_nothing_move() -> None:
    reign, said = joined()
    asked = revoked(said, 0)
    listed = [n for n in range(TASKS) if n not in asked]
    assert reign.report(0, listed, sequence=reign.sequences[0]) == []


def test_all_that_must_move_has_moved_in_the_end_and_nothing_else() -> None:
    reign, said = joined()
    asked: list[int] = []
    while said:
        asked += revoked(said, 0)
        assert len(revoked(said, 0)) <= MOST_MOVES
        reign.obey(said)
        said = [*reign.report(0), *reign.report(1)]
    assert len(asked) == len(set(asked)) == TASKS // 2
    assert sorted(reign.owned_by(1)) == sorted(asked)


def test_task_that_waits_for_its_move_stays_if_its_target_goes_down() -> None:
    reign, said = joined()
    asked = revoked(said, 0)
    carry_out(reign, said)
    for _ in range(3):
        said = [*reign.tick(1000), *reign.report(0)]
    assert revoked(said, 0) == []
    assert give_back(reign, MOST_MOVES)
    assert reign.owned_by(0) == list(range(TASKS))
    assert asked


def test_task_that_is_lost_while_it_waits_for_its_move_moves_at_once() -> None:
    reign, said = joined()
    carry_out(reign, said)
    waiting = next(iter(reign.state._managers[0].misplaced))
    del reign.runs[0][waiting]
    said = reign.report(0)
    assert (assigned(said, 0), assigned(said, 1)) == ([], [waiting.partition])


def test_owner_that_goes_down_in_the_middle_of_a_wave_loses_all_to_the_others() -> None:
    reign, said = joined()
    carry_out(reign, said)
    said = []
    for _ in range(3):
        said += [*reign.tick(1000), *reign.report(1)]
    assert sorted(assigned(said, 1)) == list(range(TASKS))


def test_tasks_that_are_not_given_back_are_taken_wave_by_wave() -> None:
    reign, said = joined()
    carry_out(reign, said)
    for _ in range(20):
        said = [*reign.tick(1000), *reign.report(0), *reign.report(1)]
        assert said == []
    said = reign.tick(1000)
    assert len(assigned(said, 1)) == len(revoked(said, 0)) == MOST_MOVES


def test_taskmanager_that_is_told_all_again_is_not_robbed() -> None:
    """A command got lost. What it runs is named in the next one, and not free for others."""
    reign, _ = joined()
    runs = [t.partition for t in reign.runs[0]]
    said = []
    for _ in range(4):
        said += [*reign.tick(1000), *reign.report(0, runs), *reign.report(1)]
    assert assigned(said, 1) == []
    assert len(revoked(said, 0)) == MOST_MOVES
    assert len(assigned(said, 0)) == TASKS - MOST_MOVES


def test_standbys_without_a_place_are_given_back_in_waves_too() -> None:
    reign = Reign(TASKS, tm_number=2, standbys=1)
    reign.settle(0, 1)
    tasks = len(reign.runs[0])
    assert standby(0, 1).task in {*reign.runs[0], *reign.runs[1]}
    for _ in range(3):
        reign.obey([*reign.tick(1000), *reign.report(0)])
    for _ in range(2 * TASKS // MOST_MOVES + 5):
        said = [*reign.tick(1000), *reign.report(0)]
        assert len(revoked(said, 0)) <= MOST_MOVES
        reign.obey(said)
    assert tasks == TASKS
    assert reign.runs[0].keys() == {task(n) for n in range(TASKS)}
