"""When a JobManager stops waiting for TaskManagers that have not reported."""

from __future__ import annotations

from tests.unit.jobmanager.leader import Leader, assigned, settled


def test_reports_read_long_after_the_last_tick_do_not_shorten_the_wait_for_the_others() -> None:
    leader = settled(6, 3)
    # No TaskManager reports; then the JobManager is busy for long, reporting that they are down.
    while leader.state.live:
        leader.tick(1000)
    leader.report(0, range(2), sequence=0)
    leader.tick(30_000)
    leader.report(1, range(2, 4), sequence=0)
    leader.report(2, range(4, 6), sequence=0)
    leader.tick()
    assert [leader.owned_by(n) for n in range(3)] == [[0, 1], [2, 3], [4, 5]]


def test_own_pause_does_not_shorten_the_wait_for_taskmanagers_that_run_already() -> None:
    """While a command blocks, their reports wait to be read."""
    leader = Leader(tasks=2, tm_number=3)
    said = [*leader.report(0, [0]), *leader.tick(), *leader.tick(10_000), *leader.report(1, [1])]
    assert assigned(said, 0) == assigned(said, 1) == []
