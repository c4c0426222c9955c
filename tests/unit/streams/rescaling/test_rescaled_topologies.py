"""Topologies of the DSL have the same results when the number of their tasks changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args

import pytest

from kafka_pipeline import StreamsBuilder, Suppress, serdes, windows
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams.dsl.window_aggregates import Windows
from kafka_pipeline.streams.dsl.windows import SessionWindows
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.pipeline.kinds.kind import logged
from kafka_pipeline.streams.stores import Windowed
from kafka_pipeline.streams.stores.layout import record_key
from tests.tiers import long_but_the_first
from tests.unit.streams.dsl.running import builder
from tests.unit.streams.rescaling.sharded import Piped, Sharded

KEYS = [b"key-%d" % number for number in range(12)] + [b""]
HOUR_MS = 3_600_000
OCTOBER_MS = 1_729_720_800_000
"""2024-10-24 in Berlin, three days before summer time ends."""
STEP_MS = 10
JITTER_MS = 5
ENDS = (6, 9, 12)
"""The rounds after which the number of tasks may change."""
CHANGES = [[3, 5], [2, 4]]

Result = tuple[bytes | None, bytes | None]
Make = Callable[[StreamsBuilder], None]


def add(key: str, value: str, found: list[str]) -> list[str]:
    return sorted([*found, value])


def merge(key: str, a: list[str], b: list[str]) -> list[str]:
    return sorted([*a, *b])


def plain(key: Windowed[str], value: object) -> tuple[str, object]:
    return f"{key.key} {key.window.start} {key.window.end}", value


def both(a: object, b: object) -> list[object]:
    return [a, b]


def windowed(kind: Windows, emit: EmitTime) -> Make:
    def make(built: StreamsBuilder) -> None:
        merger = merge if isinstance(kind, SessionWindows) else None
        stream = built.stream("in", value_serde=serdes.string)
        table = stream.group_by_key().windowed_by(kind, emit=emit)
        found = table.aggregate(list, add, merger=merger, name="W")
        found.to_stream().map(plain).to("out")

    return make


def suppressed(built: StreamsBuilder) -> None:
    stream = built.stream("in", value_serde=serdes.string)
    kind = windows.hopping(40, advance_ms=20, grace_ms=10)
    table = stream.group_by_key().windowed_by(kind).aggregate(list, add, name="W")
    final = table.suppress(Suppress.until_window_closes(), name="S")
    # A view in a store of its own has the keys with their windows.
    final.map_values(len, name="V").to_stream().map(plain).to("out")


def sessions_suppressed(built: StreamsBuilder) -> None:
    stream = built.stream("in", value_serde=serdes.string)
    kind = windows.session(15, grace_ms=10)
    table = stream.group_by_key().windowed_by(kind).aggregate(list, add, merger=merge, name="W")
    final = table.suppress(Suppress.until_window_closes(), name="S")
    final.to_stream().map(plain).to("out")


def by_time(built: StreamsBuilder) -> None:
    table = built.stream("in").to_table(name="T")
    table.suppress(Suppress.until_time_limit(30), name="S").to_stream().to("out")


def versioned(built: StreamsBuilder) -> None:
    table = built.stream("right", value_serde=serdes.string).to_table(
        name="T", history_retention_ms=100, value_serde=serdes.string
    )
    stream = built.stream("in", value_serde=serdes.string)
    stream.left_join(table, both, grace_ms=25, name="J").to("out")


def joined(method: str) -> Make:
    def make(built: StreamsBuilder) -> None:
        left = built.stream("in", value_serde=serdes.string)
        right = built.stream("right", value_serde=serdes.string)
        span = windows.join(before_ms=12, after_ms=8, grace_ms=10)
        getattr(left, method)(right, both, span, name="J").to("out")

    return make


def joined_with_itself(built: StreamsBuilder) -> None:
    stream = built.stream("in", value_serde=serdes.string)
    stream.join(stream, both, windows.join(before_ms=12, after_ms=8, grace_ms=10), name="J").to(
        "out"
    )


def tables(built: StreamsBuilder) -> None:
    left = built.table("in", value_serde=serdes.string, name="L")
    right = built.table("right", value_serde=serdes.string, name="R")
    left.left_join(right, both, name="J").to_stream().to("out")


def foreign_key(built: StreamsBuilder) -> None:
    left = built.table("in", value_serde=serdes.string, name="L")
    right = built.table("right", value_serde=serdes.string, name="R")

    def other(value: str) -> str:
        return f"key-{int(value) % 5}"

    left.left_join(right, both, foreign_key=other, name="F").to_stream().to("out")


def repartitioned(built: StreamsBuilder) -> None:
    stream = built.stream("in", value_serde=serdes.string)
    grouped = stream.group_by(
        lambda key, value: f"g{int(value) % 4}", name="G", value_serde=serdes.string
    )
    grouped.windowed_by(windows.tumbling(30, grace_ms=10)).aggregate(
        list, add, name="W"
    ).to_stream().map(plain).to("out")


def table_of_windows(built: StreamsBuilder) -> None:
    """Windows that go through a topic: there, the whole key decides."""
    stream = built.stream("in", value_serde=serdes.string)
    table = stream.group_by_key().windowed_by(windows.tumbling(30, grace_ms=10)).count(name="W")
    keys = serdes.time_windowed(serdes.string, size_ms=30)
    again = table.to_stream().repartition(name="R", key_serde=keys, value_serde=serdes.int64)
    kept = again.to_table(name="T", key_serde=keys, value_serde=serdes.int64)
    kept.to_stream().map(plain).to("out")


def of_stream(use: Callable[..., object]) -> Make:
    def make(built: StreamsBuilder) -> None:
        use(built.stream("in", value_serde=serdes.string)).to("out")  # type: ignore[attr-defined]

    return make


def cogrouped(built: StreamsBuilder) -> None:
    one = built.stream("in", value_serde=serdes.string).group_by_key()
    two = built.stream("right", value_serde=serdes.string).group_by_key()
    found = one.cogroup(add).cogroup(two, add).windowed_by(windows.tumbling(30, grace_ms=10))
    found.aggregate(list, name="C").to_stream().map(plain).to("out")


def counts(built: StreamsBuilder) -> None:
    built.stream("in").group_by_key().count(name="C").to_stream().to("out")


def best(built: StreamsBuilder) -> None:
    stream = built.stream("in", value_serde=serdes.string)
    table = stream.group_by_key().top_n(2, by=lambda key, value: int(value), name="B")
    table.to_stream().to("out")


WINDOWS: Mapping[str, Windows] = {
    "tumbling": windows.tumbling(30, grace_ms=10),
    "hopping": windows.hopping(30, advance_ms=10, grace_ms=10),
    "sliding": windows.sliding(15, grace_ms=10),
    "session": windows.session(12, grace_ms=10),
}
# Days of 24 and 25 hours: a unit of time is an hour then.
DAYS = windows.calendar("1 day", tz="Europe/Berlin", grace_ms=10 * HOUR_MS)
BY_DAY = {emit: windowed(DAYS, emit) for emit in get_args(EmitTime)}
TOPOLOGIES: Mapping[str, Make] = {
    **{
        f"{name} {emit}": windowed(kind, emit)
        for name, kind in WINDOWS.items()
        for emit in get_args(EmitTime)
    },
    **{f"calendar {emit}": made for emit, made in BY_DAY.items()},
    "suppressed": suppressed,
    "sessions suppressed": sessions_suppressed,
    "suppressed by time": by_time,
    "versioned": versioned,
    **{method: joined(method) for method in ("join", "left_join", "outer_join")},
    "joined with itself": joined_with_itself,
    "tables": tables,
    "foreign key": foreign_key,
    "repartitioned": repartitioned,
    "table of windows": table_of_windows,
    "deduplicated": of_stream(
        lambda s: s.deduplicate(within_ms=25, name="D", by=lambda key, value: int(value) % 3)
    ),
    "distinct": of_stream(lambda s: s.distinct(name="D", by=lambda key, value: int(value) % 9)),
    "lag": of_stream(lambda s: s.lag(2, name="G")),
    "cogrouped": cogrouped,
    "counts": counts,
    "best": best,
}


def by_key(results: Sequence[Result]) -> object:
    return sorted(results, key=repr)


def last_by_key(results: Sequence[Result]) -> object:
    return dict(results)


def count_by_key(results: Sequence[Result]) -> object:
    return Counter(key for key, _ in results)


# When updates go out, and what a table has by then, is a matter of all keys of a task.
COMPARED: Mapping[Make, Callable[[Sequence[Result]], object]] = {
    by_time: last_by_key,
    versioned: count_by_key,
}


def rounds(topics: tuple[str, ...], seed: int) -> Iterator[list[Piped]]:
    """Yield records of about the same time; ahead of a change, all tasks have the same."""
    chance = random.Random(seed)
    number = 0
    for turn in range(1, 19):
        found: list[Piped] = []
        for key in KEYS:
            for topic in topics:
                number += 1
                if chance.random() < 0.6:
                    time = turn * STEP_MS - chance.randrange(JITTER_MS)
                    found.append((topic, key, b"%d" % number, time))
        chance.shuffle(found)
        if turn in ENDS:
            found += [(topic, key, b"1", turn * STEP_MS) for key in KEYS for topic in topics]
        yield found


def run(make: Make, counts: list[int], seed: int) -> Sharded:
    """Return a topology after its records; the number of tasks changes in between."""
    built = builder(value_serde=serdes.json)
    make(built)
    topology = built.build()
    topics = {topic for group in topology.groups for topic in group.in_topics} & {"in", "right"}
    parts = list(rounds(tuple(sorted(topics)), seed))
    sharded = Sharded(topology, counts[0])
    for number, part in enumerate(parts):
        at = number * len(counts) // len(parts)
        if sharded.count != counts[at]:
            sharded = sharded.rescaled(counts[at])
        sharded.pipe(timed(make, part))
    last = [(topic, key, b"0", time) for time in (1000, 2000) for key in KEYS for topic in topics]
    sharded.pipe(timed(make, last))
    return sharded


def timed(make: Make, part: Sequence[Piped]) -> Sequence[Piped]:
    """Return the records with the times that a topology needs."""
    if make not in BY_DAY.values():
        return part
    return [(topic, key, value, OCTOBER_MS + HOUR_MS * time) for topic, key, value, time in part]


@pytest.mark.parametrize("change", long_but_the_first(CHANGES), ids=str)
@pytest.mark.parametrize("make", TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_results_do_not_depend_on_the_number_of_tasks(make: Make, change: list[int]) -> None:
    expected = run(make, [change[0]], sum(change))
    found = run(make, [*change, change[0]], sum(change))
    assert expected.results
    what = COMPARED.get(make, by_key)
    assert what(found.results) == what(expected.results)
    check_places(found)


def check_places(sharded: Sharded) -> None:
    """Check that each entry is in the task of its key."""
    for group in sharded.topology.groups:
        for store in logged(group.stores):
            if store.spreading.rule in ("key", "subscriptions"):
                for number in range(sharded.count):
                    for key in sharded.logs[group.name].last(store.name, number):
                        owner = record_key(key, store.spreading)
                        assert default_partition(owner, sharded.count) == number, store.name
