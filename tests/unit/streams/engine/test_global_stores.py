"""Global stores: what the builder refuses, how they are described, and how the driver runs them.

Cases of Kafka Streams' own tests are listed in docs/explanation/kafka_streams.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_pipeline import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StateStoreError,
    StreamsError,
    TopologyBuilder,
    TopologyError,
    WallclockTimestampExtractor,
    serdes,
    stores,
)
from kafka_pipeline.streams.testing.driver_topics import TestInputTopic, TestOutputTopic
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.nodes import Each, all_of, calling, sound, starting
from tests.user_code.lookups import Keep, lookup

STORE = stores.key_value("store", serdes.string, serdes.string)
LOOKUP = lookup("orders", "names", "named")


class Fill(Processor):
    """Puts what comes into the store `store`."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.store = context.get_state_store("store")

    def process(self, record: Record) -> None:
        self.store.put(record.key, record.value)


def add_global(builder: TopologyBuilder, number: int = 1, **others: Any) -> None:
    """Add the global store `global-1`, or of another number, with its nodes and topic."""
    given: dict[str, Any] = {
        "store": stores.key_value(f"global-{number}", serdes.string, serdes.string),
        "source": f"source-{number}",
        "topic": f"topic-{number}",
        "processor": f"filler-{number}",
        "supplier": Each,
    }
    builder.add_global_store(**(given | others))


# Building


MISTAKES: dict[str, tuple[Callable[[TopologyBuilder], object], str]] = {
    "source with the name of its processor": (
        lambda b: add_global(b, source="same", processor="same"),
        'two nodes have the name "same"',
    ),
    "source with the name of another node": (
        lambda b: add_global(b, source="sink"),
        'two nodes have the name "sink"',
    ),
    "global store with the name of a store": (
        all_of(
            lambda b: b.add_state_store(STORE, "processor"), lambda b: add_global(b, store=STORE)
        ),
        'two stores have the name "store"',
    ),
    "two global stores with one name": (
        all_of(lambda b: add_global(b, 1, store=STORE), lambda b: add_global(b, 2, store=STORE)),
        'two stores have the name "store"',
    ),
    "two global stores of one topic": (
        all_of(lambda b: add_global(b, 1, topic="t"), lambda b: add_global(b, 2, topic="t")),
        'topic "t" has 2 global stores: give each its own',
    ),
    "topic that a source reads": (
        lambda b: add_global(b, topic="in"),
        'topic "in" of global store "global-1" is read by source "source" too: give each its own',
    ),
    "topic that a pattern matches": (
        all_of(
            lambda b: b.add_source("all", re.compile("topic-.")),
            lambda b: b.add_sink("copy", "copies", "all"),
            add_global,
        ),
        'the pattern of source "all" matches topic "topic-1" of global store "global-1"',
    ),
    "connected to a processor": (
        all_of(
            lambda b: add_global(b),
            lambda b: b.connect_processor_and_state_stores("processor", "global-1"),
        ),
        'store "global-1" is global, so "processor" can read it as it is: do not connect it',
    ),
    "connected to its own processor": (
        all_of(
            lambda b: add_global(b),
            lambda b: b.connect_processor_and_state_stores("filler-1", "global-1"),
        ),
        'store "global-1" is global, so "filler-1" can read it as it is: do not connect it',
    ),
    "another store for its processor": (
        all_of(
            lambda b: add_global(b), lambda b: b.add_state_store(STORE, ["processor", "filler-1"])
        ),
        '"filler-1" fills the global store "global-1" and can use no other: do not connect "store"',
    ),
    "its processor as a parent": (
        all_of(lambda b: add_global(b), lambda b: b.add_sink("more", "out-2", "filler-1")),
        '"more" has the parent "filler-1", a node of the global store "global-1", which forwards '
        "to nobody else",
    ),
    "its source as a parent": (
        all_of(lambda b: add_global(b), lambda b: b.add_sink("more", "out-2", "source-1")),
        '"more" has the parent "source-1", a node of the global store "global-1", which forwards '
        "to nobody else",
    ),
}


