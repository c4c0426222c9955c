"""Cases of Kafka Streams' tests of its sticky assignor, re-expressed for the load balancer.

docs/explanation/kafka_streams.md lists all of them, also those without a counterpart here.
"""

from __future__ import annotations

from collections import Counter

import pytest

from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.jobmanager.load_balancer import balance


def tasks(*numbers: int) -> list[TaskId]:
    """Return tasks of processors `P0`, `P1` and so on: 12 is partition 2 of `P1`."""
    return [TaskId(f"P{number // 10}", number % 10) for number in numbers]


def held(**of: list[int]) -> dict[TaskId, int]:
    """Return who has which tasks: `t1=[0, 2]` means that TaskManager 1 has two."""
    return {task: int(tm[1:]) for tm, numbers in of.items() for task in tasks(*numbers)}


def placed(
    numbers: list[int], threads: dict[int, int], before: dict[TaskId, int] | None = None
) -> dict[int, set[int]]:
    """Return the tasks of each TaskManager."""
    found: dict[int, set[int]] = {tm: set() for tm in threads}
    for task, tm in balance(tasks(*numbers), threads, before or {}).items():
        found[tm].add(int(task.processor[1:]) * 10 + task.partition)
    return found


def sizes(found: dict[int, set[int]]) -> dict[int, int]:
    return {tm: len(numbers) for tm, numbers in found.items()}


@pytest.mark.parametrize(
    ("numbers", "threads", "expected"),
    [
        ([0, 1, 2], {1: 1, 2: 1, 3: 1}, {1: 1, 2: 1, 3: 1}),
        ([0, 1, 2], {1: 1, 2: 2}, {1: 1, 2: 2}),
        ([0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32], {2: 2, 1: 1}, {1: 4, 2: 8}),
    ],
    ids=["as many tasks as managers", "more threads", "twice the threads"],
)
def test_new_tasks_are_shared_by_threads(
    numbers: list[int], threads: dict[int, int], expected: dict[int, int]
) -> None:
    assert sizes(placed(numbers, threads)) == expected


def test_with_more_task_managers_than_tasks_each_task_is_alone() -> None:
    found = placed([0, 1, 2], dict.fromkeys(range(1, 7), 1))
    assert Counter(sizes(found).values()) == {1: 3, 0: 3}


def test_each_gets_a_task_where_the_rounding_of_shares_allows_it() -> None:
    assert sizes(placed([0, 1, 2], {1: 3, 2: 1, 3: 1})) == {1: 1, 2: 1, 3: 1}
    assert sizes(placed([0, 1, 2], {1: 8, 2: 1, 3: 1})) == {1: 2, 2: 1, 3: 0}


def test_partitions_of_each_processor_go_round() -> None:
    numbers = [*range(8), *range(10, 18)]
    assert placed(numbers, dict.fromkeys(range(4), 4)) == {
        tm: {tm, tm + 4, tm + 10, tm + 14} for tm in range(4)
    }


