"""How long `pipeline status --wait` waits, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.cluster.conditions import Condition
from kafka_pipeline.common.errors import PipelineError, UnavailableError
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.operations import waiting
from tests.small_config import small_config
from tests.unit.admin.beats import COUNT, FORWARD, leader, look, report, running

CONFIG = small_config(heartbeat_interval_ms=1000, state_dir=Path("state"))


class Job:
    """Has one status after the other, a second each; the last one stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.statuses: Sequence[ClusterStatus] = ()
        self.said: list[str] = []
        watcher = SimpleNamespace(
            read=self._read, status=self._status, read_until_fresh=lambda: None, close=lambda: None
        )
        wish = SimpleNamespace(wish=SimpleNamespace(task_managers=None))
        monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(waiting, "ClusterWatcher", lambda _config: watcher)
        monkeypatch.setattr(waiting, "connected", lambda _config: None)
        monkeypatch.setattr(waiting, "read_deployment", lambda *_: wish)

    def _read(self, wait_s: float) -> None:
        self.now_s += wait_s

    def _status(self) -> ClusterStatus:
        return self.statuses[min(int(self.now_s), len(self.statuses) - 1)]

    def wait(
        self, condition: str, *statuses: ClusterStatus, timeout_s: float | None = None
    ) -> None:
        self.statuses = statuses
        waiting.wait_for(CONFIG, Condition(condition), timeout_s, self.said.append)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(monkeypatch)


def one(task: TaskStatus) -> ClusterStatus:
    return look(leader({COUNT: 0}), report(0, task), tm_number=1)


STARTING, RUNS = one(TaskStatus(COUNT, TaskState.STARTING)), one(running(COUNT))


def test_a_job_must_have_run_for_two_heartbeats(job: Job) -> None:
    job.wait("running", RUNS, STARTING, RUNS)
    assert job.said == ["Count: 0 of 1 task run: Count_0 STARTING"]
    assert job.now_s == pytest.approx(4, abs=0.3)


def test_a_line_is_said_once(job: Job) -> None:
    job.wait("running", *[STARTING] * 5, RUNS)
    assert len(job.said) == 1


def test_each_line_says_one_thing_and_only_what_is_new_is_said_again(job: Job) -> None:
    def both(state: TaskState) -> ClusterStatus:
        tasks = TaskStatus(COUNT, TaskState.STARTING), TaskStatus(FORWARD, state)
        return look(leader({COUNT: 0, FORWARD: 0}), report(0, *tasks), tm_number=1)

    with pytest.raises(UnavailableError):
        job.wait("running", both(TaskState.STARTING), both(TaskState.RESTARTING), timeout_s=3)
    assert job.said == [
        "Count: 0 of 1 task run: Count_0 STARTING",
        "Forward: 0 of 1 task run: Forward_0 STARTING",
        "Forward: 0 of 1 task run: Forward_0 RESTARTING",
    ]


def test_time_is_up_with_what_is_missing(job: Job) -> None:
    with pytest.raises(UnavailableError) as raised:
        job.wait("running", STARTING, timeout_s=3)
    assert str(raised.value) == (
        "time is up: the job is not running:\n  Count: 0 of 1 task run: Count_0 STARTING"
    )
    assert job.now_s == pytest.approx(3, abs=0.3)


def test_a_timeout_of_zero_looks_whether_it_is_so_now(job: Job) -> None:
    job.wait("running", RUNS, timeout_s=0)
    with pytest.raises(UnavailableError, match="time is up"):
        job.wait("stopped", RUNS, timeout_s=0)


@pytest.mark.parametrize("condition", ["running", "drained"])
def test_a_failed_task_ends_the_wait(job: Job, condition: str) -> None:
    with pytest.raises(PipelineError, match="Count_0 is FAILED: no such column") as raised:
        job.wait(condition, one(TaskStatus(COUNT, TaskState.FAILED, "no such column")))
    assert raised.value.exit_code == 1
    assert job.now_s == 0


def test_a_failed_task_does_not_keep_anybody_from_waiting_for_the_end(job: Job) -> None:
    job.wait("stopped", one(TaskStatus(COUNT, TaskState.FAILED, "no such column")), look())


def test_records_that_are_taken_in_meanwhile_show_that_a_job_is_not_drained(job: Job) -> None:
    looks = [one(running(COUNT, lag=0, records_in=number)) for number in range(4)]
    job.wait("drained", *looks)
    assert job.now_s == pytest.approx(3 + 5, abs=0.3)
