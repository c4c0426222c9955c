"""The test driver when something goes wrong: failing processors, mistakes, closing."""

from __future__ import annotations

import re

import pytest

from kafka_pipeline import (
    Processor,
    ProcessorContext,
    Record,
    SerializationError,
    StateStoreError,
    StreamsError,
    Topology,
    TopologyBuilder,
    serdes,
    stores,
)
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.testing import TestInputTopic, TopologyTestDriver
from tests.unit.streams.nodes import Each, one, starting


class CountWords(Processor):
    """Counts the words of lines, and sends each count."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.counts = context.get_state_store("counts")

    def process(self, record: Record) -> None:
        for word in record.value.split():
            self.counts.put(word, (self.counts.get(word) or 0) + 1)
            self.context.forward(Record(word, self.counts.get(word), record.timestamp))
            if word == "stop":
                raise ValueError("told to stop")


def counting() -> Topology:
    builder = TopologyBuilder()
    builder.add_source("lines", "lines", value_serde=serdes.string)
    builder.add_processor("count", CountWords, "lines")
    builder.add_state_store(stores.key_value("counts", serdes.string, serdes.int64), "count")
    builder.add_sink("words", "words", "count", key_serde=serdes.string, value_serde=serdes.int64)
    return builder.build()


def test_what_a_processor_raises_comes_out_of_pipe_input_and_leaves_no_trace() -> None:
    with TopologyTestDriver(counting()) as driver:
        lines = driver.create_input_topic("lines", value_serde=serdes.string)
        words = driver.create_output_topic("words", serdes.string, serdes.int64)
        lines.pipe_input(None, "a")
        with pytest.raises(ValueError, match="told to stop"):
            lines.pipe_input(None, "a stop a")
        assert words.read_key_values() == [("a", 1)]
        with driver.get_state_store("counts").all() as counts:
            assert list(counts) == [("a", 1)]


def test_a_task_that_failed_has_stopped() -> None:
    with TopologyTestDriver(counting()) as driver:
        lines = driver.create_input_topic("lines", value_serde=serdes.string)
        with pytest.raises(ValueError, match="told to stop"):
            lines.pipe_input(None, "stop")
        message = r"the task lines_0 has stopped: record lines\[0\]@0: ValueError: told to stop"
        with pytest.raises(StreamsError, match=message):
            lines.pipe_input(None, "b")
        with pytest.raises(StreamsError, match=message):
            driver.advance_wall_clock_time(1)
        assert driver.get_state_store("counts").get("b") is None
        assert driver.metrics["records_in_total"] == 0


def test_a_record_that_its_serde_cannot_read_comes_out_of_pipe_input() -> None:
    with TopologyTestDriver(counting()) as driver:
        lines = driver.create_input_topic("lines")
        with pytest.raises(SerializationError, match="the serde string cannot read these bytes"):
            lines.pipe_input(None, b"\xff")


def test_a_group_that_fails_does_not_hold_up_another_reader_of_the_topic() -> None:
    builder = TopologyBuilder()
    builder.add_source("first", re.compile("in"))
    builder.add_processor("each", Each, "first")
    builder.add_source("second", re.compile("i[n]"))
    builder.add_sink("sink", lambda record: "out", "second")
    with TopologyTestDriver(builder.build(), partitions={"in": 1}) as driver:
        with pytest.raises(ValueError, match="no good"):
            driver.create_input_topic("in").pipe_input(None, b"bad")
        assert driver.create_output_topic("out").size == 1


def test_settings_of_a_group_say_what_happens_to_bad_records() -> None:
    settings = {"source": GroupSettings(OnError.DEAD_LETTER, dead_letter_topic="dead")}
    with TopologyTestDriver(one(Each), settings=settings) as driver:
        source = driver.create_input_topic("in")
        for value in (b"a", b"bad", b"b"):
            source.pipe_input(None, value)
        assert driver.create_output_topic("out").read_key_values() == [(None, b"a"), (None, b"b")]
        (letter,) = driver.create_output_topic("dead").read_records()
        assert letter.value == b"bad"
        assert dict(letter.headers)["__streams.errors.offset"] == b"1"
        assert driver.metrics["dead_letters_total"] == 1


def test_a_store_can_be_filled_beforehand() -> None:
    with TopologyTestDriver(counting()) as driver:
        driver.get_state_store("counts").put("a", 41)
        driver.create_input_topic("lines").pipe_input(None, b"a")
        words = driver.create_output_topic("words", serdes.string, serdes.int64)
        assert words.read_key_values() == [("a", 42)]


def test_processors_are_closed_once() -> None:
    closed: list[str] = []

    class Closing(Each):
        def close(self) -> None:
            closed.append(self.context.task_id)

    driver = TopologyTestDriver(one(Closing))
    driver.close()
    driver.close()
    assert closed == ["source_0"]


@pytest.mark.parametrize("child", [None, "sink"])
def test_what_is_forwarded_when_all_is_closed_is_refused(child: str | None) -> None:
    class Late(Each):
        def close(self) -> None:
            self.context.forward(Record(None, b"late", 0), child=child)

    builder = TopologyBuilder()
    builder.add_source("source", "in").add_processor("each", Late, "source")
    driver = TopologyTestDriver(builder.add_sink("sink", "out", "each"))
    with pytest.raises(StreamsError, match='"each" forwards when it is closed, and nobody takes'):
        driver.close()


def test_a_store_that_close_changes_is_an_error() -> None:
    class Late(Each):
        def close(self) -> None:
            self.context.get_state_store("Seen").put("late", 1)

    builder = TopologyBuilder()
    builder.add_source("source", "in").add_processor("each", Late, "source")
    builder.add_state_store(stores.key_value("Seen", serdes.string, serdes.int64), "each")
    driver = TopologyTestDriver(builder.build())
    with pytest.raises(StreamsError, match='store "Seen" was changed in close, after the last'):
        driver.close()


def test_everything_is_closed_though_a_processor_fails_to() -> None:
    class Failing(Each):
        def close(self) -> None:
            raise ValueError("cannot close")

    builder = TopologyBuilder()
    for name in ("a", "b"):
        builder.add_source(name, name)
        builder.add_processor(f"processor {name}", Failing, name, stores=name)
        builder.add_state_store(stores.key_value(name, serdes.string, serdes.int64))
    driver = TopologyTestDriver(builder.build())
    kept = [driver.get_state_store(name) for name in ("a", "b")]
    with pytest.raises(ValueError, match="cannot close"):
        driver.close()
    for store in kept:
        with pytest.raises(StateStoreError, match="closed"):
            store.get("k")


def test_what_a_processor_raises_at_the_start_comes_out_and_the_others_are_closed() -> None:
    closed: list[str] = []

    class Closing(Each):
        def close(self) -> None:
            closed.append(self.context.task_id)

    def fail(context: ProcessorContext) -> None:
        raise ValueError("cannot begin")

    builder = TopologyBuilder()
    for name, supplier in (("a", Closing), ("b", starting(fail))):
        builder.add_source(name, name)
        builder.add_processor(f"processor {name}", supplier, name)
    with pytest.raises(ValueError, match="cannot begin"):
        TopologyTestDriver(builder.build())
    assert closed == ["a_0"]


def test_mistakes_get_clear_answers(driver: TopologyTestDriver) -> None:
    with pytest.raises(StreamsError, match="no source of the topology reads topic out"):
        driver.create_input_topic("out")
    with pytest.raises(StreamsError, match='there is no store "counts"'):
        driver.get_state_store("counts")
    strings: TestInputTopic = driver.create_input_topic("in", value_serde=serdes.string)
    with pytest.raises(SerializationError, match="the serde string cannot write this: it is a int"):
        strings.pipe_input(None, 7)
    with pytest.raises(StreamsError, match="has no valid timestamp"):
        driver.create_input_topic("in").pipe_input(None, b"x", timestamp=-1)


def test_settings_for_a_group_that_there_is_not_are_refused() -> None:
    with pytest.raises(
        StreamsError, match='no node group is called "sauce", did you mean "source"'
    ):
        TopologyTestDriver(one(Each), settings={"sauce": GroupSettings()})


def test_a_closed_driver_takes_nothing_more(driver: TopologyTestDriver) -> None:
    source = driver.create_input_topic("in")
    driver.close()
    with pytest.raises(StreamsError, match="the driver is closed"):
        source.pipe_input(None, b"x")
    with pytest.raises(StreamsError, match="the driver is closed"):
        driver.advance_wall_clock_time(1)
