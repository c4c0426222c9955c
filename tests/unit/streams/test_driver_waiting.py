"""What the test driver says about records that wait for another input (`max_task_idle_ms`)."""

from __future__ import annotations

import re

import pytest

from kafka_pipeline import Processor, Record, StreamsError, TopologyBuilder
from kafka_pipeline.testing import TopologyTestDriver


class Failing(Processor):
    def process(self, record: Record) -> None:
        raise KeyError


def two_topics() -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.add_source("a", "topic-a").add_source("b", "topic-b")
    return builder.add_sink("sink", "out", ["a", "b"])


def test_reading_too_early_says_what_waits_and_for_how_long() -> None:
    with TopologyTestDriver(two_topics(), max_task_idle_ms=500) as driver:
        out = driver.create_output_topic("out")
        assert (out.held_back, repr(out.read_records())) == ("", "[]")
        driver.create_input_topic("topic-a").pipe_input(None, b"a")
        advice = "1 record waits: advance the wall clock by 500 ms (max_task_idle_ms)"
        assert out.held_back == advice
        with pytest.raises(StreamsError, match=re.escape(f"out has nothing to read yet: {advice}")):
            out.read_record()
        for nothing in (out.read_records(), out.read_key_values()):
            assert (nothing, repr(nothing)) == ([], f"[] ({advice})")

        driver.advance_wall_clock_time(100)
        driver.create_input_topic("topic-a").pipe_input(None, b"a")
        assert out.held_back.startswith("2 records wait: advance the wall clock by 400 ms")
        driver.advance_wall_clock_time(400)
        assert len(out.read_records()) == 2
        assert (out.held_back, repr(out.read_records())) == ("", "[]")
        with pytest.raises(StreamsError, match="topic out has no more records"):
            out.read_record()


def test_a_record_that_waits_is_named_only_where_it_may_lead() -> None:
    builder = TopologyBuilder()
    builder.add_source("a", "topic-a").add_source("b", "topic-b")
    builder.add_internal_topic("between").add_sink("to between", "between", ["a", "b"])
    builder.add_source("between", "between").add_sink("sink", "out", ["between"])
    builder.add_source("other", "other").add_sink("other sink", "other-out", ["other"])
    with TopologyTestDriver(builder, max_task_idle_ms=500) as driver:
        driver.create_input_topic("topic-a").pipe_input(None, b"a")
        assert driver.create_output_topic("out").held_back.startswith("1 record waits")
        assert driver.create_output_topic("other-out").held_back == ""


def test_a_task_that_has_stopped_holds_nothing_back() -> None:
    builder = TopologyBuilder()
    builder.add_source("a", "topic-a").add_source("b", "topic-b")
    builder.add_processor("p", Failing, ["a", "b"]).add_sink("sink", "out", ["p"])
    with TopologyTestDriver(builder, max_task_idle_ms=500) as driver:
        a = driver.create_input_topic("topic-a")
        a.pipe_batch([Record(None, b"a", 1), Record(None, b"a", 2)])
        with pytest.raises(KeyError):
            driver.advance_wall_clock_time(500)
        assert driver.create_output_topic("out").held_back == ""
