"""The examples of KIP-28, and the methods of its KStream, as they are written here.

| KIP-28 | here |
| --- | --- |
| `KStreamBuilder.from(topic)` | `StreamsBuilder.stream(topic)` |
| `filter`, `map`, `flatMap` | `filter`, `map`, `flat_map` |
| `mapValues`, `flatMapValues` | `map_values`, `flat_map_values` |
| `branch(predicate, …)`, an array | `split({name: predicate, …})`, a dict |
| `sendTo(topic)` | `to(topic)` |
| `through(topic)` | `repartition(name=…)`; one topology does not read a topic that it writes |
| `process(processor)` | `process(supplier, stores=…)` |
| `with(window)` and `join` | `join(other, joiner, windows.join(…))` |
| `joinPrior` | `join` with a table that has `history_retention_ms` |
| `Processor.punctuate(time)`, `context.schedule(ms)` | `context.schedule(ms, type, callback)` |
| `context.send(topic, key, value)`, `forward` | `context.forward(record)`, to a sink |

`from` and `with` are reserved words of Python.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_pipeline import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    TopologyBuilder,
    serdes,
    stores,
    windows,
)
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.running import Input, Output, builder, outputs, pipe, run

# ProcessorJob: a processor that sums values by key, and sends all sums each second.

LOCAL_STATE = stores.key_value("local-state", serdes.string, serdes.int32)


class MyProcessor(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.context.schedule(1_000, PunctuationType.STREAM_TIME, self.punctuate)
        self.kv_store = context.get_state_store("local-state")

    def process(self, record: Record) -> None:
        old_value = self.kv_store.get(record.key)
        if old_value is None:
            self.kv_store.put(record.key, record.value)
        else:
            self.kv_store.put(record.key, old_value + record.value)
        self.context.commit()

    def punctuate(self, stream_time: int) -> None:
        with self.kv_store.all() as entries:
            for key, value in entries:
                self.context.forward(Record(key, value, stream_time))


def processor_job() -> TopologyBuilder:
    topology = TopologyBuilder()
    topology.add_source("SOURCE", "topic-source", key_serde=serdes.string, value_serde=serdes.int32)
    topology.add_processor("PROCESS", MyProcessor, "SOURCE")
    topology.add_state_store(LOCAL_STATE, processors=["PROCESS"])
    topology.add_sink(
        "SINK", "topic-sink", "PROCESS", key_serde=serdes.string, value_serde=serdes.int32
    )
    return topology


def processor_job_of_the_dsl() -> StreamsBuilder:
    streams = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.int32)
    source = streams.stream("topic-source", name="SOURCE")
    source.process(MyProcessor, stores=[LOCAL_STATE], name="PROCESS").to("topic-sink", name="SINK")
    return streams


@pytest.mark.parametrize("job", [processor_job, processor_job_of_the_dsl])
def test_processor_job(job: Callable[[], TopologyBuilder | StreamsBuilder]) -> None:
    records = [("a", 1, 0), ("b", 2, 400), ("a", 3, 900), ("b", 5, 1_000), ("a", 1, 1_999)]
    with TopologyTestDriver(job()) as driver:
        inputs = [("topic-source", *record) for record in records]
        pipe(driver, inputs, value_serde=serdes.int32)
        # The first punctuation comes with the first record.
        assert outputs(driver, "topic-sink", value_serde=serdes.int32) == [
            ("a", 1, 0),
            ("a", 4, 1_000),
            ("b", 7, 1_000),
        ]
        assert driver.get_key_value_store("local-state").get("a") == 5


# KStreamJob: strings become integers, which go to one of two topics.


def kstream_job() -> StreamsBuilder:
    streams = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)

    stream1 = streams.stream("topic1")

    stream2 = stream1.map(lambda key, value: (key, int(value)), value_serde=serdes.int32).filter(
        lambda key, value: True
    )

    branches = stream2.split(
        {
            "large": lambda key, value: value > 10,
            "small": lambda key, value: value <= 10,
        }
    )

    branches["large"].to("topic2")
    branches["small"].to("topic3")
    return streams


def test_kstream_job() -> None:
    values = ["9", "10", "11", "-1", "12"]
    with TopologyTestDriver(kstream_job()) as driver:
        pipe(driver, [("topic1", "k", value, time) for time, value in enumerate(values)])
        large = outputs(driver, "topic2", value_serde=serdes.int32)
        small = outputs(driver, "topic3", value_serde=serdes.int32)
    assert large == [("k", 11, 2), ("k", 12, 4)]
    assert small == [("k", 9, 0), ("k", 10, 1), ("k", -1, 3)]


# The methods of KStream and KStreamWindowed, one by one.

IN: list[Input] = [("in", "a", "1 2", 5), ("in", "b", "3", 6)]


METHODS: dict[str, tuple[Callable[[Stream], Stream], list[Output]]] = {
    "filter": (lambda s: s.filter(lambda key, value: key == "a"), [("a", "1 2", 5)]),
    "map": (
        lambda s: s.map(lambda key, value: (key * 2, value + "!")),
        [("aa", "1 2!", 5), ("bb", "3!", 6)],
    ),
    "mapValues": (
        lambda s: s.map_values(lambda value: value + "!"),
        [("a", "1 2!", 5), ("b", "3!", 6)],
    ),
    "flatMap": (
        lambda s: s.flat_map(lambda key, value: [(key * 2, each) for each in value.split()]),
        [("aa", "1", 5), ("aa", "2", 5), ("bb", "3", 6)],
    ),
    "flatMapValues": (
        lambda s: s.flat_map_values(str.split),
        [("a", "1", 5), ("a", "2", 5), ("b", "3", 6)],
    ),
    "branch": (
        lambda s: s.split({"3": lambda k, v: v == "3", "all": lambda k, v: True})["all"],
        [("a", "1 2", 5)],
    ),
}


@pytest.mark.parametrize("method", METHODS)
def test_method_of_a_stream(method: str) -> None:
    step, expected = METHODS[method]
    built = builder()
    step(built.stream("in")).to("out")
    assert run(built, IN) == expected


def test_through_a_topic() -> None:
    built = builder()
    by_value = built.stream("in").select_key(lambda key, value: value)
    by_value.repartition(name="Between").to("out")
    assert run(built, IN) == [("1 2", "1 2", 5), ("3", "3", 6)]
    assert built.describe().count("Sub-topology") == 2


def joined(left: str, right: str) -> str:
    return f"{left}+{right}"


def test_join_of_windowed_streams() -> None:
    """Elements with the same key meet if they are at most the window apart."""
    built = builder()
    window = windows.join(before_ms=10, after_ms=10, grace_ms=0)
    built.stream("in").join(built.stream("other"), joined, window).to("out")
    records: list[Input] = [
        ("in", "a", "1", 100),
        ("other", "a", "A", 90),
        ("other", "b", "B", 100),
        ("other", "a", "C", 111),
        ("in", "a", "2", 105),
    ]
    assert run(built, records) == [("a", "1+A", 100), ("a", "2+C", 111)]


def test_join_prior() -> None:
    """An element meets the last one that is older than it or as old, whatever came since.

    In KIP-28, it meets all older ones of the window; Kafka Streams never had that method.
    """
    built = builder()
    prices = built.table("prices", name="Prices", history_retention_ms=100)
    built.stream("in").join(prices, joined).to("out")
    records: list[Input] = [
        ("prices", "a", "10", 100),
        ("prices", "a", "20", 110),
        ("in", "a", "before", 99),
        ("in", "a", "first", 105),
        ("in", "a", "second", 110),
        ("prices", "a", "30", 120),
        ("in", "a", "third", 119),
        ("in", "b", "none", 120),
    ]
    assert run(built, records) == [
        ("a", "first+10", 105),
        ("a", "second+20", 110),
        ("a", "third+20", 119),
    ]
