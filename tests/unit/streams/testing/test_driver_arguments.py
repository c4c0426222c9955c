"""The test driver: its arguments, their errors, and the stores and topics that it has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kafka_pipeline import (
    FieldTimestampExtractor,
    InvalidArgumentError,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serde,
    SerializationError,
    StreamsError,
    SupplierError,
    TopologyBuilder,
    WallclockTimestampExtractor,
    serdes,
    stores,
)
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.nodes import Each, starting


def passing(**source: Any) -> TopologyBuilder:
    """Return a builder whose topology passes records from `in` to `out`."""
    builder = TopologyBuilder()
    builder.add_source("source", "in", **source).add_processor("each", Each, "source")
    return builder.add_sink("sink", "out", "each")


def test_what_a_builder_was_told_is_built() -> None:
    with TopologyTestDriver(passing()) as driver:
        driver.create_input_topic("in").pipe_input(b"k", b"v")
        assert driver.create_output_topic("out").read_key_values() == [(b"k", b"v")]


@pytest.mark.parametrize("topology", [None, TopologyBuilder, "topology"])
def test_what_is_no_topology_is_refused(topology: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="runs a Topology or a builder of one, not"):
        TopologyTestDriver(topology)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"partitions": {"out": 0}}, 'for topic "out" must be a whole number, 1 or more, not 0'),
        ({"partitions": {"out": "2"}}, "must be a whole number, 1 or more, not '2'"),
        ({"partitions": ["out"]}, "partitions is a mapping of topics and numbers, not a list"),
        (
            {"max_task_idle_ms": -5},
            "a TopologyTestDriver has max_task_idle_ms=-5: give a timedelta, or a whole number",
        ),
        ({"max_task_idle_ms": "1"}, "max_task_idle_ms='1': give a timedelta"),
        ({"initial_wall_clock_ms": -1}, "initial_wall_clock_ms must be a whole number, 0 or more"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        TopologyTestDriver(passing(), **given)
    assert message in str(raised.value)


def test_partitions_of_a_topic_that_nothing_has_are_refused_with_the_name_that_was_meant() -> None:
    with pytest.raises(StreamsError, match=r'partitions: .* topic ot, did you mean "out"\?'):
        TopologyTestDriver(passing(), partitions={"ot": 2})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"auto_advance_ms": -1}, 'input topic "in" has auto_advance_ms=-1'),
        ({"start_timestamp": -1}, "start_timestamp must be a whole number, 0 or more, not -1"),
    ],
)
def test_the_times_of_an_input_topic_cannot_be_negative(given: Any, message: str) -> None:
    with (
        TopologyTestDriver(passing()) as driver,
        pytest.raises(InvalidArgumentError, match=message),
    ):
        driver.create_input_topic("in", **given)


@pytest.mark.parametrize("time", [-1, 10.5, timedelta(milliseconds=-1), True])
def test_the_wall_clock_goes_forward_by_whole_milliseconds(time: Any) -> None:
    with TopologyTestDriver(passing()) as driver:
        with pytest.raises(InvalidArgumentError, match="advance_wall_clock_time has advance_ms="):
            driver.advance_wall_clock_time(time)
        assert driver.now_ms == 0


@pytest.mark.parametrize(
    ("interval", "type_", "callback", "message"),
    [
        (
            0,
            PunctuationType.STREAM_TIME,
            print,
            "schedule has interval_ms=0: give a timedelta",
        ),
        ("1", PunctuationType.STREAM_TIME, print, "interval_ms='1'"),
        (1.5, PunctuationType.STREAM_TIME, print, "interval_ms=1.5"),
        (True, PunctuationType.STREAM_TIME, print, "interval_ms=True"),
        (timedelta(0), PunctuationType.STREAM_TIME, print, "whole number of milliseconds, 1 or"),
        (1, "stream time", print, "is of a PunctuationType, not 'stream time'"),
        (1, PunctuationType.WALL_CLOCK_TIME, None, "calls a function with the time, not None"),
    ],
)
def test_a_punctuation_that_cannot_be_is_refused(
    interval: Any, type_: Any, callback: Any, message: str
) -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("p", starting(lambda c: c.schedule(interval, type_, callback)), "source")
    with pytest.raises(InvalidArgumentError) as raised:
        TopologyTestDriver(builder)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_error": "skip"}, "on_error is one of OnError.FAIL, .*, not 'skip'"),
        ({"on_error": OnError.DEAD_LETTER}, "OnError.DEAD_LETTER needs a dead_letter_topic"),
        ({"max_task_idle_ms": "1"}, "max_task_idle_ms='1': give a timedelta, or .* -1 or more"),
        ({"buffered_records": 0}, "buffered_records must be a whole number, 1 or more, not 0"),
    ],
)
def test_settings_of_a_group_that_cannot_be_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        GroupSettings(**settings)


def test_settings_are_group_settings_and_hold_the_time_to_wait() -> None:
    plain: Any = {"source": {"on_error": "skip"}}
    with pytest.raises(InvalidArgumentError, match='of group "source" are a GroupSettings'):
        TopologyTestDriver(passing(), settings=plain)
    with pytest.raises(InvalidArgumentError, match="give max_task_idle_ms in the GroupSettings"):
        TopologyTestDriver(passing(), max_task_idle_ms=1, settings={"source": GroupSettings()})


# Suppliers


class Awaited(Processor):
    async def process(self, record: Record) -> None:  # type: ignore[override]
        self.context.forward(record)


class Yielding(Processor):
    def process(self, record: Record) -> Any:
        yield record


@pytest.mark.parametrize(
    ("processor", "kind"), [(Awaited, "coroutine"), (Yielding, r"generator \(yield\)")]
)
def test_process_that_nothing_would_run_is_refused(processor: type[Processor], kind: str) -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in").add_processor("p", processor, "source")
    with pytest.raises(StreamsError, match=f'"p": process of {processor.__name__} is a {kind}'):
        TopologyTestDriver(builder)


def test_one_object_for_two_nodes_is_refused() -> None:
    shared = Each()
    builder = TopologyBuilder()
    builder.add_source("source", "in").add_processor("first", lambda: shared, "source")
    builder.add_processor("second", lambda: shared, "first")
    with pytest.raises(StreamsError) as raised:
        TopologyTestDriver(builder)
    assert str(raised.value) == (
        'the processors "first" and "second" are one object, a Each: a supplier must return a new '
        "one each time"
    )


def test_a_supplier_that_fails_names_the_processor() -> None:
    def fail() -> Processor:
        raise ValueError("no good")

    builder = TopologyBuilder()
    builder.add_source("source", "in").add_processor("p", fail, "source")
    with pytest.raises(SupplierError) as raised:
        TopologyTestDriver(builder)
    assert str(raised.value) == 'the supplier of processor "p" failed: ValueError: no good'
    assert isinstance(raised.value.__cause__, ValueError)


# Time


def test_the_wall_clock_as_the_time_of_records_is_that_of_the_driver() -> None:
    extractor = WallclockTimestampExtractor()
    driver = TopologyTestDriver(passing(timestamp_extractor=extractor), initial_wall_clock_ms=1_000)
    with driver:
        source = driver.create_input_topic("in")
        source.pipe_input(None, b"1", timestamp=5)
        driver.advance_wall_clock_time(20)
        source.pipe_input(None, b"2", timestamp=5)
        out = driver.create_output_topic("out")
        assert [record.timestamp for record in out.read_records()] == [1_000, 1_020]
    assert extractor.clock_ms is None


@pytest.mark.parametrize("on_error", [OnError.FAIL, OnError.SKIP])
def test_what_an_extractor_raises_is_the_cause_of_the_error(on_error: OnError) -> None:
    def fail(record: object, partition_time: int) -> int:
        raise KeyError("a secret")

    driver = TopologyTestDriver(
        passing(timestamp_extractor=fail), settings={"source": GroupSettings(on_error=on_error)}
    )
    source = driver.create_input_topic("in")
    if on_error is OnError.SKIP:
        source.pipe_input(None, b"v", timestamp=1)
        assert driver.metrics["skipped_records_total"] == 1
        return
    with pytest.raises(StreamsError, match="the timestamp extractor failed") as raised:
        source.pipe_input(None, b"v", timestamp=1)
    assert ": KeyError: 'a secret' (" in str(raised.value)
    assert repr(raised.value.__cause__) == "KeyError('a secret')"


def read_price(data: bytes) -> int:
    raise LookupError("no price")


@pytest.mark.parametrize(
    ("serde", "error", "name"),
    [
        (serdes.int32, SerializationError, "kafka_pipeline.SerializationError"),
        (serdes.json, SerializationError, "kafka_pipeline.SerializationError"),
        (Serde("price", bytes, read_price), LookupError, "builtins.LookupError"),
    ],
)
@pytest.mark.parametrize("extractor", [None, lambda record, time: 0, FieldTimestampExtractor("at")])
def test_bytes_that_a_serde_cannot_read_are_one_error_with_an_extractor_and_without(
    serde: Serde[Any], error: type[Exception], name: str, extractor: Any
) -> None:
    arguments: dict[str, Any] = {"value_serde": serde}
    if extractor is not None:
        arguments["timestamp_extractor"] = extractor
    topology = passing(**arguments)
    with pytest.raises(error) as raised:
        TopologyTestDriver(topology).create_input_topic("in").pipe_input(None, b"{'", timestamp=1)
    assert type(raised.value) is error
    settings = GroupSettings(on_error=OnError.DEAD_LETTER, dead_letter_topic="dead")
    driver = TopologyTestDriver(topology, settings={"source": settings})
    driver.create_input_topic("in").pipe_input(None, b"{'", timestamp=1)
    (letter,) = driver.create_output_topic("dead").read_records()
    assert dict(letter.headers)["__streams.errors.exception"] == name.encode()


# Stores

TEXT = serdes.string
DEFINITIONS = {
    "plain": stores.key_value("plain", TEXT, TEXT),
    "timed": stores.timestamped_key_value("timed", TEXT, TEXT),
    "versions": stores.versioned_key_value("versions", TEXT, TEXT, history_retention_ms=1),
    "windows": stores.window("windows", TEXT, TEXT, retention_ms=10, window_size_ms=1),
    "sessions": stores.session("sessions", TEXT, TEXT, retention_ms=10),
}
GETTERS: dict[str, Callable[[TopologyTestDriver], Callable[[str], Any]]] = {
    "get_key_value_store": lambda driver: driver.get_key_value_store,
    "get_timestamped_key_value_store": lambda driver: driver.get_timestamped_key_value_store,
    "get_versioned_key_value_store": lambda driver: driver.get_versioned_key_value_store,
    "get_window_store": lambda driver: driver.get_window_store,
    "get_session_store": lambda driver: driver.get_session_store,
}
OWN = dict(zip(DEFINITIONS, GETTERS, strict=True))


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("getter", GETTERS)
def test_a_getter_gives_stores_of_its_kind_and_names_the_one_for_others(
    getter: str, name: str
) -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in").add_processor("each", Each, "source")
    builder.add_state_store(DEFINITIONS[name], "each")
    with TopologyTestDriver(builder) as driver:
        get = GETTERS[getter](driver)
        if getter == OWN[name] or (getter, name) == ("get_key_value_store", "timed"):
            assert get(name) is driver.get_state_store(name)
            return
        with pytest.raises(StreamsError) as raised:
            get(name)
    kind = type(driver.get_state_store(name)).__name__
    assert str(raised.value) == f'the store "{name}" is a {kind}: use {OWN[name]}'


# Output topics


def choosing(record: Record) -> str:
    return "anything"


def test_a_topic_that_nothing_writes_is_refused_with_the_name_that_was_meant() -> None:
    with TopologyTestDriver(passing()) as driver:
        with pytest.raises(StreamsError, match='writes topic outt, did you mean "out"'):
            driver.create_output_topic("outt")
        with pytest.raises(StreamsError, match=r"writes topic zzzzz: it writes out$"):
            driver.create_output_topic("zzzzz")


def test_a_topology_without_sinks_has_no_topics_to_read() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in").add_processor("each", Each, "source")
    with (
        TopologyTestDriver(builder) as driver,
        pytest.raises(StreamsError, match="writes topic out: it has no sinks"),
    ):
        driver.create_output_topic("out")


def test_dead_letters_internal_topics_inputs_and_those_of_functions_can_be_read() -> None:
    builder = passing()
    builder.add_sink("spread", "between", "each").add_source("again", "between")
    builder.add_internal_topic("between").add_sink("last", "end", "again")
    dead = {"source": GroupSettings(on_error=OnError.DEAD_LETTER, dead_letter_topic="dead")}
    with TopologyTestDriver(builder, settings=dead) as driver:
        for topic in ("dead", "between", "in", "out", "end"):
            assert driver.create_output_topic(topic).size == 0
    with TopologyTestDriver(passing().add_sink("any", choosing, "each")) as driver:
        driver.create_input_topic("in").pipe_input(None, b"v")
        assert driver.create_output_topic("anything").size == 1
        assert driver.create_output_topic("something").size == 0


def test_the_clock_of_a_context_is_that_of_the_extractor() -> None:
    told: list[tuple[int, int]] = []

    class Telling(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context

        def process(self, record: Record) -> None:
            told.append((record.timestamp, self.context.current_system_time))

    builder = TopologyBuilder()
    builder.add_source("source", "in", timestamp_extractor=WallclockTimestampExtractor())
    builder.add_processor("tell", Telling, "source")
    with TopologyTestDriver(builder, initial_wall_clock_ms=7) as driver:
        driver.create_input_topic("in").pipe_input(None, b"v", timestamp=1)
    assert told == [(7, 7)]
