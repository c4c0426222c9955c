"""A topology that was built: its groups, and how it is described."""

from __future__ import annotations

import re

from kafka_pipeline import Record, TopologyBuilder, serdes, stores
from tests.unit.streams.nodes import Each, groups, sound

STORE = stores.key_value("store", serdes.bytes, serdes.bytes)
OTHER_STORE = stores.window(
    "other", serdes.bytes, serdes.bytes, retention_ms=1000, window_size_ms=100
)


# Groups


def test_nodes_that_share_neither_arcs_nor_stores_are_groups_of_their_own() -> None:
    builder = sound()
    builder.add_source("source-2", "in-2")
    builder.add_processor("processor-2", Each, "source-2")
    assert groups(builder.build()) == [
        {"source", "processor", "sink"},
        {"source-2", "processor-2"},
    ]


def test_a_common_sink_makes_one_group() -> None:
    builder = TopologyBuilder()
    builder.add_source("a", "in-a")
    builder.add_source("b", "in-b")
    builder.add_sink("sink", "out", ["a", "b"])
    (group,) = builder.build().groups
    assert group.name == "a"
    assert group.in_topics == ("in-a", "in-b")
    assert [source.name for source in group.sources] == ["a", "b"]


def test_a_common_store_makes_one_group() -> None:
    builder = TopologyBuilder()
    for name in ("a", "b", "c"):
        builder.add_source(name, f"in-{name}")
        builder.add_processor(f"processor-{name}", Each, name)
    builder.add_state_store(STORE, ["processor-a", "processor-c"])
    topology = builder.build()
    assert groups(topology) == [
        {"a", "processor-a", "c", "processor-c"},
        {"b", "processor-b"},
    ]
    assert [group.stores for group in topology.groups] == [(STORE,), ()]


def test_stores_chain_groups_together() -> None:
    builder = TopologyBuilder()
    for name in ("a", "b", "c"):
        builder.add_source(name, f"in-{name}")
        builder.add_processor(f"processor-{name}", Each, name)
    builder.add_state_store(STORE, ["processor-a", "processor-b"])
    builder.add_state_store(OTHER_STORE, ["processor-b", "processor-c"])
    (group,) = builder.build().groups
    assert group.stores == (STORE, OTHER_STORE)


def test_a_store_may_have_the_name_of_a_node_without_joining_it() -> None:
    builder = TopologyBuilder()
    builder.add_source("a", "in-a")
    builder.add_processor("store", Each, "a")
    builder.add_source("b", "in-b")
    builder.add_processor("user", Each, "b")
    builder.add_state_store(STORE, "user")
    assert groups(builder.build()) == [{"a", "store"}, {"b", "user"}]


def test_arcs_chain_groups_together() -> None:
    builder = TopologyBuilder()
    for number in range(1, 6):
        builder.add_source(f"source-{number}", f"topic-{number}")
    builder.add_processor("processor-1", Each, "source-1")
    builder.add_processor("processor-2", Each, ["source-2", "processor-1"])
    builder.add_processor("processor-3", Each, ["source-3", "source-4"])
    builder.add_processor("processor-5", Each, "source-5")
    assert [group.in_topics for group in builder.build().groups] == [
        ("topic-1", "topic-2"),
        ("topic-3", "topic-4"),
        ("topic-5",),
    ]


def repartitioned() -> TopologyBuilder:
    """Return two groups with an internal topic between them."""
    builder = TopologyBuilder()
    builder.add_source("lines", "in")
    builder.add_processor("split", Each, "lines")
    builder.add_sink("to words", "words", "split")
    builder.add_internal_topic("words", partitions=3)
    builder.add_source("words", "words")
    builder.add_processor("count", Each, "words", stores="store")
    builder.add_state_store(STORE)
    builder.add_sink("sink", "out", "count")
    return builder


def test_an_internal_topic_splits_two_groups() -> None:
    topology = repartitioned().build()
    assert groups(topology) == [{"lines", "split", "to words"}, {"words", "count", "sink"}]
    assert [group.name for group in topology.groups] == ["lines", "words"]
    assert [(topic.name, topic.partitions) for topic in topology.internal_topics] == [("words", 3)]
    first, second = topology.groups
    assert first.out_topics == second.in_topics == ("words",)


def test_children_stand_in_the_order_of_the_calls() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    for name in ("z", "a", "m"):
        builder.add_sink(name, f"out-{name}", "source")
    (group,) = builder.build().groups
    assert [child.name for child in group.children("source")] == ["z", "a", "m"]
    assert group.out_topics == ("out-z", "out-a", "out-m")


