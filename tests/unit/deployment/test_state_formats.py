"""State that may get another format by a change, as far as the engine can tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import (
    SINK,
    SOURCE,
    LoggedStore,
    PipelineProcessor,
)
from kafka_pipeline.common.pipelines.specs import (
    ClassSpec,
    CountSpec,
    DataFrameSpec,
    ProcessorSpec,
    SqlSpec,
    StoreSpec,
    TopologySpec,
)
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.state_formats import may_change

NAMES = TopicNames("job", "in", "out")
TOTALS = StoreSpec(name="totals", value="json")
CLASS = ClassSpec(code="shop:Totals", stores=(TOTALS,))
QUERY = SqlSpec(query="SELECT count(*) FROM input GROUP BY key")


def job(spec: ProcessorSpec, *stores: str) -> Pipeline:
    logged = tuple(LoggedStore(name=name) for name in stores or ("totals",))
    processor = PipelineProcessor("A", spec, (SINK,), (SOURCE,), stores=logged)
    return Pipeline((processor,), NAMES, 1)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (CLASS, ClassSpec(code="shop:Other", stores=(TOTALS,)), "shop:Totals becomes shop:Other"),
        (
            CLASS,
            ClassSpec(code="shop:Totals", stores=(StoreSpec(name="totals"),)),
            'the store "totals" changes',
        ),
        (CLASS, CountSpec(), "it was shop:Totals, and becomes count"),
        (QUERY, SqlSpec(query="SELECT sum(n) FROM input GROUP BY key"), "its query changes"),
        (DataFrameSpec(code="a:b"), DataFrameSpec(code="a:c"), "its function changes"),
        (TopologySpec(code="a:b"), TopologySpec(code="a:c"), "a:b becomes a:c"),
    ],
)
def test_state_that_may_get_another_format(
    before: ProcessorSpec, after: ProcessorSpec, why: str
) -> None:
    assert may_change(job(before), job(after)) == {"A": why}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (CLASS, ClassSpec(code="shop:Totals", stores=(TOTALS,), config={"limit": 7})),
        (CLASS, ClassSpec(code="shop:Totals", stores=(TOTALS, StoreSpec(name="more")))),
        (QUERY, SqlSpec(query=QUERY.query, max_process_time_ms=7, buffered_records=9)),
        (CountSpec(), CountSpec(max_process_time_ms=7)),
    ],
)
def test_state_that_keeps_its_format(before: ProcessorSpec, after: ProcessorSpec) -> None:
    assert may_change(job(before), job(after)) == {}


def test_only_state_in_the_same_topic_counts() -> None:
    other = ClassSpec(code="shop:Other", stores=(StoreSpec(name="sums"),))
    assert may_change(job(CLASS), job(other, "sums")) == {}
    stateless = replace(job(CLASS), processors=(replace(job(CLASS).processors[0], stores=()),))
    assert may_change(stateless, job(other)) == {}
    renamed = replace(job(other), processors=(replace(job(other).processors[0], id="B"),))
    assert may_change(job(CLASS), renamed) == {}
