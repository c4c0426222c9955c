"""Rates and trends of tasks, from the counts in heartbeats."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.cluster.cluster_status import Beat, ClusterStatus, snapshot
from kafka_pipeline.common.cluster.rates import RateLog, Rates
from kafka_pipeline.common.protocol.messages import JobManagerBeat, Report
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId

TASK = TaskId("P", 0)


def status(at_ms: int, records: int, lag: int | None = None, owner: int = 0) -> ClusterStatus:
    figures = {"records_in": records, "records_out": 2 * records}
    if lag is not None:
        figures["lag"] = lag
    runs = TaskStatus(TASK, TaskState.RUNNING, figures=figures)
    beats = [
        Beat(at_ms, JobManagerBeat(1, at_ms, {TASK: owner})),
        Beat(at_ms, Report(owner, "a", 1, 1, tasks=(runs,))),
    ]
    return snapshot(beats, at_ms, 1000, 2)


def take(log: RateLog, *statuses: tuple[int, ClusterStatus]) -> Rates:
    found = [log.take(at_ms, each) for at_ms, each in statuses]
    return found[-1][TASK]


def test_one_heartbeat_gives_no_rate() -> None:
    assert take(RateLog(1000), (0, status(0, 100))) == Rates()


def test_rate_is_the_mean_of_the_last_ten_seconds() -> None:
    log = RateLog(1000)
    slow = [(s * 1000, status(s * 1000, 10 * s)) for s in range(31)]
    fast = [(s * 1000, status(s * 1000, 300 + 50 * (s - 30))) for s in range(31, 41)]
    assert take(log, *slow).records_in == 10
    half = take(log, *fast[:5])
    assert half.records_in == 30
    assert half.records_out == 60
    assert take(log, *fast[5:]).records_in == 50


def test_a_task_that_counts_from_the_beginning_again_has_no_rate_below_zero() -> None:
    log = RateLog(1000)
    take(log, (0, status(0, 5000)), (1000, status(1000, 5100)))
    assert take(log, (2000, status(2000, 10))) == Rates()
    assert take(log, (3000, status(3000, 30))).records_in == 20


def test_a_task_that_moved_has_the_rate_of_its_new_owner_only() -> None:
    log = RateLog(1000)
    take(log, (0, status(0, 10)), (1000, status(1000, 20)))
    assert take(log, (2000, status(2000, 9000, owner=1))) == Rates()


def test_a_task_that_is_not_reported_has_no_rates() -> None:
    log = RateLog(1000)
    take(log, (0, status(0, 10)), (1000, status(1000, 20)))
    silent = snapshot([Beat(9000, JobManagerBeat(1, 9000, {TASK: 0}))], 9000, 1000, 2)
    assert log.take(9000, silent) == {}


@pytest.mark.parametrize("change", [-30, 0, 70])
def test_the_lag_changes_by_so_much_per_second(change: int) -> None:
    log = RateLog(1000)
    seconds = [(s * 1000, status(s * 1000, s, lag=5000 + change * s)) for s in range(20)]
    assert take(log, *seconds[:5]).lag is None
    assert take(log, *seconds[5:]).lag == change


def test_a_lag_that_is_unknown_has_no_trend() -> None:
    log = RateLog(1000)
    assert take(log, *[(s * 1000, status(s * 1000, s)) for s in range(20)]).lag is None


def test_only_the_last_minute_is_kept() -> None:
    log = RateLog(100)
    take(log, *[(s * 100, status(s * 100, s)) for s in range(3000)])
    (track,) = log._tracks.values()
    assert track.points[-1].at_ms - track.points[0].at_ms <= 60_000
    assert len(track.points) < 70
