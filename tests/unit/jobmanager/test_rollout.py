"""What a JobManager writes about a version that is on trial, and what it says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    StopOrder,
    TakenBack,
    Trial,
    Wish,
    records,
)
from kafka_pipeline.deployment.pipeline_topic import ChangedMeanwhileError
from kafka_pipeline.jobmanager import rollout
from kafka_pipeline.jobmanager.events import PipelineChanged
from kafka_pipeline.jobmanager.rollout import Rollout
from kafka_pipeline.jobmanager.trial import STEADY_BEATS
from tests.unit.deployment.test_change import graph
from tests.unit.deployment.test_record_forms import CHAIN
from tests.unit.streams.pipeline.loading import load

NAMES = TopicNames(None, "in", "out")
BEFORE, AFTER, WITH_ARC = graph("A B C"), graph("A B C", B=7), graph("A B C D")
TRIAL = Trial(back_to=1, within_ms=20_000)
ON_TRIAL = Wish(version=2, trial=TRIAL)
CONFIG: Any = SimpleNamespace(
    heartbeat_interval_ms=1000, num_standby_replicas=0, replication_factor=1, topic_names=NAMES
)


class Job:
    """A pipeline topic in memory, the reports of tasks, and a clock."""

    def __init__(self) -> None:
        self.deployment = Deployment(NAMES)
        self.now_s = 1000.0
        self.refuses = False
        self.state: Any = SimpleNamespace(
            is_settled=True,
            is_isolated=False,
            reported=self.reported,
            failed=lambda _: [],
            running=lambda _: [],
        )
        self.tasks: dict[TaskId, TaskStatus] = {}

    def reported(self, _: object) -> dict[TaskId, TaskStatus]:
        return self.tasks

    def write(self, wish: Wish, *pipelines: Pipeline) -> None:
        first = len(self.deployment.numbers) + 1
        versions = [PipelineVersion(n, p, "", 0, "ada") for n, p in enumerate(pipelines, first)]
        for record in records(NAMES, wish, *versions):
            self.deployment.take(record)

    def report(self, state: TaskState, pipeline: Pipeline, *ids: str) -> None:
        for unit in replicas(pipeline):
            if unit.name in ids:
                found = TaskStatus(unit.task, state, "why", fingerprint=unit.fingerprint)
                self.tasks[unit.task] = found

    def advance(self, leader: Rollout, seconds: int = 1) -> list[PipelineChanged]:
        found: list[PipelineChanged] = []
        for _ in range(seconds):
            found += leader.advance(self.state)
            self.now_s += 1
        return found

    @property
    def wish(self) -> Wish | None:
        return self.deployment.wish


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job()

    class Topic:
        rejected = 0

        def __init__(self, *_: object) -> None:
            self.deployment = made.deployment

        def read(self, _: float) -> None:
            """All that there is has been read."""

        def write(self, wish: Wish, *versions: PipelineVersion) -> None:
            if made.refuses:
                raise ChangedMeanwhileError("somebody else was faster")
            for record in records(NAMES, wish, *versions):
                made.deployment.take(record)

        def close(self) -> None:
            """Nothing is open."""

    class Watch:
        findings = ()
        successor = None

        def __init__(self, *_: object) -> None:
            """Nothing is watched."""

        def start(self) -> None:
            """Nothing is watched."""

        stop = start

    for name in ("DeploymentReader", "DeploymentEditor"):
        monkeypatch.setattr(rollout, name, Topic)
    for name in ("ArcPurger", "TopicWatch"):
        monkeypatch.setattr(rollout, name, Watch)
    monkeypatch.setattr(rollout, "control_topics", lambda _: ())
    monkeypatch.setattr(rollout, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    made.write(Wish(version=1), BEFORE)
    return made


def leader(job: Job) -> Rollout:
    admin: Any = SimpleNamespace(ensure_topics=lambda _: [])
    return Rollout(CONFIG, admin)


def test_version_that_comes_up_is_confirmed(job: Job) -> None:
    first = leader(job)
    job.write(ON_TRIAL.with_restarts(["C"]), AFTER)
    job.report(TaskState.RUNNING, AFTER, "B")
    job.advance(first, STEADY_BEATS + 2)
    assert job.wish == Wish(version=2, restarts={"C": 1})
    assert job.deployment.numbers == [1, 2]
    job.report(TaskState.FAILED, AFTER, "B")
    job.advance(first, 60)
    assert job.wish == Wish(version=2, restarts={"C": 1})
    assert first.findings == ()


def test_version_that_fails_is_rolled_back_as_a_new_version_that_is_not_on_trial(job: Job) -> None:
    first = leader(job)
    job.write(ON_TRIAL.with_paused(["A"]), AFTER)
    job.report(TaskState.FAILED, AFTER, "B")
    job.advance(first, 2)
    assert job.wish == Wish(version=3, paused=("A",))
    made = job.deployment.version(3)
    assert made.pipeline == BEFORE
    assert made.takes_back == TakenBack(version=2, to=1, reason="B_0 is FAILED (why)")
    assert job.deployment.taken_back(2) == made.takes_back
    assert first.findings == ("version 2 was rolled back to version 1: B_0 is FAILED (why)",)
    # It stays so, under the next JobManager as well.
    job.report(TaskState.FAILED, BEFORE, "B")
    second = leader(job)
    job.advance(second, 60)
    assert job.deployment.numbers == [1, 2, 3]
    assert second.findings == first.findings
    job.write(Wish(version=4), AFTER)
    job.advance(second)
    assert not second.findings


def test_arcs_that_the_rolled_back_version_has_made_are_drained_first(job: Job) -> None:
    first = leader(job)
    job.write(ON_TRIAL, WITH_ARC)
    job.report(TaskState.FAILED, WITH_ARC, "D")
    list(first.advance(job.state))
    assert job.wish == Wish(version=2, next=3)
    assert job.deployment.newest is not None
    assert job.deployment.newest.takes_back is not None


def test_version_that_writes_other_records_comes_once_the_former_readers_are_fenced(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Drain:
        left: Mapping[str, int] = {}
        silenced: frozenset[str] = frozenset()
        found: Sequence[str] = ()
        wanted: frozenset[str] = frozenset()

        def __init__(self, *_: object) -> None:
            """Nothing is watched."""

        def look_at(self, _: object, to_silence: frozenset[str]) -> None:
            Drain.wanted = to_silence

        def take_drained(self) -> Sequence[str]:
            return Drain.found

        def stop(self) -> None:
            """Nothing is watched."""

    monkeypatch.setattr(rollout, "DrainWatch", Drain)
    first = leader(job)
    job.write(Wish(version=2, next=3), *(load(CHAIN % (form, form)) for form in ("string", "json")))
    assert [event.held for event in job.advance(first)] == [{"A"}]
    Drain.found = ("A_F", "F_B")
    assert [event.held for event in job.advance(first)] == [{"A", "F", "B"}]
    job.state.running = lambda _: [TaskId("B", 0)]
    job.advance(first)
    assert Drain.wanted == {"F"}
    job.state.running = lambda _: []
    Drain.silenced = frozenset({"F"})
    job.advance(first, 10)
    assert ({*Drain.wanted}, job.wish) == ({"B"}, Wish(version=2, next=3))
    Drain.silenced = frozenset({"F", "B"})
    job.advance(first, 2)
    assert job.wish == Wish(version=3)


def test_writers_stay_held_on_the_way_back_unless_they_have_to_drain(job: Job) -> None:
    first = leader(job)
    failed = graph("A B C D", A=7, B=7)
    job.write(ON_TRIAL, failed)
    assert [event.held for event in job.advance(first)] == [{"A", "B", "C"}]
    job.report(TaskState.FAILED, failed, "D")
    job.advance(first)
    assert job.wish == Wish(version=2, next=3)
    job.state.is_settled = False  # nothing is drained here
    assert [event.held for event in job.advance(first)] == [{"A", "B", "C"}]


def test_user_who_applies_meanwhile_wins(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    first = leader(job)
    job.write(ON_TRIAL, AFTER)
    job.report(TaskState.STARTING, AFTER, "B")
    job.advance(first)
    job.report(TaskState.FAILED, AFTER, "B")
    newer = graph("A B C", B=8)

    editor: Any = vars(rollout)["DeploymentEditor"]

    class Later(editor):  # type: ignore[misc]
        """Finds what was applied after the last look."""

        def __init__(self, *given: object) -> None:
            super().__init__(*given)
            job.write(Wish(version=3, trial=TRIAL), newer)

    with monkeypatch.context() as patched:
        patched.setattr(rollout, "DeploymentEditor", Later)
        job.advance(first)
    assert job.deployment.numbers == [1, 2, 3]
    job.report(TaskState.RUNNING, newer, "B")
    job.advance(first, STEADY_BEATS + 2)
    assert job.wish == Wish(version=3)


def test_write_that_is_refused_is_repeated(job: Job) -> None:
    first = leader(job)
    job.write(ON_TRIAL, AFTER)
    job.report(TaskState.FAILED, AFTER, "B")
    job.refuses = True
    job.advance(first, 3)
    assert job.wish == ON_TRIAL
    job.refuses = False
    job.advance(first, 6)
    assert job.wish == Wish(version=3)


def test_next_job_manager_goes_on_with_the_trial(job: Job) -> None:
    first = leader(job)
    job.write(ON_TRIAL, AFTER)
    job.report(TaskState.STARTING, AFTER, "B")
    job.advance(first, 15)
    second = leader(job)
    job.advance(second, 15)
    assert job.wish == ON_TRIAL
    job.advance(second, 7)
    assert job.wish == Wish(version=3)
    assert second.findings == (
        "version 2 was rolled back to version 1: B_0 is STARTING after 20 s of trying (why)",
    )


def test_nothing_is_judged_while_a_tool_works_on_the_topics(job: Job) -> None:
    first = leader(job)
    stop = StopOrder(purpose="savepoint", token="a1", by="me@host")
    job.write(ON_TRIAL.with_stop(stop), AFTER)
    job.report(TaskState.FAILED, AFTER, "B")
    job.advance(first, 60)
    assert job.wish == ON_TRIAL.with_stop(stop)


def test_writers_are_held_until_their_readers_have_come_up(job: Job) -> None:
    first = leader(job)
    both = graph("A B C", B=7, C=7)
    job.write(ON_TRIAL, both)
    (event,) = job.advance(first)
    assert event.held == {"B"}
    job.report(TaskState.RUNNING, both, "C")
    (event,) = job.advance(first)
    assert event.held == frozenset()