# As text


def test_a_group_is_described_as_kafka_streams_does() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", ["in-1", "in-2"])
    builder.add_processor("first", Each, "source", stores=["store", "other"])
    builder.add_state_store(STORE)
    builder.add_state_store(OTHER_STORE)
    builder.add_processor("last", Each, "source")
    builder.add_sink("sink", "out", ["first"])
    assert builder.build().describe() == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: source (topics: [in-1, in-2])\n"
        "      --> first, last\n"
        "    Processor: first (stores: [store, other])\n"
        "      --> sink\n"
        "      <-- source\n"
        "    Processor: last (stores: [])\n"
        "      --> none\n"
        "      <-- source\n"
        "    Sink: sink (topic: out)\n"
        "      <-- first\n"
        "\n"
    )


def test_several_groups_are_described_one_behind_the_other() -> None:
    assert repartitioned().build().describe() == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: lines (topics: [in])\n"
        "      --> split\n"
        "    Processor: split (stores: [])\n"
        "      --> to words\n"
        "      <-- lines\n"
        "    Sink: to words (topic: words)\n"
        "      <-- split\n"
        "\n"
        "  Sub-topology: 1\n"
        "    Source: words (topics: [words])\n"
        "      --> count\n"
        "    Processor: count (stores: [store])\n"
        "      --> sink\n"
        "      <-- words\n"
        "    Sink: sink (topic: out)\n"
        "      <-- count\n"
        "\n"
    )


def test_nodes_with_more_below_them_are_described_first_and_equal_ones_by_name() -> None:
    builder = TopologyBuilder()
    builder.add_source("source1", "topic1")
    builder.add_source("source2", "topic2")
    builder.add_processor("processor1", Each, "source1")
    builder.add_processor("processor2", Each, ["source1", "source2"])
    builder.add_processor("processor3", Each, "processor2")
    builder.add_sink("sink1", "out", ["processor1", "processor3"])
    text = builder.build().describe()
    assert re.findall(r"(?:Source|Processor|Sink): (\w+)", text) == [
        "source1",
        "source2",
        "processor2",
        "processor1",
        "processor3",
        "sink1",
    ]
    assert "      --> processor2, processor1\n" in text
    assert "      <-- source1, source2\n" in text


def chosen(record: Record) -> str:
    return f"out-{record.key}"


def test_patterns_and_functions_stand_where_topics_would() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", re.compile("in-.*"))
    builder.add_sink("sink", chosen, "source")
    assert builder.build().describe() == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: source (topics: in-.*)\n"
        "      --> sink\n"
        "    Sink: sink (extractor class: chosen)\n"
        "      <-- source\n"
        "\n"
    )


def test_a_flowchart_shows_topics_groups_nodes_stores_and_arcs() -> None:
    builder = sound()
    builder.add_state_store(STORE, "processor")
    builder.add_source('the "other"', "in-2")
    builder.add_sink("again", "out", 'the "other"')
    assert builder.build().mermaid().split("\n") == [
        "flowchart LR",
        '    t0[/"in"/]',
        '    t1[/"out"/]',
        '    t2[/"in-2"/]',
        '    subgraph g0 ["source"]',
        '        n0["source"]',
        '        n1["processor"]',
        '        n2["sink"]',
        '        s0[("store")]',
        "    end",
        '    subgraph g1 ["the #quot;other#quot;"]',
        '        n3["the #quot;other#quot;"]',
        '        n4["again"]',
        "    end",
        "    t0 --> n0",
        "    n0 --> n1",
        "    n1 -.- s0",
        "    n1 --> n2",
        "    n2 --> t1",
        "    t2 --> n3",
        "    n3 --> n4",
        "    n4 --> t1",
    ]


def test_how_long_records_are_held_back_is_found_in_a_large_graph() -> None:
    builder = TopologyBuilder()
    builder.add_source("end-0", "in")
    for number in range(1, 301):
        before = f"end-{number - 1}"
        builder.add_processor(f"left-{number}", Each, before)
        builder.add_processor(f"right-{number}", Each, before, holds_ms=number)
        builder.add_processor(f"end-{number}", Each, [f"left-{number}", f"right-{number}"])
    (group,) = builder.build().groups
    assert group.hold_ms("right-2") == group.hold_ms("left-2") == 1
    assert group.hold_ms("end-300") == sum(range(301))
