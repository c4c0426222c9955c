"""A version takes the place of one that waits for arcs to be drained, or that is on trial."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment import deploy
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    Trial,
    Wish,
    records,
)
from kafka_pipeline.deployment.pipeline_topic import ChangedMeanwhileError
from tests.unit.deployment.test_change import NAMES, graph

BEFORE, AFTER, EDITED = graph("A B C"), graph("A D C"), graph("A B C", B=7)
TRIAL = Trial(back_to=4, within_ms=120_000)


class Job:
    """A pipeline topic with the versions 4 and 5, and what is written to it."""

    def __init__(self) -> None:
        self.deployment = Deployment(NAMES)
        self.written: list[Any] = []

    def runs(self, wish: Wish) -> None:
        versions = (PipelineVersion(n, p, "", 0, "ada") for n, p in ((4, BEFORE), (5, AFTER)))
        for record in records(NAMES, wish, *versions):
            self.deployment.take(record)

    def deploy(
        self,
        pipeline: Pipeline,
        within_s: float = deploy.CONFIRM_WITHIN_S,
        after: int | None = None,
    ) -> tuple[int, Wish, PipelineVersion]:
        admin: Any = SimpleNamespace(topics=dict, ensure_topics=lambda _: [])
        config: Config = SimpleNamespace(replication_factor=1)  # type: ignore[assignment]
        proposal = deploy.Proposal(pipeline, "text", after=after)
        number = deploy.deploy(proposal, config, admin, None, confirm_within_s=within_s)
        wish, version = self.written
        return number, wish, version


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job()

    class Topic:
        def __init__(self, *_: object) -> None:
            self.deployment = made.deployment

        def write(self, *what: object) -> None:
            made.written.extend(what)

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(deploy, "DeploymentEditor", Topic)
    monkeypatch.setattr(deploy, "read_deployment", lambda *_: made.deployment)
    monkeypatch.setattr(deploy, "control_topics", lambda _: ())
    return made


def test_the_version_that_runs_takes_the_place_of_the_one_that_waits(job: Job) -> None:
    """Nothing is to be drained any more, so it runs at once, and has nothing to prove."""
    job.runs(Wish(version=4, next=5, paused=("B",), trial=TRIAL))
    number, wish, version = job.deploy(BEFORE)
    assert (number, version.number, version.pipeline) == (6, 6, BEFORE)
    assert wish == Wish(version=6, paused=("B",))


def test_new_version_is_on_trial_unless_nobody_wants_that(job: Job) -> None:
    job.runs(Wish(version=4))
    assert job.deploy(EDITED)[1] == Wish(version=6, trial=TRIAL)
    job.written = []
    assert job.deploy(EDITED, 0)[1] == Wish(version=6)
    job.written = []
    assert job.deploy(EDITED, 0.5)[1].trial == Trial(back_to=4, within_ms=500)


def test_version_that_replaces_one_on_trial_goes_back_to_the_one_that_was_confirmed(
    job: Job,
) -> None:
    job.runs(Wish(version=5, trial=TRIAL))
    assert job.deploy(EDITED)[1] == Wish(version=5, next=6, trial=TRIAL)


def test_first_version_of_a_job_has_nothing_to_go_back_to(job: Job) -> None:
    assert job.deploy(BEFORE)[1] == Wish(version=1)


def test_version_that_was_planned_before_another_one_was_made_changes_nothing(job: Job) -> None:
    """Else the change of somebody who was faster would be taken back, and nobody would know."""
    job.runs(Wish(version=5))
    with pytest.raises(ChangedMeanwhileError, match="ada made version 5 after this change was"):
        job.deploy(EDITED, after=4)
    assert job.written == []
    assert job.deploy(EDITED, after=5)[0] == 6
