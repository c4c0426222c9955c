"""Steps that are refused, and what errors say of steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args

import pytest

from kafka_pipeline import (
    InvalidArgumentError,
    Processor,
    SerializationError,
    StreamsBuilder,
    TopologyError,
    serdes,
    stores,
    windows,
)
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.engine.user_errors import reason
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.notation import inputs
from tests.unit.streams.dsl.running import builder, named, pipe, run

STORE = stores.key_value("Seen", serdes.string, serdes.string)


def by_value(key: str, value: str) -> str:
    return value


def three(key: str, value: str, total: str) -> str:
    return total + value


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
    "an empty name of a source": (
        lambda b, s: b.stream("other", name=""),
        'stream "": its name is empty',
    ),
    "an empty name of a store": (
        lambda b, s: s.group_by_key().count(name=""),
        'count "": its name is empty',
    ),
    "an empty name of a step with a store of its own": (
        lambda b, s: s.distinct(name=""),
        'the name "" of a store is empty',
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
        'filter "Filter" takes a function of key and value, or a column expression, not 7',
    ),
    "not a serde": (
        lambda b, s: s.map_values(str, name="Text", value_serde="string"),  # type: ignore[call-overload]
        'map_values "Text": the value_serde is a str: use one of kafka_pipeline.serdes',
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
    "split with a branch that is not a function": (
        lambda b, s: s.split({"a": 7}),  # type: ignore[dict-item]
        'the branch "a" of split takes a function of key and value, or a column expression, not 7',
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
    "stores that are not a list": (
        lambda b, s: s.process(Processor, stores=STORE),  # type: ignore[call-overload]
        "stores is a list of definitions or names of stores",
    ),
    "windows that are none": (
        lambda b, s: s.group_by_key().windowed_by(10),  # type: ignore[arg-type]
        "windowed_by takes what windows.tumbling, hopping, calendar, sliding or session return, "
        "not 10",
    ),
    "emit that is none": (
        lambda b, s: s.group_by_key().windowed_by(
            windows.tumbling(1, grace_ms=0),
            emit="close",  # type: ignore[arg-type]
        ),
        """windowed_by has emit='close': give "on_update" or "on_close\"""",
    ),
    "windows that close after a pause, without results on close": (
        lambda b, s: s.group_by_key().windowed_by(
            windows.tumbling(1, grace_ms=0, close_after_idle_ms=5)
        ),
        'close_after_idle_ms, which matters only with emit="on_close"',
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
            .aggregate(str, name="Twice")
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
        "windows.tumbling has size_ms=0",
    ),
    "a gap of 0": (lambda: windows.session(0, grace_ms=0), "windows.session has gap_ms=0"),
    "a negative grace": (
        lambda: windows.sliding(1, grace_ms=-1),
        "windows.sliding has grace_ms=-1: give a timedelta, or a whole number of milliseconds",
    ),
    "an advance above the size": (
        lambda: windows.hopping(5, advance_ms=6, grace_ms=0),
        "windows.hopping has an advance_ms of 6, above its size_ms of 5",
    ),
    "an unknown period": (
        lambda: windows.calendar("2 days", tz="UTC", grace_ms=0),
        'windows.calendar: "2 days" is not a period: write "1 day", "1 week" or "1 month"',
    ),
    "an unknown zone": (
        lambda: windows.calendar("1 day", tz="Berlin", grace_ms=0),
        'windows.calendar: "Berlin" is not a time zone',
    ),
    "a zone that is not a string": (
        lambda: windows.calendar("1 day", tz=2, grace_ms=0),  # type: ignore[arg-type]
        "windows.calendar: 2 is not a string",
    ),
    "a period that is not one of keys": (
        lambda: serdes.calendar_windowed(serdes.string, "day", tz="UTC"),
        'calendar_windowed: "day" is not a period',
    ),
    "a fraction": (
        lambda: windows.tumbling(1.5, grace_ms=0),  # type: ignore[arg-type]
        "windows.tumbling has size_ms=1.5",
    ),
    "a pause of 0": (
        lambda: windows.tumbling(1, grace_ms=0, close_after_idle_ms=0),
        "windows.tumbling has close_after_idle_ms=0",
    ),
    "no size of the windows": (
        lambda: serdes.time_windowed(serdes.string, size_ms=-1),
        "time_windowed has size_ms=-1",
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


def test_streams_that_nobody_uses_are_named() -> None:
    built = StreamsBuilder()
    built.stream("in", name="Orders")
    built.stream("prices", name="Prices")
    for use in (built.describe, built.mermaid, built.build):
        with pytest.raises(TopologyError, match="nothing is done with what Orders, Prices reads"):
            use()


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


@pytest.mark.parametrize("emit", get_args(EmitTime))
def test_a_serde_that_does_not_fit_windows_is_named_with_its_step(emit: EmitTime) -> None:
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
