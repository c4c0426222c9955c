"""Aggregates of streams without windows, and of several streams together (KIP-150)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kafka_pipeline import StreamsBuilder, serdes, windows
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.notation import inputs, results, watch
from tests.unit.streams.dsl.running import builder, pipe
from tests.unit.streams.nodes import Nodes, batch


def add(key: str, value: str, total: str) -> str:
    return f"{total}+{value}"


def take(key: str, value: str, total: str) -> str:
    return f"{total}-{value}"


def append(key: str, value: str, total: str) -> str:
    return total + value


def merge(key: str, a: str, b: str) -> str:
    return f"{a}+{b}"


def zero() -> str:
    return "0"


# One stream


@dataclass(frozen=True)
class Case:
    """A topology that reads the topics `one` and `two`, its inputs, and its results in order."""

    build: Callable[[StreamsBuilder], Table]
    one: str
    two: str
    results: str


GROUPED_IN = "1:A@5 2:B@1 1:C@3 1:D@10 3:E@8 3:F@9"

ONE_STREAM = {
    "KGroupedStreamImplTest.shouldCountAndMaterializeResults": Case(
        lambda b: b.stream("one").group_by_key().count(),
        GROUPED_IN,
        "",
        "1=1@5 2=1@1 1=2@5 1=3@10 3=1@8 3=2@9",
    ),
    "KGroupedStreamImplTest.shouldReduceAndMaterializeResults": Case(
        lambda b: b.stream("one").group_by_key().reduce(lambda a, v: f"{a}+{v}"),
        GROUPED_IN,
        "",
        "1=A@5 2=B@1 1=A+C@5 1=A+C+D@10 3=E@8 3=E+F@9",
    ),
    "KGroupedStreamImplTest.shouldAggregateAndMaterializeResults": Case(
        lambda b: b.stream("one").group_by_key().aggregate(zero, add),
        GROUPED_IN,
        "",
        "1=0+A@5 2=0+B@1 1=0+A+C@5 1=0+A+C+D@10 3=0+E@8 3=0+E+F@9",
    ),
    "a stream is grouped by another key": Case(
        lambda b: b.stream("one").group_by(lambda key, value: value[0]).count(),
        "k:ab@1 k:ac@2 k:b@3",
        "",
        "a=1@1 a=2@2 b=1@3",
    ),
    "an adder that returns None takes the key out": Case(
        lambda b: (
            b.stream("one")
            .group_by_key()
            .aggregate(str, lambda key, value, total: None if value == "-" else total + value)
        ),
        "k:a@1 k:b@2 k:-@3 k:c@2",
        "",
        "k=a@1 k=ab@2 k=null@3 k=c@2",
    ),
}


def cogrouped(
    first: Callable[[str, str, str], str], second: Callable[[str, str, str], str]
) -> Callable[[StreamsBuilder], Table]:
    def build(built: StreamsBuilder) -> Table:
        one, two = built.stream("one").group_by_key(), built.stream("two").group_by_key()
        initializer = str if first is append else zero
        return one.cogroup(first).cogroup(two, second).aggregate(initializer)

    return build


def windowed(built: StreamsBuilder) -> Table:
    one, two = built.stream("one").group_by_key(), built.stream("two").group_by_key()
    groups = one.cogroup(add).cogroup(two, take)
    return groups.windowed_by(windows.tumbling(500, grace_ms=86_400_000)).aggregate(zero)


def sessions(built: StreamsBuilder) -> Table:
    one, two = built.stream("one").group_by_key(), built.stream("two").group_by_key()
    groups = one.cogroup(add).cogroup(two, take)
    session = windows.session(100, grace_ms=86_400_000)
    return groups.windowed_by(session).aggregate(zero, merger=merge)


COGROUPED = {
    "CogroupedKStreamImplTest.testCogroupHandleNullValues": Case(
        lambda b: b.stream("one").group_by_key().cogroup(append).aggregate(str),
        "k1:A@0 k2:B@0 k2:null@0 k2:B@0 k1:A@0",
        "",
        "k1=A@0 k2=B@0 k2=BB@0 k1=AA@0",
    ),
    "CogroupedKStreamImplTest.shouldCogroupAndAggregateTwoKStreamsWithDistinctKeys": Case(
        cogrouped(append, append),
        "k1:A@0 k1:A@1 k1:A@10 k1:A@100",
        "k2:B@100 k2:B@200 k2:B@1 k2:B@500 k2:B@500 k2:B@100",
        "k1=A@0 k1=AA@1 k1=AAA@10 k1=AAAA@100 k2=B@100 k2=BB@200 k2=BBB@200 k2=BBBB@500 "
        "k2=BBBBB@500 k2=BBBBBB@500",
    ),
    "CogroupedKStreamImplTest.shouldCogroupAndAggregateTwoKStreamsWithSharedKeys": Case(
        cogrouped(append, append),
        "k1:A@0 k2:A@1 k1:A@10 k2:A@100",
        "k2:B@100 k2:B@200 k1:B@1 k2:B@500 k1:B@500 k2:B@500 k3:B@500 k2:B@100",
        "k1=A@0 k2=A@1 k1=AA@10 k2=AA@100 k2=AAB@100 k2=AABB@200 k1=AAB@10 k2=AABBB@500 "
        "k1=AABB@500 k2=AABBBB@500 k3=B@500 k2=AABBBBB@500",
    ),
    "CogroupedKStreamImplTest.testCogroupKeyMixedAggregators": Case(
        cogrouped(take, add),
        "k1:1@0 k2:1@1 k1:1@10 k2:1@100",
        "k1:2@500 k2:2@500 k1:2@500 k2:2@100",
        "k1=0-1@0 k2=0-1@1 k1=0-1-1@10 k2=0-1-1@100 k1=0-1-1+2@500 k2=0-1-1+2@500 "
        "k1=0-1-1+2+2@500 k2=0-1-1+2+2@500",
    ),
    "TimeWindowedCogroupedKStreamImplTest.timeWindowMixAggregatorsTest": Case(
        windowed,
        "k1:A@0 k2:A@0 k2:A@1 k1:A@2",
        "k1:B@3 k2:B@3 k2:B@4 k1:B@4",
        "k1[0,500]=0+A@0 k2[0,500]=0+A@0 k2[0,500]=0+A+A@1 k1[0,500]=0+A+A@2 "
        "k1[0,500]=0+A+A-B@3 k2[0,500]=0+A+A-B@3 k2[0,500]=0+A+A-B-B@4 k1[0,500]=0+A+A-B-B@4",
    ),
    "TimeWindowedCogroupedKStreamImplTest.timeWindowMixAggregatorsManyWindowsTest": Case(
        windowed,
        "k1:A@0 k2:A@0 k2:A@1 k1:A@2",
        "k1:B@3 k2:B@3 k2:B@501 k1:B@501",
        "k1[0,500]=0+A@0 k2[0,500]=0+A@0 k2[0,500]=0+A+A@1 k1[0,500]=0+A+A@2 "
        "k1[0,500]=0+A+A-B@3 k2[0,500]=0+A+A-B@3 k2[500,1000]=0-B@501 k1[500,1000]=0-B@501",
    ),
    "SessionWindowedCogroupedKStreamImplTest.sessionWindowMixAggregatorsTest": Case(
        sessions,
        "k1:A@0 k2:A@0 k2:A@1 k1:A@2",
        "k1:B@3 k2:B@3 k2:B@444 k1:B@444",
        "k1[0,0]=0+A@0 k2[0,0]=0+A@0 k2[0,0]=null@0 k2[0,1]=0+0+A+A@1 k1[0,0]=null@0 "
        "k1[0,2]=0+0+A+A@2 k1[0,2]=null@2 k1[0,3]=0+0+0+A+A-B@3 k2[0,1]=null@1 "
        "k2[0,3]=0+0+0+A+A-B@3 k2[444,444]=0-B@444 k1[444,444]=0-B@444",
    ),
}

CASES = {**ONE_STREAM, **COGROUPED}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_results(case: Case) -> None:
    built = builder()
    watched = watch(case.build(built))
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs(case.one, "one"))
        if case.two:
            pipe(driver, inputs(case.two, "two"))
    assert watched == case.results.split()


@pytest.mark.parametrize("verb", ["count", "reduce"])
def test_records_without_key_or_value_are_dropped_and_counted(verb: str) -> None:
    """As shouldLogAndMeasureSkipsInAggregate, shouldLogAndMeasureSkipsInReduce."""
    built = builder()
    grouped = built.stream("in").group_by_key()
    watched = watch(grouped.count() if verb == "count" else grouped.reduce(lambda a, v: a + v))
    with TopologyTestDriver(built) as driver:
        pipe(driver, [("in", None, "1", 0), ("in", "k", None, 0)])
        assert driver.dropped_records == {"null key or value": 2}
    assert watched == []


def test_a_cogroup_has_one_store_and_one_table() -> None:
    built = builder()
    one, two = built.stream("one").group_by_key(), built.stream("two").group_by_key()
    table = one.cogroup(append).cogroup(two, append).aggregate(str, name="Both")
    watched = watch(table.group_by(lambda key, value: (value, key)).count(name="Counts"))
    topology = built.build()
    assert [store.name for store in topology.stores] == ["Both", "Counts"]
    with TopologyTestDriver(topology) as driver:
        pipe(driver, inputs("k:A@1", "one"))
        pipe(driver, inputs("k:B@2", "two"))
        assert driver.get_timestamped_key_value_store("Both").get("k") == ("AB", 2)
    # The second change takes the old value out of its group.
    assert watched == ["A=1@1", "A=0@2", "AB=1@2"]


def test_late_records_of_a_cogroup_go_to_a_topic() -> None:
    built = builder()
    one, two = built.stream("one").group_by_key(), built.stream("two").group_by_key()
    groups = one.cogroup(append).cogroup(two, append)
    late = groups.windowed_by(windows.tumbling(10, grace_ms=0), late_to="late")
    watched = watch(late.aggregate(str, name="Both"))
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs("k:A@1 k:B@20 k:C@2", "one"))
        # All streams have one time.
        pipe(driver, inputs("k:D@3 k:E@21", "two"))
        found = driver.create_output_topic("late", serdes.string, serdes.string).read_records()
    assert [record.value for record in found] == ["C", "D"]
    assert watched == ["k[0,10]=A@1", "k[20,30]=B@20", "k[20,30]=BE@21"]


def test_a_versioned_aggregate_keeps_its_history() -> None:
    built = builder()
    watched = watch(built.stream("in").group_by_key().count(name="C", history_retention_ms=1000))
    assert results(built, "k:a@1 k:b@5 k:c@3", watched) == ["k=1@1", "k=2@5", "k=3@5"]


def test_of_several_writers_the_fastest_does_not_end_the_history_of_an_aggregate() -> None:
    built = builder()
    grouped = built.stream("lines", name="Lines").group_by_key()
    grouped.count(name="Counts", history_retention_ms=10).to_stream().to("out")
    (group,) = built.build().groups
    nodes = Nodes(group, follows_records=False)
    nodes.process(batch([b"x", b"y"], keys=[b"a", b"b"], timestamps=[1000, 15], topic="lines"))
    assert [key for _, key, _, _ in nodes.sent] == [b"a", b"b"]
    for time in (500, 600):
        nodes.runtime.pass_time(time)
    nodes.process(batch([b"z"], keys=[b"c"], timestamps=[15], topic="lines"))
    assert [key for _, key, _, _ in nodes.sent] == [b"a", b"b"]
