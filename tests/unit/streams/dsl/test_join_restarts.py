"""Results of joins and of suppress depend neither on restarts, nor on records that fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_pipeline import StreamsBuilder, Suppress, serdes, windows
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.engine.node_group import NodeGroup
from tests.tiers import long_but_the_first
from tests.unit.streams.dsl.running import builder
from tests.unit.streams.dsl.test_stream_joins import joiner
from tests.unit.streams.dsl.test_window_restarts import cut, records, refuse, run
from tests.unit.streams.nodes import Nodes

Build = Callable[[Stream], Stream]
WINDOW = windows.join(before_ms=10, after_ms=5, grace_ms=5)


def odd(key: str, value: str) -> bool:
    return not value.isdigit() or int(value) % 2 == 1


def parts(stream: Stream) -> tuple[Stream, Stream]:
    return stream.filter(odd), stream.filter_not(odd)


def with_grace(stream: Stream) -> Stream:
    left, right = parts(stream)
    table = right.to_table(name="Table", history_retention_ms=50)
    return left.left_join(table, joiner, grace_ms=6, name="Joined")


def of_tables(stream: Stream) -> Stream:
    left, right = parts(stream)
    tables = left.to_table(name="Left"), right.to_table(name="Right")
    return tables[0].outer_join(tables[1], joiner, name="Joined").to_stream()


def counts(stream: Stream, suppress: Suppress) -> Stream:
    windowed = stream.group_by_key().windowed_by(windows.tumbling(10, grace_ms=5))
    table = windowed.count(name="Counts", value_serde=serdes.json)
    kept = table.suppress(suppress, name="Kept").to_stream()
    return kept.map(lambda key, value: (f"{key.key} {key.window.end}", str(value)))


BUILDS: dict[str, Build] = {
    "left join of streams": lambda s: parts(s)[0].left_join(
        parts(s)[1], joiner, WINDOW, name="Joined"
    ),
    "outer join of streams": lambda s: parts(s)[0].outer_join(
        parts(s)[1], joiner, WINDOW, name="Joined"
    ),
    "self-join": lambda s: s.join(s, joiner, WINDOW, name="Joined"),
    "join with a table that waits": with_grace,
    "outer join of tables": of_tables,
    "suppress until windows close": lambda s: counts(s, Suppress.until_window_closes()),
    "suppress for a time": lambda s: counts(s, Suppress.until_time_limit(7)),
    "suppress few": lambda s: counts(s, Suppress.until_time_limit(50, max_records=2)),
}


def group(build: Build) -> NodeGroup:
    built: StreamsBuilder = builder()
    kept = built.stream("in").filter(lambda key, value: value != "dropped")
    build(kept).to("out")
    # It gets its records after the joins, which must then undo what they did.
    kept.for_each(refuse)
    (found,) = built.build().groups
    return found


@pytest.mark.parametrize("seed", long_but_the_first(range(4), 2))
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_results_are_the_same(build: Build, seed: int) -> None:
    node_group = group(build)
    # A record that fails must leave no trace: it is as if it had never reached the step.
    expected = run(Nodes(node_group), cut(records(seed, bad=False), [1]), None)
    assert expected
    for sizes, is_restarted in (([1], False), ([5, 2, 9], True), ([60], False)):
        given = cut(records(seed, bad=True), sizes)
        found = run(Nodes(node_group), given, node_group if is_restarted else None)
        assert found == expected, sizes
