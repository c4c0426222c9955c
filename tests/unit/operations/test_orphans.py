"""What former versions of a pipeline have left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest

import kafka_pipeline.operations.orphans
from kafka_pipeline.common.cluster.cluster_status import (
    ClusterStatus,
    JobManagerInfo,
    Presence,
    TaskManagerInfo,
)
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, LoggedStore, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import CountSpec, ForwardSpec
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.desired_state import Deployment, PipelineVersion, Wish, records
from kafka_pipeline.operations.orphans import Orphans, delete_job, orphans, whole_job
from tests.small_config import small_config

NAMES = TopicNames("job", "in", "out")
STORES = (LoggedStore("counts"),)
ONE = (PipelineProcessor("A", ForwardSpec(), (SINK,), (SOURCE,)),)
TWO = (
    PipelineProcessor("A", ForwardSpec(), ("C",), (SOURCE,)),
    PipelineProcessor("C", CountSpec(), (SINK,), ("A",), stores=STORES),
)
OF_TWO = {"A_C_job", "state_topic_C_job"}
EXISTING = {"in", "out", "unrelated_job", *OF_TWO}


CONFIG = small_config(job_name="job")


class Deleting:
    """Deletes whatever it is to delete, and records it."""

    def __init__(self) -> None:
        self.deleted: list[tuple[str, ...]] = []

    def delete_topics(self, names: Sequence[str]) -> None:
        self.deleted.append(tuple(names))

    def delete_groups(self, names: Sequence[str]) -> None:
        self.deleted.append(tuple(names))


def reading(
    job_manager: Presence, task_managers: Sequence[Presence]
) -> Callable[[Config], ClusterStatus]:
    """Return a function that reads a status with daemons like these."""
    managers = tuple(TaskManagerInfo(id_, each) for id_, each in enumerate(task_managers))
    return lambda _: ClusterStatus(JobManagerInfo(job_manager), managers, ())


def deployment(wish: Wish, *versions: tuple[PipelineProcessor, ...]) -> Deployment:
    made = Deployment(NAMES)
    for number, processors in enumerate(versions, 1):
        version = PipelineVersion(number, Pipeline(processors, NAMES, 1), "", 0, "")
        for record in records(NAMES, wish, version):
            made.take(record)
    return made


def test_topics_and_groups_of_a_processor_that_is_gone_are_left() -> None:
    found = orphans(deployment(Wish(version=2), TWO, ONE), EXISTING)
    assert found == Orphans(tuple(sorted(OF_TWO)), ("processors_C_job",))


def test_topics_that_do_not_exist_any_more_are_not_listed() -> None:
    assert orphans(deployment(Wish(version=2), TWO, ONE), {"in", "out"}).topics == ()


def test_what_runs_or_is_to_come_is_not_left() -> None:
    assert orphans(deployment(Wish(version=1), TWO, ONE), EXISTING) == Orphans((), ())
    assert orphans(deployment(Wish(version=1, next=2), ONE, TWO), EXISTING) == Orphans((), ())


def test_source_of_a_former_version_belongs_to_the_user() -> None:
    names = TopicNames("job", "former_in", "out")
    made = deployment(Wish(version=2), ONE, ONE)
    version = PipelineVersion(1, Pipeline(ONE, names, 1), "", 0, "")
    for record in records(NAMES, Wish(version=2), version):
        made.take(record)
    assert orphans(made, {"former_in", "in", "out"}) == Orphans((), ())


def test_job_without_a_pipeline_has_left_nothing() -> None:
    assert orphans(Deployment(NAMES), EXISTING) == Orphans((), ())


def test_a_whole_job_is_all_that_its_versions_and_its_daemons_have() -> None:
    control = {NAMES.threads_jm, NAMES.heartbeat, NAMES.processors("0"), NAMES.processors("2")}
    made = deployment(Wish(version=2, task_managers=3), TWO, ONE)
    found = whole_job(CONFIG, made, EXISTING | control | {NAMES.pipeline, NAMES.rehearsal})
    assert set(found.topics) == OF_TWO | control | {NAMES.pipeline, NAMES.rehearsal}
    assert found.topics[-1] == NAMES.pipeline
    assert found.groups == ("processors_A_job", "processors_C_job")


@pytest.mark.parametrize(
    ("job_manager", "task_managers", "who"),
    [
        (Presence.UP, [Presence.UP], "the JobManager"),
        (Presence.LEFT, [Presence.DOWN, Presence.UP], "TaskManager 1"),
    ],
)
def test_a_job_whose_daemons_are_up_is_not_deleted(
    job_manager: Presence, task_managers: list[Presence], who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        kafka_pipeline.operations.orphans, "read_status", reading(job_manager, task_managers)
    )
    nobody = cast(Admin, None)
    with pytest.raises(ConfigError, match=f"{who} is up: stop all daemons of the job first"):
        delete_job(CONFIG, nobody, Orphans(("a", "pipeline_topic"), ()))


def test_the_topic_that_knows_the_others_goes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        kafka_pipeline.operations.orphans,
        "read_status",
        reading(Presence.LEFT, [Presence.DOWN]),
    )
    admin = Deleting()
    delete_job(CONFIG, cast(Admin, admin), Orphans(("a", "b", "pipeline_topic"), ("g",)))
    assert admin.deleted == [("a", "b"), ("g",), ("pipeline_topic",), ()]
