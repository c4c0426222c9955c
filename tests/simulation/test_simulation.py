"""Whole clusters, each from a seed: whatever breaks, in the end every task runs exactly once.

After every step, no JobManager has given a task to a second TaskManager while the first one ran the
task and its reports arrived (`Ledger`). Kafka's side (`Fences`) counts tasks taken from live
owners: there must be none, unless something happened that allows it. A failure prints its seed and
the story; replay it with `pytest tests/simulation --seed N`, or look for more with `--seeds 10000`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from math import ceil
from random import Random

import pytest

from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.jobmanager.state import MOST_MOVES
from tests.seeds import parametrize
from tests.simulation.broker import CALM, Weather
from tests.simulation.cluster import LONGEST_DELAY_MS, STEP_MS, Cluster, Scale
from tests.simulation.pipeline_thread import INTERVAL_MS, Pace
from tests.simulation.sabotage import SABOTAGES, Sabotage
from tests.tiers import long_but_the_first
from tests.unit.jobmanager.shares import fewest_moves

SHORT_SEEDS = 50
SEEDS = 1000
CHUNK = 50
SABOTAGED_SEEDS = 500
TROUBLED_INTERVALS = 50
CONVERGED_WITHIN = 30
QUIET_INTERVALS = 10


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SHORT_SEEDS, SEEDS, CHUNK)


def tell(seed: int, cluster: Cluster, error: Exception) -> str:
    story = "\n".join(cluster.trace)
    return f"{story}\n\nseed {seed}: {type(error).__name__}: {error}\nreplay with --seed {seed}"


def draw_weather(random: Random) -> Weather:
    return Weather(
        drop=random.choice((0, 0.05, 0.3)),
        duplicate=random.choice((0, 0.1)),
        delay_ms=random.choice((0, 600, 5000)),
        slow_read=random.choice((0, 0.3)),
        failed_write=random.choice((0, 0.05)),
        write_ms=random.choice((0, 0, 4000)),
    )


def live_through_faults(cluster: Cluster, random: Random) -> None:
    """Run a cluster with faults, repair it, and check that it converges to one settled state."""
    everybody = range(cluster.tm_number)
    cluster.later(random.choice((1, 5_000)), cluster.start_jobmanager)
    for tm_id in everybody:
        cluster.later(random.choice((1, 5_000)), partial(cluster.start_taskmanager, tm_id))
    cluster.is_gentle = random.random() < 0.2
    cluster.broker.weather = CALM if cluster.is_gentle else draw_weather(random)
    mishaps_per_step = random.choice((0.02, 0.05, 0.1))
    for _ in range(TROUBLED_INTERVALS * 4):
        cluster.step()
        if random.random() < mishaps_per_step:
            cluster.mishap()
    cluster.mend(random.sample(everybody, random.randint(1, cluster.tm_number)))
    cluster.run_until_converged(CONVERGED_WITHIN)
    commands = cluster.commands_sent
    run_and_check_progress(cluster)
    assert cluster.commands_sent == commands, "the JobManager does not come to rest"
    cluster.check_converged()


def run_and_check_progress(cluster: Cluster) -> None:
    """Let intervals pass in which each running task must commit."""
    before = Counter(cluster.fences.committed)
    cluster.run(QUIET_INTERVALS)
    stuck = [
        instance.task
        for process in cluster.live_taskmanagers
        for instance in process.running
        if instance.state is TaskState.RUNNING
        and cluster.fences.committed[instance.task] == before[instance.task]
    ]
    assert not stuck, f"{stuck} run, and commit nothing"


def active(owners: Mapping[TaskId, int | None]) -> dict[TaskId, int | None]:
    """Return the owners without standbys."""
    return {task: owner for task, owner in owners.items() if not task.standby}


def live_through_a_change(cluster: Cluster, random: Random) -> None:
    """Let one TaskManager join, leave or crash, and check that no more tasks move than must."""
    assert cluster.present is not None
    stayers, absent = set(cluster.present), sorted({*range(cluster.tm_number)} - cluster.present)
    joins = bool(absent) and (len(stayers) == 1 or random.random() < 0.5)
    if not joins and len(stayers) == 1:
        return
    changer = random.choice(absent if joins else sorted(stayers))
    before, threads = active(cluster.jobmanagers[0].owners), cluster.scale.threads
    cluster.jobmanagers[0].ledger.moved.clear()
    taken = cluster.fences.taken_from_the_living
    if joins:
        cluster.join(changer)
    else:
        stayers.remove(changer)
        cluster.leave(changer, crash=random.random() < 0.5)
    cluster.run_until_converged(CONVERGED_WITHIN)

    taken = cluster.fences.taken_from_the_living - taken
    assert not taken, f"{taken} tasks were taken from TaskManagers that did not change"
    held = Counter(owner for owner in before.values() if owner in stayers)
    moved = {task for task in cluster.jobmanagers[0].ledger.moved if not task.standby}
    fewest = fewest_moves(len(before), {tm: threads[tm] for tm in cluster.present}, held)
    assert len(moved) == fewest, f"{len(moved)} tasks were moved, not {fewest}"
    everybody = [threads[tm] for tm in (*stayers, changer)]
    share = ceil(len(before) * threads[changer] / sum(everybody))
    # If threads differ, shares of other TaskManagers may be rounded differently when one is gone.
    rounded = 0 if joins or len(set(everybody)) == 1 else len(stayers)
    after = active(cluster.jobmanagers[0].owners)
    changed = {task for task in before if before[task] != after[task]}
    assert moved == {task for task in changed if before[task] in stayers}
    assert len(changed) <= share + rounded, f"{len(changed)} tasks went elsewhere, not {share}"


def live(seed: int, scale: Scale | None = None) -> None:
    """Run a cluster of this scale, or of one that the seed determines."""
    random = Random(seed)
    cluster = Cluster(random, scale or Scale.draw(random))
    try:
        live_through_faults(cluster, random)
        live_through_a_change(cluster, random)
    except Exception as error:
        pytest.fail(tell(seed, cluster, error), pytrace=not isinstance(error, AssertionError))


def test_every_task_runs_exactly_once_after_any_fault(seeds: range) -> None:
    for seed in seeds:
        live(seed)


def three_at_work(random: Random) -> Cluster:
    """Return a cluster whose three TaskManagers have their tasks."""
    cluster = Cluster(random, Scale((2, 1, 3), processors=3, parallelism=4))
    cluster.start_jobmanager()
    for tm_id in range(3):
        cluster.start_taskmanager(tm_id)
    cluster.run(20)
    return cluster


@pytest.mark.parametrize(("sabotage", "complaint"), long_but_the_first(SABOTAGES))
def test_broken_core_is_seen(
    sabotage: Sabotage, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(pytest.fail.Exception, match=complaint):
        test_every_task_runs_exactly_once_after_any_fault(range(SABOTAGED_SEEDS))


@pytest.mark.long
@pytest.mark.parametrize("threads", [((1, 2, 3, 2, 1) * 10), ((1,) * 50)])
def test_fifty_taskmanagers_and_a_thousand_tasks(threads: tuple[int, ...]) -> None:
    live(0, Scale(threads, processors=10, parallelism=100))


@pytest.mark.parametrize("seed", long_but_the_first(range(20), short=5))
def test_joins_and_graceful_leaves_never_take_a_task_from_the_living(seed: int) -> None:
    random = Random(seed)
    cluster = Cluster(random, Scale((1, 2, 1, 3), processors=3, parallelism=4))
    cluster.start_jobmanager()
    for tm_id in (0, 1):
        cluster.start_taskmanager(tm_id)
    cluster.run(15)
    for tm_id in (2, 3):
        cluster.start_taskmanager(tm_id)
        cluster.run(random.randrange(2, 20))
    leaver = cluster.live_taskmanagers[0]
    leaver.stop(cluster.now_ms)
    for _ in range(80):
        left = not leaver.alive
        cluster.step()
        assert not left or leaver.tm_id not in cluster.jobmanagers[0].state.live

    assert not leaver.alive
    assert cluster.fences.taken_from_the_living == 0
    cluster.check_converged()


@pytest.mark.parametrize("seed", long_but_the_first(range(20), short=5))
def test_restarted_jobmanager_leaves_every_task_where_it_runs(seed: int) -> None:
    random = Random(seed)
    cluster = Cluster(random, Scale((2, 1, 3), processors=3, parallelism=4))
    cluster.start_jobmanager()
    # Started at random, they own other tasks than if all had started at once.
    for tm_id in random.sample(range(3), 3):
        cluster.start_taskmanager(tm_id)
        cluster.run(20)
    before = {p.name: {id(task) for task in p.running} for p in cluster.live_taskmanagers}
    cluster.jobmanagers[0].alive = False
    cluster.run(random.randrange(10))
    cluster.start_jobmanager()
    cluster.run(20)

    after = {p.name: {id(task) for task in p.running} for p in cluster.live_taskmanagers}
    assert before == after
    cluster.check_converged()


@pytest.mark.parametrize("seed", long_but_the_first(range(20), short=5))
def test_restarted_jobmanager_starts_edited_and_failed_tasks_again_though_writes_fail(
    seed: int,
) -> None:
    random = Random(seed)
    cluster = three_at_work(random)
    for process in cluster.live_taskmanagers:
        process.threads[0].fail_a_task()
    cluster.run(LONGEST_DELAY_MS // INTERVAL_MS + 2)
    cluster.edit_pipeline()
    cluster.start_jobmanager()
    cluster.broker.weather = Weather(failed_write=0.5)
    cluster.run(10)
    cluster.mend(range(3))
    cluster.run_until_converged(CONVERGED_WITHIN)
    assert not any(process.failed_ms for process in cluster.live_taskmanagers)


@pytest.mark.parametrize("seed", long_but_the_first(range(20), short=5))
def test_kafka_that_was_away_moves_no_task(seed: int) -> None:
    random = Random(seed)
    cluster = three_at_work(random)
    before = {p.name: {id(task) for task in p.running} for p in cluster.live_taskmanagers}
    cluster.broker.away_until_ms = cluster.now_ms + random.randrange(60_000)
    cluster.run(70)

    after = {p.name: {id(task) for task in p.running} for p in cluster.live_taskmanagers}
    assert before == after
    cluster.check_converged()


@pytest.mark.parametrize("seed", long_but_the_first(range(20), short=5))
def test_paused_jobmanager_does_not_disturb_anybody(seed: int) -> None:
    random = Random(seed)
    cluster = Cluster(random, Scale((2, 1, 3), processors=3, parallelism=4))
    jobmanager = cluster.start_jobmanager()
    for tm_id in range(3):
        cluster.start_taskmanager(tm_id)
    cluster.run(20)
    commands = cluster.commands_sent
    jobmanager.paused_until_ms = cluster.now_ms + random.randrange(60_000)
    cluster.run(70)

    assert cluster.commands_sent == commands
    cluster.check_converged()


@pytest.mark.parametrize("seed", long_but_the_first(range(20), short=5))
def test_commands_that_take_long_are_not_repeated(seed: int) -> None:
    """The JobManager then reads reports late, which were written before the commands came."""
    random = Random(seed)
    cluster = Cluster(random, Scale((2, 1, 3), processors=3, parallelism=4))
    cluster.broker.weather = Weather(write_ms=random.choice((6000, 12000)))
    cluster.start_jobmanager()
    for tm_id in range(3):
        cluster.start_taskmanager(tm_id)
    cluster.run(90)

    assert cluster.commands_sent == 6, "each gets an answer and its tasks, once"
    cluster.check_converged()


@pytest.mark.parametrize("seed", long_but_the_first(range(20), short=5))
def test_taskmanager_whose_host_was_silent_fences_nobody(seed: int) -> None:
    random = Random(seed)
    cluster = three_at_work(random)
    silent = cluster.live_taskmanagers[0]
    silent.silence(cluster.now_ms + random.randrange(8_000, 20_000))
    cluster.run(50)

    assert cluster.fences.taken_from_the_living == 0
    cluster.check_converged()


@pytest.mark.parametrize("seed", range(5))
def test_taskmanager_whose_host_was_silent_goes_on_without_a_jobmanager(seed: int) -> None:
    cluster = Cluster(Random(seed), Scale((2, 1), processors=3, parallelism=4))
    cluster.start_jobmanager()
    for tm_id in range(2):
        cluster.start_taskmanager(tm_id)
    cluster.run(20)
    cluster.jobmanagers[0].alive = False
    silent = cluster.live_taskmanagers[0]
    silent.silence(cluster.now_ms + 15_000)
    cluster.run(30)

    assert {instance.state for instance in silent.running} == {TaskState.RUNNING}
    run_and_check_progress(cluster)


@pytest.mark.parametrize(("hangs_ms", "keeps"), [(3_000, True), (7_000, False)])
def test_long_turn_costs_no_lease_but_a_dead_main_loop_does(hangs_ms: int, keeps: bool) -> None:
    cluster = Cluster(Random(0), Scale((1, 1), processors=2, parallelism=4))
    cluster.start_jobmanager()
    for tm_id in range(2):
        cluster.start_taskmanager(tm_id)
    cluster.run(20)
    stuck = cluster.live_taskmanagers[0]
    before = {id(task) for task in stuck.running}
    # Nobody takes over its tasks, so everything depends on the lease.
    cluster.jobmanagers[0].paused_until_ms = cluster.now_ms + hangs_ms + 1000
    stuck.hangs_until_ms = cluster.now_ms + hangs_ms
    cluster.run(hangs_ms // INTERVAL_MS)
    assert ({id(task) for task in stuck.running} == before) is keeps
    cluster.run(20)
    cluster.check_converged()


def test_join_of_two_hundred_tasks_goes_in_waves_and_disturbs_nobody_else() -> None:
    cluster = Cluster(Random(0), Scale((2, 2, 2), processors=6, parallelism=100))
    cluster.start_jobmanager()
    cluster.start_taskmanager(0)
    cluster.start_taskmanager(1)
    cluster.run(25)
    cluster.check_converged()
    before = {task.task: id(task) for p in cluster.live_taskmanagers for task in p.running}
    cluster.start_taskmanager(2)
    on_their_way = []
    for _ in range(20 * INTERVAL_MS // STEP_MS):
        cluster.step()
        on_their_way.append(cluster.jobmanagers[0].ledger.most_asked_back)
    cluster.check_converged()

    stayed = [task for p in cluster.live_taskmanagers for task in p.running if p.tm_id != 2]
    assert len(stayed) == 400
    assert {task.task: id(task) for task in stayed}.items() <= before.items()
    assert max(on_their_way) == MOST_MOVES


def test_worker_whose_commit_hangs_is_replaced() -> None:
    cluster = Cluster(Random(0), Scale((1,), processors=1, parallelism=4))
    cluster.start_jobmanager()
    cluster.start_taskmanager(0)
    cluster.run(20)
    (before,) = cluster.live_taskmanagers[0].threads.values()
    before.hold_a_task()
    cluster.run(40)

    (after,) = cluster.live_taskmanagers[0].threads.values()
    assert after is not before
    run_and_check_progress(cluster)
    cluster.check_converged()


def test_task_whose_user_code_hangs_fails_and_the_others_go_on() -> None:
    cluster = Cluster(Random(0), Scale((1,), processors=2, parallelism=4))
    cluster.start_jobmanager()
    cluster.start_taskmanager(0)
    cluster.run(20)
    (thread,) = cluster.live_taskmanagers[0].threads.values()
    of_user_code = thread.tasks[TaskId("P1", 0)]
    of_user_code.is_stuck = True
    cluster.run(20)

    assert of_user_code.state is TaskState.FAILED
    run_and_check_progress(cluster)
    cluster.check_converged()


def test_slow_threads_are_waited_for_when_tasks_move() -> None:
    cluster = Cluster(
        Random(0), Scale((1, 1), processors=2, parallelism=4), Pace(close_ms=8000, start_ms=8000)
    )
    cluster.start_jobmanager()
    cluster.start_taskmanager(0)
    cluster.run(30)
    cluster.start_taskmanager(1)
    cluster.run(60)

    assert cluster.fences.taken_from_the_living == 0
    cluster.check_converged()