@pytest.mark.parametrize(("spoil", "problem"), MISTAKES.values(), ids=MISTAKES)
def test_the_one_mistake_is_named_and_nothing_else(
    spoil: Callable[[TopologyBuilder], object], problem: str
) -> None:
    builder = sound()
    spoil(builder)
    with pytest.raises(TopologyError) as raised:
        builder.build()
    assert str(raised.value) == problem


def test_an_internal_topic_cannot_be_that_of_a_global_store() -> None:
    builder = sound()
    builder.add_internal_topic("in")
    builder.add_sink("to in", "in", "processor")
    add_global(builder, topic="in")
    with pytest.raises(TopologyError) as raised:
        builder.build()
    assert 'topic "in" of global store "global-1" is internal: what is processed is deleted' in str(
        raised.value
    )


def test_a_global_store_alone_is_no_topology() -> None:
    builder = TopologyBuilder()
    add_global(builder)
    with pytest.raises(TopologyError, match="the topology is empty"):
        builder.build()


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("store", "store", "a state store comes from a function of kafka_pipeline.stores"),
        ("supplier", None, 'processor "filler-1": give a class or a function'),
        ("topic", ["a", "b"], "the topic is one name, not a list"),
        ("key_serde", "string", "the key_serde is a str"),
        ("timestamp_extractor", 5, "a timestamp extractor is a function"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_by_the_call(
    argument: str, value: object, reason: str
) -> None:
    with pytest.raises(TopologyError, match=re.escape(reason)):
        add_global(sound(), 1, **{argument: value})


def test_a_global_store_joins_no_groups_and_all_can_read_it() -> None:
    builder = sound()
    builder.add_source("source-2", "in-2")
    builder.add_processor("processor-2", Each, "source-2")
    add_global(builder, 3)
    first, second = builder.build().groups
    assert [node.name for node in first.nodes] == ["source", "processor", "sink"]
    assert [node.name for node in second.nodes] == ["source-2", "processor-2"]
    assert first.in_topics == ("in",)
    assert first.stores == second.stores == ()
    (store,) = first.global_stores
    assert first.global_stores == second.global_stores
    assert (store.topic, store.processor.name, store.processor.stores) == (
        "topic-3",
        "filler-3",
        ("global-3",),
    )


def test_a_global_store_is_never_logged_as_its_topic_is_its_log() -> None:
    builder = sound()
    add_global(builder, store=STORE)
    (store,) = builder.build().global_stores
    assert (STORE.logged, store.store.logged) == (True, False)


# Describing


def test_global_stores_are_described_as_kafka_streams_does() -> None:
    builder = sound()
    add_global(builder, 1)
    add_global(builder, 2)
    assert builder.build().describe() == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: source (topics: [in])\n"
        "      --> processor\n"
        "    Processor: processor (stores: [])\n"
        "      --> sink\n"
        "      <-- source\n"
        "    Sink: sink (topic: out)\n"
        "      <-- processor\n"
        "\n"
        "  Sub-topology: 1 for global store (will not generate tasks)\n"
        "    Source: source-1 (topics: [topic-1])\n"
        "      --> filler-1\n"
        "    Processor: filler-1 (stores: [global-1])\n"
        "      --> none\n"
        "      <-- source-1\n"
        "  Sub-topology: 2 for global store (will not generate tasks)\n"
        "    Source: source-2 (topics: [topic-2])\n"
        "      --> filler-2\n"
        "    Processor: filler-2 (stores: [global-2])\n"
        "      --> none\n"
        "      <-- source-2\n"
    )


def test_a_flowchart_shows_the_nodes_of_a_global_store_as_a_group() -> None:
    builder = sound()
    add_global(builder)
    lines = builder.build().mermaid().split("\n")
    start = lines.index('    subgraph g1 ["source-1"]')
    assert lines[start : start + 5] == [
        '    subgraph g1 ["source-1"]',
        '        n3["source-1"]',
        '        n4["filler-1"]',
        '        s0[("global-1")]',
        "    end",
    ]
    assert lines[-3:] == ["    t2 --> n3", "    n3 --> n4", "    n4 -.- s0"]


