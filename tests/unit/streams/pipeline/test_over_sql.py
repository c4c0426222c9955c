"""`type: sql` with `OVER (…)` in pipeline.yaml: what it becomes, and mistakes."""

from __future__ import annotations

import json

import pytest

from kafka_pipeline.common.pipelines.specs import OverSpec, SqlSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.streams.pipeline.kinds.sql import Sql
from kafka_pipeline.streams.pipeline.partitions import with_counts
from tests.unit.streams.pipeline.loading import load, problems_in

LAST = "max(value) OVER (PARTITION BY {} ORDER BY timestamp ROWS 9 PRECEDING) AS most"
MORE = "grace: 1 min\n  late_to: late"


def pipeline(columns: str, more: str = MORE) -> str:
    query = f"SELECT key, {LAST.format(columns)} FROM input"
    return (
        "sources: {other: orders}\nsinks: {late: late_ones}\nprocessors:\n- id: P\n  type: sql\n"
        f"  from: [other]\n  query: {json.dumps(query)}\n  to: [sink]\n  {more}\n"
    )


def spec_of(text: str, id_: str) -> SqlSpec:
    spec = load(text).processor(id_).spec
    assert isinstance(spec, SqlSpec)
    return spec


def test_frames_by_key_are_one_processor() -> None:
    made = load(pipeline("key"))
    (processor,) = made.processors
    assert processor.to == ("sink", "late")
    assert spec_of(pipeline("key"), "P").over == OverSpec(
        counts_rows=True, grace_ms=60_000, late_to="late"
    )
    assert list(made.state_topics(processor)) == ["over", "former", "over-times", "shape"]


def test_rows_of_frames_by_other_columns_meet_in_an_internal_topic() -> None:
    made = load(pipeline("value"))
    front, back = made.processor("P-rows"), made.processor("P")
    assert (front.to, back.to) == (("over-repartition", "late"), ("sink",))
    assert front.entry == back.entry == "P"
    assert back.from_ == ("over-repartition",)
    assert made.out_topics(front)[0] == made.in_topics(back)[0] == "P_over-repartition"
    assert not made.state_topics(front)
    assert list(made.state_topics(back)) == ["over", "former", "over-times", "shape"]
    counted = with_counts(made, {"orders": 5})
    assert counted.task_count(counted.processor("P-rows")) == 5
    for unit in replicas(counted):
        assert ProcessorReplica.from_json(unit.to_json(), unit.parameters()) == unit


def test_rows_that_are_sent_on_are_neither_kept_nor_held_back() -> None:
    front, back = (spec_of(pipeline("value"), id_) for id_ in ("P-rows", "P"))
    assert (Sql().keeps(front), Sql().holds_ms(front)) == ((), 0)
    assert Sql().holds_ms(back) == 60_001
    (kept,) = Sql().keeps(back)
    assert kept.startswith("the last records of each group, and all records")


@pytest.mark.parametrize("key", ["emit: on_close", "max_collected: 5"])
def test_keys_of_groups_are_refused(key: str) -> None:
    problems = problems_in(pipeline("value", f"{MORE}\n  {key}"))
    assert any("belongs to a query with GROUP BY" in each for each in problems)
