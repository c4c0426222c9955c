"""Names of stores and topics, what steps are refused, and what errors say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from streams import (
    Emit,
    InvalidArgumentError,
    Processor,
    Record,
    SerializationError,
    StreamsBuilder,
    StreamsError,
    Topology,
    TopologyError,
    TopologyTestDriver,
    serdes,
    stores,
    windows,
)
from streams.dsl.streams_and_tables import Stream
from streams.engine.user_errors import reason
from tests.unit.streams.dsl.notation import inputs
from tests.unit.streams.dsl.running import builder, outputs, pipe, run

STORE = stores.key_value("Seen", serdes.string, serdes.string)


def named() -> StreamsBuilder:
    return StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)


def by_value(key: str, value: str) -> str:
    return value


def three(key: str, value: str, total: str) -> str:
    return total + value


def names(topology: Topology) -> tuple[list[str], list[str]]:
    """Return the names of the stores, and of the internal topics."""
    return (
        [store.name for store in topology.stores],
        [topic.name for topic in topology.internal_topics],
    )


# What gets a name


def test_names_of_stores_and_topics_come_from_the_steps() -> None:
    """RepartitionTopicNamingTest"""
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
    """KStreamImplTest.shouldNotRequireRepartitioning…, and its opposite"""
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
    """StreamsBuilderTest.shouldAllowReadingFromSameTopic…"""
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
            topic.pipe_batch([Record(key, value, 0) for key, value in ("a1", "b2", "a3")])
        return seen

    assert order(meet=False) == ["1", "3", "2"]
    assert order(meet=True) == ["1", "2", "3"]


def test_the_topology_is_shown() -> None:
    built = builder()
    built.stream("in", name="In").group_by_key().count(name="Counts").to_stream().to("out")
    assert "Processor: Counts (stores: [Counts])" in built.describe()
    assert '[("Counts")]' in built.mermaid()


# What is refused

STEPS: dict[str, tuple[Callable[[StreamsBuilder, Stream], Any], str]] = {
    "unnamed count": (
        lambda b, s: s.group_by_key().count(),
        'this count after "In" needs a name for its store: give count(…, name="…")',
    ),
    "unnamed group by": (
        lambda b, s: s.group_by(by_value),
        'this group_by after "In" needs a name for its repartition topic: give group_by(…, name',
    ),
    "unnamed group by key, after a change of keys": (
        lambda b, s: s.select_key(by_value, name="Keyed").group_by_key(),
        'this group_by_key after "Keyed" needs a name for its repartition topic',
    ),
    "unnamed repartition": (
        lambda b, s: s.repartition(),
        'this repartition after "In" needs a name for its topic',
    ),
    "unnamed windows": (
        lambda b, s: s.group_by_key().windowed_by(windows.tumbling(1, grace_ms=0)).count(),
        'this count after "In" needs a name for its store',
    ),
    "unnamed table": (
        lambda b, s: b.table("other"),
        'the table of topic "other" needs a name for its store: give table(…, name="…")',
    ),
    "unnamed to_table": (
        lambda b, s: s.to_table(),
        'this to_table after "In" needs a name for its store',
    ),
    "unnamed pattern": (
        lambda b, s: b.stream(re.compile("a.*")),
        "needs a name: give stream(…, name=",
    ),
    "two steps of one name": (
        lambda b, s: s.filter(by_value, name="Same").map_values(str, name="Same"),
        'two steps have the name "Same": a filter and a map_values; rename one of them',
    ),
    "a bad name": (
        lambda b, s: s.filter(by_value, name="a/b"),
        'filter "a/b": its name has the character "/"',
    ),
    "a name that is not a string": (
        lambda b, s: s.filter(by_value, name=7),  # type: ignore[arg-type]
        "the name of a step is a string, but filter has 7",
    ),
    "a step of another builder": (
        lambda b, s: s.merge(named().stream("other", name="Elsewhere")),
        'merge after stream "Elsewhere": that step belongs to another StreamsBuilder',
    ),
    "not a function": (
        lambda b, s: s.filter(7, name="Filter"),  # type: ignore[arg-type]
        'filter "Filter" takes a function of key and value, not 7',
    ),
    "not a serde": (
        lambda b, s: s.map_values(str, name="Text", value_serde="string"),  # type: ignore[arg-type]
        'map_values "Text": the value_serde is a str: use one of streams.serdes',
    ),
    "merge with itself": (
        lambda b, s: s.merge(s),
        'merge gets stream "In" twice',
    ),
    "merge with nothing of the kind": (
        lambda b, s: s.merge("other"),  # type: ignore[arg-type]
        "merge takes streams, not 'other'",
    ),
    "split without branches": (lambda b, s: s.split({}), "split takes branches"),
    "split with a branch that is no function": (
        lambda b, s: s.split({"a": 7}),  # type: ignore[dict-item]
        'the branch "a" of split takes a function of key and value, not 7',
    ),
    "split with a default of the same name": (
        lambda b, s: s.split({"a": by_value}, default="a"),
        'split has the branch "a", and the same name as default',
    ),
    "one topic in two ways": (
        lambda b, s: b.stream("in", value_serde=serdes.json),
        'topic "in" is read by stream "In" already, in another way',
    ),
    "no topics": (lambda b, s: b.stream([]), "stream reads topics: a name, several names"),
    "stores that are no list": (
        lambda b, s: s.process(Processor, stores=STORE),  # type: ignore[arg-type]
        "stores is a list of definitions or names of stores",
    ),
    "windows that are none": (
        lambda b, s: s.group_by_key().windowed_by(10),  # type: ignore[arg-type]
        "windowed_by takes what windows.tumbling, hopping, sliding or session return, not 10",
    ),
    "emit that is none": (
        lambda b, s: s.group_by_key().windowed_by(
            windows.tumbling(1, grace_ms=0),
            emit="close",  # type: ignore[arg-type]
        ),
        "windowed_by has emit='close': give Emit.ON_WINDOW_UPDATE or Emit.ON_WINDOW_CLOSE",
    ),
    "windows that close after a pause, without results on close": (
        lambda b, s: s.group_by_key().windowed_by(
            windows.tumbling(1, grace_ms=0, close_after_idle_ms=5)
        ),
        "close_after_idle_ms, which matters only with emit=Emit.ON_WINDOW_CLOSE",
    ),
    "sessions without a merger": (
        lambda b, s: (
            s.group_by_key()
            .windowed_by(windows.session(1, grace_ms=0))
            .aggregate(list, three, name="Sessions")
        ),
        'aggregate "Sessions" takes a merger, a function of key and two aggregates, not None',
    ),
    "a merger without sessions": (
        lambda b, s: (
            s.group_by_key()
            .windowed_by(windows.tumbling(1, grace_ms=0))
            .aggregate(list, three, merger=three, name="Windows")
        ),
        'aggregate "Windows" has a merger: only sessions are merged',
    ),
    "a stream in a cogroup twice": (
        lambda b, s: (
            s.group_by_key()
            .cogroup(three)
            .cogroup(s.group_by_key(), three)
            .aggregate(list, name="Twice")
        ),
        'cogroup has a stream twice, after stream "In"',
    ),
}


@pytest.mark.parametrize(("step", "message"), STEPS.values(), ids=STEPS)
def test_a_wrong_step_is_refused(
    step: Callable[[StreamsBuilder, Stream], Any], message: str
) -> None:
    built = named()
    stream = built.stream("in", name="In")
    with pytest.raises(TopologyError, match=re.escape(message)):
        step(built, stream)


WINDOWS: dict[str, tuple[Callable[[], Any], str]] = {
    "a window of 0": (
        lambda: windows.tumbling(0, grace_ms=0),
        "windows.tumbling has a size_ms of 0",
    ),
    "a gap of 0": (lambda: windows.session(0, grace_ms=0), "windows.session has a gap_ms of 0"),
    "a negative grace": (
        lambda: windows.sliding(1, grace_ms=-1),
        "windows.sliding has a grace_ms of -1: give a timedelta, or a whole number of milliseconds",
    ),
    "an advance above the size": (
        lambda: windows.hopping(5, advance_ms=6, grace_ms=0),
        "windows.hopping has an advance_ms of 6, above its size_ms of 5",
    ),
    "a fraction": (
        lambda: windows.tumbling(1.5, grace_ms=0),  # type: ignore[arg-type]
        "windows.tumbling has a size_ms of 1.5",
    ),
    "a pause of 0": (
        lambda: windows.tumbling(1, grace_ms=0, close_after_idle_ms=0),
        "windows.tumbling has a close_after_idle_ms of 0",
    ),
    "no size of the windows": (
        lambda: serdes.time_windowed(serdes.string, size_ms=-1),
        "time_windowed has a size_ms of -1",
    ),
    "no serde of the keys": (
        lambda: serdes.session_windowed("string"),  # type: ignore[arg-type]
        "session_windowed takes the serde of the keys",
    ),
}


@pytest.mark.parametrize(("make", "message"), WINDOWS.values(), ids=WINDOWS)
def test_wrong_windows_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        make()


def test_a_step_after_build_is_refused() -> None:
    built = named()
    stream = built.stream("in", name="In")
    stream.to("out")
    built.build()
    with pytest.raises(TopologyError, match=r'filter "Late" comes after build\(\)'):
        stream.filter(by_value, name="Late")
    with pytest.raises(TopologyError, match=r"stream .* comes after build\(\)"):
        built.stream("other", name="Other")


def test_an_empty_builder_is_refused() -> None:
    with pytest.raises(TopologyError, match="the builder has no steps"):
        named().build()


# What errors say


def test_a_serde_that_does_not_fit_is_named_with_its_step() -> None:
    built = named()
    numbers = built.stream("in", name="In").map_values(len, name="Lengths")
    numbers.group_by_key().reduce(lambda a, b: a + b, name="Sums")
    with pytest.raises(SerializationError) as raised:
        run(built, inputs("A:abc@1"))
    assert 'This is for the store of reduce "Sums": give it key_serde or value_serde' in str(
        raised.value
    )


@pytest.mark.parametrize("step", ["group_by", "repartition", "to"])
def test_a_serde_that_does_not_fit_a_topic_is_named_with_its_step(step: str) -> None:
    built = named()
    numbers = built.stream("in", name="In").map_values(len, name="Lengths")
    if step == "group_by":
        numbers.group_by(lambda key, value: key, name="Odd").count(name="Counts")
    elif step == "repartition":
        numbers.repartition(name="Odd").to("out")
    else:
        numbers.to("out", name="Odd-sink")
    with pytest.raises(SerializationError) as raised:
        run(built, inputs("A:abc@1"))
    assert 'This is the value for sink "Odd-sink": give it another serde, by' in str(raised.value)
    assert "value_serde in the call that adds the sink" in str(raised.value)


@pytest.mark.parametrize("emit", Emit)
def test_a_serde_that_does_not_fit_windows_is_named_with_its_step(emit: Emit) -> None:
    built = named()
    windowed = (
        built.stream("in", name="In")
        .group_by_key()
        .windowed_by(windows.tumbling(10, grace_ms=0), emit=emit)
    )
    windowed.aggregate(int, lambda key, value, total: total + 1, name="Counts")
    with pytest.raises(SerializationError, match='This is for the store of aggregate "Counts"'):
        run(built, inputs("A:abc@1"))


@pytest.mark.parametrize("what", ["count", "windows", "group", "view", "selector"])
def test_a_function_that_raises_is_named(what: str) -> None:
    def fail(*given: Any) -> Any:
        raise ValueError("no good")

    built = builder()
    if what == "count":
        built.stream("in").group_by_key().aggregate(list, fail, name="Failing")
    elif what == "windows":
        sliding = windows.sliding(10, grace_ms=0)
        built.stream("in").group_by_key().windowed_by(sliding).reduce(fail, name="Failing")
    elif what == "group":
        built.table("in").group_by(fail, name="Failing").count()
    elif what == "selector":
        built.stream("in").group_by(fail, name="Failing").count()
    else:
        built.table("in").map_values(fail, name="Failing")
    with TopologyTestDriver(built) as driver:
        with pytest.raises(ValueError, match="no good") as raised:
            pipe(driver, inputs("A:1@1 A:2@2"))
        assert 'processor "Failing"' in reason(raised.value)


# Processors of the user's


class Seen(Processor):
    """Forwards a value if the key had another one before, and keeps it."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.seen = context.get_state_store("Seen", stores.KeyValueStore[str, str])

    def process(self, record: Record) -> None:
        if self.seen.put_if_absent(record.key, record.value) is None:
            self.context.forward(record)