# Running


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(LOOKUP.build()) as made:
        yield made


def topics(driver: TopologyTestDriver) -> tuple[TestInputTopic, TestInputTopic, TestOutputTopic]:
    """Return the topics of orders, of names, and of orders with names."""
    return (
        driver.create_input_topic("orders", value_serde=serdes.string),
        driver.create_input_topic("names", serdes.string, serdes.string),
        driver.create_output_topic("named", value_serde=serdes.string),
    )


def test_what_is_piped_to_its_topic_is_seen_by_the_next_record(driver: TopologyTestDriver) -> None:
    orders, names, named = topics(driver)
    orders.pipe_input(b"1", "a")
    names.pipe_input("a", "Ann")
    orders.pipe_input(b"2", "a")
    names.pipe_input("a", None)
    orders.pipe_input(b"3", "a")
    assert named.read_key_values() == [(b"1", "?"), (b"2", "Ann"), (b"3", "?")]


def test_its_content_can_be_read_and_filled_from_outside(driver: TopologyTestDriver) -> None:
    orders, names, named = topics(driver)
    names.pipe_input("a", "Ann")
    store = driver.get_key_value_store("Names")
    assert store.get("a") == "Ann"
    assert driver.get_key_value_store("Names", "Name source") is store
    store.put("b", "Bob")
    orders.pipe_input(b"1", "b")
    assert named.read_key_values() == [(b"1", "Bob")]


def test_records_without_a_key_are_left_out_and_counted(driver: TopologyTestDriver) -> None:
    _, names, _ = topics(driver)
    names.pipe_input(None, "Nobody")
    names.pipe_input("a", "Ann")
    assert driver.metrics["dropped_records_total"] == 1
    assert driver.metrics["records_in_total"] == 0
    with driver.get_key_value_store("Names").all() as entries:
        assert list(entries) == [("a", "Ann")]


def test_all_groups_read_one_and_the_same_copy() -> None:
    builder = TopologyBuilder()
    builder.add_global_store(STORE, "global", "topic", "fill", Fill, key_serde=serdes.string)
    stores_seen: list[Any] = []
    for name in ("a", "b"):
        builder.add_source(name, f"in-{name}")
        builder.add_processor(
            f"reader {name}",
            starting(lambda context: stores_seen.append(context.get_state_store("store"))),
            name,
        )
    with TopologyTestDriver(builder.build()) as driver:
        driver.get_key_value_store("store").put("k", "v")
        assert [store.get("k") for store in stores_seen] == ["v", "v"]


def test_others_cannot_write_it_and_are_told_how_it_is_done() -> None:
    topology = lookup("orders", "names", "named", meddles=True).build()
    with TopologyTestDriver(topology) as driver:
        orders, _, _ = topics(driver)
        with pytest.raises(StateStoreError) as raised:
            orders.pipe_input(b"1", "a")
        assert str(raised.value) == (
            'the store "Names" is global and only to be read here: write to its topic, and its '
            "own processor will put it in"
        )
        assert driver.get_key_value_store("Names").get("a") is None


def test_a_record_that_fails_stops_all_tasks_that_read_the_store_and_leaves_no_trace(
    driver: TopologyTestDriver,
) -> None:
    orders, names, _ = topics(driver)
    names.pipe_input("a", "Ann")
    with pytest.raises(ValueError, match="no name"):
        names.pipe_input("a", "bad")
    with pytest.raises(
        StreamsError,
        match=r'Orders_0 has stopped: global store "Names": record names\[0\]@1: ValueError: no n',
    ):
        orders.pipe_input(b"1", "a")
    assert driver.get_key_value_store("Names").get("a") == "Ann"


def test_its_processor_cannot_schedule() -> None:
    def schedule(context: ProcessorContext) -> None:
        context.schedule(1, PunctuationType.WALL_CLOCK_TIME, lambda _: None)

    builder = sound()
    add_global(builder, supplier=starting(schedule))
    with pytest.raises(StreamsError, match="the processor of a global store cannot schedule"):
        TopologyTestDriver(builder.build())


