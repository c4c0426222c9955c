"""Processors that run other code on the state that they have."""

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
    TopologySpec,
)
from kafka_pipeline.common.pipelines.store_specs import StoreSpec
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.other_code import other_code

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
        (TopologySpec(code="a:b"), TopologySpec(code="a:c"), "a:b becomes a:c"),
    ],
)
def test_other_code_on_the_same_state_is_named(
    before: ProcessorSpec, after: ProcessorSpec, why: str
) -> None:
    assert other_code(job(before), job(after)) == {"A": why}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (CLASS, ClassSpec(code="shop:Totals", stores=(TOTALS,), config={"limit": 7})),
        (QUERY, SqlSpec(query="SELECT sum(n) FROM input GROUP BY key")),
        (DataFrameSpec(code="a:b"), DataFrameSpec(code="a:c")),
        (CLASS, CountSpec()),
    ],
)
def test_what_the_plan_compares_is_left_out(before: ProcessorSpec, after: ProcessorSpec) -> None:
    assert other_code(job(before), job(after)) == {}


def test_only_state_in_the_same_topic_counts() -> None:
    other = ClassSpec(code="shop:Other", stores=(StoreSpec(name="sums"),))
    assert other_code(job(CLASS), job(other, "sums")) == {}
    stateless = replace(job(CLASS), processors=(replace(job(CLASS).processors[0], stores=()),))
    assert other_code(stateless, job(other)) == {}
    renamed = replace(job(other), processors=(replace(job(other).processors[0], id="B"),))
    assert other_code(job(CLASS), renamed) == {}
