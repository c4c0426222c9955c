"""Which TaskManager gets which task: proportional to threads, then sticky, then spread."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.jobmanager.load_balancer import balance

Situation = tuple[list[TaskId], dict[int, int], dict[TaskId, int]]


def tasks_of(processors: int, parallelism: int) -> list[TaskId]:
    return [
        TaskId(f"P{n}", partition) for n in range(processors) for partition in range(parallelism)
    ]


def moved(before: dict[TaskId, int], after: dict[TaskId, int]) -> int:
    return sum(before[task] != after[task] for task in before)


pipelines = st.builds(tasks_of, st.integers(1, 6), st.integers(1, 6))
clusters = st.dictionaries(st.integers(0, 9), st.integers(1, 5), min_size=1, max_size=6)
equal_clusters = st.sets(st.integers(0, 9), min_size=1, max_size=6)


@st.composite
def situations(
    draw: st.DrawFn,
) -> Situation:
    """Draw tasks, TaskManagers, and where the tasks were: anywhere, or nowhere yet."""
    tasks = draw(pipelines)
    owners = draw(st.dictionaries(st.sampled_from(tasks), st.integers(0, 9)))
    return tasks, draw(clusters), owners


@given(situations())
def test_every_task_is_placed_once_on_a_taskmanager_that_is_there(
    situation: Situation,
) -> None:
    tasks, threads, owners = situation

    placed = balance(tasks, threads, owners)

    assert list(placed) == tasks
    assert set(placed.values()) <= set(threads)


@given(situations())
def test_shares_are_within_one_of_the_proportion_of_threads(
    situation: Situation,
) -> None:
    tasks, threads, owners = situation

    counts = Counter(balance(tasks, threads, owners).values())

    for tm_id, count in threads.items():
        assert abs(counts[tm_id] - len(tasks) * count / sum(threads.values())) <= 1


@given(situations())
def test_no_other_way_to_share_leaves_more_tasks_where_they_are(
    situation: Situation,
) -> None:
    tasks, threads, owners = situation

    placed = balance(tasks, threads, owners)

    stayed = sum(owners.get(task) == tm_id for task, tm_id in placed.items())
    assert stayed == most_that_can_stay(tasks, threads, owners)


def most_that_can_stay(
    tasks: list[TaskId], threads: dict[int, int], owners: dict[TaskId, int]
) -> int:
    """Try all ways to round the shares, up or down, that add up."""
    held = Counter(owners.values())
    floors = {tm: len(tasks) * count // sum(threads.values()) for tm, count in threads.items()}
    best = 0
    for extra in product((0, 1), repeat=len(threads)):
        shares = {tm: floors[tm] + more for (tm, more) in zip(threads, extra, strict=True)}
        if sum(shares.values()) == len(tasks):
            best = max(best, sum(min(held[tm], shares[tm]) for tm in threads))
    return best


def chosen_one_by_one(
    tasks: list[TaskId],
    threads: dict[int, int],
    placed: dict[TaskId, int],
    stayed: set[TaskId],
    copies: dict[TaskId, list[int]],
) -> dict[TaskId, int]:
    """Give each task that did not stay to the best of all TaskManagers, looking at every one."""
    shares = Counter(placed.values())
    where = {task: placed[task] for task in stayed}
    for task in sorted(tasks, key=lambda task: not copies.get(task)):
        if task not in where:
            counts = Counter(where.values())
            replicas = Counter(
                tm for other, tm in where.items() if other.processor == task.processor
            )
            ranked = [
                (tm not in copies.get(task, ()), replicas[tm], counts[tm] / threads[tm], tm)
                for tm in threads
                if counts[tm] < shares[tm]
            ]
            where[task] = min(ranked)[-1]
    return where


@given(situations(), st.data())
def test_each_task_goes_to_the_best_taskmanager_that_has_room(
    situation: Situation, data: st.DataObject
) -> None:
    tasks, threads, owners = situation
    somewhere = st.lists(st.integers(0, 9), min_size=1, max_size=3)
    copies = data.draw(st.dictionaries(st.sampled_from(tasks), somewhere))
    tasks = data.draw(st.permutations(tasks))

    placed = balance(tasks, threads, owners, copies)

    stayed = {task for task, tm in placed.items() if owners.get(task) == tm}
    assert placed == chosen_one_by_one(tasks, threads, placed, stayed, copies)


@given(situations())
def test_nobody_moves_when_nothing_changed(
    situation: Situation,
) -> None:
    tasks, threads, owners = situation
    before = balance(tasks, threads, owners)

    assert balance(tasks, threads, before) == before


@given(situations())
def test_result_does_not_depend_on_the_order_of_the_maps(
    situation: Situation,
) -> None:
    tasks, threads, owners = situation
    backwards = dict(reversed(threads.items())), dict(reversed(owners.items()))

    assert balance(tasks, threads, owners) == balance(tasks, *backwards)


@given(pipelines, equal_clusters, st.integers(1, 4))
def test_join_moves_at_most_the_newcomers_share(
    tasks: list[TaskId], ids: set[int], threads: int
) -> None:
    before = balance(tasks, dict.fromkeys(ids, threads), {})
    newcomer = max(ids) + 1

    after = balance(tasks, dict.fromkeys({*ids, newcomer}, threads), before)

    assert moved(before, after) <= -(-len(tasks) // (len(ids) + 1))
    assert all(after[task] == newcomer for task in tasks if after[task] != before[task])


@given(pipelines, equal_clusters.filter(lambda ids: len(ids) > 1), st.integers(1, 4))
def test_leave_moves_the_leavers_tasks_only(
    tasks: list[TaskId], ids: set[int], threads: int
) -> None:
    before = balance(tasks, dict.fromkeys(ids, threads), {})
    leaver = min(ids)

    after = balance(tasks, dict.fromkeys(ids - {leaver}, threads), before)

    assert moved(before, after) <= -(-len(tasks) // len(ids))
    assert all(before[task] == leaver for task in tasks if after[task] != before[task])


@given(st.lists(equal_clusters, min_size=1, max_size=8), pipelines)
def test_moves_stay_minimal_through_a_long_history(
    history: list[set[int]], tasks: list[TaskId]
) -> None:
    owners: dict[TaskId, int] = {}
    for ids in history:
        threads = dict.fromkeys(ids, 1)
        best = most_that_can_stay(tasks, threads, owners)
        placed = balance(tasks, threads, owners)
        assert sum(owners.get(task) == tm_id for task, tm_id in placed.items()) == best
        owners = placed


@given(st.integers(1, 6), st.integers(1, 8), equal_clusters)
def test_replicas_of_a_processor_spread_on_a_fresh_start(
    processors: int, parallelism: int, ids: set[int]
) -> None:
    placed = balance(tasks_of(processors, parallelism), dict.fromkeys(ids, 2), {})

    together = Counter((task.processor, tm_id) for task, tm_id in placed.items())
    assert max(together.values()) <= -(-parallelism // len(ids))


def test_spread_decides_which_tasks_leave_a_taskmanager_that_has_too_many() -> None:
    tasks = tasks_of(2, 2)

    placed = balance(tasks, {0: 1, 1: 1}, dict.fromkeys(tasks, 0))

    for tm_id in (0, 1):
        assert {task.processor for task in tasks if placed[task] == tm_id} == {"P0", "P1"}


def test_returning_taskmanager_gets_the_tasks_that_were_last_there() -> None:
    tasks = tasks_of(2, 2)
    last_seen = {tasks[0]: 0, tasks[1]: 1, tasks[2]: 0, tasks[3]: 1}

    assert balance(tasks, {0: 1, 1: 1}, last_seen) == last_seen


@given(st.integers(1, 4), st.integers(1, 3), equal_clusters.filter(lambda ids: len(ids) > 1))
def test_taskmanager_that_comes_back_gets_the_tasks_back_that_it_had(
    processors: int, each: int, ids: set[int]
) -> None:
    tasks, threads = tasks_of(processors, each * len(ids)), dict.fromkeys(ids, 2)
    before = balance(tasks, threads, {})
    gone = min(ids)
    left = {task: tm for task, tm in before.items() if tm == gone}

    meanwhile = balance(tasks, {tm: 2 for tm in ids if tm != gone}, before, left=left)
    assert moved(before, meanwhile) == len(left)
    assert balance(tasks, threads, meanwhile, left=left) == before


def test_copy_that_is_up_to_date_comes_before_the_place_where_a_task_was() -> None:
    first, second = tasks_of(2, 1)
    owners, threads = {first: 9, second: 9}, {0: 1, 1: 1}

    placed = balance([first, second], threads, owners, {first: [1]}, {first: 0, second: 1})

    assert placed == {first: 1, second: 0}


def test_more_threads_get_more_tasks() -> None:
    counts = Counter(balance(tasks_of(3, 4), {0: 1, 1: 3, 2: 2}, {}).values())

    assert counts == {0: 2, 1: 6, 2: 4}


def test_nobody_there_means_nothing_is_placed() -> None:
    assert balance(tasks_of(2, 2), {}, {}) == {}


def test_no_tasks_means_nothing_is_placed() -> None:
    assert balance([], {0: 1}, {}) == {}


def test_more_threads_than_tasks_leave_some_without() -> None:
    placed = balance(tasks_of(1, 2), {0: 4, 1: 4, 2: 4}, {})

    assert sorted(placed.values()) == [0, 1]
