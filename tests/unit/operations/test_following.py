"""What `pipeline apply` says while a change goes on, and when it stops to wait."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafka_pipeline.common.cluster.cluster_status import (
    ClusterStatus,
    JobManagerInfo,
    Presence,
    TaskInfo,
)
from kafka_pipeline.common.errors import PipelineError, UnavailableError
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    TakenBack,
    Trial,
    Wish,
    records,
)
from kafka_pipeline.operations import following
from tests.unit.deployment.test_change import graph

NAMES = TopicNames(None, "in", "out")
BEFORE, AFTER = graph("A B C"), graph("A D C")
LEFT = {"A_B": 7, "B_C": 0}


class Job:
    """A job whose status is what a test says."""

    def __init__(self) -> None:
        self.wish = Wish(version=1, next=2)
        self.states = {"A": TaskState.RUNNING, "B": TaskState.FAILED, "C": TaskState.RUNNING}
        self.restarts_seen: dict[str, int] = {}
        self.held: set[str] = set()
        self.overdue: set[str] = set()
        self.said: list[str] = []
        self.taken_back: TakenBack | None = None

    @property
    def deployment(self) -> Deployment:
        deployment = Deployment(NAMES)
        versions = [PipelineVersion(n, p, "", 0, "ada") for n, p in ((1, BEFORE), (2, AFTER))]
        if self.taken_back is not None:
            versions.append(PipelineVersion(3, BEFORE, "", 0, "ada", self.taken_back))
        for record in records(NAMES, self.wish, *versions):
            deployment.take(record)
        return deployment

    def status(self) -> ClusterStatus:
        tasks = []
        for unit in replicas(BEFORE, 0, self.restarts_seen):
            if unit.name in self.held:
                tasks.append(TaskInfo(unit.task, None, None, "", is_held=True))
                continue
            state = self.states[unit.name]
            reason = "kept for another query" if state is TaskState.FAILED else ""
            found = TaskStatus(unit.task, state, reason, fingerprint=unit.fingerprint)
            is_overdue = unit.name in self.overdue
            tasks.append(TaskInfo(unit.task, 0, found, reason, is_overdue=is_overdue))
        return ClusterStatus(JobManagerInfo(Presence.UP), (), tuple(tasks))

    def follow(self) -> None:
        following.follow(None, None, 2, 0.0, self.said.append)  # type: ignore[arg-type]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job()

    class Reader:
        deployment = property(lambda _: made.deployment)

        def read(self, _: float) -> None:
            """All that there is has been read."""

        def close(self) -> None:
            """Nothing is open."""

    class Watcher(Reader):
        status = staticmethod(made.status)

    contents = SimpleNamespace(ends=lambda _: {}, left=lambda arc, _: LEFT[arc.topic])
    monkeypatch.setattr(following, "DeploymentReader", lambda *_: Reader())
    monkeypatch.setattr(following, "ClusterWatcher", lambda *_: Watcher())
    monkeypatch.setattr(following, "ArcContents", lambda *_: contents)
    return made


def test_failed_reader_of_an_arc_that_is_to_be_drained_ends_the_wait_with_the_reason(
    job: Job,
) -> None:
    with pytest.raises(PipelineError, match="for A_B to be drained: 7 offsets left, and B_0 is"):
        job.follow()
    assert job.said == ["version 2 follows once A_B, B_C are drained"]


def test_failed_reader_of_an_empty_arc_holds_nothing_up(job: Job) -> None:
    job.states |= {"B": TaskState.RUNNING, "C": TaskState.FAILED}
    with pytest.raises(UnavailableError, match="not complete in time"):
        job.follow()


def test_failure_from_before_a_restart_does_not_count(job: Job) -> None:
    job.wish = job.wish.with_restarts(["B"])
    with pytest.raises(UnavailableError, match="not complete in time"):
        job.follow()
    job.restarts_seen = {"B": 1}
    with pytest.raises(PipelineError, match="B_0 is FAILED"):
        job.follow()


def test_paused_reader_holds_the_change_up_once_it_rests(job: Job) -> None:
    job.wish = job.wish.with_paused(["B"])
    with pytest.raises(UnavailableError):
        job.follow()
    job.held = {"B"}
    with pytest.raises(PipelineError) as caught:
        job.follow()
    assert str(caught.value) == (
        "A_B is to be drained, and B is paused: `pipeline resume B` lets it continue, and "
        "`pipeline reset B --to-latest --topic A_B` gives up what is left (7 offsets)"
    )


def test_ctrl_c_ends_the_wait_and_not_the_change(job: Job) -> None:
    def say(line: str) -> None:
        job.said.append(line)
        if len(job.said) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        following.follow(None, None, 2, 0.0, say)  # type: ignore[arg-type]
    assert job.said[1:] == [
        "the JobManager continues with it: see `pipeline status` and `pipeline versions`"
    ]


def test_drain_that_a_failed_reader_holds_up(job: Job) -> None:
    job.wish = job.wish.of(1).with_drain(drains=True)
    with pytest.raises(PipelineError, match="the drain waits for A_B to be drained: 7 offsets"):
        following.follow(None, None, 1, 0.0, job.said.append)  # type: ignore[arg-type]


def follow_version_1(job: Job) -> None:
    following.follow(None, None, 1, 0.0, job.said.append)  # type: ignore[arg-type]


def test_version_on_trial_is_waited_for_until_it_is_confirmed(job: Job) -> None:
    trial = Trial(back_to=2, within_ms=1)
    job.wish = job.wish.of(1, trial=trial)
    with pytest.raises(UnavailableError):  # its failed task is for the JobManager to judge
        follow_version_1(job)
    assert job.said == ["version 1 is on trial, B_0 has failed: kept for another query"]
    job.states["B"] = TaskState.RUNNING
    with pytest.raises(UnavailableError):
        follow_version_1(job)
    assert job.said[1:] == ["version 1 is on trial, 3 of 3 tasks run"]
    job.wish = job.wish.confirmed()
    follow_version_1(job)
    assert job.said[2:] == ["done: version 1, 3 of 3 tasks run"]


def test_version_that_was_rolled_back_ends_the_wait_with_the_reason(job: Job) -> None:
    job.taken_back = TakenBack(version=2, to=1, reason="D_0 is FAILED (no prices)")
    job.wish = job.wish.of(3)
    with pytest.raises(PipelineError) as caught:
        job.follow()
    assert str(caught.value) == "version 2 was rolled back to version 1: D_0 is FAILED (no prices)"


@pytest.mark.parametrize("drains", [False, True])
def test_pause_or_drain_waits_for_a_task_manager_that_has_not_stopped_a_task(
    job: Job, drains: bool
) -> None:
    rests = "2 of 3 tasks rest" if drains else "0 of 0 tasks run, 2 held"
    job.states["B"] = TaskState.RUNNING
    job.wish = job.wish.of(1)
    job.wish = job.wish.with_drain(drains=True) if drains else job.wish.with_paused("ABC")
    job.held, job.overdue = {"A", "C"}, {"B"}
    with pytest.raises(UnavailableError):
        follow_version_1(job)
    assert job.said == [f"version 1, {rests}; not stopped yet: B_0 (TaskManager 0)"]
    job.held = {*"ABC"}
    follow_version_1(job)
    assert job.said[1].startswith("done: version 1, ")
