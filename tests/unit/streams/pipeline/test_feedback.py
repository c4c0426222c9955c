"""Cycles through topics: which are refused, which are allowed, and whose event time they have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_pipeline import serdes
from kafka_pipeline.admin.describe import mermaid
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.pipelines.event_time import event_times
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.streams.pipeline.units import group_of
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.pipeline.loading import CONFIG, READ_AS_FEEDBACK, load, problems_in
from tests.user_code.topologies import circle

JOB = replace(CONFIG, job_name="job")
TOPICS = "sources: {back: {topic: loop, feedback: %s}}\nsinks: {again: loop, other: elsewhere}\n"
ITSELF = TOPICS + "processors: [{id: A, type: forward, from: [source, back], to: [again, sink]}]"
BY_ANOTHER = (
    TOPICS
    + "processors:\n"
    + "- {id: A, type: forward, from: [source, back], to: [B]}\n"
    + "- {id: B, type: forward, to: [again, sink]}"
)
BY_TOPICS = """
sources: {back: {topic: loop, feedback: %s}, middle: between}
sinks: {again: loop, to_middle: between}
processors:
- {id: A, type: forward, from: [source, back], to: [to_middle]}
- {id: B, type: forward, from: [middle], to: [again, sink]}
"""
CIRCLE = """
- id: W
  type: topology
  builder: tests.user_code.topologies:circle
  config: {lines: source, back: loop, out: sink, feedback: %s}
"""


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            ITSELF,
            [f'3:64: "A" sends to the topic "loop", which it reads itself: {READ_AS_FEEDBACK}'],
        ),
        (
            BY_ANOTHER,
            [
                '5:31: "B" sends to the topic "loop", which "A" reads, whose results reach it '
                f"again: {READ_AS_FEEDBACK}"
            ],
        ),
        (
            BY_TOPICS,
            [
                '5:53: "A" sends to the topic "between", which "B" reads, whose results reach it '
                f"again: {READ_AS_FEEDBACK}",
                '6:47: "B" sends to the topic "loop", which "A" reads, whose results reach it '
                f"again: {READ_AS_FEEDBACK}",
            ],
        ),
        (
            CIRCLE,
            [
                '2:7: "W": topic "loop" is read and written: give its source feedback=True if its '
                "records are to come back, or add_internal_topic if they only pass; in a "
                "StreamsBuilder, go on with the stream or table that is written there"
            ],
        ),
    ],
    ids=["itself", "by another", "by topics", "topology"],
)
def test_a_cycle_is_refused_unless_a_source_of_it_is_feedback(
    text: str, problems: list[str]
) -> None:
    assert problems_in(text % "false") == problems
    assert load(text % "true").processors


def test_feedback_that_does_not_come_back_is_refused() -> None:
    text = TOPICS % "true" + (
        "processors:\n"
        "- {id: A, type: forward, from: [source, back], to: [sink]}\n"
        "- {id: B, type: forward, to: [again]}"
    )
    assert problems_in(text) == [
        '4:41: "A" reads the topic "loop" as feedback, but sends nothing there, directly or by '
        "other processors: leave feedback out"
    ]


def test_feedback_alone_is_refused() -> None:
    text = TOPICS % "true" + (
        "processors:\n"
        "- {id: A, type: forward, to: [again, sink]}\n"
        "- {id: B, type: forward, from: [back], to: [again]}"
    )
    assert problems_in(text) == [
        '5:8: "B" reads feedback alone, which does not say how far event time is: let it read '
        "another source, or what another processor sends"
    ]


def test_event_time_behind_a_repartition_waits_for_no_feedback() -> None:
    (found,) = event_times(load(CIRCLE % "true", JOB))["W-ByValue"].writers.values()
    (writer,) = found
    assert (writer.processor, writer.inputs) == ("W-Lines", {"in": 2})


def test_feedback_travels_to_the_tasks() -> None:
    unit = replicas(load(CIRCLE % "true", JOB))[0]
    read = ProcessorReplica.from_json(unit.to_json(), unit.parameters())
    assert (read, read.fingerprint) == (unit, unit.fingerprint)
    assert group_of(read, UserCode.of(CONFIG)).feedback_topics == ("loop",)


def test_a_cycle_is_drawn_by_its_topic() -> None:
    drawn = mermaid(load(CIRCLE % "true", JOB)).splitlines()
    (topic,) = [line.split("(")[0].strip() for line in drawn if '"loop"' in line]
    arcs = [line.strip() for line in drawn if "-->" in line]
    assert f"{topic} --> p0" in arcs
    assert f"p1 --> {topic}" in arcs


def test_the_test_driver_brings_records_back() -> None:
    with TopologyTestDriver(circle("lines", "loop", "out").build()) as driver:
        lines = driver.create_input_topic("lines", serdes.string, serdes.string)
        lines.pipe_input("k", "x", 0)
        lines.pipe_input("k", "x", 1)
        out = driver.create_output_topic("out", serdes.string, serdes.string)
        assert [(each.key, each.value) for each in out.read_records()] == [
            ("x", "1"),
            ("again 1", "1"),
            ("x", "2"),
            ("again 2", "1"),
        ]