def test_its_processor_may_forward_and_commit_to_no_effect() -> None:
    def process(context: ProcessorContext, record: Record) -> None:
        context.forward(record)
        context.commit()

    builder = sound()
    add_global(builder, supplier=calling(process))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("topic-1").pipe_input(b"k", b"v")
        assert driver.metrics["records_out_total"] == 0


def test_its_processor_has_no_other_store_even_if_that_is_global() -> None:
    builder = sound()
    add_global(builder, 1)
    add_global(builder, 2, supplier=starting(lambda context: context.get_state_store("global-1")))
    with pytest.raises(StreamsError, match='"filler-2" has no store "global-1"'):
        TopologyTestDriver(builder.build())


def test_the_time_of_its_records_is_what_its_extractor_says() -> None:
    times: list[int] = []
    builder = sound()
    add_global(
        builder,
        supplier=calling(lambda _, record: times.append(record.timestamp)),
        timestamp_extractor=WallclockTimestampExtractor(lambda: 7),
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("topic-1").pipe_input(b"k", b"v", timestamp=1)
    assert times == [7]


def test_what_a_sink_writes_to_its_topic_comes_into_the_store() -> None:
    """A topology may fill its own global store, as it is read by no source."""
    builder = TopologyBuilder()
    builder.add_source("names", "new", key_serde=serdes.string, value_serde=serdes.string)
    builder.add_sink(
        "to names", "names", "names", key_serde=serdes.string, value_serde=serdes.string
    )
    builder.add_global_store(
        stores.key_value("Names", serdes.string, serdes.string),
        "source",
        "names",
        "keep",
        Keep,
        key_serde=serdes.string,
        value_serde=serdes.string,
    )
    with TopologyTestDriver(builder.build()) as driver:
        new = driver.create_input_topic("new", serdes.string, serdes.string)
        new.pipe_input("a", "Ann")
        assert driver.get_key_value_store("Names").get("a") == "Ann"


WINDOWS = stores.window(
    "windows", serdes.string, serdes.string, retention_ms=60_000, window_size_ms=10
)
SESSIONS = stores.session("sessions", serdes.string, serdes.string, retention_ms=60_000)
VERSIONS = stores.versioned_key_value(
    "versions", serdes.string, serdes.string, history_retention_ms=60_000
)
KINDS: dict[str, tuple[Any, Callable[[Any], None], Callable[[Any], object], object]] = {
    "window": (
        WINDOWS,
        lambda store: store.put("k", "v", 5),
        lambda store: store.fetch_window("k", 5),
        "v",
    ),
    "session": (
        SESSIONS,
        lambda store: store.put(stores.Windowed("k", stores.Window(5, 6)), "v"),
        lambda store: [value for _, value in store.fetch("k")],
        ["v"],
    ),
    "versioned": (
        VERSIONS,
        lambda store: store.put("k", "v", 5),
        lambda store: store.get("k").value,
        "v",
    ),
}


@pytest.mark.parametrize(("definition", "put", "get", "expected"), KINDS.values(), ids=KINDS)
def test_every_kind_of_store_can_be_global(
    definition: Any, put: Callable[[Any], None], get: Callable[[Any], object], expected: object
) -> None:
    found: list[object] = []
    builder = sound()

    def write(context: ProcessorContext, _: Record) -> None:
        put(context.get_state_store(definition.name))

    def read(context: ProcessorContext, _: Record) -> None:
        found.append(get(context.get_state_store(definition.name)))

    builder.add_processor("reader", calling(read), "source")
    builder.add_source("other", "in-2")
    builder.add_processor("writer", calling(write), "other")
    add_global(builder, store=definition, supplier=calling(write))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("topic-1").pipe_input(b"k", b"v")
        driver.create_input_topic("in").pipe_input(b"k", b"v")
        with pytest.raises(StateStoreError, match="is global and only to be read here"):
            driver.create_input_topic("in-2").pipe_input(b"k", b"v")
    assert found == [expected]