@pytest.mark.parametrize("by_name", [True, False])
def test_processors_use_stores(by_name: bool) -> None:
    """KStreamImplTest.shouldProcess…"""
    built = builder()
    if by_name:
        built.add_state_store(STORE)
    built.stream("in").process(Seen, stores=["Seen" if by_name else STORE]).to("out")
    assert run(built, inputs("A:1@1 A:2@2 B:3@3")) == [("A", "1", 1), ("B", "3", 3)]


class WithPlace(Processor):
    """Puts the place of each record into its value."""

    def process(self, record: Record) -> None:
        context = self.context
        self.context.forward(record.with_value(f"{context.topic} {context.offset}"))


def test_processors_know_the_place_of_each_record() -> None:
    """KStreamImplTest.shouldProcessValues"""
    built = builder()
    built.stream("in").filter(lambda k, v: v != "no").process_values(WithPlace).to("out")
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        topic.pipe_batch([Record("A", "yes", 1), Record("A", "no", 2), Record("A", "yes", 3)])
        assert outputs(driver) == [("A", "in 0", 1), ("A", "in 2", 3)]


class OtherKey(Processor):
    """Forwards records under another key."""

    def process(self, record: Record) -> None:
        self.context.forward(record.with_key("other"))


def test_process_values_refuses_another_key() -> None:
    """KStreamImplTest.shouldProcessValues… (KIP-820)"""
    built = builder()
    built.stream("in").process_values(OtherKey, name="Odd").to("out")
    with pytest.raises(StreamsError, match='step "Odd": process_values forwards records with the'):
        run(built, inputs("A:1@1"))


def test_process_may_change_the_key() -> None:
    built = builder()
    changed = built.stream("in").process(OtherKey)
    changed.group_by_key(name="ByKey").count(name="Counts")
    assert names(built.build())[1] == ["ByKey-repartition"]
