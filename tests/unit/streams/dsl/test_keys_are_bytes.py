"""Keys are their bytes, whatever Python thinks of them.

`1 == True == 1.0` and `0.0 == -0.0`, NaN differs from itself, and a list has no hash. So every step
that keeps or compares keys runs with such keys, once with all of them and once with each alone: the
results must be the same.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kafka_pipeline import (
    Processor,
    Record,
    Serde,
    StreamsBuilder,
    StreamsError,
    Suppress,
    serdes,
    windows,
)
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.testing import TopologyTestDriver
from tests.tiers import long_but_the_first

Raw = tuple[bytes, bytes | None, int]

TIMES = (1_000, 1_004, 1_012, 1_030)
FLUSH = 90_000


class Opaque:
    """A key without a `__eq__`: two of the same bytes are not equal."""

    def __init__(self, data: bytes) -> None:
        self.data = data


OPAQUE: Serde[Opaque] = Serde("opaque", lambda key: key.data, Opaque)

OTHER_NAN = struct.unpack(">d", b"\x7f\xf8\x00\x00\x00\x00\x00\x01")[0]


@dataclass(frozen=True)
class Keys:
    """A serde, keys that Python takes for equal or cannot hash, and one more to end windows."""

    serde: Serde[Any]
    keys: Sequence[Any]
    last: Any


KEYS = {
    "json": Keys(
        serdes.json,
        [1, True, 1.0, 0.0, -0.0, [1], [True], {"a": 1}],
        "last",
    ),
    "float64": Keys(serdes.float64, [math.nan, OTHER_NAN, 0.0, -0.0, 1.0], 2.0),
    "opaque": Keys(OPAQUE, [Opaque(b"a"), Opaque(b"b")], Opaque(b"z")),
}


def joined(left: Any, right: Any) -> str:
    return f"{left}+{right}"


class Same(Processor):
    """Forwards what comes."""

    def process(self, record: Record) -> None:
        self.context.forward(record)


def cogroup(stream: Stream, other: Stream) -> Stream:
    def add(key: Any, value: Any, aggregate: str) -> str:
        return f"{aggregate}{value}"

    first = stream.group_by_key().cogroup(add)
    return first.cogroup(other.group_by_key(), add).aggregate(str).to_stream()


def windowed(of: Any, emit: EmitTime = "on_update") -> Callable[[Stream, Stream], Stream]:
    def step(left: Stream, right: Stream) -> Stream:
        return left.group_by_key().windowed_by(of, emit=emit).reduce(joined).to_stream()

    return step


def suppressed(how: Suppress, of: Any = None) -> Callable[[Stream, Stream], Stream]:
    def step(left: Stream, right: Stream) -> Stream:
        grouped: Any = left.group_by_key()
        table: Table = (grouped if of is None else grouped.windowed_by(of)).reduce(joined)
        return table.suppress(how).to_stream()

    return step


def stream_join(method: str) -> Callable[[Stream, Stream], Stream]:
    def step(left: Stream, right: Stream) -> Stream:
        of = windows.join(before_ms=5, after_ms=5, grace_ms=0)
        found: Stream = getattr(left, method)(right, joined, windows=of)
        return found

    return step


def table_join(method: str, **options: Any) -> Callable[[Stream, Stream], Stream]:
    def step(left: Stream, right: Stream) -> Stream:
        tables = left.to_table(), right.to_table()
        table: Table = getattr(tables[0], method)(tables[1], joined, **options)
        return table.to_stream()

    return step


TUMBLING = windows.tumbling(10, grace_ms=0)
HOPPING = windows.hopping(10, advance_ms=5, grace_ms=0)
SLIDING = windows.sliding(5, grace_ms=0)
SESSION = windows.session(5, grace_ms=0)
CLOSE: EmitTime = "on_close"

STEPS: Mapping[str, Callable[[Stream, Stream], Stream]] = {
    "count": lambda left, right: left.group_by_key().count(value_serde=serdes.json).to_stream(),
    "reduce": lambda left, right: left.group_by_key().reduce(joined).to_stream(),
    "cogroup": cogroup,
    "top_n": lambda left, right: left.group_by_key().top_n(2, by=lambda k, v: v).to_stream(),
    "versioned aggregate": lambda left, right: (
        left.group_by_key().reduce(joined, history_retention_ms=100).to_stream()
    ),
    "group_by": lambda left, right: left.group_by(lambda k, v: k).reduce(joined).to_stream(),
    "repartition": lambda left, right: left.repartition(name="R").to_table().to_stream(),
    "table filter": lambda left, right: left.to_table().filter(lambda k, v: "2" in v).to_stream(),
    "table view": lambda left, right: left.to_table().map_values(str, name="View").to_stream(),
    "versioned table": lambda left, right: left.to_table(history_retention_ms=100).to_stream(),
    "deduplicate": lambda left, right: left.deduplicate(within_ms=10),
    "distinct": lambda left, right: left.distinct(by=lambda key, value: value),
    "distinct by key": lambda left, right: left.distinct(),
    "lag": lambda left, right: left.lag(),
    "process_values": lambda left, right: left.process_values(Same),
    "tumbling": windowed(TUMBLING),
    "tumbling on close": windowed(TUMBLING, CLOSE),
    "hopping": windowed(HOPPING),
    "hopping on close": windowed(HOPPING, CLOSE),
    "sliding": windowed(SLIDING),
    "sliding on close": windowed(SLIDING, CLOSE),
    "session": windowed(SESSION),
    "session on close": windowed(SESSION, CLOSE),
    "suppress": suppressed(Suppress.until_time_limit(50)),
    "suppress tumbling": suppressed(Suppress.until_window_closes(), TUMBLING),
    "suppress sessions": suppressed(Suppress.until_window_closes(), SESSION),
    "join": stream_join("join"),
    "left_join": stream_join("left_join"),
    "outer_join": stream_join("outer_join"),
    "join with self": lambda left, right: left.join(
        left, joined, windows=windows.join(before_ms=5, after_ms=5, grace_ms=0)
    ),
    "join of tables": table_join("join"),
    "left_join of tables": table_join("left_join"),
    "outer_join of tables": table_join("outer_join", name="Joined"),
    "join with a table": lambda left, right: left.left_join(right.to_table(), joined),
    "join with a history": lambda left, right: left.left_join(
        right.to_table(history_retention_ms=100), joined, grace_ms=5
    ),
}


def built(step: Callable[[Stream, Stream], Stream], serde: Serde[Any]) -> StreamsBuilder:
    streams = StreamsBuilder(key_serde=serde, value_serde=serdes.json, allow_generated_names=True)
    left, right = streams.stream("left"), streams.stream("right")
    right.to("right-too")
    step(left, right).to("out")
    return streams


def results(
    step: Callable[[Stream, Stream], Stream], given: Keys, keys: Sequence[Any], in_batches: bool
) -> list[Raw]:
    """Return what comes out, in the order of bytes, without what the last key leads to."""
    with TopologyTestDriver(built(step, given.serde)) as driver:
        topics = [
            driver.create_input_topic(name, given.serde, serdes.json) for name in ("left", "right")
        ]
        for number, time in enumerate(TIMES):
            for side, topic in zip("lr", topics, strict=True):
                records = [Record(key, f"{side}{number % 3}", time) for key in keys]
                if in_batches:
                    topic.pipe_batch(records)
                else:
                    topic.pipe_records(records)
        for topic in topics:
            topic.pipe_input(given.last, "last", FLUSH)
        found = driver.create_output_topic("out", serdes.bytes).read_records()
    last = given.serde.serialize(given.last)
    raw = [(each.key, each.value, each.timestamp) for each in found]
    return sorted((each for each in raw if not each[0].startswith(last)), key=repr)


@pytest.mark.parametrize("in_batches", [False, True], ids=["records", "batches"])
@pytest.mark.parametrize("keys", long_but_the_first(KEYS, 2))
@pytest.mark.parametrize("step", STEPS)
def test_each_key_has_the_results_that_it_has_alone(step: str, keys: str, in_batches: bool) -> None:
    given = KEYS[keys]
    alone = [results(STEPS[step], given, [key], in_batches) for key in given.keys]
    assert all(alone), "a step without results proves nothing"
    together = results(STEPS[step], given, given.keys, in_batches)
    assert together == sorted(itertools.chain.from_iterable(alone), key=repr)


@pytest.mark.parametrize("keys", KEYS)
def test_a_global_table_tells_keys_apart(keys: str) -> None:
    given = KEYS[keys]
    streams = StreamsBuilder(key_serde=given.serde, value_serde=serdes.json)
    table = streams.global_table("global", name="Global")
    stream = streams.stream("in")
    stream.join(table, lambda own, found: found, key=lambda key, value: key).to("out")
    with TopologyTestDriver(streams) as driver:
        followed = driver.create_input_topic("global", given.serde, serdes.json)
        topic = driver.create_input_topic("in", given.serde, serdes.json)
        for number, key in enumerate(given.keys):
            followed.pipe_input(key, number)
        topic.pipe_batch([Record(key, "", 0) for key in given.keys])
        found = driver.create_output_topic("out", value_serde=serdes.json).read_records()
    assert [record.value for record in found] == [*range(len(given.keys))]


def pairs() -> list[Any]:
    return [
        pytest.param(keys.serde, a, b, id=f"{name}: {a!r} to {b!r}" if name != "opaque" else name)
        for name, keys in KEYS.items()
        for a, b in itertools.permutations(keys.keys, 2)
    ]


@pytest.mark.parametrize(("serde", "before", "after"), pairs())
def test_a_row_that_moves_to_another_group_leaves_its_former_one(
    serde: Serde[Any], before: Any, after: Any
) -> None:
    """KAFKA-12446: the group is compared by its bytes."""
    groups = [before, after]
    streams = StreamsBuilder(key_serde=serde, value_serde=serdes.json, allow_generated_names=True)
    table = streams.table("in", key_serde=serdes.string, value_serde=serdes.json)
    grouped: Any = table.group_by(
        lambda key, value: (groups[value], value), value_serde=serdes.json
    )
    grouped.count().to_stream().to("out")
    with TopologyTestDriver(streams) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        topic.pipe_input("row", 0)
        topic.pipe_input("row", 1)
        found = driver.create_output_topic("out", value_serde=serdes.int64).read_key_values()
    a, b = map(serde.serialize, groups)
    assert dict(found) == {a: 0, b: 1}


def test_a_row_that_stays_in_its_group_changes_it_once() -> None:
    """KIP-904; NaN and keys without `__eq__` are the groups that they were, too."""
    for keys in KEYS.values():
        for key in keys.keys:
            streams = StreamsBuilder(
                key_serde=keys.serde, value_serde=serdes.json, allow_generated_names=True
            )
            data = keys.serde.serialize(key)
            table = streams.table("in", key_serde=serdes.string, value_serde=serdes.json)

            def again(row: Any, value: Any, keys: Keys = keys, data: bytes = data) -> Any:
                return keys.serde.deserialize(data), value

            grouped: Any = table.group_by(again)
            grouped.count().to_stream().to("out")
            with TopologyTestDriver(streams) as driver:
                topic = driver.create_input_topic("in", serdes.string, serdes.json)
                topic.pipe_input("row", 0)
                topic.pipe_input("row", 1)
                found = driver.create_output_topic("out", value_serde=serdes.int64)
                assert found.read_key_values() == [(data, 1), (data, 1)]


def test_a_group_that_cannot_be_written_names_the_step() -> None:
    streams = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    table = streams.table("in", name="Rows", value_serde=serdes.json)
    grouped: Any = table.group_by(lambda key, value: (value, value), name="Groups")
    grouped.count(name="Counts").to_stream().to("out")
    with TopologyTestDriver(streams) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        topic.pipe_input("row", "text")
        with pytest.raises(StreamsError, match='function of group_by "Groups" returned'):
            topic.pipe_input("row", 7)


@pytest.mark.parametrize(
    ("serde", "left", "right"),
    [
        pytest.param(k.serde, a, b)
        for k in KEYS.values()
        for a, b in itertools.permutations(k.keys, 2)
    ],
)
def test_a_foreign_key_join_tells_rows_and_foreign_keys_apart(
    serde: Serde[Any], left: Any, right: Any
) -> None:
    """Each of two rows refers to the other's key, and then to its own."""
    keys = [left, right]
    streams = StreamsBuilder(key_serde=serde, value_serde=serdes.json, allow_generated_names=True)
    rows, others = streams.table("left"), streams.table("right")
    rows.join(others, joined, foreign_key=lambda value: keys[value]).to_stream().to("out")
    with TopologyTestDriver(streams) as driver:
        to_right = driver.create_input_topic("right", serde, serdes.json)
        to_left = driver.create_input_topic("left", serde, serdes.json)
        out = driver.create_output_topic("out", value_serde=serdes.json)
        for index, key in enumerate(keys):
            to_right.pipe_input(key, f"v{index}")
        a, b = map(serde.serialize, keys)
        for index, key in enumerate(keys):
            to_left.pipe_input(key, 1 - index)
        assert out.read_key_values() == [(a, "1+v1"), (b, "0+v0")]
        for index, key in enumerate(keys):
            to_left.pipe_input(key, index)
        assert out.read_key_values() == [(a, "0+v0"), (b, "1+v1")]
        to_right.pipe_input(left, "new")
        assert out.read_key_values() == [(a, "0+new")]


