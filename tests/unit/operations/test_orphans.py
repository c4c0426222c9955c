"""What former versions of a pipeline have left behind."""

from __future__ import annotations

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, LoggedStore, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import CountSpec, ForwardSpec
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.desired_state import Deployment, PipelineVersion, Wish, records
from kafka_pipeline.operations.orphans import Orphans, orphans

NAMES = TopicNames("job", "in", "out")
STORES = (LoggedStore("counts"),)
ONE = (PipelineProcessor("A", ForwardSpec(), (SINK,), (SOURCE,)),)
TWO = (
    PipelineProcessor("A", ForwardSpec(), ("C",), (SOURCE,)),
    PipelineProcessor("C", CountSpec(), (SINK,), ("A",), stores=STORES),
)
OF_TWO = {"A_C_job", "state_topic_C_job"}
EXISTING = {"in", "out", "unrelated_job", *OF_TWO}


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
