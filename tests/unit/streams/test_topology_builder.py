"""Building a topology: what the builder refuses, and its errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from kafka_pipeline import Processor, TopologyBuilder, TopologyError, serdes, stores
from tests.unit.streams.nodes import Each, all_of, groups, sound

STORE = stores.key_value("store", serdes.bytes, serdes.bytes)
OTHER_STORE = stores.window(
    "other", serdes.bytes, serdes.bytes, retention_ms=1000, window_size_ms=100
)


def problems(builder: TopologyBuilder) -> list[str]:
    """Return everything that `build` finds wrong, line by line."""
    with pytest.raises(TopologyError) as raised:
        builder.build()
    return str(raised.value).split("\n")


# What cannot be built


def test_a_sound_topology_has_its_nodes_and_stores_in_the_order_of_the_calls() -> None:
    builder = sound()
    builder.add_state_store(STORE, ["processor"])
    topology = builder.build()
    assert [node.name for node in topology.nodes] == ["source", "processor", "sink"]
    assert topology.stores == (STORE,)


def test_calls_can_be_chained() -> None:
    chained = (
        TopologyBuilder()
        .add_source("source", "in")
        .add_processor("processor", Each, ["source"])
        .add_state_store(STORE)
        .connect_processor_and_state_stores("processor", "store")
        .add_sink("sink", "through", ["processor"])
        .add_internal_topic("through")
        .add_source("again", "through")
        .add_sink("end", "out", ["again"])
    )
    assert groups(chained.build()) == [{"source", "processor", "sink"}, {"again", "end"}]


def test_an_empty_topology_is_refused() -> None:
    assert problems(TopologyBuilder()) == [
        "the topology is empty: add a source, a processor and a sink"
    ]


ALLOWED = (
    "give its source feedback=True if its records are to come back, or add_internal_topic if they "
    "only pass; in a StreamsBuilder, go on with the stream or table that is written there"
)
MISTAKES: dict[str, tuple[Callable[[TopologyBuilder], object], str]] = {
    "two sources with one name": (
        lambda b: b.add_source("source", "in-2"),
        'two nodes have the name "source"',
    ),
    "a processor with the name of a sink": (
        lambda b: b.add_processor("sink", Each, "source"),
        'two nodes have the name "sink"',
    ),
    "two sinks with one name": (
        lambda b: b.add_sink("sink", "out-2", "processor"),
        'two nodes have the name "sink"',
    ),
    "name without text": (
        lambda b: b.add_sink(" ", "out-2", "processor"),
        "the name of a node must be a string with something in it, not ' '",
    ),
    "processor without parents": (
        lambda b: b.add_processor("lonely", Each, []),
        '"lonely" has no parents: name the nodes that forward to it',
    ),
    "sink without parents": (
        lambda b: b.add_sink("lonely", "out-2", ()),
        '"lonely" has no parents: name the nodes that forward to it',
    ),
    "unknown parent": (
        lambda b: b.add_sink("sink-2", "out-2", "procesor"),
        '"sink-2" has an unknown parent "procesor", did you mean "processor"?',
    ),
    "unknown parent that is like nothing": (
        lambda b: b.add_sink("sink-2", "out-2", "xyz"),
        '"sink-2" has an unknown parent "xyz"',
    ),
    "sink as parent": (
        lambda b: b.add_processor("behind", Each, "sink"),
        '"behind" has the sink "sink" as parent: sinks forward nothing',
    ),
    "parent twice": (
        lambda b: b.add_sink("sink-2", "out-2", ["processor", "processor"]),
        '"sink-2" has the parent "processor" twice',
    ),
    "its own parent": (
        lambda b: b.add_processor("self", Each, "self"),
        "the nodes form a cycle: self -> self",
    ),
    "two stores with one name": (
        all_of(
            lambda b: b.add_state_store(STORE, "processor"),
            lambda b: b.add_state_store(
                stores.key_value("store", serdes.string, serdes.bytes), "processor"
            ),
        ),
        'two stores have the name "store"',
    ),
    "store for an unknown processor": (
        lambda b: b.add_state_store(STORE, "Processor"),
        'store "store" is for an unknown processor "Processor", did you mean "processor"?',
    ),
    "store for a source": (
        lambda b: b.add_state_store(STORE, "source"),
        'store "store" is for "source", which is not a processor',
    ),
    "store for a sink": (
        lambda b: b.add_state_store(STORE, "sink"),
        'store "store" is for "sink", which is not a processor',
    ),
    "unknown store": (
        all_of(
            lambda b: b.add_state_store(STORE, "processor"),
            lambda b: b.add_processor("user", Each, "source", stores="stor"),
        ),
        '"user" uses an unknown store "stor", did you mean "store"?',
    ),
    "unknown store connected": (
        lambda b: b.connect_processor_and_state_stores("processor", "store"),
        '"processor" uses an unknown store "store"',
    ),
    "store that nobody uses": (
        lambda b: b.add_state_store(STORE),
        'no processor uses store "store"',
    ),
    "source without topics": (
        all_of(lambda b: b.add_source("nothing", []), lambda b: b.add_sink("s", "o", "nothing")),
        'source "nothing" has no topics',
    ),
    "topic with two sources": (
        all_of(lambda b: b.add_source("again", "in"), lambda b: b.add_sink("s", "o", "again")),
        'topic "in" has 2 sources: add one, with several children',
    ),
    "pattern that matches a named topic": (
        all_of(
            lambda b: b.add_source("some", re.compile("i.")), lambda b: b.add_sink("s", "o", "some")
        ),
        'the pattern of source "some" matches "in" of another source',
    ),
    "pattern that matches a written topic": (
        all_of(
            lambda b: b.add_source("some", re.compile("o.*")),
            lambda b: b.add_sink("s", "x", "some"),
        ),
        'the pattern of source "some" matches "out" of a sink',
    ),
    "topic that is read and written": (
        all_of(lambda b: b.add_source("back", "out"), lambda b: b.add_sink("s", "o", "back")),
        f'topic "out" is read and written: {ALLOWED}',
    ),
    "internal topic with feedback": (
        all_of(
            lambda b: b.add_source("back", "out", feedback=True),
            lambda b: b.add_sink("s", "o", "back"),
            lambda b: b.add_internal_topic("out"),
        ),
        'topic "out" is internal, so its source must not have feedback=True',
    ),
    "internal topic that nobody reads": (
        lambda b: b.add_internal_topic("out"),
        'internal topic "out" needs a sink that writes it and a source that reads it',
    ),
    "internal topic that nobody writes": (
        lambda b: b.add_internal_topic("in"),
        'internal topic "in" needs a sink that writes it and a source that reads it',
    ),
    "internal topic twice": (
        all_of(
            lambda b: b.add_source("back", "out"),
            lambda b: b.add_sink("s", "o", "back"),
            lambda b: b.add_internal_topic("out", 1),
            lambda b: b.add_internal_topic("out", 2),
        ),
        'internal topic "out" is added 2 times',
    ),
    "source that leads nowhere": (
        lambda b: b.add_source("idle", "in-2"),
        'source "idle" leads nowhere: no node has it as parent',
    ),
    "results of a source that is looked up": (
        all_of(
            lambda b: b.add_sink("rows", "o", "each row"),
            lambda b: b.add_processor("each row", Each, "table"),
            lambda b: b.add_source("table", "in-2", looked_up=True),
        ),
        'source "table" has looked_up=True, but its records reach the sink "rows": leave looked_up '
        "out, as results have the times of its records",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_one_mistake_is_named_and_nothing_else(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    builder = sound()
    make(builder)
    assert problems(builder) == [message]


def test_all_mistakes_are_told_at_once() -> None:
    builder = sound()
    builder.add_processor("lonely", Each, [])
    builder.add_sink("sink", "in", ["nobody"])
    builder.add_state_store(STORE, ["nothing"])
    assert problems(builder) == [
        'two nodes have the name "sink"',
        '"lonely" has no parents: name the nodes that forward to it',
        '"sink" has an unknown parent "nobody"',
        'store "store" is for an unknown processor "nothing"',
        f'topic "in" is read and written: {ALLOWED}',
    ]


def test_a_dead_end_that_may_stem_from_a_wrong_name_is_not_told() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_sink("sink", "out", "sauce")
    assert problems(builder) == ['"sink" has an unknown parent "sauce", did you mean "source"?']


def test_a_cycle_is_told_in_the_direction_of_the_records() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("a", Each, ["source", "c"])
    builder.add_processor("b", Each, "a")
    builder.add_processor("c", Each, "b")
    builder.add_sink("sink", "out", "c")
    assert problems(builder) == ["the nodes form a cycle: a -> b -> c -> a"]


def test_a_node_that_is_reached_in_two_ways_is_no_cycle() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("left", Each, "source")
    builder.add_processor("right", Each, "source")
    builder.add_sink("sink", "out", ["left", "right"])
    assert groups(builder.build()) == [{"source", "left", "right", "sink"}]


def test_parents_may_be_added_later() -> None:
    builder = TopologyBuilder()
    builder.add_sink("sink", "out", "processor")
    builder.add_processor("processor", Each, "source")
    builder.add_source("source", "in")
    (group,) = builder.build().groups
    assert [node.name for node in group.nodes] == ["source", "processor", "sink"]


def test_build_can_be_called_again_after_adding_more() -> None:
    builder = sound()
    first = builder.build()
    builder.add_sink("sink-2", "out-2", "processor")
    assert len(first.nodes) == 3
    assert len(builder.build().nodes) == 4


def test_a_topic_may_be_written_by_several_sinks() -> None:
    builder = sound()
    builder.add_sink("sink-2", "out", "source")
    (group,) = builder.build().groups
    assert group.out_topics == ("out",)


# What is refused at once


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (
            lambda b: b.add_source("s", "t", auto_offset_reset="newest"),
            'source "s": auto_offset_reset is "earliest" or "latest", not \'newest\'',
        ),
        (lambda b: b.add_source("s", None), 'topics of "s" must be texts, not a NoneType'),
        (lambda b: b.add_source("s", [None]), 'topics of "s" must be texts, not a NoneType'),
        (
            lambda b: b.add_source("s", "t", timestamp_extractor=7),
            'source "s": a timestamp extractor is a function or has a method extract, not a int',
        ),
        (
            lambda b: b.add_source("s", "t", key_serde=str),
            'source "s": the key_serde is a type: use one of kafka_pipeline.serdes',
        ),
        (
            lambda b: b.add_sink("s", "t", "p", value_serde="string"),
            'sink "s": the value_serde is a str: use one of kafka_pipeline.serdes',
        ),
        (
            lambda b: b.add_processor("p", Each(), "s"),
            'processor "p": give a class or a function that makes the processor, not a Each',
        ),
        (
            lambda b: b.add_processor("p", None, "s"),
            'processor "p": give a class or a function that makes the processor, not a NoneType',
        ),
        (lambda b: b.add_processor("p", Each, None), 'the parents of "p" must be texts'),
        (lambda b: b.add_processor("p", Each, [None]), 'the parents of "p" must be texts'),
        (
            lambda b: b.add_processor("p", Each, "s", stores=[STORE]),
            'the stores of processor "p" must be texts, not a StoreBuilder',
        ),
        (
            lambda b: b.add_sink("s", None, "p"),
            'sink "s": the topic is a name or a function of the record, not a NoneType',
        ),
        (
            lambda b: b.add_sink("s", "t", "p", partitioner=3),
            'sink "s": a partitioner is a function or has a method partitions, not a int',
        ),
        (
            lambda b: b.add_state_store("store"),
            "a state store comes from a function of kafka_pipeline.stores, such as "
            "stores.key_value(…), not as a str",
        ),
        (
            lambda b: b.add_state_store(STORE, [7]),
            'the processors of store "store" must be texts, not a int',
        ),
        (
            lambda b: b.add_internal_topic("t", 0),
            'internal topic "t": partitions must be 1 or more, not 0',
        ),
    ],
)
def test_an_argument_that_cannot_be_is_refused_by_the_call(
    add: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(TopologyError, match=re.escape(message)):
        add(TopologyBuilder())


# Stores


def test_a_store_can_be_connected_in_three_ways_and_counts_once() -> None:
    builder = sound()
    builder.add_processor("second", Each, "source", stores=["store", "other"])
    builder.add_state_store(STORE, "processor")
    builder.add_state_store(OTHER_STORE)
    builder.connect_processor_and_state_stores("processor", "other", "store")
    (group,) = builder.build().groups
    assert {node.name: getattr(node, "stores", None) for node in group.nodes} == {
        "source": None,
        "processor": ("store", "other"),
        "second": ("store", "other"),
        "sink": None,
    }
    assert group.stores == (STORE, OTHER_STORE)


def test_suppliers_may_be_classes_and_functions() -> None:
    def make() -> Processor:
        return Each()

    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("class", Each, "source")
    builder.add_processor("function", make, "source")
    assert len(builder.build().nodes) == 3


def test_a_topic_that_is_read_as_feedback_may_be_written() -> None:
    builder = sound()
    builder.add_source("back", "out", feedback=True)
    builder.add_sink("s", "o", "back")
    (group,) = [each for each in builder.build().groups if each.feedback_topics]
    assert group.feedback_topics == ("out",)


def test_feedback_needs_names_of_topics() -> None:
    with pytest.raises(TopologyError, match="feedback needs names of topics, not a pattern"):
        TopologyBuilder().add_source("some", re.compile("o.*"), feedback=True)


def test_topics_of_a_sink_with_one_topic_are_refused() -> None:
    with pytest.raises(TopologyError, match='are for a function, and the topic is "o"'):
        sound().add_sink("s", "o", "count", topics=["p"])
