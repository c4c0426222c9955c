"""Names of stores and topics, which topics there are, and what is fused."""

from __future__ import annotations

from kafka_pipeline import Processor, Record, Topology, serdes, windows
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.notation import inputs
from tests.unit.streams.dsl.running import builder, named, names, outputs, pipe


def by_value(key: str, value: str) -> str:
    return value


# What gets a name


def test_names_of_stores_and_topics_come_from_the_steps() -> None:
    """As RepartitionTopicNamingTest.shouldKeepRepartitionTopicNameForGroupByNoWindows."""
    built = named()
    counts = built.stream("in").group_by(by_value, name="ByValue").count(name="Counts")
    counts.group_by(lambda key, count: (key, count), name="Again").count(name="Totals")
    assert names(built.build()) == (
        ["Counts", "Totals"],
        ["ByValue-repartition", "Again-repartition"],
    )


def test_a_step_that_is_inserted_leaves_all_other_names_alone() -> None:
    def build(*, more: bool) -> Topology:
        built = named()
        stream = built.stream("in", name="In")
        if more:
            stream = stream.filter(lambda key, value: True).peek(lambda key, value: None)
            stream.group_by(by_value, name="Other").count(name="OtherCounts")
        table = stream.group_by(by_value, name="ByValue").count(name="Counts")
        if more:
            table = table.filter(lambda key, count: True)
        table.to_stream().to("out", value_serde=serdes.int64)
        return built.build()

    before, after = build(more=False), build(more=True)
    assert set(names(before)[0]) < set(names(after)[0])
    assert set(names(before)[1]) < set(names(after)[1])
    assert [group.name for group in before.groups] == ["In", "ByValue"]
    assert [group.name for group in after.groups] == ["In", "Other", "ByValue"]


def test_a_repartition_comes_only_after_a_change_of_keys_and_before_a_step_by_key() -> None:
    """KIP-221"""
    built = builder()
    stream = built.stream("in").filter(lambda k, v: True).map_values(str).peek(lambda k, v: None)
    stream.group_by_key().count()
    stream.process_values(Processor)
    assert built.build().internal_topics == ()

    built = builder()
    changed = built.stream("in").select_key(by_value).map_values(str)
    changed.to("out")
    assert built.build().internal_topics == ()

    built = builder()
    changed = built.stream("in").select_key(by_value).map_values(str)
    changed.group_by_key(name="ByValue").count()
    assert names(built.build())[1] == ["ByValue-repartition"]


def test_groups_of_one_stream_share_a_repartition() -> None:
    """RepartitionOptimizingTest.shouldSendCorrectRecords_OPTIMIZED"""
    built = builder()
    changed = built.stream("in").map(lambda key, value: (value, key))
    first, second = changed.group_by_key(name="First"), changed.group_by_key(name="Second")
    first.count(name="Counts")
    first.reduce(lambda a, b: a + b, name="Sums")
    second.windowed_by(windows.tumbling(10, grace_ms=0)).count(name="Windows")
    assert names(built.build())[1] == ["First-repartition"]


def test_groups_with_other_serdes_do_not() -> None:
    built = builder()
    changed = built.stream("in").map(lambda key, value: (value, key))
    changed.group_by_key(name="First").count()
    changed.group_by_key(name="Second", value_serde=serdes.json).count()
    assert names(built.build())[1] == ["First-repartition", "Second-repartition"]


def test_a_topic_that_is_read_twice_has_one_source() -> None:
    """StreamsBuilderTest.shouldAllowStreamsFromSameTopic"""
    built = builder()
    built.stream("in").to("out")
    built.stream("in").map_values(str.upper).to("other")
    assert len(built.build().nodes) == 4
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs("A:x@1"))
        assert outputs(driver) == [("A", "x", 1)]
        assert outputs(driver, "other") == [("A", "X", 1)]


def test_steps_without_state_are_fused() -> None:
    built = builder()
    stream = built.stream("in", name="In").filter(lambda k, v: True, name="A")
    stream.map_values(str, name="B").select_key(by_value, name="C").to("out", name="Out")
    assert [node.name for node in built.build().nodes] == ["In", "A+B+C", "Out"]


def test_batches_stay_whole_unless_branches_meet_again() -> None:
    """Where they meet, records must come in the order in which they would come one by one."""

    def order(*, meet: bool) -> list[str]:
        seen: list[str] = []
        built = builder()
        branches = built.stream("in").split(
            {"a": lambda key, value: key == "a"}, default="rest", name="Split"
        )
        streams = [branches["a"], branches["rest"]]
        if meet:
            streams = [streams[0].merge(streams[1])]
        for stream in streams:
            stream.for_each(lambda key, value: seen.append(value))
        with TopologyTestDriver(built) as driver:
            topic = driver.create_input_topic("in", serdes.string, serdes.string)
            topic.pipe_batch(
                [Record(key, value, 0) for key, value in ("a1", "b2", "a3", "b4", "a5")]
            )
        return seen

    assert order(meet=False) == ["1", "3", "5", "2", "4"]
    assert order(meet=True) == ["1", "2", "3", "4", "5"]


def test_the_topology_is_shown() -> None:
    built = builder()
    built.stream("in", name="In").group_by_key().count(name="Counts").to_stream().to("out")
    assert "Processor: Counts (stores: [Counts])" in built.describe()
    assert '[("Counts")]' in built.mermaid()
