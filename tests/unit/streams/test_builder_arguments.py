"""Invalid arguments of a builder: refused by the call itself, with what to give instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kafka_pipeline import (
    FieldTimestampExtractor,
    InvalidArgumentError,
    LogAndSkipOnInvalidTimestamp,
    TopologyBuilder,
    TopologyError,
    WallclockTimestampExtractor,
    serdes,
    stores,
)
from tests.unit.streams.nodes import Each

STORE = stores.key_value("store", serdes.string, serdes.string)
OTHER = stores.key_value("other", serdes.string, serdes.string)
KAFKA_REFUSES = 'has the character " ", which Kafka refuses in topic names'


class Even:
    """A partitioner."""

    def partitions(self, topic: str, key: object, value: object, num_partitions: int) -> set[int]:
        return {0}


@pytest.mark.parametrize("name", [None, 7, ["a"], b"a"], ids=repr)
@pytest.mark.parametrize(
    ("add", "what"),
    [
        (lambda b, name: b.add_source(name, "t"), "source"),
        (lambda b, name: b.add_processor(name, Each, "s"), "processor"),
        (lambda b, name: b.add_sink(name, "t", "s"), "sink"),
        (lambda b, name: b.add_global_store(STORE, name, "t", "p", Each), "source"),
        (lambda b, name: b.add_global_store(STORE, "s", "t", name, Each), "processor"),
        (lambda b, name: b.add_internal_topic(name), "internal topic"),
        (lambda b, name: b.connect_processor_and_state_stores(name, "store"), "processor"),
    ],
    ids=["source", "processor", "sink", "global source", "global processor", "topic", "connect"],
)
def test_a_name_is_a_text(add: Callable[[Any, Any], object], what: str, name: Any) -> None:
    message = f"the name of a {what} must be a string, not {name!r}"
    with pytest.raises(TopologyError, match=f"^{re.escape(message)}$"):
        add(TopologyBuilder(), name)


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda b: b.add_source("s", "a b/c"), f'source "s": the topic "a b/c" {KAFKA_REFUSES}'),
        (lambda b: b.add_source("s", ["a", ""]), 'source "s": the topic "" is empty'),
        (lambda b: b.add_sink("s", "a b/c", "p"), f'sink "s": the topic "a b/c" {KAFKA_REFUSES}'),
        (lambda b: b.add_sink("s", "", "p"), 'sink "s": the topic "" is empty'),
        (
            lambda b: b.add_global_store(STORE, "s", "", "p", Each),
            'source "s" of global store "store": the topic "" is empty',
        ),
        (lambda b: b.add_internal_topic("a b"), f'internal topic: the topic "a b" {KAFKA_REFUSES}'),
        (
            lambda b: b.add_source("s", re.compile(b"x")),
            'source "s": its pattern is of bytes: make it one of text',
        ),
        (
            lambda b: b.add_internal_topic("x", "3"),
            "internal topic \"x\": partitions must be 1 or more, not '3'",
        ),
        (
            lambda b: b.add_sink("s", "t", "p", partitioner=Even),
            'sink "s": the partitioner Even is a class: give an instance',
        ),
        (
            lambda b: b.add_source("s", "t", timestamp_extractor=WallclockTimestampExtractor),
            'source "s": the timestamp extractor WallclockTimestampExtractor is a class: give an '
            "instance",
        ),
        (
            lambda b: b.connect_processor_and_state_stores("p", ["store", 7]),
            'the stores of processor "p" must be texts, not a int',
        ),
    ],
)
def test_an_argument_that_cannot_be_is_refused(add: Callable[[Any], object], message: str) -> None:
    with pytest.raises(TopologyError) as raised:
        add(TopologyBuilder())
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("given", [("store", "other"), (["store", "other"],), ("store", ["other"])])
def test_stores_are_connected_by_names_or_lists_of_them(given: Any) -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in").add_processor("p", Each, "source")
    builder.add_state_store(STORE).add_state_store(OTHER)
    builder.connect_processor_and_state_stores("p", *given)
    (group,) = builder.build().groups
    assert [getattr(node, "stores", ()) for node in group.nodes] == [(), ("store", "other")]


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        (LogAndSkipOnInvalidTimestamp, "not the class LogAndSkipOnInvalidTimestamp"),
        ("skip", "not 'skip'"),
        (None, "not None"),
    ],
)
def test_the_policy_of_a_field_is_checked_when_it_is_given(policy: Any, what: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^on_invalid is an object such as .*{what}$"):
        FieldTimestampExtractor("at", on_invalid=policy)


# What a builder shows


def chain(*names: str) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.add_source(names[0], "in")
    for parent, name in pairwise(names):
        builder.add_processor(name, Each, parent)
    return builder


def test_a_builder_shows_what_its_topology_shows() -> None:
    builder = chain("source", "p")
    assert builder.describe() == builder.build().describe()
    assert builder.mermaid() == builder.build().mermaid()
    with pytest.raises(TopologyError, match="the topology is empty"):
        TopologyBuilder().describe()


def test_labels_of_a_flowchart_are_escaped() -> None:
    lines = chain("a", '<b> & "c" #1;').mermaid().splitlines()
    assert '        n1["#lt;b#gt; #amp; #quot;c#quot; #35;1;"]' in lines


def test_groups_of_a_flowchart_have_ids_that_no_node_has() -> None:
    builder = chain("n1", "p")
    builder.add_source("n0", "in-2").add_processor("q", Each, "n0")
    lines = builder.mermaid().splitlines()
    assert [line.strip() for line in lines if "subgraph" in line] == [
        'subgraph g0 ["n1"]',
        'subgraph g1 ["n0"]',
    ]
