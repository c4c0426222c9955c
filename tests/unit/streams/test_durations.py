"""Durations: each argument of the API that is one takes whole milliseconds or a `timedelta`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kafka_pipeline import (
    AsyncProcessor,
    AsyncSettings,
    InvalidArgumentError,
    PunctuationType,
    Record,
    StreamsBuilder,
    Suppress,
    TopologyBuilder,
    Window,
    Windowed,
    col,
    serdes,
    stores,
    windows,
)
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.durations import Milliseconds, whole_ms
from kafka_pipeline.testing import GroupSettings, TopologyTestDriver
from tests.unit.streams.nodes import starting

TWO_SECONDS: list[Milliseconds] = [2_000, timedelta(seconds=2)]
WINDOWED = serdes.time_windowed(serdes.string, size_ms=1).serialize(Windowed("k", Window(0, 1)))


def kept(make: Callable[[Stream], Any]) -> Any:
    """Return the options of the stores of a topology that reads one topic."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    make(builder.stream("in", name="In"))
    return [(each.name, each.options) for each in builder.build().groups[-1].stores]


def store(make: Callable[..., Any], **durations: Milliseconds) -> Any:
    return make("S", serdes.string, serdes.string, **durations).options


TAKES: dict[str, Callable[[Milliseconds], Any]] = {
    "tumbling": lambda ms: windows.tumbling(ms, grace_ms=ms, close_after_idle_ms=ms),
    "hopping": lambda ms: windows.hopping(ms, advance_ms=ms, grace_ms=ms),
    "calendar": lambda ms: windows.calendar("1 day", tz="UTC", grace_ms=ms),
    "sliding": lambda ms: windows.sliding(ms, grace_ms=ms),
    "session": lambda ms: windows.session(ms, grace_ms=ms),
    "join": lambda ms: windows.join(before_ms=ms, after_ms=ms, grace_ms=ms),
    "suppress": lambda ms: Suppress.until_time_limit(ms),
    "window store": lambda ms: store(stores.window, retention_ms=ms, window_size_ms=ms),
    "session store": lambda ms: store(stores.session, retention_ms=ms),
    "versioned store": lambda ms: store(stores.versioned_key_value, history_retention_ms=ms),
    "time_windowed": lambda ms: (
        serdes.time_windowed(serdes.string, size_ms=ms).deserialize(WINDOWED).window
    ),
    "deduplicate": lambda ms: kept(
        lambda s: s.deduplicate(within_ms=ms, grace_ms=ms, name="D").to("out")
    ),
    "to_table": lambda ms: kept(
        lambda s: s.to_table(name="T", history_retention_ms=ms).to_stream().to("out")
    ),
    "count": lambda ms: kept(
        lambda s: s.group_by_key().count(name="C", history_retention_ms=ms).to_stream().to("out")
    ),
    "truncate": lambda ms: repr(col("t").dt.truncate(ms)),
    "group settings": lambda ms: GroupSettings(max_task_idle_ms=ms).task_idle_ms,
}


@pytest.mark.parametrize("make", TAKES.values(), ids=TAKES)
def test_a_timedelta_is_the_same_as_its_milliseconds(make: Callable[[Milliseconds], Any]) -> None:
    by_number, by_timedelta = map(make, TWO_SECONDS)
    assert repr(by_number) == repr(by_timedelta)
    assert "200" in repr(by_number)


@pytest.mark.parametrize("interval", TWO_SECONDS)
def test_punctuations_and_the_clock_of_a_driver_take_a_timedelta(interval: Milliseconds) -> None:
    times: list[int] = []
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    wall_clock = PunctuationType.WALL_CLOCK_TIME
    kind = starting(lambda context: context.schedule(interval, wall_clock, times.append))
    builder.add_processor("p", kind, "source")
    with TopologyTestDriver(builder, max_task_idle_ms=interval) as driver:
        driver.advance_wall_clock_time(timedelta(milliseconds=1_999))
        assert not times
        driver.advance_wall_clock_time(1)
    assert times == [2_000]


@pytest.mark.parametrize("step_ms", [5, timedelta(milliseconds=5)])
def test_the_times_of_an_input_topic_advance_by_a_timedelta(step_ms: Milliseconds) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with TopologyTestDriver(builder) as driver:
        topic = driver.create_input_topic("in", start_timestamp=10, auto_advance_ms=step_ms)
        topic.pipe_input(b"a", b"1")
        topic.pipe_input(b"a", b"2")
        found = driver.create_output_topic("out").read_records()
    assert [each.timestamp for each in found] == [10, 15]


@pytest.mark.parametrize("timeout", [60_000, timedelta(minutes=1)])
def test_calls_take_a_timedelta(timeout: Milliseconds) -> None:
    class Given(AsyncProcessor):
        timeout_ms = timeout

        async def process(self, record: Record) -> Record:
            return record

    async def upper(value: str) -> str:
        return value.upper()

    topology = TopologyBuilder()
    topology.add_source("source", "in")
    topology.add_processor("p", Given, "source")
    topology.add_sink("sink", "out", "p")
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    settings = AsyncSettings(timeout_ms=timeout)
    builder.stream("in").map_values(upper, asynchronous=settings).to("out")
    for each, expected in ((topology, b"a"), (builder, b"A")):
        with TopologyTestDriver(each) as driver:
            driver.create_input_topic("in").pipe_input(b"k", b"a")
            assert driver.create_output_topic("out").read_record().value == expected


@pytest.mark.parametrize(
    "wrong", [-1, True, 1.0, "1", "1 h", None, timedelta(microseconds=1500), timedelta(-1)]
)
def test_what_is_not_a_duration_is_refused_without_the_value_in_what_is_shown(wrong: Any) -> None:
    advice = "give a timedelta, or a whole number of milliseconds, 0 or more"
    with pytest.raises(InvalidArgumentError) as raised:
        whole_ms("windows.tumbling", "grace_ms", wrong, 0)
    assert str(raised.value) == f"windows.tumbling has grace_ms={wrong!r}: {advice}"
    assert raised.value.shown == f"windows.tumbling has an invalid grace_ms: {advice}"