class To(Processor):
    """Forwards a record under another key."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self._change = change

    def process(self, record: Record) -> None:
        key = self._change(record.key)
        self.context.forward(Record(key, record.value, record.timestamp))


def emptied(key: list[int]) -> list[int]:
    key.clear()
    return key


@pytest.mark.parametrize(
    ("key", "change", "is_kept"),
    [
        (1, lambda key: True, False),
        (1, float, False),
        (0.0, lambda key: -key, False),
        ([1], emptied, False),
        ([1], lambda key: [*key], True),
        ({"a": 1}, lambda key: {"a": True}, False),
        ("a", lambda key: "a", True),
        (None, lambda key: None, True),
        (None, lambda key: "a", False),
        ("a", lambda key: None, False),
    ],
)
def test_process_values_compares_the_bytes_of_keys(
    key: Any, change: Callable[[Any], Any], is_kept: bool
) -> None:
    streams = StreamsBuilder(key_serde=serdes.json, value_serde=serdes.json)
    streams.stream("in").process_values(lambda: To(change), name="P").to("out")
    with TopologyTestDriver(streams) as driver:
        topic = driver.create_input_topic("in", serdes.json, serdes.json)
        if is_kept:
            topic.pipe_input(key, 7)
            assert driver.create_output_topic("out").size == 1
        else:
            with pytest.raises(StreamsError, match="with the key of the record"):
                topic.pipe_input(key, 7)


def test_process_values_takes_keys_that_are_never_written() -> None:
    streams = StreamsBuilder(value_serde=serdes.json)
    pairs = streams.stream("in").select_key(lambda key, value: (value, key))
    kept = pairs.process_values(lambda: To(lambda key: (*key,)), name="P")
    kept.map(lambda key, value: (key[1], value), key_serde=serdes.bytes).to("out")
    with TopologyTestDriver(streams) as driver:
        driver.create_input_topic("in", value_serde=serdes.json).pipe_input(b"k", 7)
        assert driver.create_output_topic("out").read_key_values() == [(b"k", b"7")]