def test_processors_are_spread_evenly() -> None:
    found = placed([10, 11, 22, 20, 21, 12], dict.fromkeys((1, 2, 3), 2))
    assert all({number // 10 for number in numbers} == {1, 2} for numbers in found.values())


@pytest.mark.parametrize("before", [held(t1=[0], t2=[1]), held(t1=[1], t2=[2])])
def test_tasks_stay_where_they_are_and_new_ones_go_where_there_is_room(
    before: dict[TaskId, int],
) -> None:
    after = balance(tasks(0, 1, 2), {1: 1, 2: 1}, before)
    assert before.items() <= after.items()


@pytest.mark.parametrize(
    "before", [held(t1=[0], t2=[2], t3=[1]), held(t2=[0], t4=[2], t5=[1])], ids=["first", "other"]
)
def test_tasks_stay_where_they_are_although_others_have_none(before: dict[TaskId, int]) -> None:
    assert balance(tasks(0, 1, 2), dict.fromkeys(range(1, 6), 1), before) == before


@pytest.mark.parametrize(
    ("before", "threads", "expected"),
    [
        (held(t1=[0, 2], t2=[1]), {1: 1, 2: 1, 3: 1}, {1: 1, 2: 1, 3: 1}),
        (held(t1=[1, 2]), {1: 1, 2: 1}, {1: 1, 2: 1}),
        (held(t3=[0, 1, 2, 3]), {1: 1, 2: 1, 3: 1, 4: 1}, {1: 1, 2: 1, 3: 1, 4: 1}),
        (held(t3=[0, 1, 2, 3]), {1: 1, 2: 1, 3: 1}, {1: 1, 2: 1, 3: 2}),
        (held(t2=[0, 2, 3]), {2: 1, 3: 2}, {2: 1, 3: 2}),
        (held(t1=[0, 2], t2=[1, 3]), {1: 1, 2: 1, 3: 1}, {1: 2, 2: 1, 3: 1}),
        (held(t1=[0, 1, 2], t2=[3, 4, 5]), {1: 1, 2: 1, 3: 1}, {1: 2, 2: 2, 3: 2}),
        (held(t1=[0, 1, 2, 3, 4, 5, 10]), {1: 1, 2: 1}, {1: 4, 2: 3}),
    ],
    ids=[
        "one of two moves",
        "a second task manager",
        "as many as tasks",
        "fewer than tasks",
        "more threads",
        "fewest moves",
        "a third task manager",
        "processors of different sizes",
    ],
)
def test_a_task_manager_that_comes_gets_its_share_and_nothing_else_moves(
    before: dict[TaskId, int], threads: dict[int, int], expected: dict[int, int]
) -> None:
    after = balance(list(before), threads, before)
    assert Counter(after.values()) == expected
    newcomers = threads.keys() - set(before.values())
    assert {after[task] for task in before if after[task] != before[task]} == newcomers


@pytest.mark.parametrize(
    "before",
    [held(t1=[0, 1], t2=[2, 3]), held(t1=[1, 2], t2=[0, 3])],
    ids=["in order", "mixed"],
)
def test_nothing_moves_when_tasks_are_added(before: dict[TaskId, int]) -> None:
    for threads in ({1: 1, 2: 1}, {1: 1, 2: 1, 3: 1}):
        after = balance(tasks(3, 1, 4, 2, 0, 5), threads, before)
        assert before.items() <= after.items()
        newest = max(threads)
        assert newest in {after[task] for task in tasks(4, 5)}


def test_a_task_manager_that_comes_gets_the_tasks_that_nobody_has() -> None:
    before = held(t1=[2, 1], t2=[0, 3])
    assert placed([3, 1, 4, 2, 0, 5], {1: 1, 2: 1, 3: 1}, before)[3] == {4, 5}
    more = held(t1=[1, 12, 13], t2=[0, 11, 22], t3=[20, 21, 23])
    all_tasks = [0, 10, 1, 2, 11, 20, 3, 12, 21, 13, 22, 23]
    assert placed(all_tasks, dict.fromkeys((1, 2, 3, 4), 1), more)[4] == {2, 3, 10}


def test_task_managers_that_come_back_get_what_they_had() -> None:
    """The JobManager remembers who had a task last, where Kafka Streams looks for standbys."""
    before = held(t1=[1, 12, 13], t2=[0, 11, 22], t3=[20, 21, 23], t4=[2, 3, 10])
    all_tasks = tasks(0, 10, 1, 2, 11, 20, 3, 12, 21, 13, 22, 23)
    assert balance(all_tasks, dict.fromkeys((1, 2, 3, 4), 1), before) == before
    last = held(t1=[2], t2=[1], t3=[0])
    assert balance(tasks(0, 1, 2), dict.fromkeys((1, 2, 3), 1), last) == last


def test_one_that_comes_back_and_one_that_is_new_do_not_mix_the_others_tasks() -> None:
    found = placed(list(range(7)), {1: 1, 2: 1, 3: 1}, held(t1=[0, 1, 2, 6], t2=[3, 4, 5]))
    assert sizes(found) == {1: 3, 2: 2, 3: 2}
    assert found[1] < {0, 1, 2, 6}
    assert found[2] < {3, 4, 5}


def test_balance_is_never_given_up_for_stickiness() -> None:
    """Kafka Streams can be configured to leave all three where they are."""
    after = placed([0, 1, 2], {1: 1, 2: 1}, held(t1=[0, 1, 2]))
    assert sizes(after) == {1: 2, 2: 1}
